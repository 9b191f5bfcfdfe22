package signature

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// AllowedSigners is the name of the file with principals and validity.
const AllowedSigners = "allowed_signers"

// Bounds of all files of keys together. They keep the time to read them at about a second on a
// common processor.
const (
	maxBytes = 1 << 20
	maxFiles = 256
	maxKeys  = 1000 // keys, subkeys and user IDs
)

// IsKeys reports whether a file, or a key of a Secret, of this name holds public keys:
// *.asc, *.sshpub and allowed_signers. Source: Flux, but for the last.
func IsKeys(name string) bool {
	return name == AllowedSigners || strings.HasSuffix(name, ".asc") && name != ".asc" || strings.HasSuffix(name, ".sshpub") &&
		name != ".sshpub"
}

// Keys are the keys that may sign. A nil *Keys is empty.
type Keys struct {
	pgp    []*pgpKey
	ssh    []sshKey
	parts  int // keys, subkeys and user IDs
	place  string
	digest string
}

// digestOf returns a hash of the names and contents of the files.
func digestOf(files map[string][]byte) string {
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, part := range [][]byte{[]byte(name), files[name]} {
			sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
			sum.Write(part)
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// ParseKeys parses files of public keys by name. It fails when any of them cannot be
// read: a key that is left out would be noticed much later. Errors name the file. place
// is where the files were found, for messages.
func ParseKeys(files map[string][]byte, place string) (*Keys, error) {
	size := 0
	for _, data := range files {
		size += len(data)
	}
	switch {
	case size > maxBytes:
		return nil, fmt.Errorf("the files of keys are longer than %d bytes together", maxBytes)
	case len(files) > maxFiles:
		return nil, fmt.Errorf("there are more than %d files of keys", maxFiles)
	}
	k := &Keys{place: place, digest: digestOf(files)}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := k.read(name, files[name]); err != nil {
			return nil, fmt.Errorf("keys in %s: %w", name, err)
		}
	}
	return k, nil
}

func (k *Keys) read(name string, data []byte) error {
	switch {
	case bytes.Contains(data, []byte("PRIVATE KEY")):
		return errors.New("it holds a private key; public ones are wanted")
	case strings.HasSuffix(name, ".asc"):
		for rest := bytes.TrimSpace(data); len(rest) > 0; {
			var body []byte
			var err error
			if body, rest, err = unarmor(rest, pgpPublic); err != nil {
				return err
			}
			keys, parts, err := splitKeys(body)
			if err = cmp.Or(err, k.count(parts)); err != nil {
				return err
			}
			for _, packets := range keys {
				key, err := newPGPKey(packets)
				if err != nil {
					return err
				}
				k.add(key)
			}
		}
		return nil
	case name == AllowedSigners:
		return k.readSSH(data, parseAllowedSigner)
	}
	return k.readSSH(data, parseAuthorizedKey)
}

// count adds to the number of keys, subkeys and user IDs.
func (k *Keys) count(n int) error {
	if k.parts += n; k.parts > maxKeys {
		return fmt.Errorf("there are more than %d keys, subkeys and names", maxKeys)
	}
	return nil
}

// Len returns the number of keys without subkeys.
func (k *Keys) Len() int {
	if k == nil {
		return 0
	}
	return len(k.pgp) + len(k.ssh)
}

// Digest returns a hash of the files: it changes with any byte of them and any name.
func (k *Keys) Digest() string {
	if k == nil {
		return ""
	}
	return k.digest
}

// unknown is the error about a key that is not one of these.
func (k *Keys) unknown(name string) *Error {
	listed, place := fmt.Sprintf("among the %d keys", k.Len()), "that may sign"
	if k.Len() == 1 {
		listed = "the one key"
	}
	if k.place != "" {
		place = "of " + k.place
	}
	return refuse(UnknownKey, "is signed by %s, which is not %s %s", name, listed, place)
}

// Holder is the state of a key that may sign, or of an entry about one.
type Holder struct {
	Key        string    // as of a Signer
	Principals []string  // its owners; empty = unknown
	Expires    time.Time // from when on its signatures are refused; zero = never
	Err        error     // why its signatures are refused now; nil = they are not
}

// Holders returns the states of all keys at a time, those of OpenPGP first.
func (k *Keys) Holders(now time.Time) []Holder {
	if k == nil {
		return nil
	}
	var all []Holder
	for _, key := range k.pgp {
		all = append(all, key.holder(now))
	}
	for _, key := range k.ssh {
		all = append(all, key.holder(now))
	}
	return all
}

// aboutKey strips the error about a signature down to what it says about the key.
func aboutKey(e *Error) *Error {
	return &Error{e.Kind, errors.New(strings.TrimPrefix(e.Error(), "is signed by "))}
}
