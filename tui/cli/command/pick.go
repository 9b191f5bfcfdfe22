package command

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"limpet/sync/text"
)

// settleOutput makes --json and --output consistent. Notes go to w.
func (g *Flags) settleOutput(w io.Writer) error {
	if !g.Quiet {
		g.Notes = w
	}
	if len(g.JSON) == 0 {
		return nil
	}
	switch g.Output {
	case "table":
		g.Output = "json"
	case "wide", "name":
		return Usagef("limpet get repositories --json metadata.name    # without -o "+g.Output,
			"--json chooses fields of an object, and -o %s shows none", g.Output)
	}
	return nil
}

// PickEach returns the items of a slice with only the fields of --json, whole without it. It is never nil.
func (g *Flags) PickEach(list any) ([]any, error) {
	items := []any{}
	if list != nil {
		for v, i := reflect.ValueOf(list), 0; i < v.Len(); i++ {
			items = append(items, v.Index(i).Interface())
		}
	}
	if len(g.JSON) == 0 {
		return items, nil
	}
	met := map[string]bool{}
	var whole any
	for i, item := range items {
		var err error
		if items[i], whole, err = g.pick(item, met); err != nil {
			return nil, err
		}
	}
	if len(items) > 0 {
		g.noteMissing(met, whole)
	}
	return items, nil
}

// pick returns the fields of --json of one item, and the whole item. It records in met which fields exist.
func (g *Flags) pick(item any, met map[string]bool) (picked map[string]any, whole any, err error) {
	data, err := json.Marshal(item)
	if err != nil {
		return nil, nil, err
	}
	if err := json.Unmarshal(data, &whole); err != nil {
		return nil, nil, err
	}
	picked = map[string]any{}
	for _, field := range g.JSON {
		value, ok := dig(whole, field)
		picked[field] = value
		met[field] = met[field] || ok
	}
	return picked, whole, nil
}

// noteMissing notes fields that no object has, since a typing error looks like an unset field.
func (g *Flags) noteMissing(met map[string]bool, example any) {
	for _, field := range g.JSON {
		if met[field] || g.Notes == nil {
			continue
		}
		txt := fmt.Sprintf("limpet: no object here has the field %q", field)
		if near := Nearest(field, fieldPaths("", example)); near != "" {
			txt += fmt.Sprintf(", did you mean %q?", near)
		}
		fmt.Fprintln(g.Notes, text.Clean(txt))
	}
}

// dig returns the value at a path of names and indices with dots. A name may contain dots itself, as those of
// labels do.
func dig(v any, path string) (any, bool) {
	if path == "" {
		return v, true
	}
	switch v := v.(type) {
	case map[string]any:
		for at := len(path); at > 0; at = strings.LastIndexByte(path[:at], '.') {
			if inner, ok := v[path[:at]]; ok {
				return dig(inner, strings.TrimPrefix(path[at:], "."))
			}
		}
	case []any:
		first, rest, _ := strings.Cut(path, ".")
		if i, err := strconv.Atoi(first); err == nil && i >= 0 && i < len(v) {
			return dig(v[i], rest)
		}
	}
	return nil, false
}

// fieldPaths lists the paths of all members of an object.
func fieldPaths(path string, v any) []string {
	object, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(object)) {
		at := strings.TrimPrefix(path+"."+name, ".")
		out = append(append(out, at), fieldPaths(at, object[name])...)
	}
	return out
}
