package signature

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// Packets of OpenPGP. Source: RFC 9580, section 5.
const (
	tagSignature     = 2
	tagSecretKey     = 5
	tagPublicKey     = 6
	tagSecretSubkey  = 7
	tagUserID        = 13
	tagPublicSubkey  = 14
	tagUserAttribute = 17
)

const (
	smallestRSA = 2048 // bits
	largestRSA  = 8192
	maxUserID   = 4096 // bytes; each signature of a user ID hashes all of it
)

// pgpKey is a primary key with its user IDs and subkeys.
type pgpKey struct {
	*openpgp.Entity // nil when refused is set and the key could not be parsed
	primary         *packet.PublicKey
	refused         *Error // why all its signatures are refused; nil = they are not
}

// splitKeys splits a block into the packets of each primary key. It leaves out what
// does not matter for signatures, which the parser may not know: subkeys for
// encryption, pictures, and the signatures about them. parts are keys, subkeys and names.
func splitKeys(body []byte) (keys [][]*packet.OpaquePacket, parts int, err error) {
	reader, skip := packet.NewOpaqueReader(bytes.NewReader(body)), false
	for {
		p, err := reader.Next()
		switch {
		case errors.Is(err, io.EOF) && p == nil:
			return keys, parts, nil
		case err != nil:
			return nil, 0, errors.New("it is no data of OpenPGP, or ends in the middle of a packet")
		case p.Tag == tagPublicKey || p.Tag == tagSecretKey:
			keys, skip = append(keys, nil), false
		case p.Tag == tagPublicSubkey || p.Tag == tagSecretSubkey:
			skip = len(p.Contents) < 6 || !packet.PublicKeyAlgorithm(p.Contents[5]).CanSign()
		case p.Tag == tagUserID || p.Tag == tagUserAttribute:
			if skip = p.Tag == tagUserAttribute; !skip && len(p.Contents) > maxUserID {
				return nil, 0, fmt.Errorf("the name of an owner is longer than %d bytes", maxUserID)
			}
		case p.Tag != tagSignature:
			continue
		}
		if p.Tag != tagSignature {
			parts++
		}
		if len(keys) == 0 {
			return nil, 0, errors.New("a signature or name comes before its key; import a revocation with gpg and export the key again")
		}
		if !skip {
			keys[len(keys)-1] = append(keys[len(keys)-1], p)
		}
	}
}

// newPGPKey parses the packets of a key. One that can be named and not used is refused
// when it has signed, so that other keys can still be used.
func newPGPKey(packets []*packet.OpaquePacket) (*pgpKey, error) {
	k := &pgpKey{}
	first, err := packets[0].Parse()
	switch first := first.(type) {
	case *packet.PublicKey:
		k.primary = first
	case *packet.PrivateKey:
		k.primary = &first.PublicKey
	default:
		return nil, fmt.Errorf("a key in it is damaged or not supported: %w", err)
	}
	if k.refused = weakPGP(k.primary); k.refused != nil {
		return k, nil
	}
	var all bytes.Buffer
	revocations := 0
	for _, p := range packets {
		if err := p.Serialize(&all); err != nil {
			return nil, err
		}
		if p.Tag == tagSignature && revokes(p.Contents) {
			revocations++
		}
	}
	if k.Entity, err = openpgp.ReadEntity(packet.NewReader(&all)); err == nil {
		revocations -= len(k.Revocations)
		for _, sub := range k.Subkeys {
			revocations -= len(sub.Revocations)
		}
	}
	switch {
	// The parser ignores a revocation that it cannot verify. It may be good: other keys
	// that may revoke this one are named in places that are not read.
	case revocations > 0:
		k.refused = refuse(Revoked, "is signed by %s, a key with a revocation that cannot be verified: "+
			"remove it from the key, or the key from those that may sign", keyName(k.primary))
	case err != nil:
		k.refused = refuse(Unusable, "is signed by %s, a key without valid signatures about itself: %w", keyName(k.primary), err)
	}
	return k, nil
}

// revokes reports whether a signature revokes a key or subkey. One of an unknown version may revoke anything.
func revokes(body []byte) bool {
	at := 1
	if len(body) > 0 && body[0] <= 3 {
		at = 2
	}
	if len(body) <= at || body[0] < 2 || body[0] > 6 {
		return true
	}
	kind := packet.SignatureType(body[at])
	return kind == packet.SigTypeKeyRevocation || kind == packet.SigTypeSubkeyRevocation
}

// add adds a key. Of several copies of a key the newest is used, and a revocation of the
// key or a subkey in any of them counts.
func (k *Keys) add(key *pgpKey) {
	i := slices.IndexFunc(k.pgp, func(old *pgpKey) bool { return bytes.Equal(old.primary.Fingerprint, key.primary.Fingerprint) })
	if i < 0 {
		k.pgp = append(k.pgp, key)
		return
	}
	newest, other := k.pgp[i], key
	if newest.newest().Before(other.newest()) {
		newest, other = other, newest
	}
	k.pgp[i] = newest
	if other.refused != nil && other.refused.Kind == Revoked {
		newest.refused = other.refused
	}
	if other.Entity == nil || newest.Entity == nil {
		return
	}
	newest.Revocations = append(newest.Revocations, other.Revocations...)
	for _, sub := range other.Subkeys {
		for j, same := range newest.Subkeys {
			if same.PublicKey.KeyId == sub.PublicKey.KeyId {
				newest.Subkeys[j].Revocations = append(same.Revocations, sub.Revocations...)
			}
		}
	}
}

// newest returns when the key last said something about itself.
func (k *pgpKey) newest() (at time.Time) {
	for _, part := range k.parts() {
		if part.SelfSignature != nil && part.SelfSignature.CreationTime.After(at) {
			at = part.SelfSignature.CreationTime
		}
	}
	return at
}

// parts returns the primary key and the subkeys that can sign.
func (k *pgpKey) parts() []openpgp.Key {
	if k.Entity == nil {
		return nil
	}
	self, _ := k.PrimarySelfSignature()
	all := []openpgp.Key{{PublicKey: k.PrimaryKey, PrivateKey: k.PrivateKey, SelfSignature: self, Revocations: k.Revocations}}
	for _, s := range k.Subkeys {
		all = append(all, openpgp.Key{PublicKey: s.PublicKey, PrivateKey: s.PrivateKey, SelfSignature: s.Sig, Revocations: s.Revocations})
	}
	return all
}

// fingerprint names the key in results.
func (k *pgpKey) fingerprint() string {
	return strings.ToUpper(hex.EncodeToString(k.primary.Fingerprint))
}

func keyName(key *packet.PublicKey) string { return fmt.Sprintf("0x%016x", key.KeyId) }

// expires returns when a part of the key expires; zero = never.
func (k *pgpKey) expires(part openpgp.Key) time.Time {
	self, _ := k.PrimarySelfSignature()
	first := endOf(k.PrimaryKey.CreationTime, self.KeyLifetimeSecs)
	if end := endOf(part.PublicKey.CreationTime, part.SelfSignature.KeyLifetimeSecs); first.IsZero() || !end.IsZero() && end.Before(first) {
		return end
	}
	return first
}

// endOf returns the end of a lifetime; zero = never.
func endOf(created time.Time, seconds *uint32) time.Time {
	if seconds == nil || *seconds == 0 {
		return time.Time{}
	}
	return created.Add(time.Duration(*seconds) * time.Second)
}

func over(end, now time.Time) bool { return !end.IsZero() && !now.Before(end) }

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// mails returns the valid mail addresses of the owner, the primary one first.
func (k *pgpKey) mails(now time.Time) (primary []string) {
	var others []string
	for _, name := range slices.Sorted(maps.Keys(k.Identities)) {
		id := k.Identities[name]
		if id.SelfSignature == nil || len(id.Revocations) > 0 || over(endOf(id.SelfSignature.CreationTime, id.SelfSignature.SigLifetimeSecs),
			now) {
			continue
		}
		mail := name
		if open := strings.LastIndexByte(name, '<'); open >= 0 && strings.HasSuffix(name, ">") {
			mail = name[open+1 : len(name)-1]
		}
		if id.SelfSignature.IsPrimaryId != nil && *id.SelfSignature.IsPrimaryId {
			primary = append(primary, mail)
		} else {
			others = append(others, mail)
		}
	}
	return append(primary, others...)
}
