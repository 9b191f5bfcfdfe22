package worker

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/resources"
	"limpet/sync/worker/checkout"
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

// TestFoldersNearChanges: a change is planned by the folders of its own directories, and by all where
// one of these is not what it was made from.
func TestFoldersNearChanges(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := newRig(t, server, nil)
		r.repository(nil, nil)
		r.commit("a/_folder.json", named("team-a", "Team A"), "a/sub/x.json", board("x", "X"), "b/y.json", board("y", "Y"))
		sub, b := folderID("a/sub"), folderID("b")
		r.expect("first", true, "success", "", "POST folders/repo", "POST folders/team-a", "POST folders/"+sub, "POST folders/"+b,
			"POST dashboards/x", "POST dashboards/y")
		steps := []struct {
			name   string
			folder string // that is deleted by hand, with x
			files  []string
			all    bool // folders are listed
			writes []string
		}{
			{"one file", "", []string{"a/sub/x.json", board("x", "X2")}, false, []string{"PUT dashboards/x"}},
			{"in another folder", sub, []string{"b/z.json", board("z", "Z"), "b/y.json", ""}, false,
				[]string{"POST dashboards/z", "DELETE dashboards/y"}},
			{"moved to the folder that is not there", "", []string{"a/sub/z.json", board("z", "Z"), "b/z.json", "", "b/w.json", board("w", "W")}, true,
				[]string{"POST folders/" + sub, "PUT dashboards/z", "POST dashboards/w"}},
			{"a folder file", "", []string{"b/_folder.json", named("team-b", "Team B")}, true,
				[]string{"POST folders/team-b", "PUT dashboards/w", "DELETE folders/" + b}},
			{"a directory goes", "", []string{"b/_folder.json", "", "b/w.json", ""}, true, []string{"DELETE dashboards/w", "DELETE folders/team-b"}},
		}
		for _, s := range steps {
			if s.folder != "" {
				r.remove(dashboards, "x")
				r.remove(folders, s.folder)
			}
			r.commit(s.files...)
			r.wire.take()
			record, _ := r.pull(true, nil)
			reads, writes, _ := r.wire.take()
			slices.Sort(s.writes)
			if record.State != "success" || !slices.Equal(writes, s.writes) || slices.Contains(reads, "GET folders") != s.all {
				t.Errorf("%s: %s, writes %q, reads %q", s.name, record.State, writes, reads)
			}
		}
		r.expect("what was deleted by hand", false, "success", "", "POST dashboards/x")
	})
}

// TestTwinOfAnotherDirectory: a file of a directory that a change does not lead to keeps its object.
func TestTwinOfAnotherDirectory(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := newRig(t, server, nil)
		r.repository(map[string]any{"sync": map[string]any{"target": "folderless"}}, nil)
		r.commit("a/x.json", board("x", "X"), "a/y.json", board("y", "Y"), "b/z.json", board("z", "Z"))
		r.expect("first", true, "success", "", "POST folders/"+folderID("a"), "POST folders/"+folderID("b"),
			"POST dashboards/x", "POST dashboards/y", "POST dashboards/z")
		r.repo.Commit(t, "move", change("b/y.json", "a/y.json"))
		r.expect("moved", true, "success", "", "PUT dashboards/y")
		r.commit("b/copy.json", board("x", "copy"))
		r.expect("twin", true, "warning", "")
		if got := r.object(dashboards, "x").GetAnnotations()[api.AnnoSourcePath]; got != "a/x.json" {
			t.Errorf("the object is that of %s", got)
		}
	})
}

// swappable is a Git whose mirrors can be lost.
type swappable struct{ checkout.Git }

// TestLostMirror: without the commit that was synced last a pull compares everything, and still
// writes only what differs.
func TestLostMirror(t *testing.T) {
	t.Parallel()
	lost := &swappable{}
	r := newRig(t, "embedded", func(o *PullOptions) {
		lost.Git = o.Source.Git
		o.Source.Git = lost
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

// TestDrift: a full pull brings back what was taken away or moved, and keeps the finalizers of
// others.
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

// TestIndexAndVersions: where no edits are taken back a server with an index of managed resources
// is asked for that alone, and one without a version for classic dashboards gets them in the
// version that it prefers.
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
		"v2.json", `{"apiVersion":"dashboard.grafana.app/v2","kind":"Dashboard","metadata":{"name":"v2"},"spec":{"title":"V2"}}`)
	r.wire.take()
	record, status := r.pull(true, nil)
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

// resource is a file with an object of a kind.
func resource(apiVersion, kind, name, title string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"annotations":{"grafana.app/folder":"x"}},"spec":{"title":%q}}`,
		apiVersion, kind, name, title)
}

// TestKinds: what the API serves and the setting allows is written, moved, counted and deleted; all
// else is a warning that says why, and comes as soon as it is allowed.
func TestKinds(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		allow := func(list string) func(*PullOptions) {
			return func(o *PullOptions) { o.Kinds, _ = resources.ParseKinds(strings.Split(list, ",")) }
		}
		const all = "dashboard.grafana.app/Dashboard:folder,dashboard.grafana.app/LibraryPanel:folder," +
			"rules.alerting.grafana.app/AlertRule:folder,boats.example.com/Boat"
		r := newRig(t, server, allow(all+",playlist.grafana.app/Playlist:disabled"))
		r.repository(nil, nil)
		list := resource("playlist.grafana.app/v0alpha1", "Playlist", "wall", "Wall")
		r.commit("a/cpu.json", board("cpu", "CPU"), "a/panel.json", resource("dashboard.grafana.app/v0alpha1", "LibraryPanel", "panel", "P"),
			"a/rule.json", resource("rules.alerting.grafana.app", "AlertRule", "rule", "R"), "wall.json", list,
			"a/boat.json", resource("boats.example.com/v1", "Boat", "boat", "B"), "a/pod.json", resource("v1", "Pod", "pod", "P"))
		status := r.expect("first", true, "warning", "", "POST folders/repo", "POST folders/"+folderID("a"), "POST dashboards/cpu",
			"POST librarypanels/panel", "POST alertrules/rule")
		for _, want := range []string{"kind Playlist of group playlist.grafana.app is disabled by --resources",
			"kind Boat of group boats.example.com is not served by this API", "kind Pod is not in --resources"} {
			if !slices.ContainsFunc(status.Warnings, func(w string) bool { return strings.Contains(w, want) }) {
				t.Errorf("%q is not in %q", want, status.Warnings)
			}
		}
		var counted []string
		for _, s := range status.Summary {
			counted = append(counted, fmt.Sprintf("%s:%s %d", s.Group, s.Kind, s.Create))
			for _, issue := range s.ResourceWarnings {
				if issue.Reason != "ResourceInvalid" || !strings.HasSuffix(issue.Path, ".json") || strings.Contains(issue.Message, issue.Path) {
					t.Errorf("%+v", issue)
				}
			}
		}
		if want := []string{": 0", "dashboard.grafana.app:Dashboard 1", "dashboard.grafana.app:LibraryPanel 1", "folder.grafana.app:Folder 2",
			"rules.alerting.grafana.app:AlertRule 1"}; !slices.Equal(counted, want) {
			t.Errorf("summary %q", counted)
		}
		panels := schema.GroupVersionResource{Group: api.DashboardGroup, Version: "v0alpha1", Resource: "librarypanels"}
		if got := r.object(panels, "panel").GetAnnotations()[api.AnnoFolder]; got != folderID("a") {
			t.Errorf("the panel is in folder %q", got)
		}
		r.expect("nothing new", false, "warning", "")

		// The setting allows another kind: the next pull applies the file.
		r.halt()
		allow(all + ",playlist.grafana.app/Playlist:skipvalidation")(&r.options)
		r.start()
		r.expect("allowed", true, "warning", "", "POST playlists/wall")
		playlists := schema.GroupVersionResource{Group: "playlist.grafana.app", Version: "v1", Resource: "playlists"}
		wall := r.object(playlists, "wall").GetAnnotations()
		if _, in := wall[api.AnnoFolder]; in || wall[api.AnnoSourcePath] != "wall.json" {
			t.Errorf("annotations of the playlist: %v", wall)
		}
		_, u := r.sync()
		stats, _, _ := unstructured.NestedSlice(u.Object, "status", "stats")
		if got := fmt.Sprint(stats); got != "[map[count:1 group:dashboard.grafana.app resource:dashboards]"+
			" map[count:1 group:dashboard.grafana.app resource:librarypanels] map[count:2 group:folder.grafana.app resource:folders]"+
			" map[count:1 group:playlist.grafana.app resource:playlists] map[count:1 group:rules.alerting.grafana.app resource:alertrules]]" {
			t.Errorf("stats %s", got)
		}
		for _, incremental := range []bool{true, false} {
			from, to := "a/", "b/"
			if !incremental {
				from, to = to, from
			}
			r.repo.Commit(t, "move", change(to+"panel.json", from+"panel.json"), change(to+"wall.json", map[bool]string{true: "wall.json",
				false: "b/wall.json"}[incremental]))
			writes := []string{"PUT librarypanels/panel", "PUT playlists/wall"}
			if incremental {
				writes = append(writes, "POST folders/"+folderID(to))
			} else {
				writes = append(writes, "DELETE folders/"+folderID(from))
			}
			r.expect("moved", incremental, "warning", "", writes...)
		}
		r.commit("a/rule.json", "")
		r.expect("gone", true, "warning", "", "DELETE alertrules/rule")
		// A kind that is not allowed any more is left alone.
		r.halt()
		allow("dashboard.grafana.app/Dashboard:folder,dashboard.grafana.app/LibraryPanel:folder")(&r.options)
		r.start()
		r.expect("not allowed any more", false, "warning", "")
		if n, err := NewOrphans(r.options).Remove(t.Context(), u); n != 4 || err != nil || r.object(playlists, "wall") == nil ||
			r.object(panels, "panel") != nil {
			t.Errorf("%d objects removed, %v", n, err)
		}
		allow(all + ",playlist.grafana.app/Playlist")(&r.options)
		if n, err := NewOrphans(r.options).Release(t.Context(), u); n != 1 || err != nil ||
			r.object(playlists, "wall").GetAnnotations()[api.AnnoManagerID] != "" {
			t.Errorf("%d objects released, %v", n, err)
		}
	})
}
