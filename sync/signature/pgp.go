package signature

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strings"
)

// verifyPGP verifies an OpenPGP signature.
func (k *Keys) verifyPGP(text, armored []byte, c Claim) (Signer, error) {
	malformed := func(err error) (Signer, error) {
		if e := KindOf(err); e != "" {
			return Signer{}, err
		}
		return Signer{}, refuse(Malformed, "has an OpenPGP signature that cannot be read: %w", err)
	}
	body, rest, err := unarmor(armored, "PGP SIGNATURE")
	if err != nil {
		return malformed(err)
	}
	p, more, err := nextPacket(body)
	switch {
	case err != nil:
		return malformed(err)
	case p.tag != tagSignature:
		return Signer{}, refuse(Malformed, "has an OpenPGP signature that holds something else")
	case len(more) > 0 || len(bytes.TrimSpace(rest)) > 0:
		return Signer{}, refuse(Malformed, "has more than one OpenPGP signature")
	}
	s, err := readSignature(p.body)
	switch {
	case err != nil:
		return malformed(err)
	case s.kind != sigBinary:
		return Signer{}, refuse(Unsupported, "has an OpenPGP signature that is not one of plain bytes")
	case s.unknown:
		return Signer{}, refuse(Unsupported, "has an OpenPGP signature with a condition that is not known here")
	case !s.named:
		return Signer{}, refuse(Malformed, "has an OpenPGP signature that does not name its key")
	}
	found := refuse(UnknownKey, "is signed by %s, which %s", keyName(s.issuer), k.others())
	for _, o := range k.pgp {
		for _, key := range o.keys() {
			if key.id() != s.issuer {
				continue
			}
			signer, e := s.judge(o, key, text, c)
			if e == nil {
				return signer, nil
			}
			found = e
		}
	}
	return Signer{}, found
}

func (o *pgpOwner) keys() []*pgpKey {
	all := []*pgpKey{o.key}
	for _, s := range o.subkeys {
		all = append(all, s.key)
	}
	return all
}

// judge says whether the signature is one of the key, and may be.
func (s *pgpSignature) judge(o *pgpOwner, key *pgpKey, text []byte, c Claim) (Signer, *Error) {
	if e := s.madeBy(key, false, text); e != nil {
		return Signer{}, e
	}
	if e := o.usable(key, s.created, c.Now); e != nil {
		return Signer{}, e
	}
	if s.endedBy(c.Now) {
		return Signer{}, refuse(Expired, "has a signature by %s that expired on %s", key.name(), day(s.created.Add(s.expires)))
	}
	signer := Signer{Key: strings.ToUpper(hex.EncodeToString(o.key.fingerprint[:]))}
	mails := o.mails(c.Now)
	if len(c.Principals) == 0 {
		if len(mails) > 0 {
			signer.Principal = mails[0]
		}
		return signer, nil
	}
	for _, want := range c.Principals {
		if slices.ContainsFunc(mails, func(mail string) bool { return strings.EqualFold(mail, want) }) {
			signer.Principal = want
			return signer, nil
		}
	}
	return Signer{}, refuse(Principal, "is signed by %s, the key of %s, which may not sign for %s", key.name(), people(mails), people(c.Principals))
}

// people names persons, or nobody.
func people(names []string) string {
	if len(names) == 0 {
		return "nobody by name"
	}
	return strings.Join(names, ", ")
}
