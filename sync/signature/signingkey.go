package signature

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// Method is a kind of signatures. Source: spec.commit.signingMethod of Grafana.
type Method string

// The methods.
const (
	GPG   Method = "gpg"
	SSH   Method = "ssh"
	smime Method = "smime" // known by name only
)

// ParseMethod parses a method; "" is any.
func ParseMethod(s string) (Method, error) {
	switch m := Method(s); m {
	case "", GPG, SSH:
		return m, nil
	case smime:
		return "", errors.New("smime (X.509 certificates) is not supported: use gpg or ssh")
	}
	return "", fmt.Errorf("unknown method %q, known are %s and %s", s, GPG, SSH)
}

// The names under which a signing key and its passphrase are stored.
const (
	SigningKeyName        = "commitSigningKey"
	SigningPassphraseName = "commitSigningPassphrase"
)

// SigningKey signs commits and tags. It prints its method and fingerprint only. Safe for concurrent
// use.
type SigningKey struct {
	method  Method
	key     string // fingerprint, as of a Signer
	subkey  string // the subkey that signs; "" = the key itself
	expires time.Time
	// sign makes an armored signature of a text that was made at a time, and verifies it.
	sign func(text []byte, made time.Time) ([]byte, error)
}

// Errors that both kinds of keys have in common.
var (
	errLocked     = errors.New("it has a passphrase, and none is given: put it into " + SigningPassphraseName + " beside the key")
	errPassphrase = errors.New("the passphrase does not open it: put the one of this key into " + SigningPassphraseName + " beside the key")
	errMismatch   = errors.New("its private part is not that of its public part: export it again")
)

// ParseSigningKey parses a private key that may sign now: one of OpenPGP, armored, as "gpg --armor
// --export-secret-keys" writes it, or one of SSH. The passphrase is not used when the key has none.
// Opening a key with a passphrase takes as long as the key says, at most some seconds. Errors say
// what to do next and contain no secret.
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
	case begins(key, pgpPrivate):
		k, err = parseSigningPGP(key, passphrase, now)
	case begins(key, pgpPublic):
		err = errors.New("it is a public key; the private one signs: gpg --armor --export-secret-keys FINGERPRINT")
	case bytes.HasPrefix(key, []byte("ssh-")), bytes.HasPrefix(key, []byte("ecdsa-")), bytes.HasPrefix(key, []byte("sk-")):
		err = errors.New("it is a public key; the private one signs, which is in the file without .pub")
	case bytes.HasPrefix(key, []byte("-----BEGIN ")):
		k, err = parseSigningSSH(key, passphrase)
	default:
		err = errors.New("it is no private key: " +
			"one of OpenPGP (gpg --armor --export-secret-keys FINGERPRINT) or of ssh (ssh-keygen -t ed25519) is wanted")
	}
	if err != nil {
		return nil, err
	}
	if _, err := k.sign([]byte("test"), now); err != nil { // its private part may be that of another key
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
	return k.sign(text, made)
}

// Method returns the kind of signatures that k makes.
func (k *SigningKey) Method() Method { return k.method }

// Key returns the fingerprint of k, as that of a Signer.
func (k *SigningKey) Key() string { return k.key }

// Expires returns when k expires; zero = never.
func (k *SigningKey) Expires() time.Time { return k.expires }

// String returns the method and the fingerprint.
func (k *SigningKey) String() string {
	if k == nil {
		return "signing key(none)"
	}
	text := string(k.method) + " key " + k.key
	if k.subkey != "" {
		text += " by its subkey " + k.subkey
	}
	return text
}

// Format is String for every verb, of pointers and of values.
func (k SigningKey) Format(f fmt.State, _ rune) { io.WriteString(f, k.String()) }

// MarshalJSON writes String, so that an accidental dump holds no secret.
func (k SigningKey) MarshalJSON() ([]byte, error) { return json.Marshal(k.String()) }

// madeBy finds when a commit or tag says that it was made.
var madeBy = regexp.MustCompile(`(?m)^(?:committer|tagger) .*> *([0-9]{1,10})(?: |$)`)

// madeAt returns when a commit or tag says that it was made.
func madeAt(text []byte) (time.Time, error) {
	head, _, _ := bytes.Cut(text, []byte("\n\n"))
	if found := madeBy.FindSubmatch(head); found != nil {
		if seconds, err := strconv.ParseUint(string(found[1]), 10, 32); err == nil {
			return time.Unix(int64(seconds), 0), nil
		}
	}
	return time.Time{}, errors.New("a text that does not say when it was made cannot be signed")
}

// repeatable signs without randomness (RFC 6979 for ECDSA), so that the same text has the same
// signature.
type repeatable struct{ crypto.Signer }

func (r repeatable) Sign(_ io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	return r.Signer.Sign(nil, digest, opts)
}

// parseSigningSSH parses a private key in the form of OpenSSH, or in one of those that it used
// before.
func parseSigningSSH(data, passphrase []byte) (*SigningKey, error) {
	block, rest := pem.Decode(data)
	switch {
	case block == nil:
		return nil, errors.New("it is damaged: what is between its first and its last line cannot be read")
	case strings.Contains(block.Type, "PUBLIC KEY"):
		return nil, errors.New("it is a public key; the private one signs")
	case !strings.HasSuffix(block.Type, "PRIVATE KEY"):
		return nil, errors.New("it holds something else than a private key; X.509 certificates (smime) are not supported")
	case len(block.Bytes) > maxSecret: // parsing takes long
		return nil, fmt.Errorf("it is longer than a key of RSA with %d bits", largestRSA)
	case len(bytes.TrimSpace(rest)) > 0:
		return nil, errors.New("something follows the private key; a file with one key alone is wanted")
	}
	private, err := ssh.ParseRawPrivateKey(data)
	if _, locked := errors.AsType[*ssh.PassphraseMissingError](err); locked {
		if len(passphrase) == 0 {
			return nil, errLocked
		}
		private, err = ssh.ParseRawPrivateKeyWithPassphrase(data, passphrase)
	}
	switch {
	case errors.Is(err, x509.IncorrectPasswordError):
		return nil, errPassphrase
	case err != nil: // the library's error may quote the key
		return nil, errors.New("it is a key of ssh that cannot be read: ed25519, ecdsa and rsa are supported, not those of tokens (sk); " +
			"ssh-keygen -p -Z aes256-ctr -a 24 -f FILE converts the form (PKCS8), the cipher and the rounds of one with a passphrase")
	}
	if k, ok := private.(*rsa.PrivateKey); ok && (k.N.BitLen() < smallestRSA || k.N.BitLen() > largestRSA) {
		return nil, fmt.Errorf("it is a key of RSA with %d bits; those with %d to %d are supported: ssh-keygen -t ed25519 makes a better one",
			k.N.BitLen(), smallestRSA, largestRSA)
	}
	inner, ok := private.(crypto.Signer)
	if !ok {
		return nil, errors.New("it is a key of an algorithm that is not supported: ed25519, ecdsa and rsa are")
	}
	signer, err := ssh.NewSignerFromSigner(repeatable{inner})
	if err != nil {
		return nil, errors.New("it is a key of ssh that cannot sign: ed25519, ecdsa on a curve of NIST and rsa can")
	}
	sign := func(text []byte, _ time.Time) ([]byte, error) {
		sig, err := sshsig.Sign(bytes.NewReader(text), signer, sshsig.HashSHA512, namespace)
		if err != nil || sshsig.Verify(bytes.NewReader(text), sig, signer.PublicKey(), sshsig.HashSHA512, namespace) != nil {
			return nil, errMismatch
		}
		return sshsig.Armor(sig), nil
	}
	return &SigningKey{method: SSH, key: ssh.FingerprintSHA256(signer.PublicKey()), sign: sign}, nil
}
