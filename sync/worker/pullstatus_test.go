package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
	"limpet/sync/jobs"
	"limpet/sync/resources"
	"limpet/sync/testenv"
	"limpet/sync/worker/checkout"
	"limpet/sync/worker/status"
)

// TestStatusHasOtherWriters: conditions and health of others stay, whatever comes between the look
// and the patch.
func TestStatusHasOtherWriters(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := newRig(t, server, nil)
		r.repository(nil, nil)
		r.commit("a.json", board("a", "A"))
		other := func(patch string) {
			t.Helper()
			if _, err := r.client.Resource(api.Repositories).Namespace(r.namespace).Patch(context.Background(), "repo", types.JSONPatchType,
				[]byte(patch), metav1.PatchOptions{}, "status"); err != nil {
				t.Error(err)
			}
		}
		ready := `{"type":"Ready","status":"True","reason":"Available","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}`
		between := []string{
			`[{"op":"add","path":"/status/health","value":{"healthy":true}},{"op":"add","path":"/status/conditions","value":[` + ready + `]}]`,
			`[{"op":"add","path":"/status/conditions/0","value":{"type":"NamespaceQuota","status":"True","reason":"QuotaUnlimited","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}}]`,
		}
		r.wire.answer(func(req *http.Request) *http.Response {
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
		})
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

// TestQuota: files beyond the quota are left out with a warning, and come when there is room for
// them, whatever the pull of then was asked to look at.
func TestQuota(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := newRig(t, server, func(o *PullOptions) { o.Parallel = 1 }) // the deepest first
		r.repository(map[string]any{"sync": map[string]any{"target": "instance"}}, nil)
		limit := func(n int) { r.state(fmt.Sprintf(`{"status":{"quota":{"maxResourcesPerRepository":%d}}}`, n)) }
		told := func(sync, resources string) api.SyncStatus {
			t.Helper()
			_, u := r.sync()
			repo, err := api.RepositoryView(u)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range repo.Status.Conditions {
				got := c.Status + " " + c.Reason + ": " + c.Message
				if want := map[string]string{"SyncStatus": sync, "ResourceQuota": resources}[c.Type]; got != want {
					t.Errorf("%s is %q, want %q", c.Type, got, want)
				}
			}
			return repo.Status.Sync
		}
		limit(3)
		r.commit("a.json", board("a", "A"), "b.json", board("b", "B"), "d/c.json", board("c", "C"), "d/e.json", board("e", "E"))
		record, status := r.pull(false, nil)
		if record.State != "warning" {
			t.Errorf("%+v", status)
		}
		has(t, status.Warnings, "resource quota of 3 exceeded")
		if got := counts(status); got != "Dashboard create 2, Dashboard warning 2, Folder create 1" {
			t.Errorf("summary %q", got)
		}
		told("False SyncQuotaExceeded: Resource quota exceeded: 2 creations left out", "True QuotaReached: Resource quota reached: 3/3 resources")

		// One goes, and the next pull is of everything although changes were asked for.
		r.commit("d/c.json", "", "d/e.json", board("e", "E2"))
		if _, status = r.pull(true, nil); counts(status) != "Dashboard create 1, Dashboard delete 1, Dashboard update 1, Dashboard warning 1" {
			t.Errorf("summary %q", counts(status))
		}
		if sync := told("False SyncQuotaExceeded: Resource quota exceeded: 1 creations left out",
			"True QuotaReached: Resource quota reached: 3/3 resources"); sync.Incremental {
			t.Error("it says that it looked at changes only")
		}
		limit(10)
		if record, status = r.pull(false, nil); record.State != "success" || counts(status) != "Dashboard create 1" {
			t.Errorf("%+v", status)
		}
		told("True SyncSuccessful: Sync completed successfully", "True WithinQuota: Within quota: 4/10 resources")
		// What it has is counted where none has written that down.
		limit(4)
		r.state(`{"status":{"stats":null}}`)
		r.commit("f.json", board("f", "F"))
		r.pull(true, nil)
		told("False SyncQuotaExceeded: Resource quota exceeded: 1 creations left out", "True QuotaReached: Resource quota reached: 4/4 resources")
		r.commit("f.json", "")
		r.pull(true, nil)
		limit(2)
		r.commit("b.json", board("b", "B2"))
		if record, status = r.pull(true, nil); record.State != "success" {
			t.Errorf("an update needs no room: %+v", status)
		}
		if sync := told("True SyncSuccessful: Sync completed successfully",
			"False QuotaExceeded: Resource quota exceeded: 4/2 resources"); !sync.Incremental {
			t.Error("it looked at everything")
		}
	})
}

// slowGit is Git over a link on which each answer takes a while, and a branch that moves on between
// its look-up and the first fetch.
type slowGit struct {
	checkout.Git
	moved atomic.Bool
}

const slow = 3 * time.Second / 100

func (g *slowGit) Resolve(ctx context.Context, r git.Remote, sel gitref.Selector) (git.Ref, error) {
	time.Sleep(slow)
	return g.Git.Resolve(ctx, r, sel)
}

func (g *slowGit) Fetch(ctx context.Context, r git.Remote, ref git.Ref) (git.Stats, error) {
	time.Sleep(slow)
	if !g.moved.Swap(true) {
		return git.Stats{}, &git.Error{Kind: git.Moved, Err: errors.New("it has moved on")}
	}
	return g.Git.Fetch(ctx, r, ref)
}

// TestPullRecordsCommit: the record of a pull has what the commit says of itself, and how long each
// part took; one with nothing to do fetches no commit.
func TestPullRecordsCommit(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := newRig(t, server, func(o *PullOptions) { o.Source.Git = &slowGit{Git: o.Source.Git} })
		r.repository(nil, nil)
		r.commit("a/cpu.json", board("cpu", "CPU"))
		named := func(record state.Record) (out []string) {
			for _, s := range record.Steps {
				if word, _, _ := strings.Cut(s.Text, " "); word == "look" || word == "fetch" {
					out = append(out, s.Text)
				}
			}
			return out
		}
		began := time.Now()
		record, _ := r.pull(true, nil)
		whole := time.Since(began).Seconds()
		if c := record.Commit; c == nil || c.Subject != r.last("%s") || c.Author != r.last("%an") ||
			strconv.FormatInt(c.At.Unix(), 10) != r.last("%at") {
			t.Errorf("commit %+v, want %s", c, r.last("%s by %an, %at"))
		}
		all := 0.0
		for _, s := range record.Steps {
			all += s.Seconds
		}
		if all > whole {
			t.Errorf("%+v take %.3f s, all of it %.3f s", record.Steps, all, whole)
		}
		look, fetch := "look up branch:"+testenv.Branch, "fetch "+checkout.ShortHash(record.RefTo)
		if got := named(record); len(got) != 4 || got[0] != look || got[1] != fetch || got[2] != look ||
			!strings.HasPrefix(got[3], fetch+", ") || !strings.HasSuffix(got[3], " B") {
			t.Errorf("steps %q", got)
		}
		if record.Created.IsZero() || record.Created.After(record.Finished.Add(time.Second)) {
			t.Errorf("created %s, finished %s", record.Created, record.Finished)
		}
		if record, _ = r.pull(true, nil); record.Commit != nil || !slices.Equal(named(record), []string{look}) {
			t.Errorf("with nothing to do: %+v", record)
		}
	})
}

// holdWrites makes writes of dashboards whose name begins so wait for their end, and tells about
// the first.
func (r *rig) holdWrites(prefix string) (entered <-chan struct{}) {
	seen := make(chan struct{}, 64)
	r.wire.answer(func(req *http.Request) *http.Response {
		if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/dashboards") {
			data, _ := io.ReadAll(req.Body)
			req.Body = io.NopCloser(strings.NewReader(string(data)))
			if strings.Contains(string(data), `"name":"`+prefix) {
				seen <- struct{}{}
				<-req.Context().Done()
			}
		}
		return nil
	})
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
	r.wire.answer(nil)
	r.wire.take()
	record, _ := r.pull(true, nil)
	_, writes, _ := r.wire.take()
	if record.State != "success" || len(writes) == 0 || len(writes) >= 41 {
		t.Errorf("%s with %d writes", record.State, len(writes))
	}
	if stats := fmt.Sprint(r.object(api.Repositories, "repo").Object["status"].(map[string]any)["stats"]); !strings.Contains(stats,
		"count:40") {
		t.Errorf("stats %s", stats)
	}
}

// TestShutdown: an agent that stops puts the Repository back to pending, and the next agent ends
// the job.
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
	r.wire.answer(nil)
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

// TestLostLease: when the job has got another owner, nothing more is written, not even to the
// Repository, whose status is the other one's now.
func TestLostLease(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.halt()
	r.terms = jobs.Options{Renew: time.Second, Expiry: 30 * time.Second}
	r.start()
	t.Cleanup(func() { r.halt() })
	r.repository(nil, nil)
	r.forty()
	entered := r.holdWrites("n")
	r.submit(true, nil)
	<-entered
	steal := []byte(`{"metadata":{"labels":{"` + api.LabelClaimOwner + `":"stranger"}}}`)
	if _, err := r.client.Resource(api.Jobs).Namespace(r.namespace).Patch(t.Context(), "repo-pull-1", types.MergePatchType, steal,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	r.wire.take()
	if e := r.ended(); e.Type != jobs.EventLost {
		t.Errorf("%+v", e)
	}
	r.halt()
	for _, q := range r.all() {
		if q.method != http.MethodGet && q.code != 0 {
			t.Errorf("after the loss: %s %s %s", q.method, q.path, q.body)
		}
	}
	if sync, _ := r.sync(); sync.State != "working" {
		t.Errorf("sync status %+v", sync)
	}
}

// all returns the requests since the last take, of every kind that take knows.
func (r *rig) all() []request {
	_, _, all := r.wire.take()
	return all
}

// TestSyncSource: a pull is spared only where the last accepted one was of the same commit, source
// and target, and no other has failed among its writes since.
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

// TestTitleOfTheRootFolder: an incremental pull brings another title of the Repository to its
// folder.
func TestTitleOfTheRootFolder(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repository(map[string]any{"title": "One"}, nil)
	r.commit("a.json", board("a", "A"))
	r.expect("first", true, "success", "", "POST folders/repo", "POST dashboards/a")
	r.change(`{"spec":{"title":"Two"}}`)
	r.expect("another title", true, "success", "", "PUT folders/repo")
}

// TestDiesAmongItsWrites: a pull does not rely on the last commit after a run that died among its
// writes and whose job is gone, and neither does the pull after one that failed before its first
// write.
func TestDiesAmongItsWrites(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", func(o *PullOptions) { o.Parallel = 1 })
	r.repository(nil, nil)
	r.commit("a.json", board("a", "A"))
	r.expect("first", true, "success", "", "POST folders/repo", "POST dashboards/a")
	before := r.repo.Head(t)
	r.commit("a.json", board("a", "A 2"), "b.json", board("b", "B"))
	if sync, _ := r.sync(); sync.Source.Hash == status.Unfinished {
		t.Errorf("before its writes: %+v", sync)
	}
	entered := r.holdWrites("b")
	r.submit(true, nil)
	<-entered
	sync, _ := r.sync()
	if sync.LastRef != before || sync.Source.Hash != status.Unfinished {
		t.Errorf("among its writes: %+v", sync)
	}
	r.halt()
	r.wire.answer(nil)
	r.remove(api.Jobs, fmt.Sprintf("repo-pull-%d", r.number))
	r.repo.Git(t, "update-ref", "refs/heads/main", before)
	r.start()
	r.change(`{"spec":{"git":{"branch":"none"}}}`)
	r.pull(true, nil)
	r.change(`{"spec":{"git":{"branch":"main"}}}`)
	if record, _ := r.pull(true, nil); record.State != "success" {
		t.Errorf("%+v", record)
	}
	if title, _, _ := unstructured.NestedString(r.object(dashboards, "a").Object, "spec", "title"); title != "A" {
		t.Errorf("what half a pull has written is still there: %q", title)
	}
	if sync, _ := r.sync(); sync.Source.Hash == status.Unfinished {
		t.Errorf("after a pull: %+v", sync)
	}
}

// TestPullsAgainFromTheStart: an attempt after one that has begun to write does not rely on the
// last commit.
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
