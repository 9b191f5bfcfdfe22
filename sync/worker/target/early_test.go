package target

import (
	"path/filepath"
	"testing"

	"limpet/sync/resources"
	"limpet/sync/worker/sink"
)

// TestEarly: files that a plan may want are written as they come, with what they are; the rest is
// left to it.
func TestEarly(t *testing.T) {
	t.Parallel()
	prefix := t.TempDir()
	at, err := sink.Permit(filepath.Join(prefix, "site"), []string{prefix})
	if err != nil {
		t.Fatal(err)
	}
	kinds, _ := resources.ParseKinds(nil)
	for strict, want := range map[bool]int{true: 1, false: 3} {
		d := &Directory{At: at, Namespace: "default", Strict: strict, Spec: resources.Target{Repository: "r", Kinds: kinds}}
		e := d.Early(t.Context())
		files := map[string]string{"a.json": `{"uid":"u","title":"t","panels":[]}`, "note.txt": "n", "bad.json": "{", ".hidden": "h", "c/x.yaml": ": :"}
		for path, content := range files {
			e.Receive(path, "hash of "+path, false, []byte(content))
		}
		dir, err := e.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for path := range files {
			uid, there := dir.Written(sink.File{Path: path, Hash: "hash of " + path})
			if there {
				got = append(got, path)
			}
			if is := path == "a.json"; is && uid != "u" || !is && uid != "" {
				t.Errorf("%s has uid %q", path, uid)
			}
		}
		if len(got) != want {
			t.Errorf("strict %v: written ahead %v", strict, got)
		}
		_ = dir.Close()
		e.Close()
	}
}
