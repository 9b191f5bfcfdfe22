package worker

import (
	"path/filepath"
	"testing"

	"limpet/sync/api"
	"limpet/sync/testenv"
)

// TestUnreadFilesStay: a file that cannot be used is a warning of every pull until it is read or
// gone.
func TestUnreadFilesStay(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"api", "sink"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			prefix := t.TempDir()
			r := newRig(t, "embedded", func(o *PullOptions) { o.SinkPrefixes = []string{prefix} })
			annotations := map[string]string{api.AnnoSinkDir: filepath.Join(prefix, "boards")}
			if kind == "api" {
				annotations = nil
			}
			r.repository(map[string]any{"sync": map[string]any{"target": "folderless"}}, annotations)
			pull := func(name string, incremental bool, want string, bad ...string) {
				t.Helper()
				record, status := r.pull(incremental, nil)
				sync, u := r.sync()
				if record.State != want || sync.State != want || sync.LastRef != r.repo.Head(t) {
					t.Errorf("%s: the job ended as %s, %+v", name, record.State, sync)
				}
				reason := map[string]string{"success": "True SyncSuccessful", "warning": "False SyncWarning"}[want]
				view, _ := api.RepositoryView(u)
				for _, c := range view.Status.Conditions {
					if got := c.Status + " " + c.Reason; c.Type == api.ConditionSyncStatus && got != reason {
						t.Errorf("%s: condition %s, want %s", name, got, reason)
					}
				}
				list, err := r.store.Unread(t.Context(), r.namespace, "repo", string(u.GetUID()))
				if err != nil || list.Count() != len(bad) || len(bad) > 0 && list.Ref != sync.LastRef {
					t.Errorf("%s: list %+v %v", name, list, err)
				}
				for i, path := range bad {
					has(t, status.Warnings, path+":1:")
					if f := list.Files[i]; f.Path != path || f.Reason == "" || len(status.Warnings) != len(bad) {
						t.Errorf("%s: %+v, warnings %q", name, f, status.Warnings)
					}
				}
				if done := status.Progress; done > 100 {
					t.Errorf("%s: %v %%", name, done)
				}
			}
			r.commit("a.json", board("a", "A"), "b.json", `{"title": "Broken",`, "d/c.json", "{")
			pull("first", true, "warning", "b.json", "d/c.json")
			r.git.Reset()
			pull("same commit", true, "warning", "b.json", "d/c.json")
			if c := r.git.Reset(); c.UploadPack != 0 {
				t.Errorf("git requests %+v", c)
			}
			r.commit("other.json", board("other", "Other"))
			pull("another file", true, "warning", "b.json", "d/c.json")
			r.halt()
			r.start()
			t.Cleanup(func() { r.halt() })
			r.commit("other.json", board("other", "Other 2"), "b.json", board("b", "B"))
			pull("one is read after a restart", true, "warning", "d/c.json")
			pull("full", false, "warning", "d/c.json")
			// Without the list, the condition tells that there is one.
			if err := r.store.PruneUnread(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			r.commit("other.json", board("other", "Other 3"))
			pull("list lost", true, "warning", "d/c.json")
			r.commit("d/c.json", "")
			pull("gone", true, "success")
			pull("nothing", true, "success")
		})
	}
}

// TestUnreadFilesAreRetried: what kept a file from being used may end without a change of the file.
func TestUnreadFilesAreRetried(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repository(map[string]any{"sync": map[string]any{"target": "folderless"}}, nil)
	r.foreign(dashboards, "Dashboard", "a", nil)
	r.commit("a.json", board("a", "A"))
	r.expect("foreign", true, "warning", "", "POST dashboards/a 409")
	_, u := r.sync()
	if list, err := r.store.Unread(t.Context(), r.namespace, "repo", string(u.GetUID())); err != nil || list.Count() != 1 {
		t.Errorf("%+v %v", list, err)
	}
	r.remove(dashboards, "a")
	r.expect("its place is free", true, "success", "", "POST dashboards/a")
	if list, _ := r.store.Unread(t.Context(), r.namespace, "repo", string(u.GetUID())); list.Count() != 0 {
		t.Errorf("%+v", list)
	}
}

// TestLeftOutEntries: entries that no pull uses are one warning, by their kinds, as long as they
// are there.
func TestLeftOutEntries(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"api", "sink"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			prefix := t.TempDir()
			dir := filepath.Join(prefix, "boards")
			r := newRig(t, "embedded", func(o *PullOptions) { o.SinkPrefixes = []string{prefix} })
			annotations := map[string]string{api.AnnoSinkDir: dir}
			if kind == "api" {
				annotations = nil
			}
			r.repository(nil, annotations)
			r.commit("a.json", board("a", "A"), "b.json", board("b", "B"))
			r.repo.Git(t, "read-tree", "HEAD")
			blob, commit := r.repo.Git(t, "rev-parse", "HEAD:b.json"), r.repo.Head(t)
			for _, entry := range []string{"120000," + blob + ",a.json", "120000," + blob + ",docs/latest", "120000," + blob + ",.github/link",
				"120000," + blob + ",.link", "160000," + commit + ",lib", "100644," + blob + ",nul.json", "100644," + blob + ",tab\tx.txt"} {
				r.repo.Git(t, "update-index", "--add", "--cacheinfo", entry)
			}
			tree := r.repo.Git(t, "write-tree")
			r.expect("before", true, "success", "", writesOf(annotations == nil, "POST folders/repo", "POST dashboards/a", "POST dashboards/b")...)
			next := r.repo.Git(t, "-c", "user.name=u", "-c", "user.email=u@x", "commit-tree", "-m", "odd", "-p", "HEAD", tree)
			r.repo.Git(t, "update-ref", "refs/heads/"+testenv.Branch, next)
			want := "4 entries were left out: 1 device name, 1 submodule, 2 symbolic links (a.json, lib, nul.json, …)"
			if kind == "api" { // where a link that is no resource changes nothing
				want = "2 entries were left out: 1 device name, 1 symbolic link (a.json, nul.json)"
			}
			for i, incremental := range []bool{true, true, false} {
				_, status := r.pull(incremental, nil)
				if sync, _ := r.sync(); i == 1 && !sync.Incremental {
					t.Error("the same commit is read again")
				}
				if status.State != "warning" || len(status.Warnings) != 1 || status.Warnings[0] != want {
					t.Errorf("%s %q", status.State, status.Warnings)
				}
			}
			if kind == "api" {
				if r.object(dashboards, "a") == nil {
					t.Error("what was made from a path that is a link now is gone")
				}
				return
			}
			if got := files(t, dir); len(got) != 2 || got["tab\tx.txt"] == "" || got["b.json"] == "" {
				t.Errorf("files %q", got)
			}
		})
	}
}

func writesOf(api bool, writes ...string) []string {
	if !api {
		return nil
	}
	return writes
}
