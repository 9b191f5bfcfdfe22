package workers

import (
	"context"
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
	"limpet/sync/apitest"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/jobs"
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
		if title, _, _ := unstructured.NestedString(f.Object, "spec", "title"); title != "Team A" || f.GetAnnotations()[api.AnnoSourceChecksum] != r.repo.Git(t, "rev-parse", "main:a/_folder.json") {
			t.Errorf("folder %v", f.Object)
		}
		if f.GetAnnotations()[api.AnnoFolder] != "" || f.GetAnnotations()[api.AnnoGrantPermissions] != "default" {
			t.Errorf("annotations of a folder at the root: %v", f.GetAnnotations())
		}
		// What others have put on the folder stays.
		patch := []byte(`{"metadata":{"labels":{"color":"blue"}},"spec":{"description":"ours"}}`)
		if _, err := r.client.Resource(folders).Namespace(r.namespace).Patch(t.Context(), "team-a", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
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
			r.expect("another uid", incremental, "success", "", "POST folders/"+uid, "PUT folders/"+folderID("a/sub"), "PUT dashboards/x", "DELETE folders/"+old)
			if r.object(dashboards, "x").GetAnnotations()[api.AnnoFolder] != uid {
				t.Error("the dashboard is not in the new folder")
			}
		}
		r.commit("a/_folder.json", "")
		r.expect("no uid", true, "success", "", "POST folders/"+folderID("a"), "PUT folders/"+folderID("a/sub"), "PUT dashboards/x", "DELETE folders/team-false")
		r.expect("nothing left to do", false, "success", "no changes to sync")
	})
}

// TestRealShapedRepository pulls what people have, through all its first commits.
func TestRealShapedRepository(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repo = apitest.Repo(t, 40, 60)
	url := r.git.Serve("ops/large.git", r.repo.Dir)
	r.repository(map[string]any{"git": map[string]any{"url": url, "path": "/" + apitest.Directory + "/"}}, nil)
	record, status := r.pull(true, nil)
	if record.State != "success" {
		t.Fatalf("%+v", status)
	}
	want := fmt.Sprintf("Dashboard create %d, Folder create %d", len(r.repo.Dashboards()), len(r.repo.Folders())+1)
	if got := counts(status); got != want {
		t.Errorf("summary %q, want %q", got, want)
	}
	for _, d := range r.repo.Dashboards() {
		o := r.object(dashboards, d.UID)
		if o == nil || o.GetAnnotations()[api.AnnoSourcePath] != strings.TrimPrefix(d.Path, apitest.Directory+"/") {
			t.Fatalf("dashboard %s: %v", d.Path, o)
		}
	}
	r.expect("again", false, "success", "no changes to sync")
	path := r.repo.Dashboards()[7].Path
	r.repo.Edit(t, path)
	r.expect("edit", true, "success", "", "PUT dashboards/"+r.repo.Dashboards()[7].UID)
}

// TestStatusHasOtherWriters: conditions and health of others stay, whatever
// comes between the look and the patch.
func TestStatusHasOtherWriters(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := newRig(t, server, nil)
		r.repository(nil, nil)
		r.commit("a.json", board("a", "A"))
		other := func(patch string) {
			t.Helper()
			if _, err := r.client.Resource(api.Repositories).Namespace(r.namespace).Patch(context.Background(), "repo", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
				t.Error(err)
			}
		}
		ready := `{"type":"Ready","status":"True","reason":"Available","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}`
		between := []string{
			`[{"op":"add","path":"/status/health","value":{"healthy":true}},{"op":"add","path":"/status/conditions","value":[` + ready + `]}]`,
			`[{"op":"add","path":"/status/conditions/0","value":{"type":"NamespaceQuota","status":"True","reason":"QuotaUnlimited","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}}]`,
		}
		r.wire.fault = func(req *http.Request) *http.Response {
			// Another controller is quicker, once before each last patch.
			if req.Method == http.MethodPatch && len(between) > 0 {
				data, _ := io.ReadAll(req.Body)
				req.Body = io.NopCloser(strings.NewReader(string(data)))
				if strings.Contains(string(data), "SyncStatus") && strings.Contains(string(data), "finished") {
					next := between[0]
					between = between[1:]
					other(next)
				}
			}
			return nil
		}
		for range 2 {
			if record, status := r.pull(false, nil); record.State != "success" {
				t.Fatalf("%+v", status)
			}
		}
		_, u := r.sync()
		list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		kinds := map[string]int{}
		for _, c := range list {
			kinds[c.(map[string]any)["type"].(string)]++
		}
		for _, kind := range []string{"Ready", "NamespaceQuota", "SyncStatus", "ResourceQuota"} {
			if kinds[kind] != 1 {
				t.Errorf("%d conditions %s: %v", kinds[kind], kind, list)
			}
		}
		if healthy, _, _ := unstructured.NestedBool(u.Object, "status", "health", "healthy"); !healthy {
			t.Errorf("health is lost: %v", u.Object["status"])
		}
	})
}

// holdWrites makes writes of dashboards whose name begins so wait for their end,
// and tells about the first.
func (r *rig) holdWrites(prefix string) (entered <-chan struct{}) {
	seen := make(chan struct{}, 64)
	r.wire.fault = func(req *http.Request) *http.Response {
		if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/dashboards") {
			data, _ := io.ReadAll(req.Body)
			req.Body = io.NopCloser(strings.NewReader(string(data)))
			if strings.Contains(string(data), `"name":"`+prefix) {
				seen <- struct{}{}
				<-req.Context().Done()
			}
		}
		return nil
	}
	return seen
}

// forty commits 40 dashboards, n00 to n39.
func (r *rig) forty() {
	var files []string
	for i := range 40 {
		name := fmt.Sprintf("n%02d", i)
		files = append(files, name+".json", board(name, name))
	}
	r.commit(files...)
}

// TestCancel: a cancelled pull says so, and the next one writes what is missing.
func TestCancel(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repository(nil, nil)
	r.forty()
	entered := r.holdWrites("n2")
	r.submit(true, nil)
	<-entered
	if err := r.controller.Cancel(context.Background(), r.namespace, "repo-pull-1"); err != nil {
		t.Fatal(err)
	}
	if e := r.ended(); e.Type != jobs.EventCompleted {
		t.Fatalf("%+v", e)
	}
	if sync, _ := r.sync(); sync.State != "error" || sync.LastRef != "" || !strings.Contains(strings.Join(sync.Message, " "), "cancelled") {
		t.Errorf("sync status of a cancelled pull: %+v", sync)
	}
	r.wire.fault = nil
	r.wire.take()
	record, _ := r.pull(true, nil)
	_, writes, _ := r.wire.take()
	if record.State != "success" || len(writes) == 0 || len(writes) >= 41 {
		t.Errorf("%s with %d writes", record.State, len(writes))
	}
	if stats := fmt.Sprint(r.object(api.Repositories, "repo").Object["status"].(map[string]any)["stats"]); !strings.Contains(stats, "count:40") {
		t.Errorf("stats %s", stats)
	}
}

// TestShutdown: an agent that stops puts the Repository back to pending, and the
// next agent ends the job.
func TestShutdown(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repository(nil, nil)
	r.forty()
	entered := r.holdWrites("n3")
	r.submit(true, nil)
	<-entered
	r.halt()
	if sync, _ := r.sync(); sync.State != "pending" || sync.LastRef != "" {
		t.Errorf("sync status after the stop: %+v", sync)
	}
	r.wire.fault = nil
	r.wire.take()
	r.start()
	t.Cleanup(func() { r.halt() })
	if e := r.ended(); e.Type != jobs.EventCompleted || e.State != "success" {
		t.Errorf("%+v", e)
	}
	if _, writes, _ := r.wire.take(); len(writes) == 0 || len(writes) >= 41 {
		t.Errorf("%d writes", len(writes))
	}
	if sync, _ := r.sync(); sync.State != "success" || sync.LastRef != r.repo.Head(t) {
		t.Errorf("sync status %+v", sync)
	}
}

// swappable is a Git whose mirrors can be lost.
type swappable struct{ Git }

// TestLostMirror: without the commit that was synced last a pull compares
// everything, and still writes only what differs.
func TestLostMirror(t *testing.T) {
	t.Parallel()
	lost := &swappable{}
	r := newRig(t, "embedded", func(o *PullOptions) {
		lost.Git = o.Git
		o.Git = lost
	})
	r.repository(nil, nil)
	r.commit("a/one.json", board("one", "1"), "b/two.json", board("two", "2"))
	r.expect("first", true, "success", "", "POST folders/repo", "POST folders/"+folderID("a"), "POST folders/"+folderID("b"), "POST dashboards/one", "POST dashboards/two")
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

// TestDrift: a full pull brings back what was taken away or moved, and keeps the
// finalizers of others.
func TestDrift(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := newRig(t, server, nil)
		r.repository(nil, nil)
		r.commit("a/one.json", board("one", "1"), "a/two.json", board("two", "2"), "a/three.json", board("three", "3"))
		r.expect("first", false, "success", "", "POST folders/repo", "POST folders/"+folderID("a"), "POST dashboards/one", "POST dashboards/two", "POST dashboards/three")
		in := r.client.Resource(dashboards).Namespace(r.namespace)
		if err := in.Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Patch(t.Context(), "two", types.MergePatchType, []byte(`{"metadata":{"annotations":{"grafana.app/folder":"elsewhere"},"finalizers":["example.com/keep"]}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.client.Resource(folders).Namespace(r.namespace).Patch(t.Context(), folderID("a"), types.MergePatchType, []byte(`{"spec":{"title":"renamed"}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		r.expect("repair", false, "success", "", "POST dashboards/one", "PUT dashboards/two", "PUT folders/"+folderID("a"))
		two := r.object(dashboards, "two")
		if two.GetAnnotations()[api.AnnoFolder] != folderID("a") || len(two.GetFinalizers()) != 1 {
			t.Errorf("dashboard %v", two.Object["metadata"])
		}
	})
}

// TestIndexAndVersions: a server with an index of managed resources is asked for
// that alone, and one without a version for classic dashboards gets them in the
// version that it prefers.
func TestIndexAndVersions(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repository(map[string]any{"sync": map[string]any{"target": "instance"}}, nil)
	answer := func(body string) *http.Response {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}
	}
	var items string
	r.wire.fault = func(req *http.Request) *http.Response {
		switch {
		case strings.HasSuffix(req.URL.Path, "/repositories/repo/resources"):
			return answer(`{"kind":"ResourceList","apiVersion":"provisioning.grafana.app/v0alpha1","items":[` + items + `]}`)
		case req.URL.Path == "/apis/"+api.DashboardGroup:
			return answer(`{"kind":"APIGroup","apiVersion":"v1","name":"dashboard.grafana.app","versions":[{"groupVersion":"dashboard.grafana.app/v1","version":"v1"}],"preferredVersion":{"groupVersion":"dashboard.grafana.app/v1","version":"v1"}}`)
		}
		return nil
	}
	r.commit("one.json", board("one", "1"), "two.json", board("two", "2"),
		"v2.json", `{"apiVersion":"dashboard.grafana.app/v2","kind":"Dashboard","metadata":{"name":"v2"},"spec":{}}`)
	r.wire.take()
	record, status := r.pull(false, nil)
	reads, writes, all := r.wire.take()
	if record.State != "warning" || len(writes) != 2 {
		t.Errorf("%+v %q", status, writes)
	}
	has(t, status.Warnings, "v2.json", "the server has no dashboard.grafana.app/v2; it has v1")
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
	items = `{"path":"one.json","group":"dashboard.grafana.app","resource":"dashboards","name":"one","hash":"` + r.repo.Git(t, "rev-parse", "main:one.json") + `"},
		{"path":"two.json","group":"dashboard.grafana.app","resource":"dashboards","name":"two","hash":"old"},
		{"path":"gone.json","group":"dashboard.grafana.app","resource":"dashboards","name":"gone","hash":"old"}`
	r.expect("an index that is behind", false, "warning", "")
	r.commit("two.json", board("two", "2a"))
	r.expect("by the index", false, "warning", "", "PUT dashboards/two")
}

// TestQuota: files beyond the quota are left out with a warning.
func TestQuota(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repository(map[string]any{"sync": map[string]any{"target": "instance"}}, nil)
	patch := []byte(`[{"op":"add","path":"/status","value":{"quota":{"maxResourcesPerRepository":3}}}]`)
	if _, err := r.client.Resource(api.Repositories).Namespace(r.namespace).Patch(t.Context(), "repo", types.JSONPatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	r.commit("a.json", board("a", "A"), "b.json", board("b", "B"), "d/c.json", board("c", "C"), "d/e.json", board("e", "E"))
	record, status := r.pull(false, nil)
	if record.State != "warning" {
		t.Errorf("%+v", status)
	}
	has(t, status.Warnings, "resource quota of 3 exceeded")
	if got := counts(status); got != "Dashboard create 2, Dashboard warning 2, Folder create 1" {
		t.Errorf("summary %q", got)
	}
	_, u := r.sync()
	if conditions := fmt.Sprint(u.Object["status"].(map[string]any)["conditions"]); !strings.Contains(conditions, "Resource quota reached: 3/3 resources") {
		t.Errorf("conditions %s", conditions)
	}
}

// TestReady: who may run which job, without a server.
func TestReady(t *testing.T) {
	t.Parallel()
	secret := func(name string) map[string]api.SecureValue { return map[string]api.SecureValue{"token": {Name: name}} }
	token := auth.SourceFunc(func(context.Context, auth.Lookup) (*auth.Credentials, error) {
		return &auth.Credentials{Username: "git", Password: "s3cr3t"}, nil
	})
	repo := func(kind string, change func(*api.Repository)) api.Repository {
		block := &api.GitBlock{URL: "https://git.example.com/o/r"}
		v := api.Repository{Spec: api.RepositorySpec{Type: kind, Sync: api.SyncSpec{Enabled: true}, Git: block, GitHub: block, GitLab: block, Bitbucket: block, Local: block}}
		if change != nil {
			change(&v)
		}
		return v
	}
	for _, c := range []struct {
		name string
		repo api.Repository
		from auth.Source
		err  string
	}{
		{"public", repo("git", nil), nil, ""},
		{"token", repo("github", func(r *api.Repository) { r.Secure = secret("inline-1") }), token, ""},
		{"no token", repo("github", func(r *api.Repository) { r.Secure = secret("inline-1") }), auth.Chain(), `secure.token is the secret "inline-1"`},
		{"where to put it", repo("gitlab", func(r *api.Repository) { r.Secure = secret("x") }), nil, "default.repo/token below --credentials-dir"},
		{"connection", repo("github", func(r *api.Repository) {
			r.Spec.Connection = &struct {
				Name string `json:"name"`
			}{Name: "app"}
		}), nil, `connection "app"`},
		{"local", repo("local", nil), nil, `type "local"`},
		{"unknown type", repo("svn", nil), nil, "spec.svn is missing"},
		{"no URL", repo("git", func(r *api.Repository) { r.Spec.Git = &api.GitBlock{} }), nil, "spec.git.url is missing"},
		{"disabled", repo("local", func(r *api.Repository) { r.Spec.Sync.Enabled = false }), nil, ""},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetName("repo")
		err := NewPull(PullOptions{Credentials: c.from}).Ready(t.Context(), jobs.Task{Namespace: "default", Repo: u, Repository: c.repo})
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", c.name, err, c.err)
		}
	}
	if err := NewPull(PullOptions{}).Ready(t.Context(), jobs.Task{}); err != nil {
		t.Errorf("a job without a repository: %v", err)
	}
}

func TestSourceOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, url, want, user, wantUser string }{
		{"git", "https://h/o/r", "https://h/o/r", "", ""},
		{"git", "https://h/o/r.git/", "https://h/o/r.git", "grafana", "grafana"},
		{"github", "https://github.com/o/r", "https://github.com/o/r.git", "", ""},
		{"gitlab", "https://gitlab.com/o/r/", "https://gitlab.com/o/r.git", "", "oauth2"},
		{"bitbucket", "https://bitbucket.org/o/r.git", "https://bitbucket.org/o/r.git", "", "x-token-auth"},
		{"bitbucket", "https://bitbucket.org/o/r", "https://bitbucket.org/o/r.git", "me", "me"},
		{"github", "https://dev.azure.com/o/p/_git/r", "https://dev.azure.com/o/p/_git/r", "", ""},
	} {
		block := &api.GitBlock{URL: c.url, TokenUser: c.user, Path: "/a/b/", Branch: "refs/heads/main"}
		s, err := sourceOf("ns", "repo", api.Repository{Spec: api.RepositorySpec{Type: c.kind, Git: block, GitHub: block, GitLab: block, Bitbucket: block}})
		if err != nil || s.url != c.want || s.lookup.TokenUser != c.wantUser || s.dir != "a/b" || s.branch != "main" {
			t.Errorf("%s %s: %+v, %v", c.kind, c.url, s, err)
		}
	}
}

// TestMarksAreKept: the state file knows how far a long pull has come.
func TestMarksAreKept(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repository(nil, nil)
	var files []string
	for i := range 450 {
		name := fmt.Sprintf("n%03d", i)
		files = append(files, filepath.Join(fmt.Sprint(i%9), name+".json"), board(name, name))
	}
	r.commit(files...)
	marks := make(chan string, 64)
	r.wire.fault = func(req *http.Request) *http.Response {
		if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/dashboards") {
			if claims, err := r.store.Claims(context.Background()); err == nil && len(claims) == 1 && len(claims[0].Mark) > 0 {
				select {
				case marks <- string(claims[0].Mark):
				default:
				}
			}
		}
		return nil
	}
	record, _ := r.pull(true, nil)
	if record.State != "success" {
		t.Fatalf("%+v", record)
	}
	select {
	case m := <-marks:
		if !strings.Contains(m, r.repo.Head(t)) {
			t.Errorf("mark %s", m)
		}
	default:
		t.Error("no mark was kept")
	}
}
