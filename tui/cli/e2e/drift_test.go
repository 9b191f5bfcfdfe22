package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"limpet/sync/testenv"
)

// TestDriftOfASite: what a pull would do, and what was edited by hand, from the command line: with a daemon and without.
func TestDriftOfASite(t *testing.T) {
	t.Parallel()
	repo := testenv.EmptyRepo(t)
	board := func(name, title string) []byte {
		return []byte(`{"uid":"` + name + `","title":"` + title + `","tags":[],"panels":[],"schemaVersion":41}`)
	}
	repo.Commit(t, "first", testenv.Change{Path: "a/x.json", Data: board("x", "X")}, testenv.Change{Path: "y.json", Data: board("y", "Y")})
	h := newHome(t, "--controllers", "off")
	d := h.daemon(t)
	site := func(notes string) string {
		return `apiVersion: provisioning.grafana.app/v0alpha1
kind: Repository
metadata: {name: site, namespace: default, annotations: {` + notes + `}}
spec:
  title: Site
  type: git
  workflows: []
  git: {url: "` + testenv.Git(t, testenv.GitOptions{}).Serve("boards.git", repo.Dir) + `", branch: main}
  sync: {enabled: true, target: folder, intervalSeconds: 3600}
`
	}
	text := site("")
	apply := func(code int, in string, args ...string) string {
		t.Helper()
		r := h.runWithInput(t, in, append([]string{"apply", "-f", "-"}, args...)...)
		if r.code != code {
			t.Fatalf("apply %q: %+v", args, r)
		}
		return r.out
	}
	has := func(out string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(strings.Join(strings.Fields(out), " "), w) {
				t.Errorf("no %q in\n%s", w, out)
			}
		}
	}
	has(apply(0, text, "--dry-run"), "repository/site create (dry run)")
	h.must(t, 1, "get", "repositories", "site")
	apply(0, text)
	has(apply(0, text, "--diff"), "repository/site unchanged (dry run)")

	has(h.must(t, 0, "repo", "pull", "site", "--dry-run").out, "create Folder site - -", "create Dashboard x a/x.json -", "4 create")
	h.must(t, 1, "repo", "diff", "site")
	if got := h.must(t, 0, "get", "dashboards", "-o", "name").out + h.must(t, 0, "job", "list", "-o", "name").out; got != "" {
		t.Errorf("a dry run has written %q", got)
	}
	h.must(t, 2, "job", "create", "site", "--action", "test", "--duration", "2s", "--dry-run")
	h.must(t, 0, "repo", "pull", "site", "--wait")
	has(h.must(t, 0, "repo", "diff", "site").out, "nothing differs from commit "+repo.Head(t)[:7])

	edit := "apiVersion: dashboard.grafana.app/v1\nkind: Dashboard\nmetadata: {name: x, namespace: default}\nspec: {title: By hand}\n"
	has(apply(0, edit, "--diff"), "dashboard/x update (dry run)", "- title: X", "+ title: By hand")
	apply(0, edit)
	drifted := func() {
		t.Helper()
		has(h.must(t, 0, "repo", "diff", "site").out, "modified Dashboard x a/x.json /spec/title", "1 object differs")
		has(h.must(t, 0, "repo", "diff", "site", "a/x.json").out, "--- git/a/x.json", `- "title": "X"`, `+ "title": "By hand"`)
		var report struct {
			Items []struct {
				State     string
				Git, Live struct{ Spec struct{ Title string } }
			}
		}
		out := h.must(t, 0, "repo", "diff", "site", "--full", "-o", "json").out
		if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Items) != 1 || report.Items[0].Git.Spec.Title != "X" ||
			report.Items[0].Live.Spec.Title != "By hand" {
			t.Errorf("%v %s", err, out)
		}
	}
	drifted()
	has(h.must(t, 0, "job", "create", "site", "--full", "--dry-run", "-o", "wide").out, "update Dashboard x a/x.json", "full pull of site")
	bad := h.runWithInput(t, strings.Replace(text, "{}", `{limpet/drift: fix, limpet/drift-ignore: spec}`, 1), "apply", "-f", "-")
	if bad.code != 1 || !strings.Contains(bad.err, "limpet/drift") || !strings.Contains(bad.err, "limpet/drift-ignore") {
		t.Errorf("%+v", bad)
	}
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	drifted() // by this process
	repo.Commit(t, "second", testenv.Change{Path: "y.json", Data: board("y", "Y 2")})
	has(h.must(t, 0, "repo", "pull", "site", "--dry-run").out, "update Dashboard y y.json", "incremental pull of site")
	apply(0, strings.Replace(text, "{}", `{limpet/drift: correct}`, 1))
	has(h.must(t, 0, "repo", "pull", "site", "--full", "--dry-run").out, "update Dashboard x a/x.json", "update Dashboard y y.json")
	h.daemon(t)
	h.must(t, 0, "repo", "pull", "site", "--full", "--wait", "--yes")
	has(h.must(t, 0, "repo", "diff", "site").out, "nothing differs")
}
