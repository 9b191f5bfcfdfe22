package target

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"limpet/sync/resources"
	"limpet/sync/worker/checkout"
	"limpet/sync/worker/sink"
)

// silent is a Progress and a Recorder that keep nothing.
type silent struct{}

func (silent) SetMessage(context.Context, string)       {}
func (silent) SetTotal(context.Context, int)            {}
func (silent) Record(context.Context, resources.Result) {}
func (silent) TooManyErrors() error                     { return nil }

// TestFirstWriteOfNone: the first write of a tree without a dashboard warns, and has the directory
// belong to the Repository, whether that is there and empty or not.
func TestFirstWriteOfNone(t *testing.T) {
	t.Parallel()
	for _, there := range []bool{false, true} {
		prefix := t.TempDir()
		at, err := sink.Permit(filepath.Join(prefix, "site"), []string{prefix})
		if err == nil && there {
			err = os.Mkdir(at.String(), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		d := &Directory{At: at, Namespace: "default", Strict: true, Spec: resources.Target{Repository: "r"}, Progress: silent{}}
		dir, err := d.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		commit := Commit{Hash: "c1", Content: &checkout.Content{}, Files: []checkout.File{{Path: "README.md", Hash: "h", Size: 1}}}
		p, err := d.Compare(t.Context(), dir, commit)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := p.Apply(t.Context(), silent{}); err != nil || n[SinkFiles] != 0 || p.Warning == "" {
			t.Errorf("there %v: %v, %q, %v", there, n, p.Warning, err)
		}
		if err := d.Holds("c1"); err != nil {
			t.Errorf("there %v: %v", there, err)
		}
	}
}
