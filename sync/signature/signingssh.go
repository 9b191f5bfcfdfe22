package signature

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// parseSigningSSH parses a private key in the form of OpenSSH, or in one of those that it used before.
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
