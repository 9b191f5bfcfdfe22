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

// TestShutdownAndResume: a pull that is cut gives its Repository back, and the
// next agent on the same state file writes only what is missing.
func TestShutdownAndResume(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repository(nil, nil)
	var files []string
	for i := range 40 {
		name := fmt.Sprintf("n%02d", i)
		files = append(files, name+".json", board(name, name))
	}
	r.commit(files...)
	entered := make(chan struct{}, 64)
	hold := make(chan struct{})
	r.wire.fault = func(req *http.Request) *http.Response {
		if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/dashboards") {
			data, _ := io.ReadAll(req.Body)
			req.Body = io.NopCloser(strings.NewReader(string(data)))
			if strings.Contains(string(data), `"name":"n2`) {
				entered <- struct{}{}
				select {
				case <-hold:
				case <-req.Context().Done():
				}
			}
		}
		return nil
	}
	r.submit(true, nil)
	<-entered
	jobName := "repo-pull-1"
	if err := r.controller.Cancel(context.Background(), r.namespace, jobName); err != nil {
		t.Fatal(err)
	}
	if e := r.ended(); e.Type != jobs.EventCompleted {
		t.Fatalf("%+v", e)
	}
	close(hold)
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
