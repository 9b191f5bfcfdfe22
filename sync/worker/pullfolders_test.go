package worker

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/git"
)

func named(uid, title string) string {
	return fmt.Sprintf(`{"apiVersion":"folder.grafana.app/v1","kind":"Folder","metadata":{"name":%q},"spec":{"title":%q}}`, uid, title)
}

// TestFolderFiles: a stable uid, a title, another uid, and back.
func TestFolderFiles(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := newRig(t, server, nil)
		r.repository(map[string]any{"sync": map[string]any{"target": "folderless"}}, nil)
		r.commit("a/_folder.json", named("team-a", "Team A"), "a/x.json", board("x", "X"), "a/sub/y.json", board("y", "Y"))
		r.expect("first", true, "success", "", "POST folders/team-a", "POST folders/"+folderID("a/sub"), "POST dashboards/x", "POST dashboards/y")
		f := r.object(folders, "team-a")
		if title, _, _ := unstructured.NestedString(f.Object, "spec", "title"); title != "Team A" ||
			f.GetAnnotations()[api.AnnoSourceChecksum] != r.repo.Git(t, "rev-parse", "main:a/_folder.json") {
			t.Errorf("folder %v", f.Object)
		}
		if f.GetAnnotations()[api.AnnoFolder] != "" || f.GetAnnotations()[api.AnnoGrantPermissions] != "default" {
			t.Errorf("annotations of a folder at the root: %v", f.GetAnnotations())
		}
		// What others have put on the folder stays.
		patch := []byte(`{"metadata":{"labels":{"color":"blue"}},"spec":{"description":"ours"}}`)
		if _, err := r.client.Resource(folders).Namespace(r.namespace).Patch(t.Context(), "team-a", types.MergePatchType, patch,
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		r.commit("a/_folder.json", named("team-a", "The A Team"))
		r.expect("title", true, "success", "", "PUT folders/team-a")
		f = r.object(folders, "team-a")
		if spec := fmt.Sprint(f.Object["spec"]); spec != "map[description:ours title:The A Team]" || f.GetLabels()["color"] != "blue" {
			t.Errorf("folder %v", f.Object)
		}
		for _, incremental := range []bool{true, false} {
			uid := fmt.Sprintf("team-%v", incremental)
			old := "team-a"
			if !incremental {
				old = "team-true"
			}
			r.commit("a/_folder.json", named(uid, "The A Team"))
			r.expect("another uid", incremental, "success", "", "POST folders/"+uid, "PUT folders/"+folderID("a/sub"), "PUT dashboards/x",
				"DELETE folders/"+old)
			if r.object(dashboards, "x").GetAnnotations()[api.AnnoFolder] != uid {
				t.Error("the dashboard is not in the new folder")
			}
		}
		r.commit("a/_folder.json", "")
		r.expect("no uid", true, "success", "", "POST folders/"+folderID("a"), "PUT folders/"+folderID("a/sub"), "PUT dashboards/x",
			"DELETE folders/team-false")
		r.expect("nothing left to do", false, "success", "no changes to sync")
	})
}

// swappable is a Git whose mirrors can be lost.
type swappable struct{ Git }

// TestLostMirror: without the commit that was synced last a pull compares everything, and still writes only what
// differs.
func TestLostMirror(t *testing.T) {
	t.Parallel()
	lost := &swappable{}
	r := newRig(t, "embedded", func(o *PullOptions) {
		lost.Git = o.Git
		o.Git = lost
	})
	r.repository(nil, nil)
	r.commit("a/one.json", board("one", "1"), "b/two.json", board("two", "2"))
	r.expect("first", true, "success", "", "POST folders/repo", "POST folders/"+folderID("a"), "POST folders/"+folderID("b"),
		"POST dashboards/one", "POST dashboards/two")
	mirrors, err := git.Open(filepath.Join(t.TempDir(), "mirrors"), git.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mirrors.Close() })
	lost.Git = mirrors
	r.commit("a/one.json", board("one", "1a"), "b/two.json", "")
	r.expect("after the loss", true, "success", "", "PUT dashboards/one", "DELETE dashboards/two", "DELETE folders/"+folderID("b"))
	r.checkSync("success", r.repo.Head(t), false, 1, 2)
}

// TestDrift: a full pull brings back what was taken away or moved, and keeps the finalizers of others.
func TestDrift(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := newRig(t, server, nil)
		r.repository(nil, nil)
		r.commit("a/one.json", board("one", "1"), "a/two.json", board("two", "2"), "a/three.json", board("three", "3"))
		r.expect("first", false, "success", "", "POST folders/repo", "POST folders/"+folderID("a"), "POST dashboards/one", "POST dashboards/two",
			"POST dashboards/three")
		in := r.client.Resource(dashboards).Namespace(r.namespace)
		if err := in.Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Patch(t.Context(), "two", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"grafana.app/folder":"elsewhere"},"finalizers":["example.com/keep"]}}`),
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.client.Resource(folders).Namespace(r.namespace).Patch(t.Context(), folderID("a"), types.MergePatchType,
			[]byte(`{"spec":{"title":"renamed"}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		r.expect("repair", false, "success", "", "POST dashboards/one", "PUT dashboards/two", "PUT folders/"+folderID("a"))
		two := r.object(dashboards, "two")
		if two.GetAnnotations()[api.AnnoFolder] != folderID("a") || len(two.GetFinalizers()) != 1 {
			t.Errorf("dashboard %v", two.Object["metadata"])
		}
	})
}

// TestIndexAndVersions: a server with an index of managed resources is asked for that alone, and one without a version
// for classic dashboards gets them in the version that it prefers.
func TestIndexAndVersions(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repository(map[string]any{"sync": map[string]any{"target": "instance"}}, nil)
	answer := func(body string) *http.Response {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(body))}
	}
	var items string
	r.wire.answer(func(req *http.Request) *http.Response {
		switch {
		case strings.HasSuffix(req.URL.Path, "/repositories/repo/resources"):
			return answer(`{"kind":"ResourceList","apiVersion":"provisioning.grafana.app/v0alpha1","items":[` + items + `]}`)
		case req.URL.Path == "/apis/"+api.DashboardGroup:
			return answer(`{"kind":"APIGroup","apiVersion":"v1","name":"dashboard.grafana.app","versions":[{"groupVersion":"dashboard.grafana.app/v1","version":"v1"}],"preferredVersion":{"groupVersion":"dashboard.grafana.app/v1","version":"v1"}}`)
		case req.URL.Path == "/apis/"+api.DashboardGroup+"/v2", req.URL.Path == "/apis/"+api.DashboardGroup+"/v0alpha1":
			missing := answer(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
			missing.StatusCode = http.StatusNotFound
			return missing
		}
		return nil
	})
	r.commit("one.json", board("one", "1"), "two.json", board("two", "2"),
		"v2.json", `{"apiVersion":"dashboard.grafana.app/v2","kind":"Dashboard","metadata":{"name":"v2"},"spec":{}}`)
	r.wire.take()
	record, status := r.pull(false, nil)
	reads, writes, all := r.wire.take()
	if record.State != "warning" || len(writes) != 2 {
		t.Errorf("%+v %q", status, writes)
	}
	has(t, status.Warnings, "v2.json", "the server has no dashboard.grafana.app/v2; it prefers v1")
	for _, q := range all {
		if q.method == http.MethodPost && !strings.Contains(q.path, "/dashboard.grafana.app/v1/") {
			t.Errorf("a dashboard went to %s", q.path)
		}
	}
	for _, line := range reads {
		if line == "GET dashboards" || line == "GET folders" {
			t.Errorf("the server has an index, but %q", line)
		}
	}
	items = `{"path":"one.json","group":"dashboard.grafana.app","resource":"dashboards","name":"one","hash":"` +
		r.repo.Git(t, "rev-parse", "main:one.json") + `"},
		{"path":"two.json","group":"dashboard.grafana.app","resource":"dashboards","name":"two","hash":"old"},
		{"path":"gone.json","group":"dashboard.grafana.app","resource":"dashboards","name":"gone","hash":"old"}`
	r.expect("an index that is behind", false, "warning", "")
	r.commit("two.json", board("two", "2a"))
	r.expect("by the index", false, "warning", "", "PUT dashboards/two")
}
