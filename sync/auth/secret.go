package auth

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// fieldWebhook of spec.secure is about what comes in.
const fieldWebhook = "webhookSecret"

// skippedFields of spec.secure never authenticate to a Git remote, nor say who may sign.
var skippedFields = append([]string{fieldWebhook}, signingKeys...)

// SecretSource reads the Secrets that spec.secure names, in the namespace of
// the Repository. get returns the data of a Secret, or nil, nil when there is
// none or the API serves none; then the search goes on elsewhere. A Secret
// holds the keys of keyNames, or those of a provider.
func SecretSource(get func(ctx context.Context, namespace, name string) (map[string][]byte, error)) Source {
	return SourceFunc(func(ctx context.Context, l Lookup) (*Credentials, error) {
		merged := make(map[string][]byte)
		place := ""
		for _, field := range slices.Sorted(maps.Keys(l.Secure)) {
			name := l.Secure[field]
			if name == "" || slices.Contains(skippedFields, field) {
				continue
			}
			data, err := get(ctx, l.Namespace, name)
			if err != nil {
				return nil, fmt.Errorf("read secret %s/%s: %w", l.Namespace, name, err)
			}
			if data == nil {
				continue
			}
			had := len(data)
			data = maps.Clone(data)
			maps.DeleteFunc(data, func(key string, _ []byte) bool { return aboutSigning(key) })
			if had > 0 && len(data) == 0 {
				continue // it says who may sign, or signs, and not how to ask
			}
			maps.Copy(merged, data)
			if place != "" {
				place += " and "
			}
			place += "secret " + l.Namespace + "/" + name
		}
		if place == "" {
			return nil, nil
		}
		return credentials(merged, l, place)
	})
}

// FieldSource reads secure values one by one, as an API that keeps them itself
// can hand them to an agent in its own process. The fields of spec.secure that
// carry the name of a key are read; get returns nil, nil for a field
// that has no value.
func FieldSource(get func(ctx context.Context, l Lookup, field string) ([]byte, error)) Source {
	return SourceFunc(func(ctx context.Context, l Lookup) (*Credentials, error) {
		keys := make(map[string][]byte)
		for _, k := range usedKeys {
			if _, set := l.Secure[k]; !set {
				continue
			}
			v, err := get(ctx, l, k)
			if err != nil {
				return nil, fmt.Errorf("read secure.%s of %s/%s: %w", k, l.Namespace, l.Repository, err)
			}
			if v != nil {
				keys[k] = v
			}
		}
		if len(keys) == 0 {
			return nil, nil
		}
		return credentials(keys, l, "secure values of "+l.Namespace+"/"+l.Repository)
	})
}
