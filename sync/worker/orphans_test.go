package worker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
	"limpet/sync/jobs"
	"limpet/sync/kube"
)

// settled is a rig whose repository has been pulled: folders a and a/b, three dashboards, and
// beside them one that nobody manages.
func settled(t *testing.T, server string) *rig {
	t.Helper()
	r := newRig(t, server, nil)
	r.repository(nil, nil)
	r.commit("top.json", board("top", "Top"), "a/cpu.json", board("cpu", "CPU"), "a/b/mem.json", board("mem", "Mem"))
	r.expect("first", false, "success", "", "POST folders/repo", "POST folders/"+folderID("a"), "POST folders/"+folderID("a/b"),
		"POST dashboards/top", "POST dashboards/cpu", "POST dashboards/mem")
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"title": "Mine"}}}
	u.SetAPIVersion(dashboards.GroupVersion().String())
	u.SetKind("Dashboard")
	u.SetName("mine")
	if _, err := r.client.Resource(dashboards).Namespace(r.namespace).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.wire.take()
	return r
}

func (r *rig) writes() []string {
	_, writes, _ := r.wire.take()
	return writes
}

func TestOrphansAreRemoved(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := settled(t, server)
		repo := r.object(api.Repositories, "repo")
		// Somebody changes one of them between the look and the delete.
		var changed atomic.Bool // they are deleted side by side
		r.wire.answer(func(req *http.Request) *http.Response {
			if req.Method == http.MethodDelete && strings.HasSuffix(req.URL.Path, "/cpu") && !changed.Swap(true) {
				patch := []byte(`{"metadata":{"labels":{"color":"blue"}}}`)
				if _, err := r.client.Resource(dashboards).Namespace(r.namespace).Patch(req.Context(), "cpu", types.MergePatchType, patch,
					metav1.PatchOptions{}); err != nil {
					t.Error(err)
				}
			}
			return nil
		})
		n, err := NewOrphans(r.options).Remove(t.Context(), repo)
		if n != 6 || err != nil {
			t.Fatalf("%d objects, %v", n, err)
		}
		_, _, all := r.wire.take()
		var order []string
		for _, q := range all {
			if q.method == http.MethodDelete && strings.Contains(q.path, "/folders/") {
				order = append(order, filepath.Base(q.path))
			}
		}
		if want := []string{folderID("a/b"), folderID("a"), "repo"}; !slices.Equal(order, want) {
			t.Errorf("folders deleted in the order %q, want %q", order, want)
		}
		for _, name := range []string{"top", "cpu", "mem"} {
			if r.object(dashboards, name) != nil {
				t.Errorf("dashboard %s is still there", name)
			}
		}
		if r.object(dashboards, "mine") == nil {
			t.Error("the dashboard that nobody manages is gone")
		}
		if n, err := NewOrphans(r.options).Remove(t.Context(), repo); n != 0 || err != nil || len(r.writes()) != 0 {
			t.Errorf("again: %d objects, %v", n, err)
		}
	})
}

func TestOrphansThatCannotGo(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := settled(t, server)
		repo := r.object(api.Repositories, "repo")
		r.wire.answer(func(req *http.Request) *http.Response {
			if req.Method == http.MethodDelete && strings.HasSuffix(req.URL.Path, "/cpu") {
				body := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no"}`
				return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}},
					Body: io.NopCloser(strings.NewReader(body))}
			}
			return nil
		})
		n, err := NewOrphans(r.options).Remove(t.Context(), repo)
		var left *RemainingError
		if n != 3 || !errors.As(err, &left) {
			t.Fatalf("%d objects, %v", n, err)
		}
		// The folders above what is left stay, and are named.
		for _, want := range []string{"3 of 6 objects could not be deleted", "Dashboard cpu: ", "Folder " + folderID("a") +
			": something in it is left", "Folder repo: "} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q in it", err, want)
			}
		}
		r.wire.answer(nil)
		if n, err := NewOrphans(r.options).Remove(t.Context(), repo); n != 3 || err != nil {
			t.Errorf("again: %d objects, %v", n, err)
		}
		if r.object(folders, "repo") != nil {
			t.Error("the root folder is still there")
		}
	})
}

// TestOrphansThatAreTakenOver: what a person gives to somebody else while its repository goes
// stays, with the marks of its new owner: taken before it is looked at (top), and between the look
// and the write (cpu).
func TestOrphansThatAreTakenOver(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		for verb, leave := range map[string]func(*Orphans, context.Context, *unstructured.Unstructured) (int, error){
			http.MethodDelete: (*Orphans).Remove, http.MethodPatch: (*Orphans).Release} {
			r := settled(t, server)
			repo := r.object(api.Repositories, "repo")
			var mu sync.Mutex // guards taken
			taken := map[string]bool{}
			take := func(name string) {
				mu.Lock()
				done := taken[name]
				taken[name] = true
				mu.Unlock()
				if done {
					return
				}
				patch := []byte(`{"metadata":{"annotations":{"` + api.AnnoManagerID + `":"somebody"}}}`)
				if _, err := r.client.Resource(dashboards).Namespace(r.namespace).Patch(t.Context(), name, types.MergePatchType, patch,
					metav1.PatchOptions{}); err != nil {
					t.Error(err)
				}
			}
			r.wire.answer(func(req *http.Request) *http.Response {
				switch {
				case req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/dashboards/top"):
					take("top")
				case req.Method == verb && strings.HasSuffix(req.URL.Path, "/dashboards/cpu") &&
					!strings.Contains(req.Header.Get("Content-Type"), "merge"):
					take("cpu")
				}
				return nil
			})
			_, err := leave(NewOrphans(r.options), t.Context(), repo)
			if verb == http.MethodPatch && err != nil {
				t.Errorf("it is not looked at again: %v", err)
			}
			if len(taken) != 2 {
				t.Fatalf("%s: only %v was taken; %v", verb, taken, err)
			}
			for name := range taken {
				u := r.object(dashboards, name)
				if u == nil || u.GetAnnotations()[api.AnnoManagerID] != "somebody" || u.GetAnnotations()[api.AnnoSourcePath] == "" {
					t.Errorf("%s: dashboard %s of somebody else is gone or changed: %v (%v)", verb, name, u, err)
				}
			}
		}
	})
}

func TestOrphansAreReleased(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := settled(t, server)
		before := r.object(dashboards, "mem")
		n, err := NewOrphans(r.options).Release(t.Context(), r.object(api.Repositories, "repo"))
		if n != 6 || err != nil {
			t.Fatalf("%d objects, %v", n, err)
		}
		_, _, all := r.wire.take()
		var order []string
		for _, q := range all {
			if q.method == http.MethodPatch && strings.Contains(q.path, "/folders/") {
				order = append(order, filepath.Base(q.path))
			}
		}
		if want := []string{"repo", folderID("a"), folderID("a/b")}; !slices.Equal(order, want) {
			t.Errorf("folders released in the order %q, want %q", order, want)
		}
		after := r.object(dashboards, "mem")
		for key := range after.GetAnnotations() {
			if slices.Contains(marks, key) {
				t.Errorf("annotation %s is still there", key)
			}
		}
		if after.GetAnnotations()[api.AnnoFolder] != folderID("a/b") || !maps.Equal(before.GetLabels(), after.GetLabels()) {
			t.Errorf("more has changed: %v", after.Object["metadata"])
		}
		if n, err := NewOrphans(r.options).Release(t.Context(), r.object(api.Repositories, "repo")); n != 0 || err != nil ||
			len(r.writes()) != 0 {
			t.Errorf("again: %d objects, %v", n, err)
		}
	})
}

func TestDirectoryIsLeft(t *testing.T) {
	t.Parallel()
	for _, remove := range []bool{true, false} {
		prefix := t.TempDir()
		dir := filepath.Join(prefix, "dashboards")
		r := newRig(t, "embedded", func(o *PullOptions) { o.SinkPrefixes = []string{prefix} })
		r.repository(nil, map[string]string{api.AnnoSinkDir: dir})
		r.commit("a/cpu.json", board("cpu", "CPU"))
		r.expect("first", false, "success", "")
		if err := os.WriteFile(filepath.Join(dir, "theirs.txt"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		o, repo := NewOrphans(r.options), r.object(api.Repositories, "repo")
		leave := o.Release
		want := map[string]string{"a/cpu.json": board("cpu", "CPU"), "theirs.txt": "x"}
		if remove {
			leave, want = o.Remove, map[string]string{"theirs.txt": "x"}
		}
		for _, n := range []int{1, 0} {
			if got, err := leave(t.Context(), repo); got != n || err != nil {
				t.Errorf("remove %t: %d files, %v; want %d", remove, got, err, n)
			}
		}
		if got := files(t, dir); !maps.Equal(got, want) {
			t.Errorf("remove %t: left %v, want %v", remove, got, want)
		}
		if _, err := os.Stat(filepath.Join(dir, ".limpet")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("remove %t: the manifest is still there: %v", remove, err)
		}
	}
}

// TestLeftByARepository runs the jobs on what a Repository that is gone has left.
func TestLeftByARepository(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		for action, counted := range map[string]string{
			"releaseResources": "Dashboard error 1, Dashboard update 2, Folder update 3",
			"deleteResources":  "Dashboard delete 2, Dashboard error 1, Folder delete 1, Folder warning 2",
		} {
			r := settled(t, server)
			r.remove(api.Repositories, "repo")
			r.wire.answer(func(req *http.Request) *http.Response {
				if (req.Method == http.MethodDelete || req.Method == http.MethodPatch) && strings.HasSuffix(req.URL.Path, "/cpu") {
					body := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no"}`
					return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}},
						Body: io.NopCloser(strings.NewReader(body))}
				}
				return nil
			})
			record, status := r.run(map[string]any{"action": action}, nil)
			if got := counts(status); record.State != "error" || got != counted {
				t.Errorf("%s: %s %q, %s", action, record.State, record.Message, got)
			}
			if i := record.Issues[0]; i.Path != "a/cpu.json" || i.Reason != "forbidden" || i.Name != "cpu" || i.State != "error" {
				t.Errorf("%s: issues %+v", action, record.Issues)
			}
			r.wire.answer(nil)
			if record, _ := r.run(map[string]any{"action": action}, nil); record.State != "success" {
				t.Errorf("%s, again: %s %q", action, record.State, record.Message)
			}
			r.expectRun(action+", a third time", map[string]any{"action": action}, "success", "no resources")
			if live := r.object(dashboards, "cpu"); action == "releaseResources" && live.GetAnnotations()[api.AnnoManagerID] != "" ||
				action == "deleteResources" && live != nil || r.object(dashboards, "mine") == nil {
				t.Errorf("%s: left %v", action, live)
			}
			r.repository(nil, nil)
			if server == "real" { // the embedded API does not take such a job
				r.expectRun(action+", it exists", map[string]any{"action": action}, "error", "needs repository")
			}
		}
	})
}

// TestLeaveAfterAnotherAnswer: the 404 of a proxy does not say that a Repository is gone.
func TestLeaveAfterAnotherAnswer(t *testing.T) {
	t.Parallel()
	r := settled(t, "embedded")
	r.wire.answer(func(q *http.Request) *http.Response {
		if q.Method != http.MethodGet || !strings.HasSuffix(q.URL.Path, "/repositories/repo") {
			return nil
		}
		return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{"Content-Type": {"text/plain"}},
			Body: io.NopCloser(strings.NewReader("404 page not found\n"))}
	})
	task := &jobs.Task{Job: api.Job{Spec: api.JobSpec{Action: "deleteResources", Repository: "repo"}}, Namespace: r.namespace,
		Progress: jobs.NewProgress()}
	err := NewRemove(NewOrphans(r.options)).Run(t.Context(), task)
	if writes := r.writes(); err == nil || len(writes) > 0 {
		t.Errorf("%v, writes %q", err, writes)
	}
}

// TestPruneMirrors: a mirror goes when no Repository uses it and it has rested long enough, and
// never while the cache of Repositories is incomplete.
func TestPruneMirrors(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repo.Add(t, "a.json")
	dir := t.TempDir()
	all, err := git.Open(dir, git.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { all.Close() })
	used := git.Remote{URL: r.url, AllowInsecure: true}
	ref, err := all.Resolve(t.Context(), used, gitref.Selector{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := all.Fetch(t.Context(), used, ref); err != nil {
		t.Fatal(err)
	}
	unused := filepath.Join(dir, strings.Repeat("a", 32))
	if err := os.Mkdir(unused, 0o700); err != nil {
		t.Fatal(err)
	}
	left := func(want int, when string) {
		t.Helper()
		dirs, err := filepath.Glob(filepath.Join(dir, strings.Repeat("?", 32)))
		if err != nil || len(dirs) != want {
			t.Fatalf("%s: mirrors %q, want %d (%v)", when, dirs, want, err)
		}
	}
	p := MirrorPruner{Repos: r.client.Informer(api.Repositories, r.namespace, kube.InformerOptions{}), Mirrors: all, Store: r.store,
		Logger: slog.New(slog.DiscardHandler)}
	ctx, stop := context.WithCancel(t.Context())
	p.runOnce(ctx, 0)
	left(2, "before the watch has synced")
	r.repository(nil, nil)
	done := make(chan error, 1)
	go func() { done <- p.Repos.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	if err := p.Repos.WaitSynced(ctx); err != nil {
		t.Fatal(err)
	}
	p.runOnce(ctx, time.Hour)
	left(2, "before one has rested")
	p.runOnce(ctx, 0)
	left(1, "afterwards")
	if _, err := os.Stat(unused); err == nil {
		t.Error("the one that is used is gone")
	}
}
