package command

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// settleOutput makes --json and --output consistent.
func (g *Flags) settleOutput() error {
	switch {
	case len(g.JSON) == 0 || g.Data():
		return nil
	case g.Output == "table":
		g.Output = "json"
		return nil
	}
	return Usagef("limpet get repositories --json metadata.name    # without -o "+g.Output,
		"--json chooses fields of an object, and -o %s shows none", g.Output)
}

// PickEach returns the items of a slice with only the fields of --json, whole without it. It is
// never nil. A field that no item has or could have is an error, unless the call has changed
// something: then it is null.
func (g *Flags) PickEach(list any) ([]any, error) {
	items := []any{}
	if list == nil {
		return items, nil
	}
	for v, i := reflect.ValueOf(list), 0; i < v.Len(); i++ {
		items = append(items, v.Index(i).Interface())
	}
	if len(g.JSON) == 0 || len(items) == 0 {
		return items, nil
	}
	found := map[string]bool{}
	var whole any
	for i, item := range items {
		data, err := json.Marshal(item)
		if err == nil {
			err = json.Unmarshal(data, &whole)
		}
		if err != nil {
			return nil, err
		}
		picked := map[string]any{}
		for _, field := range g.JSON {
			value, ok := fieldAt(whole, field)
			picked[field], found[field] = value, found[field] || ok
		}
		items[i] = picked
	}
	kind := reflect.TypeOf(reflect.ValueOf(list).Index(0).Interface())
	members, _ := whole.(map[string]any)
	if version, _ := members["apiVersion"].(string); strings.Contains(version, "/") { // those of the core group vary
		kind = reflect.TypeFor[object]()
	}
	for _, field := range g.JSON {
		wrong, known := unknownField(kind, field)
		if kind.Kind() == reflect.Map && members["metadata"] == nil {
			wrong, known = field, slices.Sorted(maps.Keys(members))
		}
		if !found[field] && wrong != "" && !g.writes {
			return nil, Usagef("", "--json %s: there is no field %q%s; there are %s", field, wrong, Suggestion(wrong, known),
				strings.Join(known, ", "))
		}
	}
	return items, nil
}

// object has the fields that objects of the API may have.
type object struct {
	APIVersion any               `json:"apiVersion"`
	Kind       any               `json:"kind"`
	Metadata   metav1.ObjectMeta `json:"metadata"`
	Spec       any               `json:"spec"`
	Status     any               `json:"status"`
	Secure     any               `json:"secure"`
}

// unknownField returns the first name of a path that a type cannot have, and the names that it has;
// "" where there is none. What JSON is made of by other means than fields may have any name.
func unknownField(t reflect.Type, path string) (wrong string, known []string) {
	for name := range strings.SplitSeq(path, ".") {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() == reflect.Slice {
			t = t.Elem() // the name is an index
			continue
		}
		if t.Kind() != reflect.Struct || t.Implements(reflect.TypeFor[json.Marshaler]()) {
			break
		}
		fields := map[string]reflect.Type{}
		for _, field := range reflect.VisibleFields(t) {
			if tag, _, _ := strings.Cut(field.Tag.Get("json"), ","); tag != "" && tag != "-" {
				fields[tag] = field.Type
			}
		}
		if t = fields[name]; t == nil {
			return name, slices.Sorted(maps.Keys(fields))
		}
	}
	return "", nil
}

// fieldAt returns the value at a path of names and indices with dots. A name may contain dots
// itself, as those of labels do.
func fieldAt(v any, path string) (value any, ok bool) {
	if path == "" {
		return v, true
	}
	switch v := v.(type) {
	case map[string]any:
		for at := len(path); at > 0; at = strings.LastIndexByte(path[:at], '.') {
			if inner, ok := v[path[:at]]; ok {
				return fieldAt(inner, strings.TrimPrefix(path[at:], "."))
			}
		}
	case []any:
		first, rest, _ := strings.Cut(path, ".")
		if i, err := strconv.Atoi(first); err == nil && i >= 0 && i < len(v) {
			return fieldAt(v[i], rest)
		}
	}
	return nil, false
}
