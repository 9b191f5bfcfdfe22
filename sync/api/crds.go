package api

import (
	"bytes"
	"fmt"

	"sigs.k8s.io/yaml"
)

// CRDs returns CustomResourceDefinitions for the kinds of Kinds that have CRD set, as one YAML text of
// several documents, the same bytes each time. Their schemas are open: Grafana's types move every month, and
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

func version(k Kind, name string, storage bool) map[string]any {
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
	v := map[string]any{
		"name": name, "served": true, "storage": storage,
		"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": properties}},
	}
	if k.Status {
		v["subresources"] = map[string]any{"status": map[string]any{}}
	}
	if columns := printerColumns(k); len(columns) > 0 {
		v["additionalPrinterColumns"] = columns
	}
	return v
}

// printerColumns leaves the name out, which every table begins with.
func printerColumns(k Kind) []any {
	var columns []any
	for _, c := range k.Columns {
		if c.Path != "" {
			columns = append(columns, map[string]any{"name": c.Name, "type": c.Type, "jsonPath": c.Path})
		}
	}
	return columns
}
