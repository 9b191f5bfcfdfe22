package auth

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"limpet/sync/signature"
)

// Trust is the public keys that may sign what a Repository pulls: files by name, as for
// [signature.ParseKeys].
type Trust struct {
	Files map[string][]byte
	Place string // where they were found, for people
}

// TrustSource finds the keys for a look-up. It returns nil, nil when there are none; an
// error means that there are some which cannot be read.
type TrustSource func(ctx context.Context, l Lookup) (*Trust, error)

// trustKeys selects the keys of signers. They are no secrets: others may read the files,
// and must not be able to write to them.
var trustKeys = selection{
	skip: notForGit,
	of: func(_ string, data map[string][]byte) map[string][]byte {
		return only(data, signature.IsKeys)
	},
	merge: func(all, more map[string][]byte, secret string) error {
		for key, value := range more {
			if _, twice := all[key]; twice {
				return fmt.Errorf("%s: %s is in another secret of the repository too", secret, key)
			}
			all[key] = value
		}
		return nil
	},
	files: publicFiles,
	rule:  func(r Rule) (map[string][]byte, error) { return r.keys(signature.IsKeys, checkOwned) },
}

// Trust finds the keys of signers.
func (p Places) Trust(ctx context.Context, l Lookup) (*Trust, error) {
	return find(ctx, p, l, trustKeys, func(at place) (*Trust, error) {
		return &Trust{Files: at.keys, Place: at.name}, nil
	})
}

// only returns the keys of a kind, nil when there are none.
func only(data map[string][]byte, is func(string) bool) map[string][]byte {
	found := maps.Clone(data)
	maps.DeleteFunc(found, func(key string, _ []byte) bool { return !is(key) })
	if len(found) == 0 {
		return nil
	}
	return found
}

// publicFiles reads the keys of signers of one object: <base>/<key> and <base>_<key>.
func publicFiles(root *os.Root, base string) (map[string][]byte, error) {
	below, err := list(root, base)
	if err != nil {
		return nil, err
	}
	if below == nil {
		return nil, fmt.Errorf("%s cannot be listed, so the keys in it are not known", base)
	}
	flat, err := list(root, ".")
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for name := range flat {
		if key, ok := strings.CutPrefix(name, base+"_"); ok && signature.IsKeys(key) {
			paths[key] = name
		}
	}
	for name := range below {
		if signature.IsKeys(name) {
			paths[name] = base + "/" + name
		}
	}
	found := map[string][]byte{}
	for _, key := range slices.Sorted(maps.Keys(paths)) {
		if found[key], err = readFile(root.Open, paths[key], checkOwned); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// aboutSigning reports whether a key is one of signers, or one to sign with.
func aboutSigning(key string) bool {
	return signature.IsKeys(key) || slices.Contains(signingKeys, key)
}
