package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/testenv"
)

// actionsSite is an agent with the embedded API and one Repository "site", over three dashboards and some bad files.
func actionsSite(t *testing.T, bad int) (*home, *testenv.Repository) {
	t.Helper()
	repo := testenv.EmptyRepo(t)
	repo.Git(t, "config", "http.receivepack", "true")
	changes := []testenv.Change{}
	for _, name := range []string{"top", "a/cpu", "a/b/mem"} {
		changes = append(changes, testenv.Change{Path: name + ".json", Data: fmt.Appendf(nil,
			`{"uid":%q,"title":"T","tags":[],"panels":[],"schemaVersion":41}`, strings.ReplaceAll(name, "/", "-"))})
	}
	for i := range bad {
		changes = append(changes, testenv.Change{Path: fmt.Sprintf("bad/%02d.json", i), Data: []byte("{")})
	}
	repo.Commit(t, "first", changes...)
	h := newHome(t)
	h.daemon(t, "--controllers", "off")
	url := testenv.Git(t, testenv.GitOptions{}).Serve("site.git", repo.Dir)
	if r := h.runWithInput(t, `apiVersion: provisioning.grafana.app/v0alpha1
kind: Repository
metadata: {name: site}
spec:
  type: git
  workflows: [write]
  git: {url: "`+url+`", branch: main}
  sync: {enabled: true, target: folder, intervalSeconds: 3600}
`, "apply", "-f", "-"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	return h, repo
}

func (h *home) managed(t *testing.T) (managed, all int) {
	t.Helper()
	out := h.must(t, 0, "get", "dashboards", "-o", "yaml").out + h.must(t, 0, "get", "folders", "-o", "yaml").out
	return strings.Count(out, api.AnnoManagerID), strings.Count(out, "creationTimestamp:")
}

// TestActionsAfterARepository: what a deleted Repository has left is released, or deleted; again that changes nothing.
func TestActionsAfterARepository(t *testing.T) {
	t.Parallel()
	for action, left := range map[string]int{"releaseResources": 6, "deleteResources": 0} {
		h, _ := actionsSite(t, 0)
		h.must(t, 0, "repo", "pull", "site", "--wait")
		if managed, all := h.managed(t); managed != 6 || all != 6 {
			t.Fatalf("%d of %d are managed", managed, all)
		}
		if r := h.must(t, 1, "job", "create", "site", "--action", action); !strings.Contains(r.err, "try: limpet delete repository site") {
			t.Errorf("it exists: %s", r.err)
		}
		h.must(t, 0, "delete", "repository", "site", "--yes")
		for range 2 {
			h.must(t, 0, "job", "create", "site", "--action", action, "--wait")
			if managed, all := h.managed(t); managed != 0 || all != left {
				t.Errorf("%s: %d of %d are managed", action, managed, all)
			}
		}
		h.must(t, 1, "job", "create", "site")
		var states []string
		for _, r := range h.history(t) {
			states = append(states, r.Action+" "+r.State)
		}
		if got := strings.Join(states, ", "); got != action+" success, "+action+" success, pull success" {
			t.Errorf("history %s", got)
		}
	}
}

// TestFixFoldersOfASite: folder files come in one commit; the folders keep their names, and a second job commits nothing.
func TestFixFoldersOfASite(t *testing.T) {
	t.Parallel()
	h, repo := actionsSite(t, 0)
	h.must(t, 0, "repo", "pull", "site", "--wait")
	names := h.must(t, 0, "get", "folders", "-o", "name").out
	before := repo.Head(t)
	h.must(t, 0, "job", "create", "site", "--action", "fixFolderMetadata", "--wait")
	if got := repo.Git(t, "show", "--stat", "--format=%P|%an <%ae>|%s|%b", "main"); !strings.HasPrefix(got, before+
		"|Grafana <noreply@grafana.com>|Add folder metadata files|Triggered by job site-fixFolderMetadata at ") ||
		!strings.Contains(got, " a/_folder.json") || !strings.Contains(got, " a/b/_folder.json") || !strings.Contains(got, "2 files changed") {
		t.Errorf("commit %s", got)
	}
	h.must(t, 0, "repo", "pull", "site", "--full", "--wait")
	if got := h.must(t, 0, "get", "folders", "-o", "name").out; got != names {
		t.Errorf("folders %s, before %s", got, names)
	}
	head := repo.Head(t)
	h.must(t, 0, "job", "create", "site", "--action", "fixFolderMetadata", "--wait")
	if r := h.history(t)[0]; repo.Head(t) != head || r.Message != "nothing to commit" {
		t.Errorf("again: %+v", r)
	}
}

// TestLoadJobs: test jobs last as long as they say, are cancelled at once, and bad ones are refused whole.
func TestLoadJobs(t *testing.T) {
	t.Parallel()
	h, _ := actionsSite(t, 0)
	for _, args := range []string{"test", "test --duration 0s", "test --duration 16m", "test --duration soon",
		"test --duration 1s --progress-updates 3", "test --duration 1s --progress-updates many", "test --duration 1s --ref x",
		"pr", `pr --spec {"ref":"r","pr":3,"hash":"h"}`, "delete --path ../x", "delete", "move --path a.json --target-path b",
		"releaseResources --path a", "migrate --path a", "push --resource cpu", "fixFolderMetadata --ref a..b", "fetch"} {
		r := h.must(t, exitUsage, append([]string{"job", "create", "site", "--action"}, strings.Fields(args)...)...)
		if !strings.Contains(r.err, "try: limpet ") {
			t.Errorf("%s: %s", args, r.err)
		}
	}
	began := time.Now()
	h.must(t, 0, "job", "create", "site", "--action", "test", "--duration", "2s", "--progress-updates", "4", "--wait")
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("it took %s", took)
	}
	name := strings.TrimSpace(h.must(t, 0, "job", "create", "site", "--action", "test", "--duration", "15m", "-o", "name").out)
	name = strings.TrimPrefix(name, "job/")
	until(t, "it runs", func() bool { return strings.Contains(h.must(t, 0, "job", "list").out, "working") })
	h.must(t, 0, "job", "cancel", name)
	until(t, "it is cancelled", func() bool { return len(h.history(t)) == 2 })
	if r := h.history(t)[0]; r.State != "cancelled" || r.Name != name {
		t.Errorf("%+v", r)
	}
}

// TestAllErrorsOfAJob: the record has what the status has no room for.
func TestAllErrorsOfAJob(t *testing.T) {
	t.Parallel()
	h, _ := actionsSite(t, 30)
	h.must(t, exitPartial, "repo", "pull", "site", "--wait")
	var list struct{ Items []state.Issue }
	out := h.must(t, 0, "job", "show", "site-sync", "--errors", "-o", "json").out
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Items) != 30 {
		t.Fatalf("%d issues, %v", len(list.Items), err)
	}
	for i, issue := range list.Items {
		if issue.State != "warning" || issue.Reason != "parse" || !strings.HasPrefix(issue.Path, "bad/") || issue.Message == "" {
			t.Errorf("%d: %+v", i, issue)
		}
	}
	var status api.JobStatus
	if err := json.Unmarshal(h.history(t)[0].Status, &status); err != nil {
		t.Fatal(err)
	}
	if n := len(status.Warnings); n != 20 || status.Warnings[19] != "first 19 of 30" {
		t.Errorf("%d warnings, the last %q", n, status.Warnings[n-1])
	}
	if shown := h.must(t, 0, "job", "show", "site-sync").out; !strings.Contains(shown, "--errors lists all 30") {
		t.Errorf("job show:\n%s", shown)
	}
}
