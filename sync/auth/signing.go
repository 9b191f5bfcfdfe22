package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"limpet/sync/signature"
)

// Signing is the private key that signs the commits of a Repository, as it was found. It
// prints its place only.
type Signing struct {
	Key        []byte // as for [signature.ParseSigningKey]
	Passphrase []byte // of Key, when it has one
	Place      string // where they were found, for people
}

// SigningSource finds the key that signs for a look-up. It returns nil, nil when there is
// none; an error means that there is one which cannot be read. Errors hold no secret.
type SigningSource func(ctx context.Context, l Lookup) (*Signing, error)

// signingKeys are the names of the key and of its passphrase, in a Secret, a credentials
// directory or a rule, and as fields of spec.secure.
var signingKeys = []string{signature.SigningKeyName, signature.SigningPassphraseName}

// The names of the same in a Secret as Flux has it for its own commits. Source:
// spec.git.commit.signingKey of ImageUpdateAutomation.
const (
	fluxSigningKey        = "git.asc"
	fluxSigningPassphrase = "passphrase"
)

func isSigningKey(key string) bool { return slices.Contains(signingKeys, key) }

// signingSelection selects the key to sign with.
var signingSelection = selection{
	skip: []string{fieldWebhook},
	of: func(field string, data map[string][]byte) map[string][]byte {
		if field == signature.SigningKeyName && len(data[signature.SigningKeyName]) == 0 && len(data[fluxSigningKey]) > 0 {
			data = map[string][]byte{signature.SigningKeyName: data[fluxSigningKey], signature.SigningPassphraseName: data[fluxSigningPassphrase]}
		}
		return only(data, isSigningKey)
	},
	merge: func(all, more map[string][]byte, _ string) error {
		for key, value := range more {
			if len(all[key]) == 0 {
				all[key] = value
			}
		}
		return nil
	},
	names: signingKeys,
	files: privateFiles(signingKeys),
	rule:  func(r Rule) (map[string][]byte, error) { return r.keys(isSigningKey, checkPrivate) },
}

// Signing finds the key to sign with. That of a rule signs for all Repositories at its
// URL.
func (p Places) Signing(ctx context.Context, l Lookup) (*Signing, error) {
	return find(ctx, p, l, signingSelection, newSigning)
}

// newSigning returns what was found at a place, nil for nothing.
func newSigning(at place) (*Signing, error) {
	s := &Signing{Key: at.keys[signature.SigningKeyName], Passphrase: at.keys[signature.SigningPassphraseName], Place: at.name}
	switch {
	case len(s.Key) == 0 && len(s.Passphrase) > 0:
		return nil, fmt.Errorf("%s: there is a %s, and no %s that it is for", at.name, signature.SigningPassphraseName, signature.SigningKeyName)
	case len(s.Key) == 0:
		return nil, nil
	}
	return s, nil
}

// String shows the place, no secret.
func (s *Signing) String() string {
	if s == nil {
		return "signing(none)"
	}
	return "signing(" + s.Place + ")"
}

// Format is String for every verb, of pointers and of values.
func (s Signing) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// MarshalJSON writes String.
func (s Signing) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }
