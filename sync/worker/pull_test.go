package worker

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/jobs"
	"limpet/sync/testenv"
)

// onBoth runs a test against the embedded API and the real API machinery.
func onBoth(t *testing.T, test func(t *testing.T, server string)) {
	t.Parallel()
	for _, server := range []string{"embedded", "real"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			test(t, server)
		})
	}
}

// TestPullStory asserts the exact writes of a repository's life.
func TestPullStory(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := newRig(t, server, nil)
		r.repository(nil, nil)
		first := r.commit("a/cpu.json", board("cpu", "CPU"), "a/b/mem.json", board("mem", "Mem"), "README.md", "hello",
			"v1.yaml", "apiVersion: dashboard.grafana.app/v1\nkind: Dashboard\nmetadata: {name: v1}\nspec: {title: One}\n")
		status := r.expect("first", true, "success", "completed successfully",
			"POST folders/repo", "POST folders/"+folderID("a"), "POST folders/"+folderID("a/b"),
			"POST dashboards/cpu", "POST dashboards/mem", "POST dashboards/v1")
		if got := counts(status); got != "Dashboard create 3, Folder create 3" {
			t.Errorf("summary %q", got)
		}
		if c := r.git.Reset(); c.InfoRefs == 0 || c.UploadPack == 0 {
			t.Errorf("git requests of the first pull: %+v", c)
		}
		r.checkObjects(first)
		r.checkSync("success", first, false, 3, 3)

		r.expect("nothing new, incremental", true, "success", "same commit as last sync")
		if c := r.git.Reset(); c.InfoRefs != 1 || c.UploadPack != 0 {
			t.Errorf("git requests of a pull with nothing new: %+v", c)
		}
		r.expect("nothing new, full", false, "success", "no changes to sync")
		if c := r.git.Reset(); c.InfoRefs != 1 || c.UploadPack != 0 {
			t.Errorf("git requests of a full pull with nothing new: %+v", c)
		}

		changed := r.commit("a/cpu.json", board("cpu", "CPU 2"))
		r.expect("content", true, "success", "", "PUT dashboards/cpu")
		r.checkSync("success", changed, true, 3, 3)

		r.repo.Commit(t, "rename", change("c/cpu.json", "a/cpu.json"))
		r.expect("renamed into a new folder", true, "success", "", "POST folders/"+folderID("c"), "PUT dashboards/cpu")
		r.checkSync("success", r.repo.Head(t), true, 3, 4)

		r.commit("c/new.json", board("new", "New"), "a/b/mem.json", "")
		r.expect("one added, one deleted", true, "success", "", "POST dashboards/new", "DELETE dashboards/mem",
			"DELETE folders/"+folderID("a"), "DELETE folders/"+folderID("a/b"))
		r.checkSync("success", r.repo.Head(t), true, 3, 2)

		r.commit("c/new.json", board("newer", "New"))
		r.expect("another uid", true, "success", "", "POST dashboards/newer", "DELETE dashboards/new")

		r.commit("README.md", "bye")
		r.expect("no resource changed", true, "success", "")

		r.repo.ForcePush(t, 3, change("z/zoo.json", "", board("zoo", "Zoo")))
		head := r.repo.Head(t)
		r.expect("force push", true, "success", "",
			"POST folders/"+folderID("z"), "POST folders/"+folderID("a"), "POST folders/"+folderID("a/b"), "POST dashboards/zoo",
			"POST dashboards/mem", "DELETE dashboards/newer")
		r.checkSync("success", head, true, 4, 5)
		r.expect("full after all that", false, "success", "no changes to sync")
		r.checkSync("success", head, false, 4, 5)
	})
}

// counts writes a summary on one line.
func counts(s api.JobStatus) string {
	var out []string
	for _, k := range s.Summary {
		for name, n := range map[string]int64{"create": k.Create, "update": k.Update, "delete": k.Delete, "noop": k.Noop, "error": k.Error,
			"warning": k.Warning} {
			if n > 0 {
				out = append(out, fmt.Sprintf("%s %s %d", k.Kind, name, n))
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// checkObjects checks what the first pull of the story wrote, member by member.
func (r *rig) checkObjects(ref string) {
	r.t.Helper()
	blob := func(path string) string { return r.repo.Git(r.t, "rev-parse", ref+":"+path) }
	for _, c := range []struct {
		object      *unstructured.Unstructured
		spec        map[string]any
		annotations map[string]string
	}{
		{r.object(folders, "repo"), map[string]any{"title": "Dashboards"}, map[string]string{"grafana.app/grant-permissions": "default"}},
		{r.object(folders, folderID("a")), map[string]any{"title": "a"},
			map[string]string{"grafana.app/folder": "repo", "grafana.app/sourcePath": "a"}},
		{r.object(folders, folderID("a/b")), map[string]any{"title": "b"}, map[string]string{"grafana.app/folder": folderID("a"),
			"grafana.app/sourcePath": "a/b"}},
		{r.object(dashboards, "cpu"), map[string]any{"title": "CPU", "panels": []any{}, "schemaVersion": int64(39), "tags": []any{}},
			map[string]string{
				"grafana.app/folder": folderID("a"), "grafana.app/sourcePath": "a/cpu.json", "grafana.app/sourceChecksum": blob("a/cpu.json")}},
		{r.object(dashboards, "v1"), map[string]any{"title": "One"}, map[string]string{
			"grafana.app/folder": "repo", "grafana.app/sourcePath": "v1.yaml", "grafana.app/sourceChecksum": blob("v1.yaml")}},
	} {
		if c.object == nil {
			r.t.Fatalf("an object with %v is missing", c.annotations)
		}
		want := maps.Clone(c.annotations)
		want["grafana.app/managedBy"], want["grafana.app/managerId"] = "repo", "repo"
		if got := c.object.GetAnnotations(); !maps.Equal(got, want) {
			r.t.Errorf("%s %s: annotations\n got %v\nwant %v", c.object.GetKind(), c.object.GetName(), got, want)
		}
		if spec, _, _ := unstructured.NestedMap(c.object.Object, "spec"); fmt.Sprint(spec) != fmt.Sprint(c.spec) {
			r.t.Errorf("%s %s: spec %v, want %v", c.object.GetKind(), c.object.GetName(), spec, c.spec)
		}
	}
}

// checkSync checks the status of the Repository.
func (r *rig) checkSync(state, ref string, incremental bool, boards, dirs int64) {
	r.t.Helper()
	sync, u := r.sync()
	if sync.State != state || sync.LastRef != ref || sync.Incremental != incremental || sync.Started == 0 || sync.Finished < sync.Started ||
		sync.Job != fmt.Sprintf("repo-pull-%d", r.number) {
		r.t.Errorf("sync status %+v, want %s %s", sync, state, ref)
	}
	if message, there, _ := unstructured.NestedSlice(u.Object, "status", "sync", "message"); !there || state == "success" && len(message) > 0 {
		r.t.Errorf("status.sync.message is %v", message)
	}
	stats := map[string]int64{}
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "stats")
	for _, s := range list {
		s := s.(map[string]any)
		stats[s["group"].(string)+"/"+s["resource"].(string)] = s["count"].(int64)
	}
	if want := map[string]int64{"dashboard.grafana.app/dashboards": boards, "folder.grafana.app/folders": dirs}; !maps.Equal(stats, want) {
		r.t.Errorf("stats %v, want %v", stats, want)
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	found := map[string]string{}
	for _, c := range conditions {
		c := c.(map[string]any)
		found[c["type"].(string)] = fmt.Sprint(c["status"], " ", c["reason"])
	}
	want := map[string]string{"SyncStatus": "True SyncSuccessful", "ResourceQuota": "True QuotaUnlimited"}
	if state == "error" {
		want["SyncStatus"] = "False SyncFailed"
	}
	if !maps.Equal(found, want) {
		r.t.Errorf("conditions %v, want %v", found, want)
	}
}

// selects changes the annotation of the Repository. An API that does not know it takes anything.
func (r *rig) selects(text string) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, api.AnnoGitRef, text)
	changed, err := r.client.Resource(api.Repositories).Namespace(r.namespace).Patch(r.t.Context(), "repo", types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	if err == nil {
		r.seen(changed)
	}
	return err
}

// TestPullOfRevisions pulls what an annotation names in place of the branch, and counts what the
// remote is asked.
func TestPullOfRevisions(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := newRig(t, server, nil)
		one := r.commit("cpu.json", board("cpu", "CPU 1"))
		r.repo.Git(t, "-c", "user.name=u", "-c", "user.email=u@x", "tag", "-a", "-m", "release", "v1.0.0")
		two := r.commit("cpu.json", board("cpu", "CPU 2"))
		r.repo.Git(t, "tag", "v1.1.0-rc.1")
		r.repo.Git(t, "update-ref", "refs/pull/420/head", two)
		three := r.commit("cpu.json", board("cpu", "CPU 3"), "mem.json", board("mem", "Mem"))
		r.repository(nil, map[string]string{api.AnnoGitRef: "tag:v1.0.0"})
		r.expect("a tag", true, "success", "", "POST folders/repo", "POST dashboards/cpu")
		for _, c := range []struct {
			revision, commit string
			looks, fetches   int
			writes           []string
		}{
			{"tag:v1.0.0", one, 1, 0, nil},
			{"semver:1.x", one, 1, 0, nil}, // pre-releases are not asked for
			{"semver:>=1.0.0-0", two, 1, 1, []string{"PUT dashboards/cpu"}},
			{"ref:refs/pull/420/head", two, 1, 0, nil},
			{"commit:" + one, one, 0, 0, []string{"PUT dashboards/cpu"}},
			{"commit:" + one, one, 0, 0, nil},
			{"ref:refs/heads/" + testenv.Branch, three, 1, 1, []string{"PUT dashboards/cpu", "POST dashboards/mem"}},
			{"commit:" + two + " branch:" + testenv.Branch, two, 1, 0, []string{"PUT dashboards/cpu", "DELETE dashboards/mem"}},
			{"commit:" + two + " branch:" + testenv.Branch, two, 0, 0, nil},
		} {
			if err := r.selects(c.revision); err != nil {
				t.Fatal(err)
			}
			r.git.Reset()
			r.expect(c.revision, true, "success", "", c.writes...)
			if n := r.git.Reset(); n.InfoRefs != c.looks || n.UploadPack != c.fetches {
				t.Errorf("%s: %+v", c.revision, n)
			}
			if sync, _ := r.sync(); sync.LastRef != c.commit {
				t.Errorf("%s: last ref %s, want %s", c.revision, sync.LastRef, c.commit)
			}
		}
		for text, says := range map[string]string{
			"tag:v9":     `there is no tag "v9"`,
			"semver:9.x": "the highest of 2 versions is v1.1.0-rc.1",
			"commit:" + strings.Repeat("ab", 20) + " branch:" + testenv.Branch: "it is not among the 3 commits of refs/heads/" + testenv.Branch,
		} {
			if err := r.selects(text); err != nil {
				t.Fatal(err)
			}
			r.expect(text, true, "error", says)
			if sync, _ := r.sync(); sync.LastRef != two {
				t.Errorf("%s: last ref %s", text, sync.LastRef)
			}
		}
		r.git.Reset()
		if err := r.selects("v1.0.0"); server == "embedded" {
			if err == nil {
				t.Error("a wrong annotation is taken")
			}
			return
		}
		r.expect("a wrong annotation", true, "error", "annotation limpet/git-ref: \"v1.0.0\" is not understood; write tag:NAME")
		if n := r.git.Reset(); n.InfoRefs+n.UploadPack > 0 {
			t.Errorf("a wrong annotation is asked for: %+v", n)
		}
	})
}

// linked commits a gitlink and its .gitmodules into the bare repository in dir.
func linked(t *testing.T, dir, at, commit, url string) {
	t.Helper()
	run := func(in string, args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		cmd.Stdin = strings.NewReader(in)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	blob := run("[submodule \"lib\"]\n\tpath = "+at+"\n\turl = "+url+"\n", "hash-object", "-w", "--stdin")
	var tree strings.Builder
	for line := range strings.Lines(run("", "ls-tree", testenv.Branch) + "\n") {
		if name := strings.TrimSpace(line[strings.Index(line, "\t"):]); name != at && name != ".gitmodules" {
			tree.WriteString(line)
		}
	}
	tree.WriteString("100644 blob " + blob + "\t.gitmodules\n160000 commit " + commit + "\t" + at + "\n")
	id := run("", "commit-tree", "-p", testenv.Branch, "-m", "submodule", run(tree.String(), "mktree", "--missing"))
	run("", "update-ref", "refs/heads/"+testenv.Branch, id)
}

func TestPullSubmodule(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	lib := testenv.EmptyRepo(t)
	r.git.Serve("ops/lib.git", lib.Dir)
	first := lib.Commit(t, "lib", change(".gitattributes", "", "large.json filter=lfs\n"), change("one.json", "", board("one", "1")), change("large.json", "", r.git.KeepLFS(board("large", "L"))))
	r.repository(nil, nil)
	r.commit("own.json", board("own", "O"))
	linked(t, r.repo.Dir, "lib", first, "../lib.git")
	r.expect("off", true, "success", "", "POST folders/repo", "POST dashboards/own")

	_, u := r.sync()
	u.SetAnnotations(map[string]string{api.AnnoGitSubmodules: "true"})
	r.update(u)
	r.expect("on", false, "success", "", "POST folders/"+folderID("lib"), "POST dashboards/large", "POST dashboards/one")
	second := lib.Commit(t, "lib", change("one.json", "", board("one", "2")))
	linked(t, r.repo.Dir, "lib", second, "../lib.git")
	r.expect("moved on", true, "success", "", "PUT dashboards/one")
	linked(t, r.repo.Dir, "lib", second, "../nothing.git")
	status := r.expect("gone", true, "error", "")
	has(t, status.Errors, `submodule "lib"`, "repository not found")
}

// unwell makes the server answer so for requests that are about one of the resources, as long as
// sick says so.
func (r *rig) unwell(code int, sick func(req *http.Request) bool) {
	r.wire.answer(func(req *http.Request) *http.Response {
		if !sick(req) {
			return nil
		}
		return &http.Response{StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
			Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader("not now"))}
	})
}

// TestServerGoesAway: a server that goes away in the middle of a pull, or before it, makes no error
// of it: the job goes on when the server is back.
func TestServerGoesAway(t *testing.T) {
	t.Parallel()
	writes := func(req *http.Request) bool {
		return strings.Contains(req.URL.Path, "/dashboards") && req.Method != http.MethodGet
	}
	for name, c := range map[string]struct {
		code int
		sick func(req *http.Request) bool
	}{
		"401 for dashboards":       {401, writes},
		"401 for folders":          {401, func(req *http.Request) bool { return strings.Contains(req.URL.Path, "/folders") }},
		"401 for the first status": {401, func(req *http.Request) bool { return strings.HasSuffix(req.URL.Path, "/repositories/repo/status") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "embedded", nil)
			r.repository(nil, nil)
			r.forty()
			var met, well atomic.Int64
			r.unwell(c.code, func(req *http.Request) bool {
				if !c.sick(req) || well.Load() > 0 {
					return false
				}
				// Some come through before the server goes.
				return met.Add(1) > 7 || !writes(req)
			})
			r.submit(false, nil)
			released := r.ended()
			if released.Type != jobs.EventRetry || !strings.Contains(released.Text, "API unavailable") {
				t.Fatalf("the job was not put back: %+v", released)
			}
			well.Store(1)
			if e := r.ended(); e.Type != jobs.EventCompleted || e.State != api.StateSuccess {
				t.Fatalf("%+v", e)
			}
			if sync, _ := r.sync(); sync.State != "success" || sync.LastRef == "" {
				t.Errorf("sync status: %+v", sync)
			}
			r.expect("all is there", false, "success", "no changes to sync")
		})
	}
}

// TestOneObjectIsRefused: trouble with one object that looks like that of the server does not keep
// the others away for ever: in the last attempt it is the object's.
func TestOneObjectIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.halt()
	r.terms.MaxAttempts = 1
	r.start()
	r.repository(nil, nil)
	r.forty()
	r.unwell(401, func(req *http.Request) bool {
		if req.Method != http.MethodPost || !strings.HasSuffix(req.URL.Path, "/dashboards") {
			return false
		}
		data, _ := io.ReadAll(req.Body)
		req.Body = io.NopCloser(bytes.NewReader(data))
		return bytes.Contains(data, []byte(`"name":"n05"`))
	})
	record, status := r.pull(false, nil)
	if record.State != "error" || len(status.Errors) != 1 || !strings.Contains(status.Errors[0], "n05") {
		t.Errorf("%s: %q", record.State, status.Errors)
	}
	if _, repo := r.sync(); !strings.Contains(fmt.Sprint(repo.Object["status"].(map[string]any)["stats"]), "count:39") {
		t.Errorf("stats %v", repo.Object["status"])
	}
}
