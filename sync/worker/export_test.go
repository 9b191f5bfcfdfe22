package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/resources"
	"limpet/sync/testenv"
	"limpet/sync/worker/checkout"
)

// put creates an object, or changes its title.
func (r *rig) put(kind schema.GroupVersionResource, name, title, folder string, notes ...string) {
	r.t.Helper()
	objects := r.client.Resource(kind).Namespace(r.namespace)
	if u := r.object(kind, name); u != nil {
		_ = unstructured.SetNestedField(u.Object, title, "spec", "title")
		if _, err := objects.Update(r.t.Context(), u, metav1.UpdateOptions{}); err != nil {
			r.t.Fatal(err)
		}
		return
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"title": title}}}
	u.SetAPIVersion(kind.GroupVersion().String())
	u.SetKind(map[bool]string{true: "Dashboard", false: "Folder"}[kind == dashboards])
	u.SetName(name)
	all := map[string]string{}
	if folder != "" {
		all[api.AnnoFolder] = folder
	}
	for i := 0; i < len(notes); i += 2 {
		all[notes[i]] = notes[i+1]
	}
	u.SetAnnotations(all)
	if _, err := objects.Create(r.t.Context(), u, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// owner returns who manages an object: "", the name of the manager, or "gone".
func (r *rig) owner(kind schema.GroupVersionResource, name string) string {
	r.t.Helper()
	u := r.object(kind, name)
	if u == nil {
		return "gone"
	}
	return u.GetAnnotations()[api.AnnoManagerID]
}

func migrates(options map[string]any) map[string]any {
	return map[string]any{"action": "migrate", "migrate": options}
}

func pushes(options map[string]any) map[string]any {
	return map[string]any{"action": "push", "push": options}
}

// writableEmpty makes the Repository over a Git repository without a branch.
func (r *rig) writableEmpty(target string) {
	r.t.Helper()
	r.repo.Git(r.t, "config", "http.receivepack", "true")
	r.repository(map[string]any{"workflows": []any{"write", "branch"}, "sync": map[string]any{"target": target}}, nil)
}

// TestMigrateStory: objects are taken over as they are, what others manage stays theirs, and a
// folder that is replaced goes when it is empty.
func TestMigrateStory(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := newRig(t, server, nil)
		r.writableEmpty("instance")
		r.put(folders, "team", "Team", "")
		r.put(folders, "kept", "Kept", "")
		r.put(folders, "theirs", "Theirs", "", api.AnnoManagedBy, "repo", api.AnnoManagerID, "other")
		r.put(dashboards, "cpu", "CPU", "team")
		r.put(dashboards, "in", "In", "theirs")
		r.put(dashboards, "other", "Other", "kept", api.AnnoManagedBy, "terraform", api.AnnoManagerID, "tf")
		uid := r.object(dashboards, "cpu").GetUID()
		r.expectRun("some of an instance", migrates(map[string]any{"resources": []any{map[string]any{"name": "cpu", "kind": "Dashboard"}}}),
			"error", "instance")
		r.expectRun("what is left out", migrates(map[string]any{}), "warning", `managed by repo "other"`, "PUT dashboards/cpu",
			"PUT folders/kept", "PUT folders/team")
		if got := r.object(dashboards, "cpu"); got.GetUID() != uid || r.owner(dashboards, "cpu") != "repo" || r.owner(dashboards, "in") != "" {
			t.Errorf("cpu %v", got)
		}
		if _, repo := r.sync(); !strings.Contains(fmt.Sprint(repo.Object["status"]), "count:1 group:dashboard.grafana.app") ||
			!strings.Contains(fmt.Sprint(repo.Object["status"]), "count:2 group:folder.grafana.app") {
			t.Errorf("one dashboard and two folders are taken over: %v", repo.Object["status"])
		}
		r.put(dashboards, "late", "Late", "team")
		r.remove(dashboards, "in")
		r.put(folders, "new", "Team", "")
		r.put(dashboards, "new", "New", "new")
		r.put(folders, "full", "Full", "")
		r.put(dashboards, "full", "Full", "full", api.AnnoManagedBy, "terraform", api.AnnoManagerID, "tf")
		r.expectRun("with new folders", migrates(map[string]any{"generateNewFolderIDs": true}), "success", "", "PUT dashboards/late",
			"PUT dashboards/new", "POST folders/"+folderID("Full"), "DELETE folders/new")
		if got := r.files(testenv.Branch); got != "Full/.keep Kept/_folder.json Team/_folder.json Team/cpu.json Team/late.json "+
			"Team/new.json" {
			t.Errorf("files %s", got)
		}
	})
}

// TestMigrateElsewhere: another branch gets the files, and the objects go, but for one that has
// changed meanwhile.
func TestMigrateElsewhere(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		other := &faster{}
		r := newRig(t, server, func(o *PullOptions) { other.Git = o.Source.Git; o.Source.Git = other })
		r.writableEmpty("folder")
		r.commit("README.md", "hello")
		for _, name := range []string{"a", "b", "c"} {
			r.put(dashboards, name, name, "")
		}
		r.expectRun("kept", migrates(map[string]any{"branch": "one", "skipResourceDeletion": true}), "success", "")
		other.push = func() { r.put(dashboards, "b", "changed", "") }
		status := r.expectRun("changed meanwhile", migrates(map[string]any{"branch": "two"}), "warning", "Dashboard b has changed",
			"DELETE dashboards/a", "DELETE dashboards/c", "PUT dashboards/b")
		if r.owner(dashboards, "a")+r.owner(dashboards, "b") != "gone" || status.Summary[0].Delete != 2 || status.URLs["repositoryURL"] == "" {
			t.Errorf("status %+v", status)
		}
		if got := r.files("two"); got != "README.md a.json b.json c.json" || r.files(testenv.Branch) != "README.md" {
			t.Errorf("files %s", got)
		}
		other.push = nil
		r.repo.Git(t, "update-ref", "refs/heads/main", "two")
		record, pulled := r.pull(false, nil)
		if record.State != "warning" || r.owner(dashboards, "a")+r.owner(dashboards, "c") != "reporepo" || r.owner(dashboards, "b") != "" {
			t.Errorf("pulled %+v", pulled)
		}
	})
}

// TestExportsBesideOthers: a commit that comes first is built upon, and a change of an object after
// its export is kept.
func TestExportsBesideOthers(t *testing.T) {
	t.Parallel()
	other := &faster{}
	r := newRig(t, "embedded", func(o *PullOptions) { other.Git = o.Source.Git; o.Source.Git = other })
	r.writableEmpty("folder")
	r.commit("README.md", "hello")
	r.put(dashboards, "cpu", "CPU", "")
	r.put(dashboards, "mem", "Mem", "")
	n := 0
	other.push = func() {
		if n++; n == 1 {
			r.commit("cpu.json", board("theirs", "CPU"))
		} else {
			r.put(dashboards, "mem", "changed", "")
		}
	}
	r.expectRun("first", migrates(map[string]any{}), "warning", "try: the migration again", "POST dashboards/theirs", "POST folders/repo",
		"PUT dashboards/cpu", "PUT dashboards/mem")
	if got := r.files(testenv.Branch); got != "README.md cpu-cpu.json cpu.json mem.json" || r.owner(dashboards, "mem") != "" {
		t.Errorf("files %s, mem of %q", got, r.owner(dashboards, "mem"))
	}
	other.push = nil
	r.put(folders, "f", "F", "")
	u := r.object(dashboards, "mem")
	u.SetAnnotations(map[string]string{api.AnnoFolder: "f"})
	if _, err := r.client.Resource(dashboards).Namespace(r.namespace).Update(t.Context(), u, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.expectRun("again", migrates(map[string]any{}), "success", "", "PUT dashboards/mem", "PUT folders/f")
	if got := r.files(testenv.Branch); got != "F/_folder.json F/changed.json README.md cpu-cpu.json cpu.json" {
		t.Errorf("files %s", got)
	}
	if title, _, _ := unstructured.NestedString(r.object(dashboards, "mem").Object, "spec", "title"); title != "changed" {
		t.Errorf("title %s", title)
	}
}

// lateGit is Git whose host does the first push when the second one comes.
type lateGit struct {
	checkout.Git
	first  func(context.Context) error
	before func()
}

func (f *lateGit) Push(ctx context.Context, r git.Remote, branch, old string, w *git.NewCommit) error {
	push := func(ctx context.Context) error { return f.Git.Push(ctx, r, branch, old, w) }
	if f.first == nil {
		f.first = push
		f.before()
		return &git.Error{Kind: git.Timeout, Err: errors.New("connection reset by peer")}
	}
	if err := f.first(ctx); err != nil {
		return err
	}
	f.first = func(context.Context) error { return nil }
	return push(ctx)
}

// TestMigrationArrivesLate: an edit that is only in a later commit than the one that arrived is
// kept.
func TestMigrationArrivesLate(t *testing.T) {
	t.Parallel()
	for _, branch := range []string{"", "two"} {
		t.Run("branch "+branch, func(t *testing.T) {
			t.Parallel()
			late := &lateGit{}
			r := newRig(t, "embedded", func(o *PullOptions) { late.Git = o.Source.Git; o.Source.Git = late })
			late.before = func() { r.put(dashboards, "b", "changed", "") }
			r.writableEmpty("folder")
			r.commit("README.md", "hello")
			r.put(dashboards, "a", "A", "")
			r.put(dashboards, "b", "B", "")
			r.create(migrates(map[string]any{"branch": branch}), nil)
			for e := r.ended(); e.Type != "completed"; e = r.ended() {
				if e.Type == "skipped" {
					t.Fatal(e.Text)
				}
			}
			u := r.object(dashboards, "b")
			if u == nil || r.owner(dashboards, "b") != "" || r.owner(dashboards, "a") == "" {
				t.Fatal(u)
			}
			if title, _, _ := unstructured.NestedString(u.Object, "spec", "title"); title != "changed" {
				t.Errorf("title %s", title)
			}
		})
	}
}

// TestMigrateKeepsOtherKinds: a file of another kind with the same name is no former file of a
// dashboard.
func TestMigrateKeepsOtherKinds(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", func(o *PullOptions) {
		o.Kinds, _ = resources.ParseKinds([]string{"dashboard.grafana.app/Dashboard:folder", "playlist.grafana.app/Playlist"})
	})
	r.writableEmpty("folder")
	list := resource("playlist.grafana.app/v0alpha1", "Playlist", "wall", "Wall")
	r.commit("lists/wall.json", list, "wall.json", strings.ReplaceAll(list, `"wall"`, `"other"`))
	r.pull(false, nil)
	r.put(dashboards, "wall", "Wall", "")
	r.expectRun("beside", migrates(map[string]any{}), "success", "", "PUT dashboards/wall")
	if got := r.files(testenv.Branch); got != "lists/wall.json wall-wall.json wall.json" {
		t.Errorf("files %s", got)
	}
}

// TestMigrateOntoFiles: a file that no migration has written is replaced with a warning, and in a
// directory, which has no history, it stays. One of a migration before is replaced.
func TestMigrateOntoFiles(t *testing.T) {
	t.Parallel()
	for _, local := range []bool{false, true} {
		t.Run(fmt.Sprint("local ", local), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			other := &faster{}
			r := newRig(t, "embedded", func(o *PullOptions) {
				o.LocalDirs = []string{dir}
				m, err := git.Open(t.TempDir(), git.Options{AllowDirs: o.LocalDirs})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { m.Close() })
				other.Git = m
				o.Source.Git = other
			})
			write := func(text string) { r.commit("mine.json", text) }
			read := func(name string) string { return r.repo.Git(t, "show", testenv.Branch+":"+name) }
			if local {
				write = func(text string) { _ = os.WriteFile(filepath.Join(dir, "mine.json"), []byte(text), 0o600) }
				read = func(name string) string {
					data, _ := os.ReadFile(filepath.Join(dir, name))
					return string(data)
				}
				r.repository(map[string]any{"type": "local", "git": nil, "local": map[string]any{"path": dir}, "workflows": []any{"write"}}, nil)
			} else {
				r.writableEmpty("folder")
			}
			write(board("cpu", "a user's"))
			r.put(dashboards, "cpu", "CPU", "")
			r.put(dashboards, "mem", "Mem", "")
			other.push = func() { r.put(dashboards, "mem", "changed", "") }
			if record, status := r.run(migrates(map[string]any{}), nil); !strings.Contains(fmt.Sprint(status.Warnings), "mine.json") {
				t.Errorf("%s %q", record.State, status.Warnings)
			}
			if kept := strings.Contains(read("mine.json"), "a user's"); kept != local || (r.owner(dashboards, "cpu") == "") != local {
				t.Errorf("kept %v, cpu of %q", kept, r.owner(dashboards, "cpu"))
			}
			other.push = nil
			record, status := r.run(migrates(map[string]any{}), nil)
			if strings.Contains(fmt.Sprint(status.Warnings), "mem.json") || r.owner(dashboards, "mem") != "repo" ||
				!strings.Contains(read("mem.json"), "changed") {
				t.Errorf("%s %q", record.State, status.Warnings)
			}
		})
	}
}

// TestMigrateSyncOff: a migration to the branch of a Repository without sync writes nothing,
// however the branch is named.
func TestMigrateSyncOff(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repo.Git(t, "config", "http.receivepack", "true")
	r.repository(map[string]any{"workflows": []any{"write", "branch"}, "sync": map[string]any{"enabled": false}}, nil)
	before := r.commit("README.md", "hello")
	r.put(dashboards, "cpu", "CPU", "")
	for _, branch := range []string{"", testenv.Branch} {
		r.expectRun("branch "+branch, migrates(map[string]any{"branch": branch}), "error", "sync is not enabled")
	}
	if r.repo.Head(t) != before {
		t.Error("a commit was made")
	}
}

// TestMigrateInLimits: what no pull would take from its file stays, and an indented file may be
// larger than a compact one.
func TestMigrateInLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.writableEmpty("folder")
	r.commit("README.md", "hello")
	wide := slices.Repeat([]any{int64(1)}, 40_000)
	for range 60 {
		wide = []any{wide}
	}
	for name, spec := range map[string]map[string]any{
		"wide":  {"title": "Wide", "panels": wide},
		"large": {"title": "Large", "description": strings.Repeat("x", resources.MaxObject)},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		u.SetAPIVersion(dashboards.GroupVersion().String())
		u.SetKind("Dashboard")
		u.SetName(name)
		if _, err := r.client.Resource(dashboards).Namespace(r.namespace).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r.expectRun("too large", migrates(map[string]any{"branch": "two"}), "warning", "too large", "DELETE dashboards/wide")
	r.repo.Git(t, "update-ref", "refs/heads/main", "two")
	record, pulled := r.pull(false, nil)
	if record.State != "success" || r.owner(dashboards, "wide") != "repo" || r.owner(dashboards, "large") != "" {
		t.Errorf("%s %v: wide of %q, large of %q", record.State, pulled.Warnings, r.owner(dashboards, "wide"), r.owner(dashboards, "large"))
	}
}

// TestPushRules: what a push refuses, and what it leaves out.
func TestPushRules(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.writableEmpty("folder")
	one := func(name, kind string) map[string]any {
		return map[string]any{"resources": []any{map[string]any{"name": name, "kind": kind}}}
	}
	r.expectRun("nothing there", pushes(map[string]any{}), "success", "nothing to commit")
	r.put(folders, "f", "F", "")
	r.put(folders, "g", "G", "f")
	r.put(dashboards, "a", "A", "g")
	r.put(dashboards, "b", "B", "")
	r.put(dashboards, "tf", "TF", "", api.AnnoManagedBy, "terraform", api.AnnoManagerID, "tf")
	r.state(`{"status":{"quota":{"maxResourcesPerRepository":3}}}`)
	r.expectRun("over the quota", pushes(map[string]any{}), "error", "resource quota of 3 exceeded")
	for name, options := range map[string]map[string]any{
		"no folder": {"folder": "none"}, "completed with errors": one("none", "Dashboard"),
	} {
		r.expectRun(name, pushes(options), "error", name)
	}
	if refs := r.repo.Git(t, "for-each-ref"); refs != "" {
		t.Errorf("refs %s", refs)
	}
	r.expectRun("of another manager", pushes(one("tf", "Dashboard")), "warning", `managed by terraform "tf"`)
	r.put(dashboards, "own", "Own", "", api.AnnoManagedBy, "repo", api.AnnoManagerID, "repo")
	r.expectRun("its own", pushes(one("own", "Dashboard")), "warning", "Dashboard own is in the repository already")
	r.remove(dashboards, "own")
	r.expectRun("a folder", pushes(map[string]any{"folder": "g", "path": "/copies/"}), "success", "")
	twice := one("b", "Dashboard")
	twice["resources"] = append(one("none", "Dashboard")["resources"].([]any), append(twice["resources"].([]any), twice["resources"].([]any)...)...)
	status := r.expectRun("one, and one that is missing", pushes(twice), "error", "completed with errors")
	if len(status.Errors) != 1 || !strings.Contains(status.Errors[0], `"none" not found`) {
		t.Errorf("%q", status.Errors)
	}
	if got := r.files(testenv.Branch); got != "b.json copies/F/.keep copies/F/G/.keep copies/F/G/a.json" {
		t.Errorf("files %s", got)
	}
	if got := r.last("%s"); !slices.Contains(strings.Fields(got), fmt.Sprint("repo-push-", r.number)) {
		t.Errorf("message %q", got)
	}
}
