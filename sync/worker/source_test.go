package worker

import (
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/resources"
)

// TestSyncSource: a pull is spared only where the last accepted one was of the same commit, source and target, and no other
// has failed among its writes since.
func TestSyncSource(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repository(map[string]any{"git": map[string]any{"path": "g"}, "sync": map[string]any{"target": "folderless"}}, nil)
	first := r.commit("g/a.json", board("a", "A"), "g/b.json", board("b", "B"), "g/c.json", board("c", "C"), "g/d.json", board("d", "D"),
		"other/o.json", board("o", "O"))
	r.expect("first", true, "success", "", "POST dashboards/a", "POST dashboards/b", "POST dashboards/c", "POST dashboards/d")
	r.expect("same", true, "success", "same commit")

	r.change(`{"spec":{"git":{"path":"other"}}}`)
	r.expect("another path", false, "error", "would delete 4 of the 4")
	r.expect("refused again", true, "error", "would delete 4 of the 4")
	r.commit("other/p.json", board("p", "P"))
	r.expect("refused at another commit", true, "error", "would delete 4 of the 4")
	if sync, _ := r.sync(); sync.LastRef != first || sync.Source.Hash == "" {
		t.Errorf("after a refusal: %+v", sync)
	}
	r.change(`{"spec":{"git":{"path":"g"}}}`)
	r.expect("as it was accepted", true, "success", "no changes detected")

	r.change(`{"spec":{"git":{"path":""}}}`)
	r.expect("wider path", true, "success", "", "POST folders/"+folderID("g"), "POST folders/"+folderID("other"),
		"PUT dashboards/a", "PUT dashboards/b", "PUT dashboards/c", "PUT dashboards/d", "POST dashboards/o", "POST dashboards/p")
	r.change(`{"spec":{"git":{"path":"g"}}}`)
	if record, _ := r.pull(true, nil); record.State != "success" || r.object(dashboards, "o") != nil {
		t.Errorf("narrower path: %s %s", record.State, record.Message)
	}

	// Half of a commit is there when its pull fails; then the branch goes back.
	fails := func(req *http.Request) *http.Response {
		if req.Method == http.MethodPut && strings.HasSuffix(req.URL.Path, "/dashboards/b") {
			return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(`{"kind":"Status","status":"Failure","reason":"Forbidden","code":403}`)), Request: req}
		}
		return nil
	}
	before := r.repo.Head(t)
	r.wire.answer(fails)
	r.commit("g/a.json", board("a", "A 2"), "g/b.json", board("b", "B 2"))
	r.expect("half", true, "error", "completed with errors", "PUT dashboards/a", "PUT dashboards/b 403")
	r.wire.answer(nil)
	r.repo.Git(t, "update-ref", "refs/heads/main", before)
	r.expect("reset", true, "success", "", "PUT dashboards/a")

	r.change(`{"spec":{"git":{"path":""}}}`)
	r.pull(true, nil)
	name := folderID("g")
	if path := r.object(folders, name).GetAnnotations()[api.AnnoSourcePath]; path != "g" {
		t.Errorf("path of the folder %q", path)
	}
	patch := []byte(`{"metadata":{"annotations":{"grafana.app/sourcePath":"g/"}}}`)
	if _, err := r.client.Resource(folders).Namespace(r.namespace).Patch(t.Context(), name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	r.expect("as an earlier version wrote it", false, "success", "no changes to sync")
	r.differ("as an earlier version wrote it", 0)

	kinds, err := resources.ParseKinds([]string{"dashboard.grafana.app/Dashboard:disabled"})
	if err != nil {
		t.Fatal(err)
	}
	r.halt()
	r.options.Kinds = kinds
	r.start()
	r.expect("other kinds", true, "warning", "")
}

// TestPullsAgainFromTheStart: an attempt after one that has begun to write does not rely on the last commit.
func TestPullsAgainFromTheStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", func(o *PullOptions) { o.Parallel = 1 })
	r.repository(nil, nil)
	r.commit("a.json", board("a", "A"))
	r.expect("first", true, "success", "", "POST folders/repo", "POST dashboards/a")
	before := r.repo.Head(t)
	r.commit("a.json", board("a", "A 2"), "b.json", board("b", "B"))
	entered := r.holdWrites("b")
	r.submit(true, nil)
	<-entered
	r.halt()
	r.wire.answer(nil)
	r.repo.Git(t, "update-ref", "refs/heads/main", before)
	r.start()
	r.ended()
	if title, _, _ := unstructured.NestedString(r.object(dashboards, "a").Object, "spec", "title"); title != "A" {
		t.Errorf("what half a pull has written is still there: %q", title)
	}
}
