package auth

import (
	"context"
	"fmt"
	"maps"
	"slices"

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
	files: files(signature.IsKeys, checkOwned),
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

// aboutSigning reports whether a key is one of signers, or one to sign with.
func aboutSigning(key string) bool {
	return signature.IsKeys(key) || slices.Contains(signingKeys, key)
}
