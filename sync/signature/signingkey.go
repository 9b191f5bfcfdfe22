package signature

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"
)

// Method is a kind of signatures. Source: spec.commit.signingMethod of Grafana.
type Method string

// The methods.
const (
	GPG   Method = "gpg"
	SSH   Method = "ssh"
	smime Method = "smime" // known by name only
)

// ParseMethod reads a method; "" is any.
func ParseMethod(s string) (Method, error) {
	switch m := Method(s); m {
	case "", GPG, SSH:
		return m, nil
	case smime:
		return "", errors.New("smime (X.509 certificates) is not supported: use gpg or ssh")
	}
	return "", fmt.Errorf("unknown method %q, known are %s and %s", s, GPG, SSH)
}

// The names under which a key to sign with is kept, and its passphrase.
const (
	SigningKeyName        = "commitSigningKey"
	SigningPassphraseName = "commitSigningPassphrase"
)

// SigningKey signs commits and tags. It prints its method and fingerprint only. Safe
// for concurrent use.
type SigningKey struct {
	method  Method
	key     string // fingerprint, as of a Signer
	part    string // the subkey that signs; "" = the key itself
	expires time.Time
	maker   maker
}

// maker makes an armored signature of a text that says when it was made. It verifies
// what it has made.
type maker interface {
	sign(text []byte, made time.Time) ([]byte, error)
}

// ParseSigningKey reads a private key: one of OpenPGP, armored, as
// "gpg --armor --export-secret-keys" writes it, or one of ssh, of a kind that may sign
// now. The passphrase is that of the key; it is left unused where the key has none. Reading
// a key with a passphrase takes as long as its writer wanted, at most some seconds of a
// small processor. Errors say what to do next and hold nothing of either.
func ParseSigningKey(key, passphrase []byte, now time.Time) (*SigningKey, error) {
	key = bytes.TrimSpace(key)
	passphrase = bytes.TrimRight(passphrase, "\r\n") // editors and echo leave one
	var k *SigningKey
	var err error
	switch {
	case len(key) == 0:
		return nil, errors.New("the key is empty")
	case len(key) > maxBytes:
		return nil, fmt.Errorf("the key is longer than %d bytes", maxBytes)
	case bytes.HasPrefix(key, []byte(pgpPrivate)):
		k, err = parseSigningPGP(key, passphrase, now)
	case bytes.HasPrefix(key, []byte("-----BEGIN "+pgpPublic)):
		err = errors.New("it is a public key; the private one signs: gpg --armor --export-secret-keys FINGERPRINT")
	case bytes.HasPrefix(key, []byte("ssh-")), bytes.HasPrefix(key, []byte("ecdsa-")), bytes.HasPrefix(key, []byte("sk-")):
		err = errors.New("it is a public key; the private one signs, which is in the file without .pub")
	case bytes.HasPrefix(key, []byte("-----BEGIN ")):
		k, err = parseSigningSSH(key, passphrase)
	default:
		err = errors.New("it is no private key: one of OpenPGP (gpg --armor --export-secret-keys FINGERPRINT) or of ssh (ssh-keygen -t ed25519) is wanted")
	}
	if err != nil {
		return nil, err
	}
	if _, err := k.maker.sign([]byte("tried"), now); err != nil { // its private part may be that of another
		return nil, err
	}
	return k, nil
}

// Sign makes the armored signature of a commit or tag without one. The same text gives
// the same signature: its time is that of the committer or tagger.
func (k *SigningKey) Sign(text []byte) ([]byte, error) {
	made, err := madeAt(text)
	if err != nil {
		return nil, err
	}
	return k.maker.sign(text, made)
}

// Method is how k signs.
func (k *SigningKey) Method() Method { return k.method }

// Key is the fingerprint of k, as that of a Signer.
func (k *SigningKey) Key() string { return k.key }

// Expires is from when on k signs nothing any more; zero = never.
func (k *SigningKey) Expires() time.Time { return k.expires }

// String says who signs: the method and the fingerprint.
func (k *SigningKey) String() string {
	if k == nil {
		return "signing key(none)"
	}
	text := string(k.method) + " key " + k.key
	if k.part != "" {
		text += " by its subkey " + k.part
	}
	return text
}

// Format is String for every verb, of pointers and of values.
func (k SigningKey) Format(f fmt.State, _ rune) { io.WriteString(f, k.String()) }

// LogValue is String, for slog.
func (k SigningKey) LogValue() slog.Value { return slog.StringValue(k.String()) }

// MarshalJSON writes String, so that an accidental dump holds no secret.
func (k SigningKey) MarshalJSON() ([]byte, error) { return json.Marshal(k.String()) }

// madeAt is when a commit or tag says that it was made.
func madeAt(text []byte) (time.Time, error) {
	head, _, _ := bytes.Cut(text, []byte("\n\n"))
	for l := range strings.SplitSeq(string(head), "\n") {
		person, found := strings.CutPrefix(l, "committer ")
		if !found {
			person, found = strings.CutPrefix(l, "tagger ")
		}
		if !found {
			continue
		}
		words := strings.Fields(person[strings.LastIndexByte(person, '>')+1:])
		if len(words) > 0 {
			if seconds, err := strconv.ParseUint(words[0], 10, 32); err == nil {
				return time.Unix(int64(seconds), 0), nil
			}
		}
	}
	return time.Time{}, errors.New("a text that does not say when it was made cannot be signed")
}

// rearm puts a signature into its armor, with lines of a length.
func rearm(what, encoded string, width int, head, tail string) []byte {
	var out strings.Builder
	out.WriteString("-----BEGIN " + what + "-----\n" + head)
	for ; len(encoded) > width; encoded = encoded[width:] {
		out.WriteString(encoded[:width] + "\n")
	}
	out.WriteString(encoded + "\n" + tail + "-----END " + what + "-----\n")
	return []byte(out.String())
}
