package git

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"limpet/sync/git/gitref"
	"limpet/sync/git/gittest"
	"limpet/sync/git/pack"
)

// site is a repository of some files, fetched once.
func site(t *testing.T, o Options) (*gittest.Server, *gittest.Origin, *Mirrors, Remote, Ref, map[string]string) {
	t.Helper()
	gittest.Quiet(t)
	s := gittest.NewServer(t)
	or := gittest.NewOrigin(t, s.Root, "site.git")
	files := map[string]string{}
	for i := range 12 {
		files[fmt.Sprintf("d%d/x%d.json", i%3, i)] = gittest.Dashboard(fmt.Sprint(i), i, 10)
	}
	or.Commit("one", files)
	m := openMirrors(t, o)
	ref, _ := syncRef(t, m, remoteAt(s, "site.git"), "")
	return s, or, m, remoteAt(s, "site.git"), ref, files
}

// Readers are not disturbed when the mirror grows, is put together, is made
// anew or is removed under them.
func TestReadWhileChanging(t *testing.T) {
	s, o, m, r, ref, files := site(t, Options{})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var reads atomic.Int64
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				tree, err := m.Tree(t.Context(), r, ref.Hash, "")
				if errors.Is(err, ErrUnknownCommit) {
					continue // removed, not fetched yet
				}
				if err != nil || len(tree.Files) != len(files) {
					t.Errorf("%d files, %v", len(tree.Files), err)
					return
				}
				reads.Add(1)
			}
		})
	}
	c := gittest.Must[*call](t)(m.begin(t.Context(), "x", r))
	defer c.End()
	for i := range 8 {
		switch i % 4 {
		case 0:
			o.Commit("more", map[string]string{"d0/more.json": fmt.Sprint(i)})
			syncRef(t, m, r, "")
		case 1:
			mi := m.mirror(c.Addr)
			if err := mi.take(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := pack.Consolidate(t.Context(), mi.dir); err != nil {
				t.Error(err)
			}
			mi.changed()
			mi.give()
			fsck(t, m, r)
		case 2:
			mi := m.mirror(c.Addr)
			_, age := mi.lastFetched()
			mi.markDamaged(age)
			if _, err := m.Fetch(t.Context(), r, ref); err != nil {
				t.Error(err)
			}
		case 3:
			if _, err := m.Prune(nil, 0); err != nil {
				t.Error(err)
			}
			if _, err := m.Fetch(t.Context(), r, ref); err != nil {
				t.Error(err)
			}
		}
	}
	close(stop)
	wg.Wait()
	if reads.Load() == 0 {
		t.Error("nothing was read meanwhile")
	}
	_ = s
}

// A mirror that has grown far beyond its first pack is started afresh.
func TestFetchStartsAfreshWhenGrown(t *testing.T) {
	_, o, m, r, _, files := site(t, Options{})
	dir := mirrorDir(t, m, r)
	var ends strings.Builder
	for i := range maxShallows + 1 {
		fmt.Fprintf(&ends, "%040x\n", i+1)
	}
	if err := os.WriteFile(filepath.Join(dir, shallowFile), []byte(ends.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	files["new.json"] = "1"
	o.Commit("two", files)
	ref, st := syncRef(t, m, r, "")
	if !st.Rebuilt {
		t.Fatalf("%+v", st)
	}
	if got := content(t, m, r, ref.Hash, ""); !maps.Equal(got, files) {
		t.Fatal("content differs")
	}
	fsck(t, m, r)
}

func TestRequestsPerHost(t *testing.T) {
	gittest.Quiet(t)
	s := gittest.NewServer(t)
	var now, most atomic.Int64
	for i := range 6 {
		gittest.NewOrigin(t, s.Root, fmt.Sprintf("%d.git", i)).Commit("one", map[string]string{"a": "1"})
	}
	arrived := make(chan struct{}, 6)
	release := make(chan struct{})
	s.During(func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		arrived <- struct{}{}
		<-release
	})
	m := openMirrors(t, Options{PerHost: 2})
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			if _, err := m.Resolve(t.Context(), remoteAt(s, fmt.Sprintf("%d.git", i)), gitref.Branch("")); err != nil {
				t.Error(err)
			}
		})
	}
	<-arrived
	<-arrived
	// The two that are asked fill the host: a third waits, and stops waiting
	// with its context.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	_, err := m.Resolve(ctx, remoteAt(s, "0.git"), gitref.Branch(""))
	cancel()
	gittest.ErrorIs(t, err, Timeout)
	close(release)
	wg.Wait()
	if most.Load() != 2 {
		t.Errorf("%d requests at one time, want 2", most.Load())
	}
}

// One fetch at a time per mirror; who waits stops waiting with its context.
func TestFetchTurn(t *testing.T) {
	s, o, m, r, _, files := site(t, Options{})
	files["x.json"] = "1"
	o.Commit("two", files)
	ref, err := m.Resolve(t.Context(), r, gitref.Branch(""))
	if err != nil {
		t.Fatal(err)
	}
	arrived, release := make(chan struct{}), make(chan struct{})
	s.During(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			close(arrived)
			<-release
		}
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := m.Fetch(t.Context(), r, ref); err != nil {
			t.Error(err)
		}
	})
	<-arrived
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	_, err = m.Fetch(ctx, r, ref)
	cancel()
	gittest.ErrorIs(t, err, Timeout)
	close(release)
	wg.Wait()
	if st, err := m.Fetch(t.Context(), r, ref); err != nil || st.Requests != 0 {
		t.Errorf("%+v, %v", st, err)
	}
}

func TestIdleMirrorIsClosed(t *testing.T) {
	_, _, m, r, ref, _ := site(t, Options{})
	c := gittest.Must[*call](t)(m.begin(t.Context(), "x", r))
	defer c.End()
	mi := m.mirror(c.Addr)
	content(t, m, r, ref.Hash, "")
	mi.mu.Lock()
	open, waits := mi.open, mi.idle != nil
	if waits {
		mi.idle.Reset(time.Millisecond)
	}
	mi.mu.Unlock()
	if open == nil || !waits {
		t.Fatal("the mirror is not open, or nothing will close it")
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 2000 {
		<-tick.C
		mi.mu.Lock()
		open = mi.open
		mi.mu.Unlock()
		if open == nil {
			break
		}
	}
	if open != nil {
		t.Fatal("the mirror stays open")
	}
	content(t, m, r, ref.Hash, "")
	m.Close()
	if _, err := m.Tree(t.Context(), r, ref.Hash, ""); err == nil {
		t.Fatal("read after Close")
	}
}

func TestPrune(t *testing.T) {
	s, _, m, r, ref, files := site(t, Options{})
	gittest.NewOrigin(t, s.Root, "other.git").Commit("one", map[string]string{"a": "1"})
	other := remoteAt(s, "other.git")
	syncRef(t, m, other, "")
	if n, err := m.Prune(nil, time.Hour); err != nil || n != 0 {
		t.Fatalf("fetched a moment ago: %d, %v", n, err)
	}
	if n, err := m.Prune([]Remote{r, {URL: "nonsense"}}, 0); err != nil || n != 1 {
		t.Fatalf("%d, %v", n, err)
	}
	if got := content(t, m, r, ref.Hash, ""); !maps.Equal(got, files) {
		t.Fatal("content differs")
	}
	if _, st := syncRef(t, m, other, ""); !st.Full {
		t.Errorf("%+v", st)
	}
	m.Close()
	again, err := Open(m.dir, Options{}) // which does not know what it has
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if n, err := again.Prune(nil, 0); err != nil || n != 2 {
		t.Fatalf("%d, %v", n, err)
	}
	if left := gittest.Glob(t, again.dir, "*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
