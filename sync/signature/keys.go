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

// maxFile bounds one file of keys. Unit: bytes.
const maxFile = 1 << 20

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
// where they were found, for people.
func ParseKeys(files map[string][]byte, place string) (*Keys, error) {
	k := &Keys{place: place}
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		data := files[name]
		for _, part := range [][]byte{[]byte(name), data} {
			sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
			sum.Write(part)
		}
		if err := k.read(name, data); err != nil {
			return nil, fmt.Errorf("keys in %s: %w", name, err)
		}
	}
	k.digest = hex.EncodeToString(sum.Sum(nil))
	return k, nil
}

func (k *Keys) read(name string, data []byte) error {
	if len(data) > maxFile {
		return fmt.Errorf("it is longer than %d bytes", maxFile)
	}
	if bytes.Contains(data, []byte("PRIVATE KEY")) {
		return errors.New("it holds a private key; public ones are wanted")
	}
	if strings.HasSuffix(name, ".asc") {
		var err error
		k.pgp, err = readRing(k.pgp, data)
		return err
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

// Digest changes when any byte of the files does, or a name of them.
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
