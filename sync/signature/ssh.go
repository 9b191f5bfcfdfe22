package signature

import (
	"bytes"
	"crypto/rsa"
	"errors"
	"strings"
	"time"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// namespace of what git signs with SSH keys.
const namespace = "git"

// verifySSH verifies a signature of an SSH key.
func (k *Keys) verifySSH(text, armored []byte, c Claim) (Signer, error) {
	body, rest, err := unarmor(armored, sshArmor)
	if err != nil {
		return Signer{}, refuse(Malformed, "has an SSH signature that cannot be read: %w", err)
	}
	sig, err := sshsig.ParseSignature(body)
	switch {
	case len(rest) > 0:
		return Signer{}, refuse(Malformed, "has more than one SSH signature")
	case errors.Is(err, sshsig.ErrUnsupportedSignatureVersion), errors.Is(err, sshsig.ErrUnsupportedHashAlgorithm):
		return Signer{}, refuse(Unsupported, "has an SSH signature that is not supported: %w", err)
	case err != nil && strings.Contains(err.Error(), `format "ssh-rsa"`):
		return Signer{}, refuse(Weak, "has an SSH signature with SHA-1, which is too weak")
	case err != nil && strings.Contains(err.Error(), "unknown key algorithm"):
		return Signer{}, refuse(Unsupported, "is signed by an SSH key of a kind that is not supported")
	case err != nil:
		return Signer{}, refuse(Malformed, "has an SSH signature that cannot be read: %w", err)
	}
	name, kind := ssh.FingerprintSHA256(sig.PublicKey), sig.PublicKey.Type()
	switch {
	case sig.Namespace != namespace:
		return Signer{}, refuse(Bad, "has an SSH signature by %s that was made for something else than git", name)
	case len(sig.Signature.Rest) > 0 && !strings.HasPrefix(kind, "sk-"): // of a token it is part of the proof
		return Signer{}, refuse(Malformed, "has an SSH signature by %s that something follows", name)
	case strings.Contains(kind, "-cert-"):
		return Signer{}, refuse(Unsupported, "is signed with an SSH certificate, which is not supported: list the key itself")
	}
	signer, e := k.findSSH(sig.PublicKey, name, c)
	if e != nil {
		return Signer{}, e
	}
	if err := sshsig.Verify(bytes.NewReader(text), sig, sig.PublicKey, sig.HashAlgorithm, namespace); err != nil {
		return Signer{}, refuse(Bad, "has an SSH signature that its key %s has not made of it", name)
	}
	return signer, nil
}

// findSSH finds the key in the lists. Of several entries any one is enough; else the
// error is that of the entry that matched best.
func (k *Keys) findSSH(public ssh.PublicKey, name string, c Claim) (Signer, *Error) {
	if e := weakSSH(public, name); e != nil {
		return Signer{}, e
	}
	found, best := k.unknown(name), 0
	for _, entry := range k.ssh {
		if !bytes.Equal(entry.key.Marshal(), public.Marshal()) {
			continue
		}
		matched, e := entry.check(name, c)
		if e == nil {
			return Signer{Key: name, Principal: entry.principal(c.Principals)}, nil
		}
		if matched > best {
			best, found = matched, e
		}
	}
	return Signer{}, found
}

// weakSSH returns why signatures by a key are refused for its algorithm.
func weakSSH(public ssh.PublicKey, name string) *Error {
	inner, ok := public.(ssh.CryptoPublicKey)
	if !ok {
		return nil
	}
	if public.Type() == "ssh-dss" {
		return refuse(Weak, "is signed by %s, a key of DSA, which is too weak", name)
	}
	r, ok := inner.CryptoPublicKey().(*rsa.PublicKey)
	if !ok {
		return nil
	}
	switch bits := r.N.BitLen(); {
	case bits < smallestRSA:
		return refuse(Weak, "is signed by %s, a key of RSA with %d bits, which is too weak", name, bits)
	case bits > largestRSA:
		return refuse(Unsupported, "is signed by %s, a key of RSA with %d bits, which is more than %d", name, bits, largestRSA)
	}
	return nil
}

// check returns why an entry does not allow its key to sign what is claimed. matched
// is the number of conditions that were met.
func (e sshKey) check(name string, c Claim) (matched int, err *Error) {
	switch {
	case len(e.namespaces) > 0 && !matches(e.namespaces, namespace):
		return 1, refuse(Unusable, "is signed by %s, which the list of keys allows for something else than git", name)
	case !e.after.IsZero() && c.Made.Before(e.after):
		return 2, refuse(TooEarly, "is signed by %s, which is valid from %s on, and it was made before", name, e.after.Format(time.RFC3339))
	case (!e.after.IsZero() || !e.before.IsZero()) && ahead(c.Made, c.Now):
		return 2, refuse(TooEarly, "is signed by %s, which is valid for a time, and it is dated %s, in the future", name, day(c.Made))
	case !e.before.IsZero() && c.Made.IsZero():
		return 2, refuse(Expired, "is signed by %s, which was valid until %s, and it does not say when it was made",
			name, e.before.Format(time.RFC3339))
	case !e.before.IsZero() && c.Made.After(e.before):
		return 2, refuse(Expired, "is signed by %s, which was valid until %s, and it was made afterwards", name, e.before.Format(time.RFC3339))
	case len(c.Principals) == 0:
		return 4, nil
	case len(e.principals) == 0:
		return 3, refuse(Principal, "is signed by %s, a key without a principal, and has to be signed by %s: write them into allowed_signers",
			name, people(c.Principals))
	case e.principal(c.Principals) == "":
		return 3, refuse(Principal, "is signed by %s, the key of %s, which may not sign for %s",
			name, strings.Join(e.principals, ","), people(c.Principals))
	}
	return 4, nil
}

// holder returns the state of the key.
func (e sshKey) holder(now time.Time) Holder {
	h := Holder{Key: ssh.FingerprintSHA256(e.key), Principals: e.principals, Expires: e.before}
	why := weakSSH(e.key, h.Key)
	if why == nil {
		_, why = e.check(h.Key, Claim{Made: now, Now: now})
	}
	if why != nil {
		h.Err = aboutKey(why)
	}
	return h
}
