package admission

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"limpet/sync/api"
)

// below returns the schema of a member of an object or of the objects of a list.
func below(schema map[string]any, name string) map[string]any {
	if items, ok := schema["items"].(map[string]any); ok {
		schema = items
	}
	properties, _ := schema["properties"].(map[string]any)
	out, _ := properties[name].(map[string]any)
	return out
}

func ofGrafana(t *testing.T) (out []api.Kind) {
	t.Helper()
	for _, k := range api.Kinds {
		if k.Group == api.ProvisioningGroup {
			out = append(out, k)
		}
	}
	if len(out) != 4 {
		t.Fatalf("found %d kinds", len(out))
	}
	return out
}

// What a schema does not keep or what it refuses, a real API server prunes or refuses also from
// Grafana and limpet.
func TestSchemasKeepWhatTheyDoNotName(t *testing.T) {
	t.Parallel()
	var walk func(schema map[string]any, at string, depth int)
	walk = func(schema map[string]any, at string, depth int) {
		text, _ := schema["description"].(string)
		if text == "" && !strings.HasSuffix(at, "[]") && !strings.HasSuffix(at, ".metadata") {
			t.Errorf("%s has no description", at)
		}
		if schema["required"] != nil {
			t.Errorf("%s requires members", at)
		}
		open, null := schema["x-kubernetes-preserve-unknown-fields"] == true, schema["nullable"] == true
		switch {
		case schema["type"] == "object" && depth > 0 && !strings.HasSuffix(at, ".metadata") && !open:
			t.Errorf("%s drops unknown members", at)
		case depth > 1 && !null && schema["enum"] == nil && schema["type"] != nil:
			t.Errorf("%s cannot be null", at)
		}
		properties, _ := schema["properties"].(map[string]any)
		for name := range properties {
			walk(below(schema, name), at+"."+name, depth+1)
		}
		if items, ok := schema["items"].(map[string]any); ok {
			walk(items, at+"[]", depth+1)
		}
	}
	for _, k := range ofGrafana(t) {
		walk(k.Schema(), k.Kind, 0)
	}
}

func TestSchemasNameKnownMembers(t *testing.T) {
	t.Parallel()
	views := map[string]reflect.Type{"Repository": reflect.TypeFor[api.Repository](), "Connection": reflect.TypeFor[api.Connection](),
		"Job": reflect.TypeFor[api.Job](), "HistoricJob": reflect.TypeFor[api.Job]()}
	for _, k := range ofGrafana(t) {
		matches(t, k.Kind, k.Schema(), views[k.Kind])
		for path, names := range knownMembers[api.Repositories.GroupVersion().WithKind(k.Kind).GroupKind()] {
			at := k.Schema()
			for _, name := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' }) {
				at = below(at, name)
			}
			for _, name := range names {
				// These two are taken with each action, and read of others.
				shared := path == "spec" && slices.Contains(api.OrphanActions, name) || path+"."+name == "spec.delete.targetPath"
				if below(at, name) == nil && path != "secure" && !shared {
					t.Errorf("%s: no member %s of %q", k.Kind, name, path)
				}
			}
		}
	}
}

// matches requires the members of a view and their types. Several objects of spec share a view that
// has the members of all.
func matches(t *testing.T, at string, schema map[string]any, view reflect.Type) {
	t.Helper()
	if schema == nil {
		if !strings.Contains(at, ".spec.") {
			t.Errorf("no member %s", at)
		}
		return
	}
	want := "object"
	switch view.Kind() {
	case reflect.Pointer:
		matches(t, at, schema, view.Elem())
		return
	case reflect.Interface:
		return
	case reflect.Slice:
		want = "array"
		items, _ := schema["items"].(map[string]any)
		matches(t, at+"[]", items, view.Elem())
	case reflect.Struct:
		for field := range view.Fields() {
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "-" {
				matches(t, at+"."+name, below(schema, name), field.Type)
			}
		}
	case reflect.String:
		want = "string"
	case reflect.Bool:
		want = "boolean"
	case reflect.Int, reflect.Int64:
		want = "integer"
	case reflect.Float64:
		want = "number"
	}
	if schema["type"] != want {
		t.Errorf("%s is of type %v, want %s", at, schema["type"], want)
	}
}

// Values that the rules refuse are refused on a server that has the definitions alone.
func TestSchemasHaveTheValuesOfTheRules(t *testing.T) {
	t.Parallel()
	kinds := ofGrafana(t)
	for path, want := range map[string][]string{
		"Repository.spec.type":                 repositoryTypes,
		"Repository.spec.workflows.":           workflows,
		"Repository.spec.sync.target":          append(slices.Clone(syncTargets), ""),
		"Repository.spec.commit.signingMethod": append(slices.Clone(signingMethods), ""),
		"Connection.spec.type":                 connectionTypes,
		"Job.spec.action":                      JobActions,
		"HistoricJob.spec.action":              nil, // the rules take each
	} {
		names := strings.Split(path, ".")
		at := kinds[slices.IndexFunc(kinds, func(k api.Kind) bool { return k.Kind == names[0] })].Schema()
		for _, name := range names[1:] {
			if name == "" {
				at = at["items"].(map[string]any)
			} else {
				at = below(at, name)
			}
		}
		var got []string
		values, _ := at["enum"].([]any)
		for _, value := range values {
			got = append(got, value.(string))
		}
		slices.Sort(got)
		want = slices.Sorted(slices.Values(want))
		if !slices.Equal(got, want) {
			t.Errorf("%s has the values %q, want %q", path, got, want)
		}
	}
}
