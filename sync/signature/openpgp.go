package signature

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// verifyPGP verifies an OpenPGP signature.
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

// parsePGPSignature parses an armored signature, and refuses what is not one signature of a document with a
// strong hash. The library has switches for hashes in its configuration, but does not look at them here.
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

// critical reports whether a signature must not be used by a program that does not know one of its notations.
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
