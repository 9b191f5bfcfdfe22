package cli_test

import (
	"slices"
	"strings"
	"testing"

	"limpet/state"
	"limpet/sync/testenv"
)

// TestNamesakes: a name that is one of several namespaces is refused with the call that
// means one, whether they are alive or have ended; nothing is done to either.
func TestNamesakes(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.daemon(t, "--controllers", "off")
	gate := newGate(t, 3)
	gate.open()
	for _, namespace := range []string{"one", "two"} {
		h.must(t, 0, "-n", namespace, "repo", "create", "boards", "--url", gate.URL, "--branch", testenv.Branch)
	}
	refused := func(calls ...string) {
		t.Helper()
		for _, call := range calls {
			r := h.run(t, strings.Fields(call)...)
			if r.code != 2 || !strings.Contains(r.err, "in several namespaces: one, two") || !strings.Contains(r.err, "try: limpet "+call+" --namespace one") {
				t.Errorf("limpet %s: exit %d: %s%s", call, r.code, r.out, r.err)
			}
		}
	}
	refused("repo show boards", "repo pull boards", "repo test boards", "repo suspend boards", "repo resume boards", "repo open boards",
		"get repository boards", "delete repository boards", "delete repository boards --yes", "job create boards --action pull")

	// Both have ended.
	for _, namespace := range []string{"one", "two"} {
		h.must(t, 0, "-n", namespace, "repo", "pull", "boards", "--wait", "-q")
	}
	refused("history show boards-sync", "job show boards-sync", "job logs boards-sync", "job retry boards-sync")
	for _, call := range []string{"history show boards-sync", "job show boards-sync", "job logs boards-sync"} {
		h.must(t, 0, append(strings.Fields(call), "-n", "one")...)
	}

	// One runs, and the other has ended.
	h.must(t, 0, "-n", "two", "repo", "create", "slow", "--url", hang(t))
	h.must(t, 0, "-n", "three", "repo", "create", "slow", "--url", gate.URL, "--branch", testenv.Branch)
	h.must(t, 0, "-n", "three", "repo", "pull", "slow", "--wait", "-q")
	h.must(t, 0, "-n", "two", "repo", "pull", "slow")
	until(t, "the job is claimed", func() bool { return strings.Contains(h.run(t, "job", "list").out, "working") })
	for _, call := range []string{"job logs slow-sync", "job retry slow-sync"} {
		r := h.run(t, strings.Fields(call)...)
		if r.code != 2 || !strings.Contains(r.err, "in several namespaces: three, two") {
			t.Errorf("limpet %s: exit %d: %s%s", call, r.code, r.out, r.err)
		}
	}
	// There is one to cancel.
	if r := h.must(t, 0, "job", "cancel", "slow-sync"); r.out != "job/slow-sync in namespace two asked to stop\n" {
		t.Errorf("cancel: %s", r.out)
	}
	if got := h.must(t, 0, "repo", "list", "-o", "name").out; len(strings.Fields(got)) != 4 {
		t.Errorf("repositories: %s", got)
	}
	records := h.history(t)
	if n := slices.IndexFunc(records, func(r state.Record) bool { return r.State != "success" && r.Name != "slow-sync" }); n >= 0 {
		t.Errorf("%+v", records[n])
	}
}

// TestDeleteNamesWhatGoes: the question and the answer name the object with its namespace
// and what becomes of the rest; No is the default, and the file is free meanwhile.
func TestDeleteNamesWhatGoes(t *testing.T) {
	t.Parallel()
	h := newHome(t, "--controllers", "off")
	manifest := `
apiVersion: provisioning.grafana.app/v0alpha1
kind: Repository
metadata: {name: NAME, namespace: one, FINALIZERSannotations: {NOTES}}
spec: {title: NAME, type: git, git: {url: "https://git.invalid/x.git", branch: main}, sync: {enabled: false, target: folder}}
---`
	objects := ""
	for name, with := range map[string][2]string{
		"plain":   {"", ""},
		"removes": {"finalizers: [remove-pending-jobs, cleanup, remove-orphan-resources], ", ""},
		"leaves":  {"finalizers: [release-orphan-resources], ", ""},
		"sinks":   {"finalizers: [remove-orphan-resources], ", "limpet/sink-dir: /srv/boards"},
	} {
		objects += strings.NewReplacer("NAME", name, "FINALIZERS", with[0], "NOTES", with[1]).Replace(manifest)
	}
	h.must(t, 0, "apply", "-f", h.file(t, "objects.yaml", objects))
	h.must(t, 0, "-n", "two", "repo", "create", "plain", "--url", "https://git.invalid/x.git")
	h.must(t, 0, "-n", "two", "repo", "pull", "plain")
	for _, c := range []struct{ call, what, fate string }{
		{"-n one delete repository plain", "repository one/plain", "the folders and dashboards that it has made stay"},
		{"delete repository removes", "repository one/removes", "the folders and dashboards that it has made are deleted too, its waiting jobs are deleted, one that runs is waited for"},
		{"delete repository leaves", "repository one/leaves", "the folders and dashboards that it has made stay, and belong to nobody"},
		{"delete repository sinks", "repository one/sinks", "the files that it has made in /srv/boards are deleted too"},
		{"delete job plain-sync", "job two/plain-sync", "it is not run"},
	} {
		question := "This deletes " + c.what + " for good: " + c.fate + "."
		for _, answer := range []string{"\r", "n\r"} {
			tt := h.terminal(t, strings.Fields(c.call)...)
			tt.shows(t, "Go on? [y/N]")
			if pid := h.owner(); pid != 0 {
				t.Errorf("%s: process %d holds the file while it asks", c.call, pid)
			}
			tt.press(t, answer)
			if code := tt.exit(t); code != 5 {
				t.Errorf("%s: exit %d", c.call, code)
			}
			said := strings.Join(strings.Fields(tt.screen.String()), " ")
			if !strings.Contains(said, question) || !strings.Contains(said, "nothing was changed") || !strings.Contains(said, "--yes") {
				t.Errorf("%s: no %q in: %s", c.call, question, said)
			}
		}
		kind, name, _ := strings.Cut(c.what, " ")
		namespace, name, _ := strings.Cut(name, "/")
		r := h.must(t, 0, append(strings.Fields(c.call), "--yes")...)
		if !strings.HasPrefix(r.out, kind+"/"+name+" ") || !strings.Contains(r.out, "deleted from namespace "+namespace+": "+c.fate) {
			t.Errorf("%s --yes: %s", c.call, r.out)
		}
	}
	h.must(t, 0, "repo", "show", "plain", "-n", "two")
	for noun, kind := range map[string]string{"repo": "repository", "connection": "connection", "job": "job", "source": "gitrepository"} {
		if r := h.must(t, 2, noun, "delete", "plain"); !strings.Contains(r.err, "try: limpet delete "+kind+" NAME") {
			t.Errorf("%s delete: %s", noun, r.err)
		}
	}
}
