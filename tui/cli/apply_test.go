package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"limpet/tui/cli/object"
)

func TestReadDocuments(t *testing.T) {
	t.Parallel()
	objects, err := object.ReadDocuments("f",
		[]byte("# only a comment\n---\nkind: A\napiVersion: v1\ncount: 9007199254740993\n---\n{\"kind\":\"BList\",\"apiVersion\":\"v1\",\"items\":[{\"kind\":\"B\",\"apiVersion\":\"v1\"},{\"kind\":\"B\",\"apiVersion\":\"v1\"}]}\n---\n"))
	if err != nil || len(objects) != 3 || objects[0].Object.Object["count"] != int64(9007199254740993) ||
		objects[2].Object.GetKind() != "B" || objects[1].Where != "f, document 3" {
		t.Fatalf("%v %+v", err, objects)
	}
	const secret = "canary-in-the-file"
	for _, text := range []string{
		"", "# nothing\n", secret, "- " + secret, "a: [" + secret, "apiVersion: v1\ndata: {k: " + secret + "}\n",
		"kind: Secret\nstringData: {k: " + secret + "}\n",
		"apiVersion: v1\nkind: Secret\nkind: " + secret + "\n", "apiVersion: v1\nkind: List\nitems: [" + secret + "]\n", "\t" + secret + ": x",
		"kind: 1\napiVersion: v1\nk: " + secret,
	} {
		_, err := object.ParseObjects("f", []byte(text))
		if err == nil || strings.Contains(err.Error(), secret) || !strings.HasPrefix(err.Error(), "f") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzReadDocuments(f *testing.F) {
	for _, seed := range []string{"kind: A\napiVersion: v1", "---\n---", "a: &a [*a]", "{}", "[]", "kind: List\napiVersion: v1\nitems: [{}]"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, err := object.ReadDocuments("f", data)
		if err == nil && len(objects) == 0 {
			t.Error("neither objects nor an error")
		}
		for _, o := range objects {
			if _, err := json.Marshal(o.Object.DeepCopy().Object); err != nil {
				t.Errorf("%v", err)
			}
		}
	})
}

func TestCRDsInEveryFormat(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	names, _ := s.Must(t, 0, "crds", "-o", "name")
	if !strings.Contains(names, "customresourcedefinition/jobs.provisioning.grafana.app\n") {
		t.Errorf("%s", names)
	}
	out, _ := s.Must(t, 0, "crds", "-o", "json")
	var list struct{ Items []struct{ Kind string } }
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Items) != strings.Count(names, "\n") ||
		list.Items[0].Kind != "CustomResourceDefinition" {
		t.Errorf("%v %+v", err, list)
	}
	out, _ = s.Must(t, 0, "crds")
	if !bytes.HasPrefix([]byte(out), []byte("---\n")) {
		t.Errorf("%.40s", out)
	}
}
