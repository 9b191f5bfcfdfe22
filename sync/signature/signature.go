// Package signature says who has signed a text: the bytes of a Git commit or tag,
// with OpenPGP or with an SSH key. It asks nobody and keeps nothing; all that it
// reads besides the keys was written by strangers.
//
// Of OpenPGP it knows what git and GnuPG write today: signatures of version 4, made
// with SHA-2 and RSA of 2048 bits or more, ECDSA on the curves of NIST, or Ed25519.
// All else is refused by its name.
package signature

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// Kind is the class of an Error.
type Kind string

// The kinds of errors.
const (
	NoKeys      Kind = "no-keys"     // there is nobody who may sign
	Unsigned    Kind = "unsigned"    // no signature
	UnknownKey  Kind = "unknown-key" // signed by a key that is not among those that may
	Bad         Kind = "bad"         // the signature is not one of these bytes
	Expired     Kind = "expired"     // the key, or the signature
	Revoked     Kind = "revoked"     // the key, or the part of it that signed
	TooEarly    Kind = "too-early"   // made before the key existed, or was valid
	Weak        Kind = "weak"        // an algorithm that can be forged
	Unusable    Kind = "unusable"    // the key is there and may not sign texts of this kind
	Principal   Kind = "principal"   // a key that may sign, but not for this person
	Unsupported Kind = "unsupported" // something that this package does not know
	Malformed   Kind = "malformed"   // it cannot be read
	WrongMode   Kind = "wrong-mode"  // a signature of a tag is asked for where there is no tag object
)

// Error is why a text does not count as signed. Its words go after those that name
// the text: "is signed by ...".
type Error struct {
	Kind Kind
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

func refuse(kind Kind, format string, args ...any) *Error {
	return &Error{kind, fmt.Errorf(format, args...)}
}

// KindOf is the Kind of the first Error in err's chain, "" when there is none.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return ""
}

// Claim is what is said about a text by who hands it in.
type Claim struct {
	Made time.Time // by the committer or tagger, as the text says; zero = it does not
	Now  time.Time // by a clock that can be trusted
	// Principals, if any, are the persons of whom the key has to be that of one,
	// such as mail addresses.
	Principals []string
}

// Signer is whose key has signed.
type Signer struct {
	Key       string // fingerprint: "SHA256:..." of ssh, hex digits of OpenPGP
	Principal string // as the list of keys names its owner; "" when it does not
}

func (s Signer) String() string {
	if s.Principal == "" {
		return s.Key
	}
	return s.Key + " (" + s.Principal + ")"
}

// maxSignature bounds an armored signature: the largest that are made, of RSA with
// 16,384 bits and a key beside it, have 8 KiB. Unit: bytes.
const maxSignature = 64 << 10

// The first lines of signatures.
const (
	beginPGP        = "-----BEGIN PGP SIGNATURE-----"
	beginPGPMessage = "-----BEGIN PGP MESSAGE-----" // git takes it too
	beginSSH        = "-----BEGIN SSH SIGNATURE-----"
	beginX509       = "-----BEGIN SIGNED MESSAGE-----"
)

// Verify says who has signed the text. Every error is an *Error.
func (k *Keys) Verify(text, signature []byte, c Claim) (Signer, error) {
	signature = bytes.TrimSpace(signature)
	begins := func(line string) bool { return bytes.HasPrefix(signature, []byte(line)) }
	switch {
	case len(signature) == 0:
		return Signer{}, refuse(Unsigned, "is not signed")
	case k.Len() == 0:
		return Signer{}, refuse(NoKeys, "cannot be verified: there are no keys")
	case len(signature) > maxSignature:
		return Signer{}, refuse(Malformed, "has a signature of more than %d bytes", maxSignature)
	case begins(beginSSH):
		return k.verifySSH(text, signature, c)
	case begins(beginPGP):
		return k.verifyPGP(text, signature, c)
	case begins(beginPGPMessage):
		return Signer{}, refuse(Unsupported, "has an OpenPGP message in place of a detached signature, which is not supported")
	case begins(beginX509):
		return Signer{}, refuse(Unsupported, "is signed with an X.509 certificate (gpgsm, gitsign), which is not supported: use OpenPGP or SSH")
	}
	return Signer{}, refuse(Malformed, "has a signature of an unknown form")
}
