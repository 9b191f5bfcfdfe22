package worker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/worker/checkout"
)

// files reads the files of a directory, the manifest left out.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			if e != nil && strings.HasPrefix(e.Name(), ".limpet") {
				return fs.SkipDir
			}
			return err
		}
		data, err := os.ReadFile(p)
		rel, _ := filepath.Rel(dir, p)
		out[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// unreadable is a Git one blob of which cannot be read.
type unreadable struct {
	checkout.Git
	hash atomic.Pointer[string] // nil = all can
}

var errUnreadable = errors.New("input/output error")

func (u *unreadable) Blob(ctx context.Context, r git.Remote, hash string, max int64) ([]byte, error) {
	if bad := u.hash.Load(); bad != nil && *bad == hash {
		return nil, errUnreadable
	}
	return u.Git.Blob(ctx, r, hash, max)
}

// Fetch leaves the blob to a later read: it is not received while its pack comes.
func (u *unreadable) Fetch(ctx context.Context, r git.Remote, ref git.Ref) (git.Stats, error) {
	if bad := u.hash.Load(); bad != nil && r.Receiver != nil {
		r.Receiver = allBut{r.Receiver, *bad}
	}
	return u.Git.Fetch(ctx, r, ref)
}

type allBut struct {
	to interface {
		Receive(path, hash string, exec bool, content []byte)
	}
	hash string
}

func (a allBut) Receive(path, hash string, exec bool, content []byte) {
	if hash != a.hash {
		a.to.Receive(path, hash, exec, content)
	}
}

// TestUnreadableBlob: a first write, and one of changes, that meets a blob which cannot be read leaves
// the directory as it was and the commit not pulled. The next one writes all.
func TestUnreadableBlob(t *testing.T) {
	t.Parallel()
	prefix, faulty := t.TempDir(), new(unreadable)
	dir := filepath.Join(prefix, "dashboards")
	r := newRig(t, "embedded", func(o *PullOptions) {
		faulty.Git = o.Source.Git
		o.Source.Git, o.SinkPrefixes = faulty, []string{prefix}
	})
	r.repository(nil, map[string]string{api.AnnoSinkDir: dir})
	tree, was, last := map[string]string{}, map[string]string(nil), ""
	for round, names := range [][]string{{"a.json", "b/b.json", "b/c.json", "d.json"}, {"a.json", "b/new.json"}, {"b/c.json"}} {
		var changes []string
		for _, name := range names {
			tree[name] = board(strings.ReplaceAll(name, "/", "-"), fmt.Sprint(round))
			changes = append(changes, name, tree[name])
		}
		commit := r.commit(changes...)
		for _, name := range names {
			hash := r.repo.Git(t, "rev-parse", "main:"+name)
			faulty.hash.Store(&hash)
			r.expect(name, true, "error", errUnreadable.Error())
			if sync, _ := r.sync(); sync.LastRef != last {
				t.Errorf("without %s the commit is %q", name, sync.LastRef)
			}
			if _, err := os.Stat(dir); was == nil && err == nil || was != nil && !maps.Equal(files(t, dir), was) {
				t.Errorf("without %s the directory has changed: %v", name, err)
			}
		}
		faulty.hash.Store(nil)
		r.expect("all can be read", true, "success", "")
		if got := files(t, dir); !maps.Equal(got, tree) {
			t.Errorf("directory holds %v, want %v", got, tree)
		}
		was, last = maps.Clone(tree), commit
	}
}

func TestPullIntoADirectory(t *testing.T) {
	t.Parallel()
	prefix := t.TempDir()
	dir := filepath.Join(prefix, "dashboards")
	r := newRig(t, "embedded", func(o *PullOptions) { o.SinkPrefixes = []string{prefix} })
	r.repository(map[string]any{"git": map[string]any{"path": "grafana"}}, map[string]string{api.AnnoSinkDir: dir})
	tree := map[string]string{"a/cpu.json": board("cpu", "CPU"), "a/b/mem.json": board("mem", "Mem"), "notes.md": "hello\n"}
	commit := func(changes ...string) string {
		for i := 0; i < len(changes); i += 2 {
			tree[changes[i]] = changes[i+1]
			if changes[i+1] == "" {
				delete(tree, changes[i])
			}
			changes[i] = "grafana/" + changes[i]
		}
		return r.commit(changes...)
	}
	r.commit("elsewhere.json", board("e", "E"), "grafana/.hidden/x.json", "{}", "grafana/ümlaut.json", board("u", "U"))
	first := commit("a/cpu.json", tree["a/cpu.json"], "a/b/mem.json", tree["a/b/mem.json"], "notes.md", tree["notes.md"])

	tree["ümlaut.json"] = board("u", "U")
	status := r.expect("first", false, "success", "completed successfully; 1 hidden file left out")
	if got := counts(status); got != "File create 4" {
		t.Errorf("summary %q", got)
	}
	if got := files(t, dir); !maps.Equal(got, tree) {
		t.Errorf("directory holds %v, want %v", got, tree)
	}
	sync, u := r.sync()
	if sync.LastRef != first || sync.State != "success" {
		t.Errorf("sync status %+v", sync)
	}
	if stats := fmt.Sprint(u.Object["status"].(map[string]any)["stats"]); stats != "[map[count:4 group:limpet resource:files]]" {
		t.Errorf("stats %s", stats)
	}
	r.git.Reset()
	r.expect("same commit", true, "success", "same commit as last sync")
	r.expect("same commit, full", false, "success", "no changes to sync; 1 hidden file left out")
	if c := r.git.Reset(); c.UploadPack != 0 {
		t.Errorf("git requests %+v", c)
	}
	second := commit("a/cpu.json", board("cpu", "CPU 2"), "a/b/mem.json", "", "c/new.json", "{ no JSON", "grafana.yaml", "a: b\n")
	status = r.expect("changes", true, "warning", "")
	has(t, status.Warnings, "c/new.json", "not JSON")
	if got := files(t, dir); !maps.Equal(got, tree) {
		t.Errorf("directory holds %v, want %v", got, tree)
	}
	if sync, _ := r.sync(); sync.LastRef != second {
		t.Errorf("sync status %+v", sync)
	}
	// Somebody has changed a file: a full pull brings it back.
	if err := os.WriteFile(filepath.Join(dir, "notes.md"), []byte("HELLO\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	status = r.expect("drift", false, "warning", "")
	if got := counts(status); got != "File update 1, File warning 1" {
		t.Errorf("summary %q", got)
	}
	if got := files(t, dir); !maps.Equal(got, tree) {
		t.Errorf("directory holds %v, want %v", got, tree)
	}
	r.commit("grafana/a/cpu.json", "", "grafana/notes.md", "", "grafana/c/new.json", "", "grafana/grafana.yaml", "", "grafana/ümlaut.json",
		"", "grafana/.hidden/x.json", "")
	r.expect("path gone", true, "error", `spec.git.path: there is no directory "grafana"`)
	if got := files(t, dir); !maps.Equal(got, tree) {
		t.Errorf("a wrong path has changed the directory: %v", got)
	}
}

// TestDirectoryHasAQuota: what is there stays, and of what is new only what there is room for is
// written.
func TestDirectoryHasAQuota(t *testing.T) {
	t.Parallel()
	prefix := t.TempDir()
	dir := filepath.Join(prefix, "dashboards")
	r := newRig(t, "embedded", func(o *PullOptions) { o.SinkPrefixes = []string{prefix} })
	r.repository(nil, map[string]string{api.AnnoSinkDir: dir})
	r.state(`{"status":{"quota":{"maxResourcesPerRepository":2}}}`)
	r.commit("b.json", board("b", "B"), "c.json", board("c", "C"))
	r.expect("as many as there may be", false, "success", "")
	r.commit("a.json", board("a", "A"), "b.json", board("b", "B2"))
	has(t, r.expect("one more", true, "warning", "").Warnings, "resource quota of 2 exceeded, skipping creation of a.json")
	if got := files(t, dir); len(got) != 2 || got["b.json"] != board("b", "B2") || got["c.json"] == "" {
		t.Errorf("files %q", got)
	}
	_, u := r.sync()
	if conditions := fmt.Sprint(u.Object["status"]); !strings.Contains(conditions, "Resource quota reached: 2/2 resources") ||
		!strings.Contains(conditions, "Resource quota exceeded: 1 creations left out") {
		t.Errorf("status %s", conditions)
	}
	r.commit("c.json", "")
	r.expect("there is room again", true, "success", "")
	if got := files(t, dir); len(got) != 2 || got["a.json"] == "" {
		t.Errorf("files %q", got)
	}
}

// TestStrictDirectory: nothing but dashboards and folders is written, and what was written before
// goes.
func TestStrictDirectory(t *testing.T) {
	t.Parallel()
	prefix := t.TempDir()
	dir := filepath.Join(prefix, "dashboards")
	r := newRig(t, "embedded", func(o *PullOptions) { o.SinkPrefixes = []string{prefix} })
	r.repository(nil, map[string]string{api.AnnoSinkDir: dir, api.AnnoSinkStrict: "true"})
	holds := func(name string, want ...string) {
		t.Helper()
		if got := slices.Sorted(maps.Keys(files(t, dir))); !slices.Equal(got, want) {
			t.Errorf("%s: directory holds %q, want %q", name, got, want)
		}
	}
	r.commit("a.json", board("a", "A"), "b.json", board("b", "B"), "d/_folder.json", `{"metadata":{"name":"d"}}`, "d/c.yaml",
		"apiVersion: dashboard.grafana.app/v1\nkind: Dashboard\nmetadata: {name: c}\nspec: {title: C}\n", "README.md", "x", "package.json", `{"name":"x"}`,
		"broken.yaml", "a: [", "d/deploy.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n")
	status := r.expect("first", true, "warning", "")
	if got := counts(status); got != "File create 4, File warning 3" || len(status.Warnings) != 3 {
		t.Errorf("%s, warnings %q", got, status.Warnings)
	}
	holds("first", "a.json", "b.json", "d/_folder.json", "d/c.yaml")
	r.commit("b.json", "{", "broken.yaml", "", "package.json", "", "d/deploy.yaml", "", "notes.txt", "y")
	has(t, r.expect("one breaks", true, "warning", "").Warnings, "b.json", "b.json:1:")
	holds("one breaks", "a.json", "d/_folder.json", "d/c.yaml")
	r.commit("a.json", "", "b.json", "")
	r.expect("two are left", true, "success", "")
	r.commit("old.json", `{"title":"Old","rows":[]}`, "plain.json", `{"title":"Plain","panels":[]}`, "rows.json", `{"rows":1,"title":""}`)
	has(t, r.expect("dashboards of old formats", true, "warning", "").Warnings, "rows.json", "title")
	holds("dashboards of old formats", "d/_folder.json", "d/c.yaml", "old.json", "plain.json")
	r.commit("old.json", "", "plain.json", "", "rows.json", "")
	r.expect("they are gone", true, "success", "")
	r.commit("d/_folder.json", "", "d/c.yaml", "")
	has(t, r.expect("no dashboard left", true, "warning", "").Warnings, api.AnnoSinkStrict)
	holds("no dashboard left")
	r.expect("no dashboard, same commit", true, "warning", "")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	r.expect("no dashboard, first write", false, "warning", "completed with warnings")
	r.annotate(api.AnnoSinkStrict, "false")
	r.expect("off", false, "success", "")
	holds("off", "README.md", "notes.txt")
}

// TestNamesInADirectory: the path rule of the API does not hold for a directory. The job names what
// is left out.
func TestNamesInADirectory(t *testing.T) {
	t.Parallel()
	prefix := t.TempDir()
	dir := filepath.Join(prefix, "site")
	for strict, want := range map[string][]string{
		"true":  {"Today (Mobile).json", "a&b.json", "a/b/c/d/e/f/g/h/deep.json", "Übersicht/Übersicht.json"},
		"false": {"Today (Mobile).json", "Wendy's.txt", "a&b.json", "a/b/c/d/e/f/g/h/deep.json", "tab\there.txt", "Übersicht/Übersicht.json"},
	} {
		r := newRig(t, "embedded", func(o *PullOptions) { o.SinkPrefixes = []string{prefix} })
		r.repository(nil, map[string]string{api.AnnoSinkDir: dir + strict, api.AnnoSinkStrict: strict})
		r.commit("Today (Mobile).json", board("a", "A"), "Übersicht/Übersicht.json", board("b", "B"), "Wendy's.txt", "x", "a&b.json",
			board("c", "C"), "a/b/c/d/e/f/g/h/deep.json", board("d", "D"), "tab\there.txt", "x", ".github/ci.json", "{}", "x/.limpet/m.json", "{}")
		r.planned("dry run of "+strict, false, strings.Split("create "+strings.Join(want, "\ncreate "), "\n")...)
		r.expect(strict, false, "success", "completed successfully; 2 hidden files left out")
		if got := slices.Sorted(maps.Keys(files(t, dir+strict))); !slices.Equal(got, want) {
			t.Errorf("strict %s: directory holds %q, want %q", strict, got, want)
		}
		r.commit("Twin.json", board("e", "E"), "twin.json", board("f", "F"))
		has(t, r.expect("twins by case", true, "warning", "").Warnings, "duplicate name", "twin.json")
	}
}

// TestTwinsInADirectory: Grafana saves no dashboard of a directory in which two files have one uid.
func TestTwinsInADirectory(t *testing.T) {
	t.Parallel()
	prefix := t.TempDir()
	dir := filepath.Join(prefix, "site")
	r := newRig(t, "embedded", func(o *PullOptions) { o.SinkPrefixes = []string{prefix} })
	r.repository(nil, map[string]string{api.AnnoSinkDir: dir})
	twin := func(what string, incremental bool, file, first string) {
		t.Helper()
		has(t, r.expect(what, incremental, "warning", "").Warnings, "Dashboard x is in "+file+" and in "+first)
	}
	r.commit("b.json", board("x", "X"), "c.json", board("x", "X2"), "d.json", board("y", "Y"), "e.json", `{"uid":"x"}`)
	twin("first", true, "c.json", "b.json")
	r.commit("d.json", board("y", "Y2"))
	twin("another file changes", true, "c.json", "b.json")
	twin("in full", false, "c.json", "b.json")
	r.commit("a.json", board("x", "X3"), "c.json", "")
	twin("a new one", true, "b.json", "a.json")
	r.commit("b.json", "")
	r.expect("no twin is left", true, "success", "")
	r.commit("b.json", board("x", "X4"), "long.json", board(strings.Repeat("u", 45), "L"))
	twin("again", true, "b.json", "a.json")
	has(t, r.expect("again", true, "warning", "").Warnings, "long.json", "45", "40")
	if got := slices.Sorted(maps.Keys(files(t, dir))); !slices.Equal(got, []string{"a.json", "b.json", "d.json", "e.json", "long.json"}) {
		t.Errorf("directory holds %q", got)
	}
	r.annotate(api.AnnoSinkStrict, "true")
	twin("strict", false, "b.json", "a.json")
	if got := slices.Sorted(maps.Keys(files(t, dir))); !slices.Equal(got, []string{"a.json", "d.json"}) {
		t.Errorf("strict: directory holds %q", got)
	}
	r.commit("a.json", "")
	has(t, r.expect("the first is gone", true, "warning", "").Warnings, "long.json")
	if got := slices.Sorted(maps.Keys(files(t, dir))); !slices.Equal(got, []string{"b.json", "d.json"}) {
		t.Errorf("the first is gone: directory holds %q", got)
	}
}

// TestDirectoryAmended: an incremental pull writes the changes alone where nothing else decides, and
// the whole tree where something does. A file that was edited in place is taken back by the check that
// follows, in the first case, or by the pull.
func TestDirectoryAmended(t *testing.T) {
	t.Parallel()
	prefix := t.TempDir()
	dir := filepath.Join(prefix, "site")
	r := newRig(t, "embedded", func(o *PullOptions) { o.SinkPrefixes = []string{prefix} })
	r.repository(map[string]any{"git": map[string]any{"path": "/grafana/"}}, map[string]string{api.AnnoSinkDir: dir})
	tree := map[string]string{"stays.json": board("s", "S"), "a/cpu.json": board("cpu", "CPU"), "notes.md": "hello\n"}
	r.commit("elsewhere.json", board("e", "E"), "grafana/.hidden.json", "{}", "grafana/stays.json", tree["stays.json"],
		"grafana/a/cpu.json", tree["a/cpu.json"], "grafana/notes.md", tree["notes.md"])
	r.expect("first", true, "success", "")
	pointer := "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("0", 64) + "\nsize 1\n"
	for _, c := range []struct {
		what, state string
		amended     bool
		changes     []string // paths and contents
	}{
		{"links", "success", false, []string{"a/cpu.json", board("cpu", "1")}},
		{"one file", "success", true, []string{"a/cpu.json", board("cpu", "2")}},
		{"new, in a new directory", "success", true, []string{"b/c/new.json", board("new", "N"), "b/x.txt", "x"}},
		{"renamed", "success", true, []string{"b/c/new.json", "", "d/moved.json", board("new", "N")}},
		{"renamed and deleted", "success", true, []string{"d/moved.json", "", "b/back.json", board("new", "N"), "notes.md", ""}},
		{"outside", "success", true, []string{"../other/x.json", "no JSON"}},
		{"from outside", "success", true, []string{"../other/x.json", "", "x.txt", "no JSON"}},
		{"to outside", "success", true, []string{"../other/x.json", "no JSON", "x.txt", ""}},
		{"hidden", "success", false, []string{".github/x.json", "{}"}},
		{"no JSON", "warning", false, []string{"bad.json", "{"}},
		{"with a file that is no JSON", "warning", false, []string{"a/cpu.json", board("cpu", "3")}},
		{"it goes", "success", false, []string{"bad.json", ""}},
		{"again one file", "success", true, []string{"a/cpu.json", board("cpu", "4")}},
		{"a twin", "warning", false, []string{"a/twin.json", board("cpu", "4")}},
		{"the twin goes", "success", false, []string{"a/twin.json", ""}},
		{"the uid moves", "success", true, []string{"a/cpu.json", board("mem", "5"), "a/mem.json", board("cpu", "5")}},
		{"a twin by case", "warning", false, []string{"A.txt", "A", "a.txt", "a"}},
		{"it goes as well", "success", false, []string{"A.txt", "", "a.txt", ""}},
		{"a pointer", "success", false, []string{"p.bin", pointer}},
		{"rules above", "success", false, []string{"../.gitattributes", "*.json text\n"}},
		{"after all", "success", true, []string{"a/cpu.json", board("mem", "6")}},
	} {
		name := filepath.Join(dir, "stays.json")
		if err := os.WriteFile(name, []byte("an edit"), 0o644); err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(c.changes); i += 2 {
			if tree[c.changes[i]] = c.changes[i+1]; c.changes[i+1] == "" || strings.HasPrefix(c.changes[i], ".") {
				delete(tree, c.changes[i])
			}
			c.changes[i] = filepath.Join("grafana", c.changes[i])
		}
		if c.what == "a twin by case" {
			delete(tree, "a.txt")
		}
		commit := r.commit(c.changes...)
		r.expect(c.what, true, c.state, "")
		if data, err := os.ReadFile(name); err != nil || (string(data) == "an edit") != c.amended {
			t.Errorf("%s: after the pull the edited file holds %q, %v", c.what, data, err)
		}
		if _, err := NewPull(r.options).KeepSink(t.Context(), r.object(api.Repositories, "repo")); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if got := files(t, dir); !maps.Equal(got, tree) {
			t.Errorf("%s: directory holds %v, want %v", c.what, got, tree)
		}
		sync, u := r.sync()
		stats := fmt.Sprintf("[map[count:%d group:limpet resource:files]]", len(tree))
		if got := fmt.Sprint(u.Object["status"].(map[string]any)["stats"]); got != stats || sync.LastRef != commit {
			t.Errorf("%s: stats %s, want %s, at %s", c.what, got, stats, sync.LastRef)
		}
	}
}
