package signature

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// namespace of what git signs with ssh keys.
const namespace = "git"

// sshSignature is what is in the armor. Source: PROTOCOL.sshsig of OpenSSH.
type sshSignature struct {
	Version   uint32
	PublicKey []byte
	Namespace string
	Reserved  string
	Hash      string
	Signature []byte
}

// sshSigned is what is signed.
type sshSigned struct {
	Namespace string
	Reserved  string
	Hash      string
	Digest    []byte
}

const sshMagic = "SSHSIG"

// verifySSH verifies a signature of an ssh key.
func (k *Keys) verifySSH(text, armored []byte, c Claim) (Signer, error) {
	malformed := func(err error) (Signer, error) {
		return Signer{}, refuse(Malformed, "has an SSH signature that cannot be read: %w", err)
	}
	body, rest, err := unarmor(armored, "SSH SIGNATURE")
	if err != nil {
		return malformed(err)
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return Signer{}, refuse(Malformed, "has more than one SSH signature")
	}
	blob, ok := bytes.CutPrefix(body, []byte(sshMagic))
	if !ok {
		return Signer{}, refuse(Malformed, "has an SSH signature that holds something else")
	}
	var s sshSignature
	if err := ssh.Unmarshal(blob, &s); err != nil { // refuses bytes that follow
		return malformed(err)
	}
	var proof ssh.Signature
	if err := ssh.Unmarshal(s.Signature, &proof); err != nil {
		return malformed(err)
	}
	public, err := ssh.ParsePublicKey(s.PublicKey)
	if err != nil {
		return Signer{}, refuse(Unsupported, "is signed by an SSH key of a kind that is not supported")
	}
	name := ssh.FingerprintSHA256(public)
	switch {
	case s.Version != 1:
		return Signer{}, refuse(Unsupported, "has an SSH signature of version %d, which is not supported", s.Version)
	case s.Namespace != namespace:
		return Signer{}, refuse(Bad, "has an SSH signature by %s that was made for something else than git", name)
	case len(proof.Rest) > 0 && !strings.HasPrefix(public.Type(), "sk-"): // of a token it is part of the proof
		return Signer{}, refuse(Malformed, "has an SSH signature by %s that something follows", name)
	case strings.Contains(public.Type(), "-cert-"):
		return Signer{}, refuse(Unsupported, "is signed with an SSH certificate, which is not supported: list the key itself")
	}
	found, e := k.sshKey(public, name, c)
	if e != nil {
		return Signer{}, e
	}
	signed := sshSigned{Namespace: s.Namespace, Reserved: s.Reserved, Hash: s.Hash}
	switch s.Hash {
	case "sha256":
		sum := sha256.Sum256(text)
		signed.Digest = sum[:]
	case "sha512":
		sum := sha512.Sum512(text)
		signed.Digest = sum[:]
	default:
		return Signer{}, refuse(Unsupported, "has an SSH signature by %s with a hash that is not supported", name)
	}
	if proof.Format == ssh.KeyAlgoRSA {
		return Signer{}, refuse(Weak, "has an SSH signature by %s with SHA-1, which is too weak", name)
	}
	if public.Verify(append([]byte(sshMagic), ssh.Marshal(signed)...), &proof) != nil {
		return Signer{}, refuse(Bad, "has an SSH signature that its key %s has not made of it", name)
	}
	return found, nil
}

// sshKey finds the key in the lists. Of several entries any one is enough; else the
// error is that of the entry that came closest.
func (k *Keys) sshKey(public ssh.PublicKey, name string, c Claim) (Signer, *Error) {
	if e := weakSSH(public, name); e != nil {
		return Signer{}, e
	}
	found := refuse(UnknownKey, "is signed by %s, which %s", name, k.others())
	closest := 0
	for _, entry := range k.ssh {
		if !bytes.Equal(entry.key, public.Marshal()) {
			continue
		}
		step, e := entry.allows(name, c)
		if e == nil {
			return Signer{Key: name, Principal: entry.principal(c.Principals)}, nil
		}
		if step > closest {
			closest, found = step, e
		}
	}
	return Signer{}, found
}

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

// allows says whether a key may sign what is claimed, by what the list says of it.
// step is how far the look went.
func (e sshEntry) allows(name string, c Claim) (step int, err *Error) {
	switch {
	case !e.forGit():
		return 1, refuse(Unusable, "is signed by %s, which the list of keys allows for something else than git", name)
	case !e.after.IsZero() && c.Made.Before(e.after):
		return 2, refuse(TooEarly, "is signed by %s, which is valid from %s on, and it was made before", name, e.after.Format(time.RFC3339))
	case !e.before.IsZero() && c.Made.IsZero():
		return 2, refuse(Expired, "is signed by %s, which was valid until %s, and it does not say when it was made", name, e.before.Format(time.RFC3339))
	case !e.before.IsZero() && c.Made.After(e.before):
		return 2, refuse(Expired, "is signed by %s, which was valid until %s, and it was made afterwards", name, e.before.Format(time.RFC3339))
	case len(c.Principals) == 0:
		return 4, nil
	case len(e.principals) == 0:
		return 3, refuse(Principal, "is signed by %s, a key without a principal, and is to be signed by %s: write them into allowed_signers", name, people(c.Principals))
	case e.matching(c.Principals) == "":
		return 3, refuse(Principal, "is signed by %s, the key of %s, which may not sign for %s", name, strings.Join(e.principals, ","), people(c.Principals))
	}
	return 4, nil
}
