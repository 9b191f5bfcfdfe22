package repos

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// only shows one object.
type only struct {
	nothing
	obj *unstructured.Unstructured
}

func (o only) Get(string, string) (*unstructured.Unstructured, bool) { return o.obj, true }

// TestUnreadable: what cannot be read is told once for each version, and left alone.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	told := 0
	obj := &unstructured.Unstructured{Object: map[string]any{"kind": "Repository",
		"metadata": map[string]any{"namespace": "ns", "name": "site", "uid": "1", "resourceVersion": "5"}, "spec": map[string]any{"type": int64(7)}}}
	c := newController(unwilling{}, nil, only{obj: obj}, nothing{}, Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Observe: func(e Event) {
		if e.Level == "warn" && strings.Contains(e.Text, "ns/site") {
			told++
		}
	}})
	k := Key{"ns", "site"}
	for i, version := range []string{"5", "5", "6", "6"} {
		obj.SetResourceVersion(version)
		c.runOnce(t.Context(), k)
		if want := i/2 + 1; told != want || strings.Count(log.String(), "level=WARN") != want {
			t.Errorf("version %s: told %d times, want %d; log %s", version, told, want, log.String())
		}
		if next := c.schedule.next(k); !next.IsZero() {
			t.Errorf("it is looked into again at %s", next)
		}
	}
}
