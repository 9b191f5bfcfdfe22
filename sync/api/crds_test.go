package api

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files")

const goldenCRDs = "../../testdata/golden/crds.yaml"

func TestCRDsGolden(t *testing.T) {
	got := CRDs()
	if *update {
		if err := os.WriteFile(goldenCRDs, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(goldenCRDs)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("differs from %s; look at the change and run go test ./sync/api -run CRDs -update", goldenCRDs)
	}
}

// What apiextensions demands of a definition, whatever the golden file says.
func TestCRDsAreSound(t *testing.T) {
	first := CRDs()
	if !bytes.Equal(first, CRDs()) {
		t.Error("not the same bytes twice")
	}
	docs := strings.Split(strings.TrimPrefix(string(first), "---\n"), "\n---\n")
	kinds := map[string]bool{}
	for _, doc := range docs {
		var crd struct {
			Metadata struct{ Name string }
			Spec     struct {
				Group, Scope string
				Names        struct{ Kind, Plural, Singular, ListKind string }
				Versions     []struct {
					Name            string
					Served, Storage bool
					Schema          struct {
						OpenAPIV3Schema struct {
							Type       string
							Properties map[string]map[string]any
						}
					}
					Subresources             map[string]any
					AdditionalPrinterColumns []struct{ Name, Type, JSONPath string }
				}
			}
		}
		if err := yaml.Unmarshal([]byte(doc), &crd); err != nil {
			t.Fatalf("%v in %s", err, doc)
		}
		s := crd.Spec
		kinds[s.Names.Kind] = true
		if crd.Metadata.Name != s.Names.Plural+"."+s.Group || s.Scope != "Namespaced" || s.Names.ListKind != s.Names.Kind+"List" {
			t.Errorf("%s: names %+v", crd.Metadata.Name, s.Names)
		}
		stored := 0
		for n, v := range s.Versions {
			if v.Storage {
				stored++
			}
			if !v.Served || v.Storage != (n == 0) {
				t.Errorf("%s/%s: served %v, stored %v", crd.Metadata.Name, v.Name, v.Served, v.Storage)
			}
			schema := v.Schema.OpenAPIV3Schema
			if schema.Type != "object" || schema.Properties["spec"]["x-kubernetes-preserve-unknown-fields"] != true {
				t.Errorf("%s/%s: schema %+v", crd.Metadata.Name, v.Name, schema)
			}
			if _, secure := schema.Properties["secure"]; secure != (s.Names.Kind == "Repository" || s.Names.Kind == "Connection") {
				t.Errorf("%s/%s: secure %v", crd.Metadata.Name, v.Name, secure)
			}
			for _, c := range v.AdditionalPrinterColumns {
				if c.Name == "Name" || !strings.HasPrefix(c.JSONPath, ".") || c.Type == "" {
					t.Errorf("%s/%s: column %+v", crd.Metadata.Name, v.Name, c)
				}
			}
		}
		if stored != 1 {
			t.Errorf("%s: %d stored versions", crd.Metadata.Name, stored)
		}
	}
	for _, k := range Kinds {
		if kinds[k.Kind] != k.CRD {
			t.Errorf("%s: definition %v, want %v", k.Kind, kinds[k.Kind], k.CRD)
		}
	}
}
