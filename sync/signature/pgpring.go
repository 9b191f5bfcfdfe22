package signature

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"
)

// pgpOwner is a primary key with all that belongs to it.
type pgpOwner struct {
	key     *pgpKey
	revoked bool
	self    []*pgpSignature // good ones of the key about itself
	ids     []pgpID
	subkeys []*pgpSubkey
}

type pgpID struct {
	mail    string
	signed  *pgpSignature // the newest good one
	revoked time.Time     // by the newest good one
}

type pgpSubkey struct {
	key     *pgpKey
	bound   *pgpSignature // the newest good one
	revoked bool
}

// blocks of OpenPGP.
const (
	pgpPublic  = "PGP PUBLIC KEY BLOCK"
	pgpPrivate = "-----BEGIN PGP PRIVATE KEY BLOCK-----"
)

// maxKeys bounds the keys and subkeys of one list.
const maxKeys = 5000

// readRing reads the armored keys of a file, one block after the other.
func readRing(data []byte) (owners []*pgpOwner, err error) {
	for rest := bytes.TrimSpace(data); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		if bytes.HasPrefix(rest, []byte(pgpPrivate)) {
			return nil, errors.New("it holds a private key; export the public one: gpg --armor --export")
		}
		var body []byte
		if body, rest, err = unarmor(rest, pgpPublic); err != nil {
			return nil, err
		}
		found, err := readOwners(body)
		if err != nil {
			return nil, err
		}
		if owners = append(owners, found...); len(owners) > maxKeys {
			return nil, fmt.Errorf("more than %d keys", maxKeys)
		}
	}
	return owners, nil
}

// ringReader is a ring being read: what a signature is about came last before it.
type ringReader struct {
	owners []*pgpOwner
	owner  *pgpOwner
	id     []byte     // as it is signed; nil = the last was no name
	sub    *pgpSubkey // nil = the last was no subkey
	keys   int
}

func readOwners(body []byte) ([]*pgpOwner, error) {
	var r ringReader
	for len(body) > 0 {
		var p packet
		var err error
		if p, body, err = nextPacket(body); err != nil {
			return nil, err
		}
		if err := r.packet(p); err != nil {
			return nil, err
		}
	}
	return r.owners, nil
}

func (r *ringReader) packet(p packet) error {
	switch p.tag {
	case tagSecretKey, tagSecretSubkey:
		return errors.New("it holds a private key; export the public one: gpg --armor --export")
	case tagPublicKey, tagPublicSubkey:
		if r.keys++; r.keys > maxKeys {
			return fmt.Errorf("more than %d keys", maxKeys)
		}
		k, err := readKey(p.body)
		if err != nil {
			return err
		}
		r.id, r.sub = nil, nil
		if p.tag == tagPublicKey {
			r.owner = &pgpOwner{key: k}
			r.owners = append(r.owners, r.owner)
			return nil
		}
		if r.owner == nil {
			return errors.New("a subkey comes before its key")
		}
		r.sub = &pgpSubkey{key: k}
		r.owner.subkeys = append(r.owner.subkeys, r.sub)
	case tagUserID, tagUserAttribute:
		if r.owner == nil {
			return errors.New("the name of an owner comes before its key")
		}
		r.id, r.sub = signedID(p.tag, p.body), nil
		id := pgpID{}
		if p.tag == tagUserID {
			id.mail = mailOf(p.body)
		}
		r.owner.ids = append(r.owner.ids, id)
	case tagSignature:
		if r.owner == nil {
			return errors.New("a signature comes before its key")
		}
		if s, err := readSignature(p.body); err == nil && !s.unknown {
			r.signature(s)
		}
	}
	return nil
}

// signature takes what a key says about itself. What others say about it, and what
// is not good, changes nothing.
func (r *ringReader) signature(s *pgpSignature) {
	o := r.owner
	if s.named && s.issuer != o.key.id() {
		return
	}
	good := func(parts ...[]byte) bool {
		return s.madeBy(o.key, true, append([][]byte{o.key.signed()}, parts...)...) == nil
	}
	newer := func(than *pgpSignature) bool { return than == nil || !s.created.Before(than.created) }
	switch {
	case r.sub != nil && s.kind == sigSubkey:
		if newer(r.sub.bound) && good(r.sub.key.signed()) {
			r.sub.bound = s
		}
	case r.sub != nil && s.kind == revokesSubkey:
		r.sub.revoked = r.sub.revoked || good(r.sub.key.signed())
	case s.kind == revokesKey:
		o.revoked = o.revoked || good()
	case s.kind == sigDirect:
		if good() {
			o.self = append(o.self, s)
		}
	case r.id != nil && s.kind >= sigGeneric && s.kind <= sigPositive:
		if id := &o.ids[len(o.ids)-1]; newer(id.signed) && good(r.id) {
			id.signed = s
		}
	case r.id != nil && s.kind == revokesID:
		if id := &o.ids[len(o.ids)-1]; s.created.After(id.revoked) && good(r.id) {
			id.revoked = s.created
		}
	}
}

// present is the newest thing that a key says about itself, nil for nothing.
func (o *pgpOwner) present(now time.Time) (newest *pgpSignature) {
	all := slices.Clone(o.self)
	for _, id := range o.ids {
		if id.good(now) {
			all = append(all, id.signed)
		}
	}
	for _, s := range all {
		if !s.endedBy(now) && (newest == nil || s.created.After(newest.created)) {
			newest = s
		}
	}
	return newest
}

func (i pgpID) good(now time.Time) bool {
	return i.signed != nil && !i.signed.endedBy(now) && i.signed.created.After(i.revoked)
}

// mails are the addresses of the owner that hold.
func (o *pgpOwner) mails(now time.Time) (out []string) {
	for _, id := range o.ids {
		if id.good(now) && id.mail != "" {
			out = append(out, id.mail)
		}
	}
	return out
}

// usable says whether k, the primary key or a subkey of o, may have signed then.
func (o *pgpOwner) usable(k *pgpKey, then, now time.Time) *Error {
	self := o.present(now)
	switch {
	case o.revoked:
		return refuse(Revoked, "is signed by %s, which is revoked", k.name())
	case self == nil:
		return refuse(Unusable, "is signed by %s, a key that does not say anything good about itself", k.name())
	case ended(o.key, self.keyExpires, now):
		return refuse(Expired, "is signed by %s, which expired on %s", k.name(), day(o.key.created.Add(self.keyExpires)))
	}
	says := self
	if k != o.key {
		i := slices.IndexFunc(o.subkeys, func(s *pgpSubkey) bool { return s.key == k })
		sub := o.subkeys[i]
		switch says = sub.bound; {
		case sub.revoked:
			return refuse(Revoked, "is signed by %s, which is revoked", k.name())
		case says == nil || says.endedBy(now):
			return refuse(Unusable, "is signed by %s, which its key %s does not own up to", k.name(), o.key.name())
		case ended(k, says.keyExpires, now):
			return refuse(Expired, "is signed by %s, which expired on %s", k.name(), day(k.created.Add(says.keyExpires)))
		case !sub.agrees(o):
			return refuse(Unusable, "is signed by %s, which does not own up to its key %s", k.name(), o.key.name())
		}
	}
	switch {
	case says.flagged && says.flags&maySign == 0:
		return refuse(Unusable, "is signed by %s, which is not for signing", k.name())
	case then.Before(k.created) || then.Before(o.key.created):
		return refuse(TooEarly, "is signed by %s, which was made after the signature", k.name())
	}
	return nil
}

// agrees says that the subkey has signed that it belongs to o: else anybody could
// take the subkey of another for his own.
func (s *pgpSubkey) agrees(o *pgpOwner) bool {
	if len(s.bound.embedded) == 0 {
		return false
	}
	back, err := readSignature(s.bound.embedded)
	return err == nil && !back.unknown && back.kind == sigPrimary && back.madeBy(s.key, true, o.key.signed(), s.key.signed()) == nil
}

func ended(k *pgpKey, after time.Duration, now time.Time) bool {
	return after > 0 && !now.Before(k.created.Add(after))
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }
