package worker

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"limpet/sync/api"
	"limpet/sync/forge"
	"limpet/sync/testenv"
	"limpet/sync/testenv/forgetest"
)

// atForge makes a rig whose repository is at a host with a REST API of a kind.
func atForge(t *testing.T, server, kind string, annotations map[string]string) (*rig, *forgetest.Host) {
	t.Helper()
	hosts := forge.New(forge.Options{AllowInsecure: true})
	t.Cleanup(hosts.Close)
	r := newRig(t, server, func(o *PullOptions) { o.Hosts, o.GrafanaURL = hosts, "https://grafana.example" })
	h := forgetest.New(t, forgetest.Options{})
	h.Behind(r.git)
	h.Add("ops/dashboards", forgetest.Repository{DefaultBranch: testenv.Branch})
	h.Token("", forgetest.Rights{})
	r.url = h.URL + "/ops/dashboards.git"
	annotations[forge.AnnoForge] = kind
	r.notes = annotations
	return r, h
}

// told returns the statuses since the last call, without those before.
func told(h *forgetest.Host) func() string {
	n := 0
	return func() string {
		var out []string
		all := h.Statuses("ops/dashboards")
		for _, s := range all[n:] {
			out = append(out, s.State+": "+s.Text)
		}
		n = len(all)
		return strings.Join(out, " | ")
	}
}

// TestCommitStatus: each state of a commit is written once, a host that refuses or is away fails no
// job, and what it has missed is written at the next sync.
func TestCommitStatus(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r, h := atForge(t, server, "github", map[string]string{api.AnnoCommitStatus: "true"})
		next := told(h)
		pull := func(what string, incremental bool, state, want string) {
			t.Helper()
			if record, _ := r.pull(incremental, nil); record.State != state {
				t.Errorf("%s: %s %s", what, record.State, record.Message)
			}
			if got := next(); got != want {
				t.Errorf("%s: wrote %q, want %q", what, got, want)
			}
		}
		refused := func() string {
			_, u := r.sync()
			view, _ := api.RepositoryView(u)
			i := slices.IndexFunc(view.Status.Conditions, func(c api.Condition) bool { return c.Type == api.ConditionCommitStatus })
			if i < 0 {
				return ""
			}
			return view.Status.Conditions[i].Status + " " + view.Status.Conditions[i].Reason
		}
		r.repository(nil, r.notes)
		r.commit("a/cpu.json", board("cpu", "CPU"), "mem.json", board("mem", "Memory"))
		pull("first", true, "success", "pending: sync has begun | success: 4 created")
		if s := h.Statuses("ops/dashboards")[1]; s.Context != "limpet/"+r.namespace+"/repo" || s.Commit != r.repo.Head(t) ||
			s.URL != "https://grafana.example/admin/provisioning/repo" {
			t.Errorf("%+v", s)
		}
		pull("the same", true, "success", "")
		r.halt()
		r.start()
		pull("after a restart, in full", false, "success", "")
		r.commit("mem.json", board("mem", "Mem"), "bad.json", "{}")
		pull("a warning", true, "warning", "pending: sync has begun | success: 1 updated, 1 warning")
		pull("the same warning", false, "warning", "")

		h.Token("", forgetest.Rights{NoStatuses: true})
		r.commit("mem.json", board("mem", "Me"), "bad.json", "")
		pull("refused", true, "success", "")
		if got := refused(); got != "False NotAllowed" {
			t.Errorf("condition %q", got)
		}
		h.Token("", forgetest.Rights{})
		r.commit("mem.json", board("mem", "M"))
		pull("allowed", true, "success", "pending: sync has begun | success: 1 updated")
		if pull("allowed", true, "success", ""); refused() != "" {
			t.Errorf("condition %q", refused())
		}

		h.Fault(func(*http.Request) *forgetest.Answer { return &forgetest.Answer{Status: 502} })
		r.commit("new.json", board("new", "New"))
		pull("away", true, "success", "")
		h.Fault(nil)
		pull("back", true, "success", "success: 1 created")
		pull("back", true, "success", "")

		u := r.object(api.Repositories, "repo")
		u.Object["spec"].(map[string]any)["git"].(map[string]any)["path"] = "nowhere"
		r.update(u)
		r.commit("new.json", "")
		if record, _ := r.pull(false, nil); record.State != "error" {
			t.Errorf("%+v", record)
		}
		if got := next(); got != "pending: sync has begun | failure: sync failed: path not found" {
			t.Errorf("wrong path: %q", got)
		}
	})
}

// propose makes a commit of a pull request and leaves the branch where it was.
func (r *rig) propose(number, branch string, merge bool, files ...string) string {
	r.t.Helper()
	main := r.repo.Head(r.t)
	if old := r.repo.Git(r.t, "for-each-ref", "--format=%(objectname)", "refs/heads/"+branch); old != "" {
		r.repo.Git(r.t, "update-ref", "refs/heads/"+testenv.Branch, old)
	}
	head := r.commit(files...)
	r.repo.Git(r.t, "update-ref", "refs/heads/"+branch, head)
	r.repo.Git(r.t, "update-ref", "refs/pull/"+number+"/head", head)
	r.repo.Git(r.t, "update-ref", "refs/heads/"+testenv.Branch, main)
	if merge {
		merged := r.repo.Git(r.t, "-c", "user.name=a", "-c", "user.email=a@b", "commit-tree", head+"^{tree}", "-p", main, "-p", head,
			"-m", "merge")
		r.repo.Git(r.t, "update-ref", "refs/pull/"+number+"/merge", merged)
	}
	return head
}

// TestPullRequest: a pull request gets one comment, which each push edits; nothing is written to
// the API.
func TestPullRequest(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r, h := atForge(t, server, "github", map[string]string{})
		r.writable(nil)
		job := map[string]any{"action": "pr", "pr": map[string]any{"pr": int64(7), "ref": "work"}}
		review := func(what, state string, want ...string) {
			t.Helper()
			r.wire.take()
			record, status := r.run(merged(map[string]any{}, job), nil)
			if record.State != state || status.URLs["pullRequestURL"] != h.URL+"/pull/7" {
				t.Errorf("%s: %s %q %v", what, record.State, record.Message, status.URLs)
			}
			_, _, all := r.wire.take()
			for _, q := range all {
				if q.method != http.MethodGet && !strings.Contains(q.query, "dryRun=All") {
					t.Errorf("%s: wrote %s %s", what, q.method, q.path)
				}
			}
			comments := h.Comments("ops/dashboards", 7)
			if len(comments) != 1 {
				t.Fatalf("%s: %d comments", what, len(comments))
			}
			for _, s := range want {
				if !strings.Contains(comments[0].Body, s) {
					t.Errorf("%s: %q is not in\n%s", what, s, comments[0].Body)
				}
			}
		}
		head := r.propose("7", "work", true, "grafana/new/disk.json", board("disk", "Disk"), "README.md", "x")
		h.SetPull("ops/dashboards", forgetest.Pull{Number: 7, Branch: "work", Head: head, Base: testenv.Branch})
		review("one", "success", "<!-- limpet/"+r.namespace+"/repo -->", "disk\\.json, added", "Dashboard Disk ([preview](",
			"ref=work", "): valid.", head[:7])
		if r.object(dashboards, "disk") != nil {
			t.Error("the dashboard was written")
		}
		// The branch of the Repository moves on, so the merge of the host is an old one.
		fork := r.repo.Head(t)
		r.commit("grafana/b/net.json", board("net", "Net 2"))
		head = r.propose("7", "work", false, "grafana/a/cpu.json", board("cpu", "CPU 2"), "grafana/bad.json", "{", "grafana/top.json", "",
			"grafana/dup.json", board("mem", "twice"))
		h.SetPull("ops/dashboards", forgetest.Pull{Number: 7, Branch: "work", Head: head, Base: testenv.Branch, MergeBase: fork})
		review("many", "warning", "changes 5 resource files", "| modified | Dashboard | [CPU 2](https://grafana.example/d/cpu/cpu-2) |",
			"| deleted | Dashboard |", "| added |  |  | bad\\.json |  | not valid |", "Validation issue", head[:7])
		if body := h.Comments("ops/dashboards", 7)[0].Body; strings.Contains(body, "net") {
			t.Errorf("what the branch of the repository has changed is in\n%s", body)
		}
		if r.object(dashboards, "top") == nil {
			t.Error("the dashboard was deleted")
		}
		head = r.propose("7", "work", true, "grafana/bad.json", "", "grafana/dup.json", "")
		h.SetPull("ops/dashboards", forgetest.Pull{Number: 7, Branch: "work", Head: head, Base: testenv.Branch, Fork: true})
		review("fork", "success", "of forks", head[:7])
		h.SetPull("ops/dashboards", forgetest.Pull{Number: 7, Branch: "work", Head: head, Base: "other", MergeBase: fork})
		review("another branch", "success", head[:7])

		h.Token("", forgetest.Rights{NoComments: true})
		h.SetPull("ops/dashboards", forgetest.Pull{Number: 8, Branch: "work", Head: head, Base: testenv.Branch, MergeBase: fork})
		r.repo.Git(t, "update-ref", "refs/pull/8/head", head)
		record, _ := r.run(map[string]any{"action": "pr", "pr": map[string]any{"pr": int64(8)}}, nil)
		if record.State != "error" || !strings.Contains(record.Message, "comment on pull request 8") {
			t.Errorf("without the right: %s %s", record.State, record.Message)
		}
	})
}

// TestPullRequestComments: with the annotation each push has a comment of its own, and a repeated
// job has none.
func TestPullRequestComments(t *testing.T) {
	r, h := atForge(t, "embedded", "gitea", map[string]string{api.AnnoPRComment: "new"})
	r.writable(nil)
	for i, title := range []string{"Disk", "Disks"} {
		head := r.propose("7", "work", false, "grafana/disk.json", board("disk", title))
		h.SetPull("ops/dashboards", forgetest.Pull{Number: 7, Branch: "work", Head: head, Base: testenv.Branch, MergeBase: r.repo.Head(t)})
		for range 2 {
			if record, _ := r.run(map[string]any{"action": "pr", "pr": map[string]any{"pr": int64(7)}}, nil); record.State != "success" {
				t.Errorf("%s %s", record.State, record.Message)
			}
		}
		if all := h.Comments("ops/dashboards", 7); len(all) != i+1 || !strings.Contains(all[i].Body, title) {
			t.Errorf("push %d: %+v", i, all)
		}
	}
}

// TestPullRequestBound: of a large pull request 100 files are checked, and the comment counts the
// others.
func TestPullRequestBound(t *testing.T) {
	r, h := atForge(t, "embedded", "github", map[string]string{})
	r.writable(nil)
	var files []string
	for i := range maxChecked + 20 {
		files = append(files, fmt.Sprintf("grafana/b%d.json", i), board(fmt.Sprint("b", i), "B"))
	}
	head := r.propose("7", "work", true, files...)
	h.SetPull("ops/dashboards", forgetest.Pull{Number: 7, Branch: "work", Head: head, Base: testenv.Branch})
	r.wire.take()
	r.run(map[string]any{"action": "pr", "pr": map[string]any{"pr": int64(7)}}, nil)
	_, _, all := r.wire.take()
	checked := map[string]bool{}
	for _, q := range all {
		if strings.Contains(q.query, "dryRun=All") {
			checked[q.method] = true
		}
	}
	body := h.Comments("ops/dashboards", 7)[0].Body
	if !checked["POST"] || len(all) > 3*maxChecked || !strings.Contains(body, "changes 120 resource files") ||
		!strings.Contains(body, "and 90 more files\n") || !strings.Contains(body, "and 20 more files, not checked\n") {
		t.Errorf("%d requests\n%s", len(all), body)
	}
}
