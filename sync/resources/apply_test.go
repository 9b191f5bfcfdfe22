package resources

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/kube"
)

// TestFaults: whatever fails on the way, a later run without faults ends where
// the tree says, and no folder is deleted from under what is still in it.
func TestFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var mu sync.Mutex // guards rng: faults come from many writers
		m := newModel()
		tree := repo{}
		for i := range 8 {
			next := randomTree(rng, tree, false)
			for folderClash(next) {
				next = randomTree(rng, tree, false)
			}
			m.fault = func(string, string, string) error {
				mu.Lock()
				defer mu.Unlock()
				if rng.IntN(4) == 0 {
					return apierrors.NewInternalError(errors.New("chance"))
				}
				return nil
			}
			l := &log{max: 20}
			a := Apply{Server: m, Reader: next, Recorder: l, Namespace: "default", Parallel: 4}
			if _, err := a.Run(context.Background(), next.full(folderTarget, m.live())); err != nil &&
				!strings.Contains(err.Error(), "too many errors") && !strings.Contains(err.Error(), "create root folder") {
				t.Fatalf("seed=%d step %d: %v", seed, i, err)
			}
			m.fault = nil
			for _, o := range m.live() {
				parent := o.Folder
				if parent != "" && m.objects["folders/"+parent] == nil {
					t.Fatalf("seed=%d step %d: the folder %s of %s is gone", seed, i, parent, o.Path)
				}
			}
			if i%2 == 1 {
				m.run(t, next, next.full(folderTarget, m.live()))
				m.run(t, next, next.full(folderTarget, m.live()))
				if got, want := m.state(), expected(next, folderTarget); !reflect.DeepEqual(got, want) {
					t.Fatalf("seed=%d step %d:\n got %v\nwant %v", seed, i, got, want)
				}
			}
			tree = next
		}
	}
}

// TestTwoAgents: both do all of the work at once, and it is as if one had.
func TestTwoAgents(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 4))
		m := newModel()
		tree := repo{}
		for i := range 6 {
			next := randomTree(rng, tree, false)
			for folderClash(next) {
				next = randomTree(rng, tree, false)
			}
			live := m.live()
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					a := Apply{Server: m, Reader: next, Recorder: &log{}, Namespace: "default", Parallel: 3}
					if _, err := a.Run(context.Background(), next.full(folderTarget, live)); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			m.run(t, next, next.full(folderTarget, m.live()))
			if got, want := m.state(), expected(next, folderTarget); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed=%d step %d:\n got %v\nwant %v", seed, i, got, want)
			}
			tree = next
		}
	}
}

// TestFailedFolder: what belongs in a folder that cannot be made is left out
// with a warning, and the folder that it should leave stays.
func TestFailedFolder(t *testing.T) {
	t.Parallel()
	m := newModel()
	old := repo{"old/x.json": dashboard("x", "X"), "old/y.json": dashboard("y", "Y")}
	m.run(t, old, old.full(folderTarget, m.live()))
	m.fault = func(verb, resource, name string) error {
		if verb == "POST" && name == id("new") {
			return apierrors.NewInternalError(errors.New("no"))
		}
		return nil
	}
	next := repo{"new/x.json": old["old/x.json"], "new/deep/z.json": dashboard("z", "Z"), "ok.json": dashboard("ok", "OK")}
	m.take()
	l := m.run(t, next, next.full(folderTarget, m.live()))
	_, writes := m.take()
	slices.Sort(writes)
	if want := []string{"DELETE dashboards y", "POST dashboards ok", "POST folders " + id("new")}; !slices.Equal(writes, want) {
		t.Errorf("writes %q, want %q", writes, want)
	}
	warns := l.warnings()
	for path, want := range map[string]string{"new/": "ERROR", "new/x.json": "could not be made", "new/deep/": "could not be made",
		"new/deep/z.json": "could not be made", "old/": "did not succeed"} {
		if !strings.Contains(warns[path], want) {
			t.Errorf("%s: %q, want %q", path, warns[path], want)
		}
	}
	m.fault = nil
	m.run(t, next, next.full(folderTarget, m.live()))
	if got, want := m.state(), expected(next, folderTarget); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestFailedRootIsFatal(t *testing.T) {
	t.Parallel()
	m := newModel()
	m.add("folders", "repo", map[string]string{"grafana.app/managedBy": "terraform", "grafana.app/managerId": "x"})
	tree := repo{"a.json": dashboard("a", "A")}
	_, err := Apply{Server: m, Reader: tree, Recorder: &log{}, Namespace: "default"}.Run(context.Background(), tree.full(folderTarget, nil))
	if err == nil || !strings.Contains(err.Error(), "create root folder") || !IsWarning(err) {
		t.Errorf("error %v", err)
	}
	if m.objects["dashboards/a"] != nil {
		t.Error("a dashboard was written without its root folder")
	}
}

// slow is a server that does not answer.
type slow struct{ *model }

func (s slow) Create(ctx context.Context, _ Ref, _ bool, _ func(string) []byte) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestItemTimeout: a change that gets no answer is an error of its own; the end
// of the whole run is none of any change.
func TestItemTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tree := repo{}
		for i := range 25 {
			tree[fmt.Sprintf("f%02d.json", i)] = dashboard(fmt.Sprintf("u%d", i), "T")
		}
		l := &log{}
		began := time.Now()
		a := Apply{Server: slow{newModel()}, Reader: tree, Recorder: l, Namespace: "default"}
		if _, err := a.Run(context.Background(), tree.full(Target{Repository: "repo", Kinds: kinds}, nil)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 3*ItemTimeout {
			t.Errorf("25 changes, 10 at a time, took %s", took)
		}
		for path, text := range l.warnings() {
			if !strings.Contains(text, "ERROR no answer within 15s") {
				t.Errorf("%s: %s", path, text)
			}
		}
		cause := errors.New("lease lost")
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Second, cause)
		defer cancel()
		a.Recorder = &log{}
		if _, err := a.Run(ctx, tree.full(Target{Repository: "repo", Kinds: kinds}, nil)); !errors.Is(err, cause) {
			t.Errorf("error %v", err)
		}
		if n := len(a.Recorder.(*log).results); n != 0 {
			t.Errorf("%d changes were told about after the end", n)
		}
	})
}

// distant is a server that answers after a second.
type distant struct{ *model }

func (s distant) Create(ctx context.Context, ref Ref, strict bool, body func(string) []byte) error {
	time.Sleep(time.Second)
	return s.model.Create(ctx, ref, strict, body)
}

// TestFoldersByLevel: folders of one depth are created in parallel, after their parents. A quota
// smaller than the plan admits its first folders.
func TestFoldersByLevel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		files := repo{}
		for i := range 20 {
			files[fmt.Sprintf("d%02d/deep/a.json", i)] = dashboard(fmt.Sprintf("u%d", i), "T")
		}
		for quota, want := range map[int64]struct {
			took    time.Duration
			folders int
		}{0: {5 * time.Second, 41}, 100: {5 * time.Second, 41}, 11: {11 * time.Second, 11}} {
			m := newModel()
			var took time.Duration
			a := Apply{Server: distant{m}, Reader: files, Recorder: &log{}, Namespace: "default", MaxResources: quota,
				Phase: func(name string, d time.Duration) {
					if name == "folder_creations" {
						took = d
					}
				}}
			if _, err := a.Run(t.Context(), files.full(folderTarget, nil)); err != nil {
				t.Fatal(err)
			}
			made := 0
			_, writes := m.take()
			for i, name := range writes {
				if !strings.HasPrefix(name, "POST folders ") {
					continue
				}
				made++
				if dir := i - 1; quota == 11 && dir >= 0 && name != "POST folders "+id(fmt.Sprintf("d%02d", dir)) {
					t.Errorf("quota %d: write %d is %s", quota, i, name)
				}
			}
			if took != want.took || made != want.folders {
				t.Errorf("quota %d: %d folders in %s, want %d in %s", quota, made, took, want.folders, want.took)
			}
		}
	})
}

func TestOwnershipRules(t *testing.T) {
	t.Parallel()
	object := Identity{Group: "dashboard.grafana.app", Kind: "Dashboard", Name: "x"}
	by := func(kind, name, edits string) map[string]string {
		return map[string]string{"grafana.app/managedBy": kind, "grafana.app/managerId": name, "grafana.app/managerAllowsEdits": edits}
	}
	for _, c := range []struct {
		annotations map[string]string
		own         bool
	}{
		{by("repo", "repo", ""), true},
		{by("repo", "other", ""), false},
		{by("repo", "other", "true"), false},
		{by("terraform", "repo", ""), false},
		{by("", "", "true"), false},
		{by("", "repo", ""), false},
		{nil, false},
	} {
		if err := checkManaged("repo", object, c.annotations); (err == nil) != c.own || err != nil && !IsWarning(err) {
			t.Errorf("%v: %v", c.annotations, err)
		}
	}
}

func TestRefusedEntries(t *testing.T) {
	t.Parallel()
	m := newModel()
	old := repo{"a.json": dashboard("a", "A"), "lib/b.json": dashboard("b", "B"), "lib/in/c.json": dashboard("c", "C"),
		"d.json": dashboard("d", "D")}
	m.run(t, old, old.full(folderTarget, m.live()))
	m.take()
	// a.json has become a link and lib a submodule.
	next := repo{"d.json": dashboard("d", "D2")}
	tree := next.tree()
	tree.Refused = []string{"a.json", "lib"}
	live := m.live()
	full := Full(folderTarget, tree, live, nil)
	full.Settle(nil)
	var dirs []Item
	for _, i := range live {
		if i.IsFolder() {
			dirs = append(dirs, i)
		}
	}
	was := Identity{Group: "dashboard.grafana.app", Kind: "Dashboard", Name: "a"}
	under := Identity{Group: "dashboard.grafana.app", Kind: "Dashboard", Name: "b"}
	step := Increment(folderTarget, tree, dirs, nil, []FileChange{
		{Action: Deleted, Path: "a.json", FromHash: old.hash("a.json"), Previous: &was},
		{Action: Deleted, Path: "lib/b.json", FromHash: old.hash("lib/b.json"), Previous: &under}})
	for name, p := range map[string]*Plan{"full": full, "incremental": step} {
		if p.Deletions() != 0 || len(p.Skipped) != 0 {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// TestServerUnavailable: when the server goes away nothing is blamed for it, nothing
// more is begun, and a later run does the rest.
func TestServerUnavailable(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 5))
		m := newModel()
		tree := randomTree(rng, repo{}, false)
		for folderClash(tree) {
			tree = randomTree(rng, tree, false)
		}
		var calls, late atomic.Int64
		limit := int64(rng.IntN(6))
		m.fault = func(string, string, string) error {
			if calls.Add(1) <= limit {
				return nil
			}
			late.Add(1)
			return &kube.UnavailableError{Err: errors.New("connection refused")}
		}
		const parallel = 3
		l := &log{max: 20}
		a := Apply{Server: m, Reader: tree, Recorder: l, Namespace: "default", Parallel: parallel}
		_, err := a.Run(context.Background(), tree.full(folderTarget, nil))
		for _, r := range l.results {
			if r.Err != nil {
				t.Errorf("seed=%d: %s is blamed: %v", seed, r.Path, r.Err)
			}
		}
		if n := late.Load(); n > 0 && !errors.As(err, new(*kube.UnavailableError)) || n > parallel {
			t.Errorf("seed=%d: %d calls to a server that is away; %v", seed, n, err)
		}
		m.fault = nil
		m.run(t, tree, tree.full(folderTarget, m.live()))
		if got, want := m.state(), expected(tree, folderTarget); !reflect.DeepEqual(got, want) {
			t.Fatalf("seed=%d:\n got %v\nwant %v", seed, got, want)
		}
	}
}

// TestQuotaWarnsOnce: of a new directory over the quota each file has the warning, and the folder
// only without files.
func TestQuotaWarnsOnce(t *testing.T) {
	t.Parallel()
	m := newModel()
	files := repo{"a.json": dashboard("a", "A"), "new/x.json": dashboard("x", "X"), "new/deep/y.json": dashboard("y", "Y"), "empty/.keep": ""}
	l := &log{}
	a := Apply{Server: m, Reader: files, Recorder: l, Namespace: "default", Count: 1, MaxResources: 2}
	if _, err := a.Run(t.Context(), files.full(folderTarget, m.live())); err != nil {
		t.Fatal(err)
	}
	warns := l.warnings()
	for _, path := range slices.Sorted(maps.Keys(warns)) {
		if want := "resource quota of 2 exceeded, skipping creation of " + path; warns[path] != want {
			t.Errorf("%s: %q, want %q", path, warns[path], want)
		}
	}
	if got := slices.Sorted(maps.Keys(warns)); !slices.Equal(got, []string{"a.json", "empty/", "new/deep/y.json", "new/x.json"}) {
		t.Errorf("warnings of %q", got)
	}
}
