package signature

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// pgpOwner is a primary key with all that belongs to it.
type pgpOwner struct {
	key     *pgpKey
	revoked bool
	doubt   string          // a revocation that cannot be judged, for people; "" = none
	self    []*pgpSignature // good ones of the key about itself
	ids     []pgpID
	subkeys []*pgpSubkey
}

type pgpID struct {
	body    []byte // as it is signed
	mail    string
	signed  *pgpSignature // the newest good one
	revoked time.Time     // by the newest good one
	doubt   bool          // there is a revocation that cannot be judged
}

type pgpSubkey struct {
	key     *pgpKey
	bound   *pgpSignature // the newest good one
	revoked bool
	doubt   string // as of a pgpOwner
}

// blocks of OpenPGP.
const (
	pgpPublic  = "PGP PUBLIC KEY BLOCK"
	pgpPrivate = "-----BEGIN PGP PRIVATE KEY BLOCK-----"
)

// ringReader reads rings: what a signature is about came last before it. Copies of a
// key become one: each may hold a revocation that another lacks.
type ringReader struct {
	owners []*pgpOwner
	owner  *pgpOwner
	name   *pgpID     // nil = the last was no name
	sub    *pgpSubkey // nil = the last was no subkey
	parts  int        // keys, subkeys and names
	proofs int        // signatures that were looked at, by their effort
	hashed int        // bytes that they are of
}

// read reads the armored keys of a file, one block after the other.
func (r *ringReader) read(data []byte) error {
	for rest := bytes.TrimSpace(data); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		if bytes.HasPrefix(rest, []byte(pgpPrivate)) {
			return errors.New("it holds a private key; export the public one: gpg --armor --export")
		}
		body, after, err := unarmor(rest, pgpPublic)
		if err != nil {
			return err
		}
		if err := r.block(body); err != nil {
			return err
		}
		rest = after
	}
	return nil
}

// block reads the packets of a block.
func (r *ringReader) block(body []byte) error {
	r.owner, r.name, r.sub = nil, nil, nil
	for len(body) > 0 {
		var p packet
		var err error
		if p, body, err = nextPacket(body); err != nil {
			return err
		}
		if err := r.packet(p); err != nil {
			return err
		}
	}
	return nil
}

func (r *ringReader) packet(p packet) error {
	switch p.tag {
	case tagSecretKey, tagSecretSubkey:
		return errors.New("it holds a private key; export the public one: gpg --armor --export")
	case tagPublicKey, tagPublicSubkey, tagUserID, tagUserAttribute:
		if r.parts++; r.parts > maxKeys {
			return errMany
		}
		r.name, r.sub = nil, nil
		return r.part(p)
	case tagSignature:
		if r.owner == nil {
			return errors.New("a signature comes before its key; a revocation has to be imported, and the key exported then")
		}
		s, err := readSignature(p.body)
		if err != nil || s.unknown {
			r.unreadable(p.body)
			return nil
		}
		return r.signature(s)
	}
	return nil
}

// part takes a key, a subkey or a name.
func (r *ringReader) part(p packet) error {
	if p.tag == tagUserID || p.tag == tagUserAttribute {
		if r.owner == nil {
			return errors.New("the name of an owner comes before its key")
		}
		r.name = r.owner.named(p)
		return nil
	}
	k, err := readKey(p.body)
	switch {
	case err != nil:
		return err
	case p.tag == tagPublicKey:
		i := slices.IndexFunc(r.owners, func(o *pgpOwner) bool { return o.key.is(k) })
		if i < 0 {
			i, r.owners = len(r.owners), append(r.owners, &pgpOwner{key: k})
		}
		r.owner = r.owners[i]
	case r.owner == nil:
		return errors.New("a subkey comes before its key")
	default:
		r.sub = r.owner.subkey(k)
	}
	return nil
}

// named is the name in a packet, also when it is there already.
func (o *pgpOwner) named(p packet) *pgpID {
	body := signedID(p.tag, p.body)
	i := slices.IndexFunc(o.ids, func(id pgpID) bool { return bytes.Equal(id.body, body) })
	if i < 0 {
		id := pgpID{body: body}
		if p.tag == tagUserID {
			id.mail = mailOf(p.body)
		}
		i, o.ids = len(o.ids), append(o.ids, id)
	}
	return &o.ids[i]
}

// subkey is k as a subkey, also when it is there already.
func (o *pgpOwner) subkey(k *pgpKey) *pgpSubkey {
	i := slices.IndexFunc(o.subkeys, func(s *pgpSubkey) bool { return s.key.is(k) })
	if i < 0 {
		i, o.subkeys = len(o.subkeys), append(o.subkeys, &pgpSubkey{key: k})
	}
	return o.subkeys[i]
}

// signature takes what a key says about itself. What others say about it, and what
// is not good, changes nothing, but where it is to revoke the key or a subkey. An
// error says that there are too many.
func (r *ringReader) signature(s *pgpSignature) (err error) {
	o := r.owner
	own := !s.named || s.issuer == o.key.id()
	good := func(parts ...[]byte) bool {
		all := append([][]byte{o.key.signed()}, parts...)
		if err = r.proof(s, all); err != nil {
			return false
		}
		return s.madeBy(o.key, true, all...) == nil
	}
	newer := func(than *pgpSignature) bool { return than == nil || !s.created.Before(than.created) }
	switch {
	case s.kind == revokesKey && !own, s.kind == revokesSubkey && (!own || r.sub == nil):
		r.doubtful(s.kind, "by "+keyName(s.issuer))
	case !own:
	case r.sub != nil && s.kind == sigSubkey:
		if newer(r.sub.bound) && good(r.sub.key.signed()) {
			r.sub.bound = s
		}
	case s.kind == revokesSubkey:
		if good(r.sub.key.signed()) {
			r.sub.revoked = true
		} else {
			r.doubtful(s.kind, "that it has not made")
		}
	case s.kind == revokesKey:
		if good() {
			o.revoked = true
		} else {
			r.doubtful(s.kind, "that it has not made")
		}
	case s.kind == sigDirect:
		if good() {
			o.self = append(o.self, s)
		}
	case r.name != nil && s.kind >= sigGeneric && s.kind <= sigPositive:
		if newer(r.name.signed) && good(r.name.body) {
			r.name.signed = s
		}
	case r.name != nil && s.kind == revokesID:
		switch {
		case !s.created.After(r.name.revoked):
		case good(r.name.body):
			r.name.revoked = s.created
		default:
			r.doubtful(s.kind, "")
		}
	}
	return err
}

// proof counts a signature that is to be verified.
func (r *ringReader) proof(s *pgpSignature, parts [][]byte) error {
	r.proofs += r.owner.key.effort()
	r.hashed += len(s.trailer)
	for _, part := range parts {
		r.hashed += len(part)
	}
	if r.proofs > maxProofs || r.hashed > maxHashed {
		return fmt.Errorf("the keys have made more than %d signatures about themselves (%d of RSA %d), or such as are of more than %d bytes: export them anew with --export-options export-minimal",
			maxProofs, maxProofs/4, largestRSA, maxHashed)
	}
	return nil
}

// unreadable takes a signature of a form that is not known here. It may revoke
// something; all else that it can be changes nothing.
func (r *ringReader) unreadable(body []byte) {
	at := 1 // of the type, in a packet of version 4 and later
	version := byte(0)
	if len(body) > 0 {
		version = body[0]
	}
	if version == 2 || version == 3 {
		at = 2
	}
	kind := byte(revokesKey) // for all that is known
	if version >= 2 && version <= 6 && at < len(body) {
		kind = body[at]
	}
	r.doubtful(kind, "that cannot be read")
}

// doubtful notes a revocation that cannot be judged. What it is about is not trusted
// any more: who may revoke a key besides itself is said at places that are not read.
func (r *ringReader) doubtful(kind byte, whose string) {
	switch {
	case kind == revokesSubkey && r.sub != nil:
		r.sub.doubt = whose
	case kind == revokesKey || kind == revokesSubkey:
		r.owner.doubt = whose
	case kind == revokesID && r.name != nil:
		r.name.doubt = true
	}
}

// present is what a key says about itself now, nil for nothing. It may say it alone
// and with the names of its owner: of both the newest counts, and each restricts. A
// later word that is silent about the end or the flags, such as one that appoints who
// may revoke the key, changes neither.
func (o *pgpOwner) present(now time.Time) *pgpSignature {
	var withName []*pgpSignature
	for _, id := range o.ids {
		if id.good(now) {
			withName = append(withName, id.signed)
		}
	}
	named, alone := newest(withName, now), newest(o.self, now)
	if named == nil || alone == nil {
		return cmp.Or(named, alone)
	}
	both := *named
	if alone.keyExpires > 0 && (both.keyExpires == 0 || alone.keyExpires < both.keyExpires) {
		both.keyExpires = alone.keyExpires
	}
	switch {
	case alone.flagged && both.flagged:
		both.flags &= alone.flags
	case alone.flagged:
		both.flags, both.flagged = alone.flags, true
	}
	return &both
}

// newest is the newest of them that holds, nil for none.
func newest(all []*pgpSignature, now time.Time) (found *pgpSignature) {
	for _, s := range all {
		if !s.endedBy(now) && (found == nil || s.created.After(found.created)) {
			found = s
		}
	}
	return found
}

func (i pgpID) good(now time.Time) bool {
	return i.signed != nil && !i.doubt && !i.signed.endedBy(now) && i.signed.created.After(i.revoked)
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
	case o.doubt != "":
		return doubted(k, o.doubt)
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
		case sub.doubt != "":
			return doubted(k, sub.doubt)
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

func doubted(k *pgpKey, whose string) *Error {
	return refuse(Revoked, "is signed by %s, a key with a revocation %s, which is not judged here: take it out of the key, or the key out of those that may sign", k.name(), whose)
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
