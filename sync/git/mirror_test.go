package git

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/Masterminds/semver/v3"

	"limpet/sync/git/gitref"
	"limpet/sync/git/pack"
	"limpet/sync/testenv/gittest"
)

// site is a repository of some files, fetched once.
func site(t *testing.T, o Options) (*gittest.Server, *gittest.Origin, *Mirrors, Remote, Ref, map[string]string) {
	t.Helper()
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
	t.Parallel()
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
	defer c.exchange.End()
	for i := range 8 {
		switch i % 4 {
		case 0:
			o.Commit("more", map[string]string{"d0/more.json": fmt.Sprint(i)})
			syncRef(t, m, r, "")
		case 1:
			mi := m.mirror(c.exchange.Addr)
			if err := mi.lock(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := pack.Consolidate(t.Context(), mi.dir); err != nil {
				t.Error(err)
			}
			mi.changed()
			mi.unlock()
			fsck(t, m, r)
		case 2:
			spoil(m.mirror(c.exchange.Addr))
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

// TestReadOfMergedPacks: packs that were closed and merged under a reader are no damage, and cost
// no request. A bundle that was begun is not begun again.
func TestReadOfMergedPacks(t *testing.T) {
	t.Parallel()
	s, o, m, r, _, files := site(t, Options{})
	o.Commit("more", map[string]string{"d0/more.json": "1"})
	ref, _ := syncRef(t, m, r, "")
	mi := m.mirror(mustAddress(t, r.URL))
	merge := func() { // the packs that readers have
		h, err := mi.use(0)
		if err != nil {
			t.Fatal(err)
		}
		mi.release(h)
		if err := pack.Consolidate(t.Context(), mi.dir); err != nil {
			t.Fatal(err)
		}
		h.store.Close()
		s.Fails(http.StatusServiceUnavailable)
	}
	merge()
	defer s.Fails(0)
	tree, err := m.Tree(t.Context(), r, ref.Hash, "")
	if err != nil || len(tree.Files) != len(files)+1 || mi.isDamaged() {
		t.Errorf("%d files, %v", len(tree.Files), err)
	}
	s.Fails(0)
	o.Commit("again", map[string]string{"d0/more.json": "2"})
	syncRef(t, m, r, "")
	var out bytes.Buffer
	once := sync.OnceFunc(merge)
	err = m.Bundle(t.Context(), r, BundleQuery{Ref: ref}, writerFunc(func(p []byte) (int, error) {
		once()
		return out.Write(p)
	}))
	if gittest.ErrorIs(t, err, Moved); bytes.Count(out.Bytes(), []byte("git bundle")) != 1 || mi.isDamaged() {
		t.Errorf("%d bundles were begun", bytes.Count(out.Bytes(), []byte("git bundle")))
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A mirror that has grown far beyond its first pack is started afresh.
func TestFetchStartsAfreshWhenGrown(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
	_, _, m, r, ref, _ := site(t, Options{})
	c := gittest.Must[*call](t)(m.begin(t.Context(), "x", r))
	defer c.exchange.End()
	mi := m.mirror(c.exchange.Addr)
	content(t, m, r, ref.Hash, "")
	mi.mu.Lock()
	open, waits := mi.open, mi.idle != nil
	held := weak.Make(open)
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
	if runtime.GC(); held.Value() != nil {
		t.Error("its indexes stay in memory")
	}
	content(t, m, r, ref.Hash, "")
	m.Close()
	if _, err := m.Tree(t.Context(), r, ref.Hash, ""); err == nil {
		t.Fatal("read after Close")
	}
}

func TestPrune(t *testing.T) {
	t.Parallel()
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

// floors are the oldest versions of modules without a weakness that is known and
// matters here: what a server or a peer sends, ssh, and what is written to disk.
// govulncheck knows more of them where its database can be reached (.ci/vuln);
// these hold everywhere. An advisory belongs here within 7 days.
var floors = []struct{ module, version, why string }{
	{"github.com/go-git/go-git/v5", "v5.11.0", "CVE-2023-49568, CVE-2023-49569: replies without bounds, paths that lead elsewhere"},
	{"github.com/go-git/go-git/v5", "v5.13.0", "CVE-2025-21613, CVE-2025-21614: arguments in URLs, replies without bounds"},
	{"github.com/go-git/go-git/v5", "v5.16.5", "CVE-2026-25934: checksums of packs that are not compared"},
	{"github.com/go-git/go-git/v5", "v5.17.1", "CVE-2026-33762, CVE-2026-34165: panics"},
	{"github.com/go-git/go-git/v5", "v5.18.0", "CVE-2026-41506: credentials that go along with a redirect"},
	{"github.com/go-git/go-git/v5", "v5.19.1",
		"CVE-2026-45570, CVE-2026-45571, GHSA-w5pp-99ch-qj29: quotes in ssh commands, trees that write into .git, panics"},
	{"github.com/go-git/go-git/v5", "v5.19.2", "CVE-2026-71556, CVE-2026-71557: links, names of references that lead elsewhere"},
	{"golang.org/x/crypto", "v0.35.0", "CVE-2025-22869: memory without bounds during the key exchange of ssh"},
	{"golang.org/x/crypto", "v0.45.0", "CVE-2025-47914, CVE-2025-58181: panics and memory without bounds in ssh"},
	{"golang.org/x/oauth2", "v0.27.0", "CVE-2025-22868: memory without bounds for malformed tokens"},
	{"golang.org/x/net", "v0.38.0", "CVE-2025-22870, CVE-2025-22872: proxies passed by"},
	{"golang.org/x/net", "v0.60.0", "GO-2026-6603, 6611, 6612, 6617: memory, time and panics by frames of HTTP/2"},
}

// TestFloors holds go.mod against the floors.
func TestFloors(t *testing.T) {
	t.Parallel()
	for _, f := range floors {
		out, err := exec.Command("go", "list", "-m", "-json", f.module).Output()
		if err != nil {
			t.Fatalf("%s: %v", f.module, err)
		}
		var m struct {
			Version string
			Replace *struct{ Path, Version string }
		}
		if err := json.Unmarshal(out, &m); err != nil {
			t.Fatal(err)
		}
		if m.Replace != nil {
			t.Errorf("%s is replaced by %s %s: nobody watches that one", f.module, m.Replace.Path, m.Replace.Version)
		}
		at, err := semver.NewVersion(m.Version)
		if err != nil {
			t.Fatal(err)
		}
		if floor := semver.MustParse(f.version); at.LessThan(floor) {
			t.Errorf("%s is %s, must be %s or later: %s", f.module, at, floor, f.why)
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	count, before, err := m.Usage(t.Context())
	if err != nil || count != 0 {
		t.Fatalf("empty: %d mirrors, %v", count, err)
	}
	name := strings.Repeat("a", mirrorName)
	for path, size := range map[string]int{filepath.Join(name, "objects", "pack", "x"): 1000, filepath.Join(name, "HEAD"): 20,
		filepath.Join(largeDir, name, "y"): 300} {
		path = filepath.Join(m.dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, make([]byte, size), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if count, bytes, err := m.Usage(t.Context()); err != nil || count != 1 || bytes != before+1320 {
		t.Errorf("%d mirrors, %d bytes more, %v", count, bytes-before, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := m.Usage(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}
