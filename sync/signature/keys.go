package signature

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// AllowedSigners is the name of the file with principals and validity.
const AllowedSigners = "allowed_signers"

// Bounds of all files of keys together: reading the dearest takes about a second on a
// common processor, whoever has written them.
const (
	maxBytes  = 1 << 20
	maxFiles  = 256
	maxKeys   = 1000     // keys, subkeys and names
	maxProofs = 1000     // signatures of OpenPGP that keys have made about themselves; one of RSA 8192 takes as long as four
	maxHashed = 32 << 20 // bytes that those are of
)

// IsKeys says that a file, or a key of a Secret, of this name holds public keys:
// *.asc, *.sshpub and allowed_signers. Source: Flux, but for the last.
func IsKeys(name string) bool {
	return name == AllowedSigners || strings.HasSuffix(name, ".asc") && name != ".asc" || strings.HasSuffix(name, ".sshpub") && name != ".sshpub"
}

// Keys are those that may sign. A nil *Keys has none.
type Keys struct {
	pgp    []*pgpOwner
	ssh    []sshEntry
	place  string
	digest string
}

// ParseKeys reads files of public keys by name. What cannot be read fails all of it:
// a key that is left out would be missed much later. Errors name the file. place is
// where they were found, for people. A Cache reads the same files once.
func ParseKeys(files map[string][]byte, place string) (*Keys, error) {
	k, err := parse(files)
	if err != nil {
		return nil, err
	}
	k.place, k.digest = place, digestOf(files)
	return k, nil
}

// digestOf changes when any byte of the files does, or a name of them.
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

func parse(files map[string][]byte) (*Keys, error) {
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
	k, ring := &Keys{}, ringReader{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := k.read(name, files[name], &ring); err != nil {
			return nil, fmt.Errorf("keys in %s: %w", name, err)
		}
		if len(k.ssh)+ring.parts > maxKeys {
			return nil, fmt.Errorf("keys in %s: %w", name, errMany)
		}
	}
	k.pgp = ring.owners
	return k, nil
}

var errMany = fmt.Errorf("there are more than %d keys, subkeys and names", maxKeys)

func (k *Keys) read(name string, data []byte, ring *ringReader) error {
	if bytes.Contains(data, []byte("PRIVATE KEY")) {
		return errors.New("it holds a private key; public ones are wanted")
	}
	if strings.HasSuffix(name, ".asc") {
		return ring.read(data)
	}
	read := readAuthorized
	if name == AllowedSigners {
		read = readAllowed
	}
	entries, err := read(data)
	k.ssh = append(k.ssh, entries...)
	return err
}

// Len is how many keys there are, subkeys not counted.
func (k *Keys) Len() int {
	if k == nil {
		return 0
	}
	return len(k.pgp) + len(k.ssh)
}

// Digest is that of the files: it changes when any byte of them does, or a name.
func (k *Keys) Digest() string {
	if k == nil {
		return ""
	}
	return k.digest
}

// others says, after "which", that a key is none of these.
func (k *Keys) others() string {
	text := "is not among the " + fmt.Sprint(k.Len()) + " keys"
	if k.Len() == 1 {
		text = "is not the one key"
	}
	if k.place == "" {
		return text + " that may sign"
	}
	return text + " of " + k.place
}
