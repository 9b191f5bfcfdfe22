package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"limpet/sync/signature"
)

// Signing is the private key that signs the commits of a Repository, as it was found. It
// prints its place only.
type Signing struct {
	Key        []byte // as for [signature.ParseSigningKey]
	Passphrase []byte // of Key, when it has one
	Place      string // where they were found, for people
}

// SigningSource finds the key that signs for a look-up, at the places of credentials. It
// returns nil, nil when it has none; an error means that there is one which cannot be
// read. Errors hold no secret.
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

// ChainSigning asks the sources in order and returns the first key found. Nil sources
// are left out.
func ChainSigning(sources ...SigningSource) SigningSource {
	return func(ctx context.Context, l Lookup) (*Signing, error) {
		for _, s := range sources {
			if s == nil {
				continue
			}
			if found, err := s(ctx, l); err != nil || found != nil {
				return found, err
			}
		}
		return nil, nil
	}
}

// SigningSecrets reads the key in the Secrets that spec.secure names, see SecretSource.
func SigningSecrets(get func(ctx context.Context, namespace, name string) (map[string][]byte, error)) SigningSource {
	return func(ctx context.Context, l Lookup) (*Signing, error) {
		keys := map[string][]byte{}
		var places []string
		for _, field := range slices.Sorted(maps.Keys(l.Secure)) {
			name := l.Secure[field]
			place := "secret " + l.Namespace + "/" + name
			if name == "" || field == fieldWebhook || slices.Contains(places, place) {
				continue
			}
			data, err := get(ctx, l.Namespace, name)
			if err != nil {
				return nil, fmt.Errorf("read secret %s/%s: %w", l.Namespace, name, err)
			}
			if field == signature.SigningKeyName {
				data = fromFlux(data)
			}
			had := len(keys)
			for _, k := range signingKeys {
				if v := data[k]; len(v) > 0 && keys[k] == nil {
					keys[k] = v
				}
			}
			if len(keys) > had {
				places = append(places, place)
			}
		}
		return signingOf(keys, strings.Join(places, " and "))
	}
}

// fromFlux has a Secret as Flux wants it hold the same under the names of here.
func fromFlux(data map[string][]byte) map[string][]byte {
	if len(data[signature.SigningKeyName]) > 0 || len(data[fluxSigningKey]) == 0 {
		return data
	}
	return map[string][]byte{signature.SigningKeyName: data[fluxSigningKey], signature.SigningPassphraseName: data[fluxSigningPassphrase]}
}

// SigningFields reads secure values one by one, see FieldSource.
func SigningFields(get func(ctx context.Context, l Lookup, field string) ([]byte, error)) SigningSource {
	return func(ctx context.Context, l Lookup) (*Signing, error) {
		keys := map[string][]byte{}
		for _, k := range signingKeys {
			if _, set := l.Secure[k]; !set {
				continue
			}
			v, err := get(ctx, l, k)
			if err != nil {
				return nil, fmt.Errorf("read secure.%s of %s/%s: %w", k, l.Namespace, l.Repository, err)
			}
			if len(v) > 0 {
				keys[k] = v
			}
		}
		return signingOf(keys, "secure values of "+l.Namespace+"/"+l.Repository)
	}
}

// SigningDir reads the key in a credentials directory, see DirSource.
func SigningDir(dir string) SigningSource {
	return func(_ context.Context, l Lookup) (*Signing, error) {
		root, err := os.OpenRoot(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("open credentials directory: %w", err)
		}
		defer root.Close()
		for _, name := range []string{l.Repository, l.Connection} {
			if !plainName(l.Namespace) || !plainName(name) {
				continue
			}
			base := l.Namespace + "." + name
			keys, err := readKeys(root, base, signingKeys)
			if err != nil {
				return nil, fmt.Errorf("credentials directory %s: %w", dir, err)
			}
			if found, err := signingOf(keys, "directory "+dir+" for "+base); err != nil || found != nil {
				return found, err
			}
		}
		return nil, nil
	}
}

// SigningRules reads the key of the first rule for the URL that has one: it signs for
// all Repositories there.
func SigningRules(rules []Rule) SigningSource {
	return func(_ context.Context, l Lookup) (*Signing, error) {
		a, err := ParseAddress(l.URL)
		if err != nil {
			return nil, nil
		}
		for _, r := range rules {
			if !r.matches(a) {
				continue
			}
			if found, err := r.signing(); err != nil || found != nil {
				return found, err
			}
		}
		return nil, nil
	}
}

// signing reads the key of a rule.
func (r Rule) signing() (*Signing, error) {
	keys := map[string][]byte{}
	for _, k := range signingKeys {
		if v := r.Values[k]; v != "" {
			keys[k] = []byte(v)
		}
		if r.Files[k] == "" {
			continue
		}
		v, err := ReadPrivate(r.Files[k])
		if err != nil {
			return nil, fmt.Errorf("credentials rule %s: key %s: %w", r.URL, k, err)
		}
		keys[k] = v
	}
	return signingOf(keys, "rule "+r.URL)
}

// signingOf is what keys hold that were found at a place, nil for nothing.
func signingOf(keys map[string][]byte, place string) (*Signing, error) {
	s := &Signing{Key: keys[signature.SigningKeyName], Passphrase: keys[signature.SigningPassphraseName], Place: place}
	switch {
	case len(s.Key) == 0 && len(s.Passphrase) > 0:
		return nil, fmt.Errorf("%s: there is a %s, and no %s that it is for", place, signature.SigningPassphraseName, signature.SigningKeyName)
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

// LogValue is String, for slog.
func (s Signing) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalJSON writes String.
func (s Signing) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }
