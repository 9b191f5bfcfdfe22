package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/failpoint"
	"limpet/sync/kube"
	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// exportSite is a daemon with the Repository "site", which may be written to, and a client of its
// API.
type exportSite struct {
	*home
	client *kube.Client
	repo   *testenv.Repository
}

// newExportSite makes a site over an empty Git repository, or over one that is there.
func newExportSite(t *testing.T, target string, host *testenv.GitServer, repo *testenv.Repository) *exportSite {
	t.Helper()
	if repo == nil {
		repo = testenv.EmptyRepo(t)
		repo.Git(t, "config", "http.receivepack", "true")
	}
	h := newHome(t)
	h.daemon(t, "--allow-insecure-git")
	made := h.runWithInput(t, `apiVersion: provisioning.grafana.app/v0alpha1
kind: Repository
metadata: {name: site, namespace: default}
spec:
  title: Site
  type: git
  workflows: [write, branch]
  git: {url: "`+host.Serve("boards.git", repo.Dir)+`", branch: main}
  sync: {enabled: true, target: `+target+`, intervalSeconds: 3600}
secure: {token: {create: "`+gitToken+`"}}
`, "apply", "-f", "-")
	if made.code != 0 {
		t.Fatalf("%+v", made)
	}
	return &exportSite{h, embeddedWorkload(t, h).client, repo}
}

func exportHost(t *testing.T) *testenv.GitServer {
	return testenv.Git(t, testenv.GitOptions{User: "git", Password: gitToken})
}

// put creates a folder or a dashboard in a folder.
func (s *exportSite) put(t *testing.T, kind schema.GroupVersionResource, name, title, folder string) {
	t.Helper()
	if _, err := s.client.Resource(kind).Namespace("default").Create(t.Context(), unmanaged(kind, name, title, folder),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func unmanaged(kind schema.GroupVersionResource, name, title, folder string) *unstructured.Unstructured {
	spec := map[string]any{"title": title}
	if kind == dashboards {
		maps.Copy(spec, map[string]any{"tags": []any{"a <b>"}, "panels": []any{}, "schemaVersion": int64(41), "refresh": 0.1})
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetAPIVersion(kind.GroupVersion().String())
	u.SetKind(map[bool]string{true: "Dashboard", false: "Folder"}[kind == dashboards])
	u.SetName(name)
	if folder != "" {
		u.SetAnnotations(map[string]string{api.AnnoFolder: folder})
	}
	return u
}

// job runs a job and returns its record and its status.
func (s *exportSite) job(t *testing.T, code int, action, options string, flags ...string) (state.Record, api.JobStatus) {
	t.Helper()
	s.must(t, code, append([]string{"job", "create", "site", "--action", action, "--spec", options, "--wait"}, flags...)...)
	records := s.history(t)
	record := records[slices.IndexFunc(records, func(r state.Record) bool { return r.Action == action })] // a pull may follow
	var status api.JobStatus
	if err := json.Unmarshal(record.Status, &status); err != nil {
		t.Fatal(err)
	}
	return record, status
}

// all returns the objects of the API by kind and name, without what a migration changes: the
// identity that a server gives an object, and the annotations by which it belongs to a Repository.
func (s *exportSite) all(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, kind := range []schema.GroupVersionResource{folders, dashboards} {
		list, err := s.client.Resource(kind).Namespace("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range list.Items {
			name, notes := u.GetName(), u.GetAnnotations()
			maps.DeleteFunc(notes, func(key, _ string) bool { return key != api.AnnoFolder })
			data, err := json.Marshal([]any{u.GetAPIVersion(), u.GetKind(), notes[api.AnnoFolder], u.GetLabels(), u.Object["spec"]})
			if err != nil {
				t.Fatal(err)
			}
			out[kind.Resource+"/"+name] = string(data)
		}
	}
	return out
}

// delete deletes every folder and dashboard.
func (s *exportSite) delete(t *testing.T) {
	t.Helper()
	until(t, "all is deleted", func() bool { // the embedded API keeps folders that are not empty
		for _, kind := range []schema.GroupVersionResource{dashboards, folders} {
			objects := s.client.Resource(kind).Namespace("default")
			list, err := objects.List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range list.Items {
				_ = objects.Delete(t.Context(), u.GetName(), metav1.DeleteOptions{})
			}
		}
		return len(s.all(t)) == 0
	})
}

// TestRoundTrip: an API goes to an empty Git repository, is emptied, and comes back as it was.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	s := newExportSite(t, "folderless", exportHost(t), nil)
	for i := range suite.Count(6, 40) {
		parent := ""
		if i%3 > 0 {
			parent = fmt.Sprint("folder-", i-1)
		}
		s.put(t, folders, fmt.Sprint("folder-", i), fmt.Sprintf("Ordner №%d/ä", i/2), parent)
	}
	for i := range suite.Count(30, 500) {
		folder := fmt.Sprint("folder-", i%suite.Count(6, 40))
		if i%10 == 0 {
			folder = ""
		}
		s.put(t, dashboards, fmt.Sprint("board-", i), fmt.Sprintf("Board %d", i/4), folder)
	}
	before := s.all(t)
	uids := s.uids(t)
	_, status := s.job(t, 0, "migrate", `{}`)
	if got := s.repo.Git(t, "log", "--format=%s", "main"); got != "Export from Grafana site-sync" {
		t.Errorf("commits %s", got)
	}
	same := func(what string) {
		t.Helper()
		after := s.all(t)
		for _, name := range slices.Sorted(maps.Keys(before)) {
			if after[name] != before[name] {
				t.Errorf("%s: %s\n is %s\nwas %s", what, name, after[name], before[name])
			}
		}
		if len(after) != len(before) {
			t.Errorf("%s: %d objects of %d", what, len(after), len(before))
		}
	}
	until(t, "the branch that is there now is healthy", func() bool {
		u, err := s.client.Resource(api.Repositories).Namespace("default").Get(t.Context(), "site", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		healthy, _, _ := unstructured.NestedBool(u.Object, "status", "health", "healthy")
		return healthy
	})
	same("migrated")
	if !maps.Equal(uids, s.uids(t)) {
		t.Error("objects were made anew")
	}
	for _, sum := range status.Summary {
		if sum.Update == 0 || sum.Create+sum.Delete+sum.Error+sum.Warning != 0 {
			t.Errorf("summary %+v", sum)
		}
	}
	s.delete(t)
	s.job(t, 0, "pull", `{"incremental": false}`)
	same("pulled")
	if record, _ := s.job(t, 0, "migrate", `{}`); record.Message != "nothing to commit" {
		t.Errorf("a second migration: %s", record.Message)
	}
}

// uids returns the UIDs of all dashboards.
func (s *exportSite) uids(t *testing.T) map[string]string {
	t.Helper()
	list, err := s.client.Resource(dashboards).Namespace("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, u := range list.Items {
		out[u.GetName()] = string(u.GetUID())
	}
	return out
}

// TestPushesMeet: two agents push to one branch at once. Each job makes one commit, and none is
// lost.
func TestPushesMeet(t *testing.T) {
	t.Parallel()
	host, repo := exportHost(t), testenv.EmptyRepo(t)
	repo.Git(t, "config", "http.receivepack", "true")
	repo.Commit(t, "first", testenv.Change{Path: "README.md", Data: []byte("x")})
	each := suite.Count(3, 50)
	var all sync.WaitGroup
	for agent := range 2 {
		s := newExportSite(t, "folder", host, repo)
		for i := range each {
			s.put(t, dashboards, fmt.Sprintf("board-%d-%d", agent, i), fmt.Sprintf("Board %d %d", agent, i), "")
		}
		all.Go(func() {
			for i := range each {
				spec := fmt.Sprintf(`{"resources": [{"name": "board-%d-%d", "kind": "Dashboard"}]}`, agent, i)
				if r := s.run(t, "job", "create", "site", "--action", "push", "--spec", spec, "--wait"); r.code != 0 {
					t.Errorf("exit %d: %s%s", r.code, r.out, r.err)
				}
			}
		})
	}
	all.Wait()
	commits, merges := repo.Git(t, "rev-list", "--count", "main"), repo.Git(t, "rev-list", "--merges", "--count", "main")
	files := len(strings.Fields(repo.Git(t, "ls-tree", "-r", "--name-only", "main")))
	if commits != fmt.Sprint(2*each+1) || merges != "0" || files != 2*each+1 {
		t.Errorf("%s commits, %s merges, %d files", commits, merges, files)
	}
	repo.Git(t, "fsck", "--full", "--strict")
}

// TestKilledWhileExporting kills the agent at each point of a push and of both kinds of migration:
// one commit is made of each, and no dashboard is lost.
func TestKilledWhileExporting(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	first, w := suite.Seed(t), newServers(t)
	m := newCrashAgent(t, w, "kill-export", first, map[string]int{"a": small})
	m.repo.Git(t, "config", "http.receivepack", "true")
	repo := m.user.list(api.Repositories)[0]
	if err := unstructured.SetNestedSlice(repo.Object, []any{"write", "branch"}, "spec", "workflows"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.user.Resource(api.Repositories).Namespace(m.namespace).Update(t.Context(), &repo, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	m.pull("a", nil)
	m.finishJobs()
	points := []string{failpoint.Fetched, failpoint.Composed, failpoint.Noted, failpoint.Pushed, failpoint.Published, failpoint.Worked,
		failpoint.Recorded}
	pulled := append([]string{failpoint.Planned, failpoint.Applying}, points...)
	n := 0
	for range suite.Count(1, 3) {
		for _, c := range []struct {
			action, branch string
			points         []string
		}{{"push", "", points}, {"migrate", "", pulled}, {"migrate", "other", append([]string{failpoint.Applying}, points...)}} {
			for _, point := range c.points {
				n++
				name, options, branch := fmt.Sprint("export-", n), map[string]any{}, testenv.Branch
				if c.branch != "" {
					branch = fmt.Sprintf("%s-%d", c.branch, n)
					options["branch"] = branch
				}
				for _, suffix := range []string{"a", "b", "c"} {
					board := unmanaged(dashboards, name+suffix, fmt.Sprint("Export ", n, suffix), "")
					if _, err := m.user.Resource(dashboards).Namespace(m.namespace).Create(t.Context(), board, metav1.CreateOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				before := m.repo.Head(t)
				m.jobsCreated++
				job := m.user.create(api.Jobs, fmt.Sprintf("a-%s-%d", c.action, m.jobsCreated), nil,
					map[string]any{"action": c.action, "repository": "a", c.action: options})
				m.jobs[string(job.GetUID())] = true
				if !m.awaitEnd(m.start(point + "=kill")) {
					t.Fatalf("%s: not killed at %s", c.action, point)
				}
				m.finishJobs()
				where := fmt.Sprintf("%s to %q, killed at %s", c.action, c.branch, point)
				if got := m.repo.Git(t, "log", "--format=%s", before+".."+branch); got != "Export from Grafana "+job.GetName() {
					t.Errorf("%s: commits %q", where, got)
				}
				if got := m.repo.Git(t, "diff", "--name-only", before, branch); strings.Count(got, fmt.Sprintf("a/export-%d", n)) != 3 {
					t.Errorf("%s: files %q", where, got)
				}
				m.afterExport(name, c.action, c.branch != "", where)
			}
		}
	}
	m.pull("a", nil)
	m.finishJobs()
	m.verify()
	m.repo.Git(t, "fsck", "--full", "--strict")
}

// afterExport checks what has become of three dashboards, and deletes those without a manager.
func (m *crashAgent) afterExport(name, action string, elsewhere bool, where string) {
	m.t.Helper()
	left, managed := 0, 0
	for _, u := range m.user.list(dashboards) {
		if !strings.HasPrefix(u.GetName(), name) || len(u.GetName()) != len(name)+1 {
			continue
		}
		if left++; u.GetAnnotations()[api.AnnoManagerID] == "a" {
			managed++
			continue
		}
		if err := m.user.Resource(dashboards).Namespace(m.namespace).Delete(m.t.Context(), u.GetName(), metav1.DeleteOptions{}); err != nil {
			m.t.Fatal(err)
		}
	}
	want := map[bool][2]int{true: {0, 0}, false: {3, 3}}[elsewhere]
	if action == "push" {
		want = [2]int{3, 0}
	}
	if got := [2]int{left, managed}; got != want {
		m.t.Errorf("%s: %d dashboards, %d managed", where, left, managed)
	}
}
