// Package signature verifies and makes signatures of Git commits and tags, with OpenPGP or with SSH
// keys. It makes no requests and stores nothing. Everything that it reads besides the keys comes
// from untrusted sources.
//
// Of OpenPGP it accepts signatures with SHA-2 by RSA keys of 2048 to 8192 bits, ECDSA on
// the curves of NIST, Ed25519 and Ed448. Of SSH it accepts Ed25519, ECDSA, RSA with
// SHA-2 and the keys of security tokens (sk-). Everything else is refused by its name.
package signature

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Kind is the class of an Error.
type Kind string

// The kinds of errors.
const (
	NoKeys      Kind = "no-keys"     // there are no keys to verify with
	Unsigned    Kind = "unsigned"    // no signature
	UnknownKey  Kind = "unknown-key" // signed by a key that is not listed
	Bad         Kind = "bad"         // the signature does not match the text
	Expired     Kind = "expired"     // the key or the signature has expired
	Revoked     Kind = "revoked"     // the key or the subkey that signed is revoked
	TooEarly    Kind = "too-early"   // made before the key existed or was valid, or in the future
	Weak        Kind = "weak"        // an algorithm that can be forged
	Unusable    Kind = "unusable"    // the key is listed but is not for signing
	Principal   Kind = "principal"   // the key is listed for another person
	Unsupported Kind = "unsupported" // an algorithm or form that is not implemented
	Malformed   Kind = "malformed"   // it cannot be parsed
	WrongMode   Kind = "wrong-mode"  // a tag signature is required and there is no tag object
)

// Error is the reason why a text does not count as signed. Its message continues a
// sentence that begins with the name of the text: "is signed by ...".
type Error struct {
	Kind Kind
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

func refuse(kind Kind, format string, args ...any) *Error {
	return &Error{kind, fmt.Errorf(format, args...)}
}

// KindOf returns the Kind of the first Error in err's chain, "" when there is none.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return ""
}

// Mode selects which objects of a ref have to be signed.
type Mode string

// The modes. Source: spec.verify.mode of Flux.
const (
	HEAD       Mode = "HEAD" // the commit
	TagOnly    Mode = "Tag"  // the tag object
	TagAndHEAD Mode = "TagAndHEAD"
)

// ParseMode parses a mode; "" is none, and "head" is HEAD.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case "", HEAD, TagOnly, TagAndHEAD:
		return m, nil
	case "head":
		return HEAD, nil
	}
	return "", fmt.Errorf("unknown mode of verification %q, known are %s, %s and %s", s, HEAD, TagOnly, TagAndHEAD)
}

// Head reports whether the commit has to be signed.
func (m Mode) Head() bool { return m == HEAD || m == TagAndHEAD }

// Tag reports whether the tag object has to be signed.
func (m Mode) Tag() bool { return m == TagOnly || m == TagAndHEAD }

// Claim is what the caller knows about a text.
type Claim struct {
	Made time.Time // by the committer or tagger, as the text says; zero = unknown
	Now  time.Time // by a trusted clock
	// Principals, if any, are the accepted owners of the key, such as mail addresses.
	Principals []string
}

// clockSkew is how far the clock of a signer may be ahead.
const clockSkew = 10 * time.Minute

func ahead(at, now time.Time) bool { return at.After(now.Add(clockSkew)) }

// Signer identifies the key that has signed.
type Signer struct {
	Key       string // fingerprint: "SHA256:..." of SSH, hex digits of OpenPGP
	Principal string // owner of the key according to the list of keys; "" = unknown
}

func (s Signer) String() string {
	if s.Principal == "" {
		return s.Key
	}
	return s.Key + " (" + s.Principal + ")"
}

// maxSignature bounds an armored signature: the largest in use, of RSA with 16,384 bits
// and a key beside it, have 8 KiB. Unit: bytes.
const maxSignature = 64 << 10

// Types of armored blocks.
const (
	pgpSignature = "PGP SIGNATURE"
	pgpMessage   = "PGP MESSAGE" // git accepts it too
	pgpPublic    = "PGP PUBLIC KEY BLOCK"
	pgpPrivate   = "PGP PRIVATE KEY BLOCK"
	sshArmor     = "SSH SIGNATURE"
	x509Message  = "SIGNED MESSAGE"
)

// Verify verifies the signature of a text. Every error is an *Error.
func (k *Keys) Verify(text, signature []byte, c Claim) (Signer, error) {
	signature = bytes.TrimSpace(signature)
	switch {
	case len(signature) == 0:
		return Signer{}, refuse(Unsigned, "is not signed")
	case k.Len() == 0:
		return Signer{}, refuse(NoKeys, "cannot be verified: there are no keys")
	case len(signature) > maxSignature:
		return Signer{}, refuse(Malformed, "has a signature of more than %d bytes", maxSignature)
	case begins(signature, sshArmor):
		return k.verifySSH(text, signature, c)
	case begins(signature, pgpSignature):
		return k.verifyPGP(text, signature, c)
	case begins(signature, pgpMessage):
		return Signer{}, refuse(Unsupported, "has an OpenPGP message in place of a detached signature, which is not supported")
	case begins(signature, x509Message):
		return Signer{}, refuse(Unsupported, "is signed with an X.509 certificate (gpgsm, gitsign), which is not supported: use OpenPGP or SSH")
	}
	return Signer{}, refuse(Malformed, "has a signature of an unknown form")
}

// begins reports whether data begins with an armored block of a type.
func begins(data []byte, kind string) bool {
	return bytes.HasPrefix(data, []byte("-----BEGIN "+kind+"-----"))
}

// checksum is the last line of an OpenPGP armor, which PEM does not know.
var checksum = regexp.MustCompile(`(?m)^=[A-Za-z0-9+/]{4}[ \t\r]*\n`)

// unarmor decodes the armored block that data begins with and returns what follows it.
// The checksum of OpenPGP is not verified: signatures prove more.
func unarmor(data []byte, kind string) (body, rest []byte, err error) {
	data = bytes.TrimSpace(data)
	if !begins(data, kind) {
		return nil, nil, errors.New("it does not begin with -----BEGIN " + kind + "-----")
	}
	data = checksum.ReplaceAll(data, nil)
	block, rest := pem.Decode(data)
	// The decoder skips a damaged block and goes on to the next one.
	if block == nil || bytes.Count(data[:len(data)-len(rest)], []byte("-----BEGIN ")) != 1 {
		return nil, nil, errors.New("it is damaged or does not end with -----END " + kind + "-----")
	}
	return block.Bytes, bytes.TrimSpace(rest), nil
}

func people(names []string) string {
	if len(names) == 0 {
		return "an unnamed owner"
	}
	return strings.Join(names, ", ")
}
