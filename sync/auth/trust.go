package auth

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"limpet/sync/signature"
)

// Trust is the public keys of those who may sign what a Repository pulls: files by
// name, as for [signature.ParseKeys].
type Trust struct {
	Files map[string][]byte
	Place string // where they were found, for people
}

// TrustSource finds the keys for a look-up, at the places of credentials. It returns
// nil, nil when it has none; an error means that there are some which cannot be read.
type TrustSource func(ctx context.Context, l Lookup) (*Trust, error)

// ChainTrust asks the sources in order and returns the first keys found. Nil sources
// are left out.
func ChainTrust(sources ...TrustSource) TrustSource {
	return func(ctx context.Context, l Lookup) (*Trust, error) {
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

// TrustSecrets reads the keys in the Secrets that spec.secure names, see SecretSource.
func TrustSecrets(get func(ctx context.Context, namespace, name string) (map[string][]byte, error)) TrustSource {
	return func(ctx context.Context, l Lookup) (*Trust, error) {
		found := &Trust{Files: map[string][]byte{}}
		var places []string
		for _, field := range slices.Sorted(maps.Keys(l.Secure)) {
			name := l.Secure[field]
			if name == "" || slices.Contains(skippedFields, field) || slices.Contains(places, "secret "+l.Namespace+"/"+name) {
				continue
			}
			data, err := get(ctx, l.Namespace, name)
			if err != nil {
				return nil, fmt.Errorf("read secret %s/%s: %w", l.Namespace, name, err)
			}
			before := len(found.Files)
			for key, value := range data {
				if _, twice := found.Files[key]; twice && signature.IsKeys(key) {
					return nil, fmt.Errorf("secret %s/%s: %s is in another secret of the repository too", l.Namespace, name, key)
				}
				if signature.IsKeys(key) {
					found.Files[key] = value
				}
			}
			if len(found.Files) > before {
				places = append(places, "secret "+l.Namespace+"/"+name)
			}
		}
		return found.in(strings.Join(places, " and "))
	}
}

// TrustDir reads the keys in a credentials directory, see DirSource. They are no
// secrets: others may read the files, and must not be able to write to them.
func TrustDir(dir string) TrustSource {
	return func(_ context.Context, l Lookup) (*Trust, error) {
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
			found, err := trustIn(root, base)
			if err != nil {
				return nil, fmt.Errorf("credentials directory %s: %w", dir, err)
			}
			if len(found.Files) > 0 {
				return found.in("directory " + dir + " for " + base)
			}
		}
		return nil, nil
	}
}

// trustIn reads the keys of one object: <base>/<key> and <base>_<key>.
func trustIn(root *os.Root, base string) (*Trust, error) {
	found := &Trust{Files: map[string][]byte{}}
	below, err := listed(root, base)
	if err != nil {
		return nil, err
	}
	if below == nil {
		return nil, fmt.Errorf("%s cannot be listed, so it is not known which keys are in it", base)
	}
	flat, err := listed(root, ".")
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
	for _, key := range slices.Sorted(maps.Keys(paths)) {
		if found.Files[key], err = readPublic(root.Open, paths[key]); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// TrustRules reads the keys of the first rule for the URL that has any.
func TrustRules(rules []Rule) TrustSource {
	return func(_ context.Context, l Lookup) (*Trust, error) {
		a, err := ParseAddress(l.URL)
		if err != nil {
			return nil, nil
		}
		for _, r := range rules {
			if !r.matches(a) {
				continue
			}
			found, err := r.trust()
			if err != nil || len(found.Files) > 0 {
				return found, err
			}
		}
		return nil, nil
	}
}

// trust reads the keys of a rule.
func (r Rule) trust() (*Trust, error) {
	found := &Trust{Files: map[string][]byte{}, Place: "rule " + r.URL}
	for k, v := range r.Values {
		if signature.IsKeys(k) {
			found.Files[k] = []byte(v)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(r.Files)) {
		if !signature.IsKeys(k) {
			continue
		}
		v, err := readPublic(os.Open, r.Files[k])
		if err != nil {
			return nil, fmt.Errorf("credentials rule %s: key %s: %w", r.URL, k, err)
		}
		found.Files[k] = v
	}
	return found, nil
}

// aboutSigning says that a key is one of those who may sign, or one to sign with.
func aboutSigning(key string) bool {
	return signature.IsKeys(key) || slices.Contains(signingKeys, key)
}

// onlySigning says that a rule gives keys of signers or one to sign with, and nothing
// else.
func (r Rule) onlySigning() bool {
	n := 0
	for _, names := range []map[string]string{r.Values, r.Files} {
		for k := range names {
			if !aboutSigning(k) {
				return false
			}
			n++
		}
	}
	return n > 0 && r.Provider == ""
}

// in is t as found at a place, nil when it is empty.
func (t *Trust) in(place string) (*Trust, error) {
	if len(t.Files) == 0 {
		return nil, nil
	}
	t.Place = place
	return t, nil
}

// ReadPublicIn reads a file of public keys in a directory: one of at most 1 MiB that nobody
// but its owner may write to. A link does not lead out of the directory. Errors name the
// file.
func ReadPublicIn(root *os.Root, name string) ([]byte, error) { return readPublic(root.Open, name) }

// readPublic reads a file of at most 1 MiB that nobody but its owner may write to.
func readPublic(open func(string) (*os.File, error), name string) ([]byte, error) {
	return readChecked(open, name, checkOwned)
}
