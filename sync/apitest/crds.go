package apitest

import (
	"bytes"
	"encoding/json"

	"limpet/sync/api"
)

// crds renders the table of kinds as the definitions that a server installs.
func crds() []byte {
	type m = map[string]any
	var out bytes.Buffer
	for _, k := range api.Kinds {
		if !k.CRD {
			continue
		}
		props := m{}
		for _, p := range []string{"spec", "status", "secure"} {
			props[p] = m{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
		}
		var columns []m
		for _, c := range k.Columns {
			if c.Path != "" {
				columns = append(columns, m{"name": c.Name, "type": c.Type, "jsonPath": c.Path})
			}
		}
		var versions []m
		for i, v := range k.Versions {
			version := m{"name": v, "served": true, "storage": i == 0, "additionalPrinterColumns": columns,
				"schema": m{"openAPIV3Schema": m{"type": "object", "properties": props}}}
			if k.Status {
				version["subresources"] = m{"status": m{}}
			}
			versions = append(versions, version)
		}
		data, err := json.Marshal(m{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": m{"name": k.Plural + "." + k.Group},
			"spec": m{"group": k.Group, "scope": "Namespaced", "versions": versions,
				"names": m{"kind": k.Kind, "listKind": k.Kind + "List", "plural": k.Plural, "singular": k.Singular, "shortNames": k.Short}}})
		if err != nil {
			panic("apitest: render definition: " + err.Error())
		}
		out.WriteString("---\n")
		out.Write(append(data, '\n'))
	}
	return out.Bytes()
}
