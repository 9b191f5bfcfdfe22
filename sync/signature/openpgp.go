package signature

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

func (k *Keys) verifyPGP(text, armored []byte, c Claim) (Signer, error) {
	sig, err := parsePGPSignature(armored)
	if err != nil {
		return Signer{}, err
	}
	found := k.unknown(fmt.Sprintf("0x%016x", *sig.IssuerKeyId))
	for _, key := range k.pgp {
		if key.refused != nil && key.primary.KeyId == *sig.IssuerKeyId {
			found = key.refused
		}
		for _, part := range key.parts() {
			if part.PublicKey.KeyId != *sig.IssuerKeyId {
				continue
			}
			signer, e := key.verify(part, sig, text, c)
			if e == nil {
				return signer, nil
			}
			found = e
		}
	}
	return Signer{}, found
}

// parsePGPSignature parses an armored signature, and refuses what is not one signature of a
// document with a strong hash. The library has switches for hashes in its configuration, but does
// not look at them here.
func parsePGPSignature(armored []byte) (*packet.Signature, error) {
	body, rest, err := unarmor(armored, pgpSignature)
	if err != nil {
		return nil, refuse(Malformed, "has an OpenPGP signature that cannot be read: %w", err)
	}
	reader := bytes.NewReader(body)
	p, err := packet.NewOpaqueReader(reader).Next()
	switch {
	case err != nil:
		return nil, refuse(Malformed, "has an OpenPGP signature that cannot be read: it ends in the middle of a packet")
	case p.Tag != tagSignature || len(p.Contents) < 4:
		return nil, refuse(Malformed, "has an OpenPGP signature that holds something else")
	case len(rest) > 0 || reader.Len() > 0:
		return nil, refuse(Malformed, "has more than one OpenPGP signature")
	case p.Contents[0] > 3 && p.Contents[3] <= 3: // MD5, SHA-1, RIPEMD-160
		return nil, refuse(Weak, "has a signature with %s, which is too weak", [4]string{"no hash", "MD5", "SHA-1", "RIPEMD-160"}[p.Contents[3]])
	}
	parsed, err := p.Parse()
	if err != nil {
		kind := Malformed
		if _, ok := errors.AsType[pgperrors.UnsupportedError](err); ok {
			kind = Unsupported
		}
		return nil, refuse(kind, "has an OpenPGP signature that cannot be read: %w", err)
	}
	sig, ok := parsed.(*packet.Signature)
	switch {
	case !ok:
		return nil, refuse(Malformed, "has an OpenPGP signature that holds something else")
	case sig.SigType != packet.SigTypeBinary:
		return nil, refuse(Unsupported, "has an OpenPGP signature that is not one of plain bytes")
	case sig.IssuerKeyId == nil:
		return nil, refuse(Malformed, "has an OpenPGP signature that does not name its key")
	case critical(sig):
		return nil, refuse(Unsupported, "has an OpenPGP signature with an unknown condition")
	}
	return sig, nil
}

// critical reports whether a signature must not be used by a program that does not know one of its
// notations.
func critical(sig *packet.Signature) bool {
	return slices.ContainsFunc(sig.Notations, func(n *packet.Notation) bool { return n.IsCritical })
}

// verifies reports whether a signature is one of a text by a key.
func verifies(key *packet.PublicKey, sig *packet.Signature, text []byte) bool {
	hash, err := sig.PrepareVerify()
	if err != nil {
		return false
	}
	hash.Write(text)
	return key.VerifySignature(hash, sig) == nil
}

// verify verifies a signature by a part of the key, and whether the key may sign.
func (k *pgpKey) verify(part openpgp.Key, sig *packet.Signature, text []byte, c Claim) (Signer, *Error) {
	name := keyName(part.PublicKey)
	if e := cmp.Or(weakPGP(part.PublicKey), k.refused); e != nil {
		return Signer{}, e
	}
	if !verifies(part.PublicKey, sig, text) {
		return Signer{}, refuse(Bad, "has a signature that its key %s has not made of it", name)
	}
	if e := k.check(part, sig.CreationTime, c.Now); e != nil {
		return Signer{}, e
	}
	if ahead(sig.CreationTime, c.Now) {
		return Signer{}, refuse(TooEarly, "has a signature by %s that is dated %s, in the future", name, day(sig.CreationTime))
	}
	if end := endOf(sig.CreationTime, sig.SigLifetimeSecs); over(end, c.Now) {
		return Signer{}, refuse(Expired, "has a signature by %s that expired on %s", name, day(end))
	}
	signer, mails := Signer{Key: k.fingerprint()}, k.mails(c.Now)
	if len(c.Principals) == 0 {
		signer.Principal = append(mails, "")[0]
		return signer, nil
	}
	for _, want := range c.Principals {
		if slices.ContainsFunc(mails, func(mail string) bool { return strings.EqualFold(mail, want) }) {
			signer.Principal = want
			return signer, nil
		}
	}
	return Signer{}, refuse(Principal, "is signed by %s, the key of %s, which may not sign for %s", name, people(mails), people(c.Principals))
}

// check returns why a part of the key may not have signed at a time. The library
// checks neither keys that only certify nor keys without an own word.
func (k *pgpKey) check(part openpgp.Key, made, now time.Time) *Error {
	name, self, subkey := keyName(part.PublicKey), part.SelfSignature, part.PublicKey.KeyId != k.PrimaryKey.KeyId
	primary, identity := k.PrimarySelfSignature()
	switch {
	case len(k.Revocations) > 0 || len(part.Revocations) > 0:
		return refuse(Revoked, "is signed by %s, which is revoked", name)
	case made.Before(part.PublicKey.CreationTime) || made.Before(k.PrimaryKey.CreationTime):
		return refuse(TooEarly, "is signed by %s, which was made after the signature", name)
	case ahead(part.PublicKey.CreationTime, now) || ahead(k.PrimaryKey.CreationTime, now):
		return refuse(TooEarly, "is signed by %s, which is dated in the future", name)
	case primary == nil || identity != nil && len(identity.Revocations) > 0 || over(endOf(primary.CreationTime, primary.SigLifetimeSecs), now):
		return refuse(Unusable, "is signed by %s, a key without valid signatures about itself", name)
	case over(k.expires(part), now):
		return refuse(Expired, "is signed by %s, which expired on %s", name, day(k.expires(part)))
	case self.FlagsValid && !self.FlagSign || subkey && !self.FlagsValid:
		return refuse(Unusable, "is signed by %s, which is not for signing", name)
	case over(endOf(self.CreationTime, self.SigLifetimeSecs), now) || critical(self) || critical(primary):
		return refuse(Unusable, "is signed by %s, a key without valid signatures about itself", name)
	}
	return nil
}

// weakPGP returns why signatures by a key are refused for its algorithm.
func weakPGP(key *packet.PublicKey) *Error {
	name := keyName(key)
	switch key.PubKeyAlgo {
	case packet.PubKeyAlgoRSA, packet.PubKeyAlgoRSASignOnly:
		switch bits, err := key.BitLength(); {
		case err != nil || bits < smallestRSA:
			return refuse(Weak, "is signed by %s, which is of RSA with %d bits, which is too weak", name, bits)
		case bits > largestRSA:
			return refuse(Unsupported, "is signed by %s, which is of RSA with %d bits, which is more than %d", name, bits, largestRSA)
		}
		return nil
	case packet.PubKeyAlgoECDSA:
		if _, known := curves[curveOf(key)]; !known {
			return refuse(Unsupported, "is signed by %s, which is on a curve that is not supported", name)
		}
		return nil
	case packet.PubKeyAlgoEdDSA, packet.PubKeyAlgoEd25519, packet.PubKeyAlgoEd448:
		return nil
	case packet.PubKeyAlgoDSA:
		return refuse(Weak, "is signed by %s, which is of DSA, which is too weak", name)
	}
	return refuse(Unsupported, "is signed by %s, which is of algorithm %d, which is not supported", name, key.PubKeyAlgo)
}

// able returns the parts of the key that may sign at a time, and why there are none: of
// several reasons one that says more than "not for signing".
func (k *pgpKey) able(now time.Time) (parts []openpgp.Key, why *Error) {
	why = k.refused
	for _, part := range k.parts() {
		e := cmp.Or(k.refused, weakPGP(part.PublicKey), k.check(part, now, now))
		if e == nil {
			parts = append(parts, part)
		} else if why == nil || why.Kind == Unusable {
			why = e
		}
	}
	return parts, why
}

// holder returns the state of the key: one part that may sign is enough.
func (k *pgpKey) holder(now time.Time) Holder {
	h := Holder{Key: k.fingerprint()}
	if k.Entity != nil {
		h.Principals = k.mails(now)
	}
	parts, why := k.able(now)
	if len(parts) == 0 {
		h.Err = aboutKey(why)
		return h
	}
	for i, part := range parts {
		if end := k.expires(part); i == 0 || end.IsZero() || !h.Expires.IsZero() && end.After(h.Expires) {
			h.Expires = end
		}
	}
	return h
}

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

// revokes reports whether a signature revokes a key or subkey. One of an unknown version may revoke
// anything.
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
