package api

import (
	"bytes"
	_ "embed" // the schema
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// CRDs returns CustomResourceDefinitions for the kinds of Kinds that have CRD set, as one YAML text of
// several documents, the same bytes each time. The schemas of Grafana's are open: its types move every month, and
// unknown fields must survive.
func CRDs() []byte {
	var out bytes.Buffer
	for _, k := range Kinds {
		if !k.CRD {
			continue
		}
		doc, err := yaml.Marshal(definition(k))
		if err != nil {
			panic(fmt.Sprintf("api: internal error: CRD of %s: %v", k.Kind, err))
		}
		out.WriteString("---\n")
		out.Write(doc)
	}
	return out.Bytes()
}

func definition(k Kind) map[string]any {
	versions := make([]any, 0, len(k.Versions))
	for n, v := range k.Versions {
		versions = append(versions, version(k, v, n == 0))
	}
	names := map[string]any{"kind": k.Kind, "listKind": k.Kind + "List", "plural": k.Plural, "singular": k.Singular}
	if len(k.Short) > 0 {
		names["shortNames"] = k.Short
	}
	if len(k.Categories) > 0 {
		names["categories"] = k.Categories
	}
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": k.Plural + "." + k.Group},
		"spec": map[string]any{
			"group": k.Group, "names": names, "scope": "Namespaced", "versions": versions,
			"conversion": map[string]any{"strategy": "None"},
		},
	}
}

//go:embed gitrepository.yaml
var gitRepositorySchema []byte

// schemaOf returns what an object of a kind may hold.
func schemaOf(k Kind) map[string]any {
	if k.Group == fluxSourceGroup {
		var s map[string]any
		if err := yaml.Unmarshal(gitRepositorySchema, &s); err != nil {
			panic(fmt.Sprintf("api: internal error: schema of %s: %v", k.Kind, err))
		}
		s["type"] = "object"
		return s
	}
	open := func() map[string]any {
		return map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	}
	properties := map[string]any{
		"apiVersion": map[string]any{"type": "string"},
		"kind":       map[string]any{"type": "string"},
		"metadata":   map[string]any{"type": "object"},
		"spec":       open(),
		"status":     open(),
	}
	if k.Kind == "Repository" || k.Kind == "Connection" {
		properties["secure"] = open()
	}
	return map[string]any{"type": "object", "properties": properties}
}

func version(k Kind, name string, storage bool) map[string]any {
	v := map[string]any{"name": name, "served": true, "storage": storage, "schema": map[string]any{"openAPIV3Schema": schemaOf(k)}}
	if k.Status {
		v["subresources"] = map[string]any{"status": map[string]any{}}
	}
	var columns []any
	for _, c := range k.Columns {
		if c.Path != "" { // the name begins every table
			columns = append(columns, map[string]any{"name": c.Name, "type": c.Type, "jsonPath": c.Path})
		}
	}
	if len(columns) > 0 {
		v["additionalPrinterColumns"] = columns
	}
	return v
}

// Value returns what stands in the column of an object; nil when it is not there.
func (c Column) Value(object map[string]any) any {
	if c.Path == "" {
		return valueAt(object, ".metadata.name")
	}
	return valueAt(object, c.Path)
}

// Text returns the Value as text; "" when it is not there.
func (c Column) Text(object map[string]any) string {
	value := c.Value(object)
	if value == nil {
		return ""
	}
	return strings.TrimSpace(fmt.Sprint(value))
}

// valueAt reads the subset of JSONPath that columns are written in: members and one filter for list elements, as in
//
//	.status.conditions[?(@.type=="Ready")].status
//
// It answers nil for what is not there.
func valueAt(value any, path string) any {
	for path != "" && value != nil {
		switch {
		case strings.HasPrefix(path, "[?(@."):
			filter, rest, _ := strings.Cut(path[len("[?(@."):], ")]")
			name, wanted, _ := strings.Cut(filter, "==")
			value, path = elementWhere(value, name, strings.Trim(wanted, `"`)), rest
		default:
			path = strings.TrimPrefix(path, ".")
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			object, ok := value.(map[string]any)
			if !ok {
				return nil
			}
			value, path = object[path[:end]], path[end:]
		}
	}
	return value
}

// elementWhere is the first element of a list with a member of a value.
func elementWhere(list any, name, wanted string) any {
	elements, ok := list.([]any)
	if !ok {
		return nil
	}
	for _, e := range elements {
		if object, ok := e.(map[string]any); ok && object[name] == wanted {
			return e
		}
	}
	return nil
}
