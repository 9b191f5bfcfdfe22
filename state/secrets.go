package state

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"limpet/state/atomicfile"
	"limpet/state/frame"
	"limpet/sync/fileid"
)

// Secrets are sealed with AES-256-GCM; the name of the secret is the additional data, so that one
// cannot be put in another's place. The key is derived from $CREDENTIALS_DIRECTORY/limpet-state-key
// (systemd) or from the file `<path>.key` (0600), which is made when the first secret is written.
// Without the key the secrets of a copied state file cannot be read.

// sealCredential is the name of the key among systemd's credentials.
const sealCredential = "limpet-state-key"

// minKeyText is the shortest key material that is accepted, in bytes.
const minKeyText = 16

// maxKeyText bounds what is read of a key file, in bytes.
const maxKeyText = 64 << 10

// sealer holds the derived key once it has been needed.
type sealer struct {
	path string // of the state file

	mu   sync.Mutex // guards the fields below
	aead cipher.AEAD
	id   string
}

// sealed is the body of a secret.
type sealed struct {
	Key   string `json:"key"` // first bytes of the key's hash, to tell a wrong key from damage
	Nonce []byte `json:"nonce"`
	Text  []byte `json:"text"`
}

// PutSecret seals and keeps a secret.
func (s *Store) PutSecret(ctx context.Context, name string, plain []byte) error {
	return s.write(ctx, func(t *txn) error { return t.putSecret(s, SecretWrite{Name: name, Plain: plain}) })
}

// DeleteSecret forgets a secret; one that is not there is no error.
func (s *Store) DeleteSecret(ctx context.Context, name string) error {
	return s.write(ctx, func(t *txn) error { return t.putSecret(s, SecretWrite{Name: name, Delete: true}) })
}

// Secret returns the plain value. ErrNotFound when there is none, ErrSealed when the key does not
// fit.
func (s *Store) Secret(ctx context.Context, name string) ([]byte, error) {
	f, err := s.copyOf(ctx, frame.Secrets, name)
	if err != nil {
		return nil, err
	}
	var body sealed
	if err := decodeJSON(f, &body); err != nil {
		return nil, err
	}
	aead, id, err := s.seal.key(false)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("open secret %q: %w: the key file is gone: %w", name, ErrSealed, err)
	case err != nil:
		return nil, fmt.Errorf("open secret %q: %w", name, err)
	case id == body.Key && len(body.Nonce) == aead.NonceSize():
		if plain, err := aead.Open(nil, body.Nonce, body.Text, []byte(name)); err == nil {
			return plain, nil
		}
	}
	return nil, fmt.Errorf("open secret %q: %w", name, ErrSealed)
}

// SecretNames returns the names that begin with prefix, sorted.
func (s *Store) SecretNames(ctx context.Context, prefix string) ([]string, error) {
	return read(ctx, s, func(v view) (out []string, err error) {
		err = v.scan(ctx, frame.Secrets, []byte(prefix), nil, func(k []byte, _ frame.Frame) (bool, error) {
			out = append(out, string(k))
			return true, nil
		})
		return out, err
	})
}

func (t *txn) putSecret(s *Store, w SecretWrite) error {
	if w.Delete {
		return t.remove(frame.Secrets, []byte(w.Name))
	}
	body, err := s.seal.close(w.Name, w.Plain, t.m.Counters[frame.Secrets].N > 0)
	if err != nil {
		return err
	}
	return t.putJSON(frame.Secrets, []byte(w.Name), body)
}

// close seals plain. have reports that sealed secrets exist already: then a missing key is an error
// and not a reason to make a new one, which would hide the loss until a secret is needed.
func (s *sealer) close(name string, plain []byte, have bool) (sealed, error) {
	aead, id, err := s.key(!have)
	if err != nil {
		return sealed{}, fmt.Errorf("seal secret %q: %w", name, err)
	}
	nonce := make([]byte, aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return sealed{Key: id, Nonce: nonce, Text: aead.Seal(nil, nonce, plain, []byte(name))}, nil
}

// key returns the cipher and the key's id; create allows to make the key file.
func (s *sealer) key(create bool) (cipher.AEAD, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aead != nil {
		return s.aead, s.id, nil
	}
	text, err := s.material(create)
	if err != nil {
		return nil, "", err
	}
	if len(text) < minKeyText {
		return nil, "", fmt.Errorf("key material of %d bytes is too short, want at least %d", len(text), minKeyText)
	}
	key, err := hkdf.Key(sha256.New, text, nil, "limpet state seal", 32)
	var block cipher.Block
	if err == nil {
		block, err = aes.NewCipher(key)
	}
	var aead cipher.AEAD
	if err == nil {
		aead, err = cipher.NewGCM(block)
	}
	if err != nil {
		return nil, "", fmt.Errorf("derive key: %w", err)
	}
	id := sha256.Sum256(key)
	s.aead, s.id = aead, hex.EncodeToString(id[:4])
	return s.aead, s.id, nil
}

// material reads what the key is derived from.
func (s *sealer) material(create bool) ([]byte, error) {
	if dir := os.Getenv("CREDENTIALS_DIRECTORY"); dir != "" {
		text, err := fileid.Read(filepath.Join(dir, sealCredential), fileid.MaxSettings)
		if !errors.Is(err, fs.ErrNotExist) {
			return text, err
		}
	}
	f, err := os.OpenFile(s.path+".key", os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) && create {
		return s.make()
	}
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyText))
	return text, errors.Join(err, f.Close(), restrictMode(f.Name()))
}

// make writes a new key file and makes it durable before the first secret is sealed with it.
func (s *sealer) make() ([]byte, error) {
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails
	text := []byte(hex.EncodeToString(random[:]))
	if err := atomicfile.Write(s.path+".key", 0o600, atomicfile.Data(text)); err != nil {
		return nil, frame.Classify(fmt.Errorf("write key file: %w", err))
	}
	return text, nil
}

// String keeps the plain value out of errors and logs.
func (w SecretWrite) String() string { return fmt.Sprintf("secret %q", w.Name) }
