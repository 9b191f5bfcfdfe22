package auth

import (
	"context"
	"fmt"
	"slices"

	"limpet/sync/signature"
)

// Trust is the public keys that may sign what a Repository pulls: files by name, as for [signature.ParseKeys].
type Trust struct {
	Files map[string][]byte
	Place string // where they were found, for people
}

// TrustSource finds the keys for a look-up. It returns nil, nil when there are none; an
// error means that there are some which cannot be read.
type TrustSource func(ctx context.Context, l Lookup) (*Trust, error)

// Trust finds the keys of signers.
func (p Places) Trust(ctx context.Context, l Lookup) (*Trust, error) {
	return find(ctx, p, l, trustKeys, func(at place) (*Trust, error) {
		return &Trust{Files: at.keys, Place: at.name}, nil
	})
}

// aboutSigning reports whether a key is one of signers, or one to sign with.
func aboutSigning(key string) bool {
	return signature.IsKeys(key) || isSigningKey(key)
}

// signingNames are the names of the key and of its passphrase, in a Secret, a credentials
// directory or a rule, and as fields of spec.secure.
var signingNames = []string{signature.SigningKeyName, signature.SigningPassphraseName}

func isSigningKey(key string) bool { return slices.Contains(signingNames, key) }

// The names of the same in a Secret as Flux has it for its own commits. Source:
// spec.git.commit.signingKey of ImageUpdateAutomation.
const (
	fluxSigningKey        = "git.asc"
	fluxSigningPassphrase = "passphrase"
)

// fluxNames returns the data of a Secret of a signing key with our names.
func fluxNames(field string, data map[string][]byte) map[string][]byte {
	if field != signature.SigningKeyName || len(data[signature.SigningKeyName]) > 0 || len(data[fluxSigningKey]) == 0 {
		return data
	}
	return map[string][]byte{signature.SigningKeyName: data[fluxSigningKey], signature.SigningPassphraseName: data[fluxSigningPassphrase]}
}

// Signing finds the key to sign with, as SSHKey and SSHPassphrase whatever its kind. That
// of a rule signs for all Repositories at its URL.
func (p Places) Signing(ctx context.Context, l Lookup) (*Credentials, error) {
	return find(ctx, p, l, signingKeys, signingKey)
}

// signingKey returns what was found at a place, nil for nothing.
func signingKey(at place) (*Credentials, error) {
	key, passphrase := at.keys[signature.SigningKeyName], at.keys[signature.SigningPassphraseName]
	switch {
	case len(key) == 0 && len(passphrase) > 0:
		return nil, fmt.Errorf("%s: there is a %s, and no %s that it is for", at.name, signature.SigningPassphraseName, signature.SigningKeyName)
	case len(key) == 0:
		return nil, nil
	}
	return &Credentials{SSHKey: key, SSHPassphrase: string(passphrase), Source: at.name}, nil
}
