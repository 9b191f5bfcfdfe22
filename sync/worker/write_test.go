package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/jobs"
	"limpet/sync/testenv"
	"limpet/sync/worker/checkout"
)

// expectRun runs a job and checks how it ends and what it has written to the API.
func (r *rig) expectRun(name string, spec map[string]any, wantState, wantText string, writes ...string) api.JobStatus {
	r.t.Helper()
	r.wire.take()
	record, status := r.run(spec, nil)
	_, got, _ := r.wire.take()
	slices.Sort(writes)
	if !slices.Equal(got, writes) {
		r.t.Fatalf("%s: writes\n got %q\nwant %q\nstatus %+v", name, got, writes, status)
	}
	text := record.Message + " " + strings.Join(status.Errors, " ") + " " + strings.Join(status.Warnings, " ")
	if record.State != wantState || !strings.Contains(text, wantText) {
		r.t.Fatalf("%s: ended as %s %q, want %s %q; %+v", name, record.State, text, wantState, wantText, status)
	}
	return status
}

// writable makes the Repository object with the workflows for writing, over a Git repository with
// some dashboards that are pulled.
func (r *rig) writable(spec map[string]any) {
	r.t.Helper()
	r.repo.Git(r.t, "config", "http.receivepack", "true")
	r.repository(merged(map[string]any{"workflows": []any{"write", "branch"}, "git": map[string]any{"path": "grafana"}}, spec), r.notes)
	r.commit("README.md", "hello", "grafana/top.json", board("top", "Top"), "grafana/a/cpu.json", board("cpu", "CPU"), "grafana/a/mem.json",
		board("mem", "Mem"),
		"grafana/b/net.json", board("net", "Net"), "outside/x.json", board("x", "X"))
	if record, _ := r.pull(false, nil); record.State != "success" {
		r.t.Fatal(record.Message)
	}
}

func (r *rig) files(branch string) string {
	r.t.Helper()
	return strings.ReplaceAll(r.repo.Git(r.t, "ls-tree", "-r", "--name-only", branch), "\n", " ")
}

func (r *rig) last(format string) string {
	r.t.Helper()
	return r.repo.Git(r.t, "log", "-1", "--format="+format, testenv.Branch)
}

func deletes(options map[string]any) map[string]any {
	return map[string]any{"action": "delete", "delete": options}
}

func movesTo(target string, options map[string]any) map[string]any {
	options["targetPath"] = target
	return map[string]any{"action": "move", "move": options}
}

func paths(list ...any) map[string]any { return map[string]any{"paths": list} }

// TestDeleteStory is what a delete does to a branch and to the API.
func TestDeleteStory(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := newRig(t, server, nil)
		r.writable(nil)
		before := r.repo.Head(t)
		status := r.expectRun("a file, twice", deletes(paths("a/cpu.json", "a/cpu.json")), "success", "", "DELETE dashboards/cpu")
		if got := counts(status); got != "Dashboard delete 1" {
			t.Errorf("summary %q", got)
		}
		if got := r.last("%P|%s|%an <%ae>|%cn <%ce>"); got != before+
			"|Delete from Grafana repo-delete-2|Grafana <noreply@grafana.com>|Grafana <noreply@grafana.com>" {
			t.Errorf("commit %q", got)
		}
		if got := r.files(testenv.Branch); got != "README.md grafana/a/mem.json grafana/b/net.json grafana/top.json outside/x.json" {
			t.Errorf("files %s", got)
		}
		sync, _ := r.sync()
		if sync.LastRef != r.repo.Head(t) || sync.State != "success" || sync.Incremental {
			t.Errorf("sync status %+v", sync)
		}

		spec := deletes(map[string]any{"paths": []any{"gone.json"}, "resources": []any{map[string]any{"name": folderID("a"), "kind": "Folder"},
			map[string]any{"name": "mem", "kind": "Dashboard", "group": api.DashboardGroup}}})
		spec["message"] = "  Away with it\n\nbecause  "
		r.expectRun("resources, and a file that is not there", spec, "warning", "gone.json is not in the branch", "DELETE dashboards/mem",
			"DELETE folders/"+folderID("a"))
		if got := r.last("%B"); strings.TrimSpace(got) != "Away with it\n\nbecause" {
			t.Errorf("message %q", got)
		}

		before = r.repo.Head(t)
		r.expectRun("nothing of it is there", deletes(paths("gone.json")), "warning", "nothing to commit")
		if r.repo.Head(t) != before {
			t.Error("an empty commit was made")
		}

		// Another branch: made from the own one, nothing is pulled.
		r.expectRun("a new branch", deletes(map[string]any{"ref": "edit/top", "paths": []any{"top.json"}}), "success", "")
		if got := r.files("edit/top"); got != "README.md grafana/b/net.json outside/x.json" || r.repo.Head(t) != before {
			t.Errorf("files %s", got)
		}
		r.expectRun("the same branch once more", deletes(map[string]any{"ref": "edit/top", "paths": []any{"b/"}}), "success", "")
		if got := r.files("edit/top"); got != "README.md outside/x.json" {
			t.Errorf("files %s", got)
		}
		r.expectRun("nothing left there", deletes(map[string]any{"ref": "edit/top", "paths": []any{"b/"}}), "warning", "nothing to commit")
		if got := r.repo.Git(t, "rev-list", "--count", "main..edit/top"); got != "2" {
			t.Errorf("%s commits on the branch", got)
		}
		r.repo.Git(t, "fsck", "--full", "--strict")
	})
}

// TestMoveStory is what a move does: objects stay what they are.
func TestMoveStory(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := newRig(t, server, nil)
		r.writable(nil)
		uid := r.object(dashboards, "cpu").GetUID()
		r.expectRun("a file", movesTo("c/deep/", paths("a/cpu.json")), "success", "",
			"POST folders/"+folderID("c"), "POST folders/"+folderID("c/deep"), "PUT dashboards/cpu")
		u := r.object(dashboards, "cpu")
		if u.GetUID() != uid || u.GetAnnotations()[api.AnnoSourcePath] != "c/deep/cpu.json" {
			t.Errorf("dashboard %s at %v", u.GetUID(), u.GetAnnotations())
		}
		if got := r.last("%s"); got != "Move files from Grafana repo-move-2" {
			t.Errorf("message %q", got)
		}
		r.expectRun("a directory", movesTo("b/", paths("c/deep/", "c/deep/cpu.json")), "success", "",
			"POST folders/"+folderID("b/deep"), "PUT dashboards/cpu", "DELETE folders/"+folderID("c"), "DELETE folders/"+folderID("c/deep"))
		if got := r.files(testenv.Branch); got != "README.md grafana/a/mem.json grafana/b/deep/cpu.json grafana/b/net.json grafana/top.json outside/x.json" {
			t.Errorf("files %s", got)
		}
		before := r.repo.Head(t)
		r.expectRun("one that is not there", movesTo("c/", paths("a/cpu.json")), "warning", "a/cpu.json is not in the branch")
		r.expectRun("a place that is taken", movesTo("b/", paths("top.json", "b/net.json")), "error", "is there already")
		r.expectRun("into itself", movesTo("a/", paths("a/")), "error", "into itself")
		r.expectRun("another branch", movesTo("x/", map[string]any{"paths": []any{"top.json"}, "ref": "moves"}), "success", "")
		if r.repo.Head(t) != before {
			t.Error("the branch has changed")
		}
		if got := r.repo.Git(t, "diff-tree", "-r", "-M", "--name-status", "main", "moves"); got != "R100\tgrafana/top.json\tgrafana/x/top.json" {
			t.Errorf("changes %s", got)
		}
	})
}

// TestWritingIsRefused: bad input writes nothing, neither to Git nor to the API.
func TestWritingIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.writable(nil)
	before := r.repo.Git(t, "for-each-ref")
	resource := func(name, kind string) map[string]any {
		return map[string]any{"resources": []any{map[string]any{"name": name, "kind": kind}}}
	}
	stranger := r.object(dashboards, "net")
	stranger.SetName("stranger")
	stranger.SetUID("")
	stranger.SetResourceVersion("")
	stranger.SetAnnotations(nil)
	if _, err := r.client.Resource(dashboards).Namespace(r.namespace).Create(t.Context(), stranger, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		job  api.JobSpec
		repo func(*api.Repository)
		says string
	}{
		{"no options", api.JobSpec{}, nil, "spec.delete is missing"},
		{"nothing named", api.JobSpec{Delete: &api.SelectionOptions{}}, nil, "names no path"},
		{"traversal", api.JobSpec{Delete: &api.SelectionOptions{Paths: []string{"../outside/x.json"}}}, nil, "leaves its directory"},
		{"all of it", api.JobSpec{Delete: &api.SelectionOptions{Paths: []string{"/"}}}, nil, "never meant"},
		{"hidden", api.JobSpec{Delete: &api.SelectionOptions{Paths: []string{".github/x.yml"}}}, nil, "hidden"},
		{"strange", api.JobSpec{Delete: &api.SelectionOptions{Paths: []string{"a%2f..json"}}}, nil, "not one of letters"},
		{"a branch of no name", api.JobSpec{Delete: &api.SelectionOptions{Ref: "a..b", Paths: []string{"a/"}}}, nil, "ref"},
		{"an option as a branch", api.JobSpec{Delete: &api.SelectionOptions{Ref: "--force", Paths: []string{"a/"}}}, nil, "ref"},
		{"read only", api.JobSpec{Delete: &api.SelectionOptions{Paths: []string{"a/"}}}, func(r *api.Repository) { r.Spec.Workflows = nil },
			"only read"},
		{"only branches", api.JobSpec{Delete: &api.SelectionOptions{Paths: []string{"a/"}}},
			func(r *api.Repository) { r.Spec.Workflows = []string{"branch"} }, `lacks "write"`},
		{"no branches", api.JobSpec{Delete: &api.SelectionOptions{Ref: "other", Paths: []string{"a/"}}},
			func(r *api.Repository) { r.Spec.Workflows = []string{"write"} }, `lacks "branch"`},
		{"the own branch by name", api.JobSpec{Delete: &api.SelectionOptions{Ref: "main", Paths: []string{"a/"}}},
			func(r *api.Repository) { r.Spec.Workflows = []string{"branch"} }, `lacks "write"`},
		{"a tag is pulled", api.JobSpec{Delete: &api.SelectionOptions{Paths: []string{"a/"}}}, func(r *api.Repository) { r.GitRef = "tag:v1" },
			"limpet/git-ref"},
		{"a signature is wanted", api.JobSpec{Delete: &api.SelectionOptions{Paths: []string{"a/"}}},
			func(r *api.Repository) { r.Spec.Commit = &api.CommitSpec{SigningMethod: "gpg"} }, "no key"},
		{"no target", api.JobSpec{Move: &api.SelectionOptions{Paths: []string{"a/"}}}, nil, "targetPath"},
		{"a file as target", api.JobSpec{Move: &api.SelectionOptions{TargetPath: "b", Paths: []string{"a/"}}}, nil, "slash at its end"},
		{"a target outside", api.JobSpec{Move: &api.SelectionOptions{TargetPath: "../b/", Paths: []string{"a/"}}}, nil, "leaves its directory"},
		{"a directory as a file", api.JobSpec{Delete: &api.SelectionOptions{Paths: []string{"a"}}}, nil, "slash at its end"},
		{"no such object", api.JobSpec{Delete: selection(resource("none", "Dashboard"))}, nil, "no such object"},
		{"of somebody else", api.JobSpec{Delete: selection(resource("stranger", "Dashboard"))}, nil, "does not belong"},
		{"of another kind", api.JobSpec{Delete: selection(resource("x", "Playlist"))}, nil, "kind Playlist is disabled by --resources"},
		{"the folder of all", api.JobSpec{Delete: selection(resource("repo", "Folder"))}, nil, "never meant"},
	} {
		t.Run(c.name, func(t *testing.T) {
			view, err := api.RepositoryView(r.object(api.Repositories, "repo"))
			if err != nil {
				t.Fatal(err)
			}
			if c.repo != nil {
				c.repo(&view)
			}
			c.job.Action = "delete"
			if c.job.Move != nil {
				c.job.Action = "move"
			}
			all := NewWrites(NewPull(r.options), nil)
			w := all[slices.IndexFunc(all, func(w *Write) bool { return w.Action() == c.job.Action })]
			r.wire.take()
			task := &jobs.Task{Object: &unstructured.Unstructured{}, Job: api.Job{Spec: c.job}, Repo: r.object(api.Repositories, "repo"),
				Repository: view, Namespace: r.namespace,
				Name: "job", UID: "1", Attempt: 1, Progress: jobs.NewProgress(), Log: r.options.Logger}
			err = w.Run(t.Context(), task)
			text := fmt.Sprint(err, task.Progress.Outcome(nil).Errors)
			if err == nil || !strings.Contains(text, c.says) {
				t.Errorf("error %s, want %q", text, c.says)
			}
			if _, writes, _ := r.wire.take(); len(writes) > 0 {
				t.Errorf("writes %q", writes)
			}
		})
	}
	if after := r.repo.Git(t, "for-each-ref"); after != before {
		t.Errorf("refs\n%s\nwere\n%s", after, before)
	}
}

func selection(m map[string]any) *api.SelectionOptions {
	data, _ := json.Marshal(m)
	var o api.SelectionOptions
	_ = json.Unmarshal(data, &o)
	return &o
}

// faster is Git to which somebody pushes just before the agent does.
type faster struct {
	checkout.Git
	push func()
}

func (f *faster) Push(ctx context.Context, r git.Remote, branch, old string, w *git.NewCommit) error {
	if f.push != nil {
		f.push()
	}
	return f.Git.Push(ctx, r, branch, old, w)
}

// TestWritingBesideOthers: who is faster loses nothing, and a rule of the host is told.
func TestWritingBesideOthers(t *testing.T) {
	t.Parallel()
	other := &faster{}
	r := newRig(t, "embedded", func(o *PullOptions) { other.Git = o.Source.Git; o.Source.Git = other })
	r.writable(map[string]any{"commit": map[string]any{"authorName": "Ann", "authorEmail": "ann@example.com", "signerName": "Site 7",
		"signerEmail": "site7@example.com"}})
	n := 0
	other.push = func() {
		if n++; n < 3 {
			r.commit(fmt.Sprintf("grafana/new-%d.json", n), board(fmt.Sprintf("new-%d", n), "New"))
		}
	}
	r.expectRun("two were faster", deletes(paths("a/cpu.json")), "success", "", "POST dashboards/new-1", "POST dashboards/new-2",
		"DELETE dashboards/cpu")
	if got := r.last("%an <%ae>|%cn <%ce>"); got != "Ann <ann@example.com>|Site 7 <site7@example.com>" {
		t.Errorf("by %s", got)
	}
	if got := r.repo.Git(t, "rev-list", "--count", "main"); got != "4" {
		t.Errorf("%s commits", got)
	}
	other.push = nil
	hook := filepath.Join(r.repo.Dir, "hooks", "pre-receive")
	if err := os.MkdirAll(filepath.Dir(hook), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hook, []byte("#!/bin/sh\necho 'main is protected' >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.git.Reset()
	r.expectRun("a rule of the host", deletes(paths("top.json")), "error", "main is protected")
	if c := r.git.Reset(); c.PushRefs != 1 {
		t.Errorf("it was tried %d times", c.PushRefs)
	}
}

// TestWritingInMass: what a job names may go, and no more than that.
func TestWritingInMass(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.writable(nil)
	var many, more []string
	for i := range 12 {
		many = append(many, fmt.Sprintf("grafana/many/%d.json", i), board(fmt.Sprint("many-", i), "M"))
		more = append(more, fmt.Sprintf("grafana/more/%d.json", i), board(fmt.Sprint("more-", i), "M"))
	}
	r.commit(append(many, more...)...)
	if record, _ := r.pull(false, nil); record.State != "success" {
		t.Fatal(record.Message)
	}
	for i := range more {
		if i%2 == 1 {
			more[i] = ""
		}
	}
	if record, _ := r.run(deletes(paths("many/")), nil); record.State != "success" {
		t.Errorf("what was named: %s %s", record.State, record.Message)
	}
	r.commit(more...) // by somebody else
	if record, _ := r.run(deletes(paths("top.json")), nil); record.State != "error" ||
		!strings.Contains(record.Message, "--allow-mass-delete") {
		t.Errorf("what was not: %s %s", record.State, record.Message)
	}
}

// TestWriteActions: the workers that write to Git are those of the actions that do.
func TestWriteActions(t *testing.T) {
	t.Parallel()
	var actions []string
	for _, w := range NewWrites(NewPull(PullOptions{}), nil) {
		actions = append(actions, w.Action())
	}
	slices.Sort(actions)
	if want := slices.Sorted(slices.Values(api.WriteActions)); !slices.Equal(actions, want) {
		t.Errorf("workers of %q, want %q", actions, want)
	}
}

// TestWritingIsSigned: where there is a key it signs, and where it cannot nothing is written.
func TestWritingIsSigned(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.writable(map[string]any{"commit": map[string]any{"signingMethod": "ssh", "signerIsAuthor": true, "signerName": "Site 7",
		"signerEmail": "site7@example.com"}})
	key := errors.New("the key is locked")
	r.halt()
	file, public := sshKey(t)
	private, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r.keys = func(_ context.Context, l auth.Lookup) (*auth.Credentials, error) {
		if l.Repository != "repo" || l.Namespace != r.namespace {
			t.Errorf("asked for %+v", l)
		}
		return &auth.Credentials{SSHKey: private, Source: "a test"}, key
	}
	r.start()
	before := r.repo.Head(t)
	r.expectRun("no key", deletes(paths("a/cpu.json")), "error", "the key is locked")
	if r.repo.Head(t) != before {
		t.Fatal("a commit without a signature")
	}
	key = nil
	r.expectRun("a key", deletes(paths("a/cpu.json")), "success", "", "DELETE dashboards/cpu")
	allowed := filepath.Join(t.TempDir(), "allowed_signers")
	if err := os.WriteFile(allowed, []byte("site7@example.com "+public), 0o600); err != nil {
		t.Fatal(err)
	}
	r.repo.Git(t, "-c", "gpg.ssh.allowedSignersFile="+allowed, "verify-commit", "main")
	if got := r.repo.Git(t, "log", "-1", "--format=%an <%ae>|%cn <%ce>",
		"main"); got != "Site 7 <site7@example.com>|Site 7 <site7@example.com>" {
		t.Errorf("by %s", got)
	}
}

// TestWritesArePulled: where signatures are asked for no commit is pushed that a pull would refuse,
// and one that is signed as it has to be is pulled.
func TestWritesArePulled(t *testing.T) {
	t.Parallel()
	var place trusting
	r := newRig(t, "embedded", func(o *PullOptions) { o.Source.Signers = checkout.NewSigners(place.find, nil, nil) })
	ours, ourPublic := sshKey(t)
	theirs, theirPublic := sshKey(t)
	place.set(nil, "a.sshpub", theirPublic)
	r.writable(nil)
	r.sign(theirs)
	r.annotate(api.AnnoGitVerify, "HEAD")
	before := r.repo.Head(t)

	r.expectRun("no key", deletes(paths("a/cpu.json")), "error", "nothing was pushed: commits that jobs make are not signed")
	private, err := os.ReadFile(ours)
	if err != nil {
		t.Fatal(err)
	}
	r.halt()
	r.keys = func(context.Context, auth.Lookup) (*auth.Credentials, error) {
		return &auth.Credentials{SSHKey: private, Source: "a test"}, nil
	}
	r.start()
	r.expectRun("a key that may not sign", deletes(paths("a/cpu.json")), "error", "its public key is not among those that may sign")
	if r.repo.Head(t) != before {
		t.Fatal("a commit that no pull would take")
	}
	r.expectRun("a branch that is not pulled", deletes(map[string]any{"paths": []any{"a/cpu.json"}, "ref": "edit/a"}), "success", "")

	place.set(nil, "a.sshpub", theirPublic, "b.sshpub", ourPublic)
	r.expectRun("a key that may", deletes(paths("a/cpu.json")), "success", "", "DELETE dashboards/cpu")
	r.verified("True", "Verified")
}
