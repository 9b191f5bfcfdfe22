package signature

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// sshMaker signs with a private key of ssh.
type sshMaker struct {
	signer    ssh.AlgorithmSigner
	algorithm string
}

// parseSigningSSH reads a private key in the form of OpenSSH, or in one of those that
// it had before.
func parseSigningSSH(data, passphrase []byte) (*SigningKey, error) {
	block, rest := pem.Decode(data)
	switch {
	case block == nil:
		return nil, errors.New("it is not whole: what is between its first and its last line cannot be read")
	case strings.Contains(block.Type, "PUBLIC KEY"):
		return nil, errors.New("it is a public key; the private one signs")
	case strings.Contains(block.Type, "CERTIFICATE"):
		return nil, errors.New("it is an X.509 certificate (smime), which is not supported: use a key of OpenPGP or of ssh")
	case block.Type == "ENCRYPTED PRIVATE KEY":
		return nil, errors.New("it is encrypted in the form PKCS8, which is not supported: ssh-keygen -p -f FILE writes it anew")
	case !strings.HasSuffix(block.Type, "PRIVATE KEY"):
		return nil, errors.New("it holds something else than a private key")
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
	case err != nil && strings.Contains(err.Error(), "unknown cipher"):
		return nil, errors.New("its cipher is not supported: ssh-keygen -p -Z aes256-ctr -f FILE writes it anew")
	case err != nil && strings.Contains(err.Error(), "rounds"):
		return nil, errors.New("opening it takes too many rounds: ssh-keygen -p -a 24 -f FILE writes it anew")
	case err != nil:
		return nil, errors.New("it is a key of ssh that cannot be read: ed25519, ecdsa and rsa are supported, not those of tokens (sk), in the form of OpenSSH or in PEM")
	}
	// What x/crypto says of a key would do as well, but for what it may hold of it.
	if p, ok := private.(*ed25519.PrivateKey); ok {
		private = *p
	}
	m := &sshMaker{}
	switch p := private.(type) {
	case ed25519.PrivateKey:
		m.algorithm = ssh.KeyAlgoED25519
	case *ecdsa.PrivateKey:
	case *rsa.PrivateKey:
		m.algorithm = ssh.KeyAlgoRSASHA512
		if bits := p.N.BitLen(); bits < smallestRSA || bits > largestRSA {
			return nil, fmt.Errorf("it is a key of RSA with %d bits; those with %d to %d are supported: ssh-keygen -t ed25519 makes a better one", bits, smallestRSA, largestRSA)
		}
	default:
		return nil, errors.New("it is a key of an algorithm that is not supported: ed25519, ecdsa and rsa are")
	}
	signer, err := ssh.NewSignerFromSigner(private.(crypto.Signer))
	if err != nil {
		return nil, errors.New("it is a key of ssh that cannot sign: ed25519, ecdsa on a curve of NIST and rsa can")
	}
	m.signer = signer.(ssh.AlgorithmSigner)
	if m.algorithm == "" {
		m.algorithm = signer.PublicKey().Type()
	}
	return &SigningKey{method: SSH, key: ssh.FingerprintSHA256(signer.PublicKey()), maker: m}, nil
}

var (
	errLocked     = errors.New("it has a passphrase, and none is given: put it into " + SigningPassphraseName + " beside the key")
	errPassphrase = errors.New("the passphrase does not open it: put the one of this key into " + SigningPassphraseName + " beside the key")
)

// errMade is what a private part that is not the one of its public part comes to.
var errMade = errors.New("its private part is not that of its public part: export it anew")

func (m *sshMaker) sign(text []byte, _ time.Time) ([]byte, error) {
	sum := sha512.Sum512(text)
	signed := append([]byte(sshMagic), ssh.Marshal(sshSigned{Namespace: namespace, Hash: "sha512", Digest: sum[:]})...)
	// Without a source of randomness ecdsa takes that of RFC 6979; the others need none.
	proof, err := m.signer.SignWithAlgorithm(nil, signed, m.algorithm)
	if err != nil || m.signer.PublicKey().Verify(signed, proof) != nil {
		return nil, errMade
	}
	blob := append([]byte(sshMagic), ssh.Marshal(sshSignature{Version: 1, PublicKey: m.signer.PublicKey().Marshal(),
		Namespace: namespace, Hash: "sha512", Signature: ssh.Marshal(proof)})...)
	return rearm("SSH SIGNATURE", base64.StdEncoding.EncodeToString(blob), 70, "", ""), nil
}
