package git

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"limpet/sync/git/gitref"
	"limpet/sync/git/pack"
	"limpet/sync/git/transfer"
	"limpet/sync/testenv/gittest"
)

func TestFetchFirstAndNext(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	files := make(map[string]string)
	for i := range 40 {
		files[fmt.Sprintf("grafana/folder-%d/board-%d.json", i%5, i)] = gittest.Dashboard(fmt.Sprint("b", i), 1, 30)
	}
	first := o.Commit("first", files)
	m := openMirrors(t, Options{})
	r := remoteAt(s, "site.git")

	ref, st := syncRef(t, m, r, "")
	if ref.Name != "refs/heads/main" || ref.Hash != first || ref.Branch() != "main" {
		t.Fatalf("resolved %+v, want %s", ref, first)
	}
	if !st.Full || st.Rebuilt || st.Requests != 1 || st.Objects != 1+7+40 {
		t.Fatalf("first fetch: %+v", st)
	}
	if got := content(t, m, r, first, ""); !maps.Equal(got, files) {
		t.Fatal("content differs")
	}
	fsck(t, m, r)

	before := s.Requests.Load()
	if ref, st = syncRef(t, m, r, "main"); st.Requests != 0 || st.Bytes != 0 {
		t.Fatalf("nothing new: %+v", st)
	}
	if n := s.Requests.Load() - before; n != 1 {
		t.Fatalf("nothing new took %d requests, want one ls-remote", n)
	}

	files["grafana/folder-1/board-1.json"] = gittest.Dashboard("b1", 2, 30)
	second := o.Commit("second", files)
	ref, st = syncRef(t, m, r, "main")
	if ref.Hash != second || st.Full || st.Bytes > 4000 {
		t.Fatalf("second fetch of %s: %+v", ref.Hash, st)
	}
	t.Logf("incremental fetch: %+v", st)
	if got := content(t, m, r, second, ""); !maps.Equal(got, files) {
		t.Fatal("content differs after the second fetch")
	}
	changes, err := m.Changes(t.Context(), r, first, second, "grafana")
	if err != nil || len(changes.Files) != 1 || changes.Files[0].Path != "folder-1/board-1.json" || changes.Files[0].Type != ChangeModified {
		t.Fatalf("changes %+v, %v", changes, err)
	}
	info, err := m.Commit(t.Context(), r, second)
	if err != nil || info.Subject != "second" || info.Author != "Ann Author <ann@example.com>" || len(info.Parents) != 1 ||
		info.When.Format("2006-01-02T15:04:05-0700") != "2026-11-20T10:00:00+0100" {
		t.Fatalf("commit %+v, %v", info, err)
	}
	fsck(t, m, r)
}

// TestFetchIsCounted: a Meter shows what a fetch waits for and how much has come, while it goes on,
// and nothing after it.
func TestFetchIsCounted(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	files, noise := map[string]string{}, rand.NewChaCha8([32]byte{})
	for i := range 100 {
		data := make([]byte, 6<<10)
		noise.Read(data)
		files[fmt.Sprintf("board-%d.json", i)] = string(data)
	}
	o.Commit("first", files)
	m, r := openMirrors(t, Options{}), remoteAt(s, "site.git")
	r.Meter = transfer.New()
	ref, err := m.Resolve(t.Context(), r, gitref.Selector{})
	if err != nil {
		t.Fatal(err)
	}
	see := func(what string, holds func(transfer.State) bool) {
		for began := time.Now(); !holds(r.Meter.State()); time.Sleep(time.Millisecond) {
			if time.Since(began) > 30*time.Second {
				t.Errorf("%s is never seen, but %+v", what, r.Meter.State())
				return
			}
		}
	}
	s.During(func(w http.ResponseWriter, q *http.Request) {
		if q.Method != http.MethodPost {
			return
		}
		see("waiting", func(s transfer.State) bool { return s.Phase == "waiting" })
		whole := httptest.NewRecorder()
		s.Backend(whole, q)
		body := whole.Body.Bytes()
		w.Header().Set("Content-Type", whole.Header().Get("Content-Type"))
		pack := bytes.Index(body, []byte("PACK"))
		w.Write(body[:pack-5]) // without the head of its packet
		http.NewResponseController(w).Flush()
		see("compressing or counting", func(s transfer.State) bool {
			return strings.HasSuffix(s.Phase, "ing") && s.Percent == 100 && s.Total == 0
		})
		w.Write(body[pack-5 : len(body)/2])
		http.NewResponseController(w).Flush()
		see("half of it", func(s transfer.State) bool {
			return s.Phase == "receiving" && s.Total == 102 && s.Objects > 20 && s.Objects < 60 && s.Bytes > 200<<10 && s.Bytes < 400<<10
		})
		w.Write(body[len(body)/2:])
	})
	if _, err := m.Fetch(t.Context(), r, ref); err != nil || r.Meter.State() != (transfer.State{}) {
		t.Fatalf("after the fetch: %+v, %v", r.Meter.State(), err)
	}
}

func TestFetchManyTimes(t *testing.T) {
	t.Parallel()
	const times = 2*pack.MaxPacks + 10 // the packs are merged twice
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	files := make(map[string]string)
	for i := range 30 {
		files[fmt.Sprintf("f%d/board-%d.json", i%3, i)] = gittest.Dashboard(fmt.Sprint("b", i), 0, 20)
	}
	o.Commit("first", files)
	m := openMirrors(t, Options{})
	r := remoteAt(s, "site.git")
	syncRef(t, m, r, "")
	// The history exists on the server from the beginning; each turn moves the
	// branch one step and fetches it.
	o.Advance(times, "f1/board-1.json", func(i int) string { return gittest.Dashboard("b1", i+1, 20) })
	steps := strings.Fields(gittest.Git(t, o.Bare, nil, "rev-list", "--reverse", "main"))[1:]
	if len(steps) != times {
		t.Fatalf("%d steps", len(steps))
	}
	var worst int64
	for i, id := range steps {
		if err := os.WriteFile(filepath.Join(o.Bare, "refs/heads/main"), []byte(id+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		ref, st := syncRef(t, m, r, "main")
		if ref.Hash != id || st.Full || st.Objects > 4 {
			t.Fatalf("step %d: %+v", i, st)
		}
		worst = max(worst, st.Bytes)
	}
	if worst > 1000 { // an acknowledgement of each commit would take 57 bytes
		t.Errorf("a fetch took %d bytes", worst)
	}
	if n := len(gittest.Glob(t, mirrorDir(t, m, r), "objects/pack/*.pack")); n > pack.MaxPacks+1 {
		t.Errorf("%d packs", n)
	}
	changes, err := m.Changes(t.Context(), r, steps[3], steps[times-1], "")
	if err != nil || len(changes.Files) != 1 {
		t.Fatalf("%+v, %v", changes, err)
	}
	files["f1/board-1.json"] = gittest.Dashboard("b1", times, 20)
	if got := content(t, m, r, steps[times-1], ""); !maps.Equal(got, files) {
		t.Fatal("content differs")
	}
	fsck(t, m, r)
}

// A shallow mirror lacks what older commits held. A server that knows that
// must not be led to believe that it is there.
func TestFetchReturnsToOldContent(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	o.Commit("old", map[string]string{"a.json": gittest.Dashboard("old", 1, 50), "d/x.json": gittest.Dashboard("x", 1, 5)})
	o.Commit("new", map[string]string{"a.json": "{}", "d/x.json": ""})
	gittest.Git(t, o.Bare, nil, "repack", "-adbq") // bitmaps know of all history
	m := openMirrors(t, Options{})
	r := remoteAt(s, "site.git")
	syncRef(t, m, r, "")
	back := o.Commit("old again", map[string]string{"a.json": gittest.Dashboard("old", 1, 50), "d/x.json": gittest.Dashboard("x", 1, 5)})
	_, st := syncRef(t, m, r, "")
	if st.Rebuilt || st.Full {
		t.Errorf("the mirror was thrown away: %+v", st)
	}
	if got := content(t, m, r, back, ""); len(got) != 2 || got["a.json"] != gittest.Dashboard("old", 1, 50) {
		t.Fatal("content differs")
	}
	fsck(t, m, r)
}

func TestFetchForcePushed(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	o.Commit("base", map[string]string{"a.json": gittest.Dashboard("a", 1, 40), "b.json": gittest.Dashboard("b", 1, 40)})
	for i := range 5 {
		o.Commit("more", map[string]string{"a.json": gittest.Dashboard("a", i+2, 40)})
	}
	m := openMirrors(t, Options{})
	r := remoteAt(s, "site.git")
	ref, _ := syncRef(t, m, r, "")
	old := ref.Hash

	o.Write(map[string]string{"a.json": gittest.Dashboard("a", 99, 40)})
	o.Git("commit", "-q", "-a", "--amend", "-m", "amended")
	o.Git("push", "-q", "-f", "origin", "HEAD")
	ref, st := syncRef(t, m, r, "")
	if ref.Hash == old || st.Rebuilt {
		t.Fatalf("amended: %+v", st)
	}
	if changes, err := m.Changes(t.Context(), r, old, ref.Hash, ""); err != nil || len(changes.Files) != 1 {
		t.Fatalf("changes over a rewritten branch: %+v, %v", changes, err)
	}
	fsck(t, m, r)

	// Another root altogether.
	o.Git("checkout", "-q", "--orphan", "fresh")
	o.Git("rm", "-rfq", ".")
	o.Write(map[string]string{"c.json": "{}"})
	o.Git("add", "-A")
	o.Git("commit", "-q", "-m", "unrelated")
	o.Git("push", "-q", "-f", "origin", "HEAD:main")
	ref, st = syncRef(t, m, r, "")
	if got := content(t, m, r, ref.Hash, ""); len(got) != 1 || st.Rebuilt {
		t.Fatalf("unrelated history: %v, %+v", got, st)
	}
	fsck(t, m, r)

	// Back to a commit that is here: no request for it.
	if _, st, err := fetchOnly(t, m, r, Ref{Name: "refs/heads/main", Hash: old}); err != nil || st.Requests != 0 {
		t.Fatalf("going back: %+v, %v", st, err)
	}
}

func fetchOnly(t testing.TB, m *Mirrors, r Remote, ref Ref) (Ref, Stats, error) {
	t.Helper()
	st, err := m.Fetch(t.Context(), r, ref)
	return ref, st, err
}

// A long history behind a new or rewritten branch must not be downloaded.
func TestFetchLeavesHistoryOut(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	o.Commit("first", map[string]string{"a.json": gittest.Dashboard("a", 1, 20)})
	noise := func(i int) string { // does not compress well
		var b strings.Builder
		x := uint64(i + 1)
		for range 3000 {
			x = x*6364136223846793005 + 1442695040888963407
			fmt.Fprintf(&b, "%x", x>>20)
		}
		return b.String()
	}
	o.Advance(300, "noise.txt", noise)
	tip := gittest.Git(t, o.Bare, nil, "rev-parse", "main")
	m := openMirrors(t, Options{})
	r := remoteAt(s, "site.git")
	_, first := syncRef(t, m, r, "")

	// A branch from the same history, with one more commit.
	gittest.Git(t, o.Bare, nil, "branch", "side", "main~1")
	_, st := syncRef(t, m, r, "side")
	if st.Bytes > 3*first.Bytes || st.Rebuilt {
		t.Errorf("side branch: %+v after %+v", st, first)
	}
	// The branch is rewritten below what the mirror knows.
	tree := gittest.Git(t, o.Bare, nil, "rev-parse", tip+"~2^{tree}")
	id := gittest.Git(t, o.Bare, nil, "commit-tree", "-p", tip+"~2", "-m", "rewritten", tree)
	gittest.Git(t, o.Bare, nil, "update-ref", "refs/heads/main", id)
	_, st = syncRef(t, m, r, "main")
	// The read that goes over the budget may bring a whole packet at once.
	const packet = 64 << 10
	if st.Bytes > leastBudget+packet+3*first.Bytes || st.Rebuilt {
		t.Errorf("rewritten branch: %+v after %+v", st, first)
	}
	fsck(t, m, r)
	t.Logf("first %d bytes, rewritten %d bytes in %d requests", first.Bytes, st.Bytes, st.Requests)
}

func TestFetchMerge(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	o.Commit("one", map[string]string{"a.json": "1"})
	o.Commit("two", map[string]string{"a.json": "2"})
	m := openMirrors(t, Options{})
	r := remoteAt(s, "site.git")
	syncRef(t, m, r, "")
	o.Git("checkout", "-q", "-b", "side", "HEAD~1")
	o.Write(map[string]string{"b.json": "b"})
	o.Git("add", "-A")
	o.Git("commit", "-q", "-m", "side")
	o.Git("checkout", "-q", "main")
	o.Git("merge", "-q", "--no-ff", "-m", "merge", "side")
	o.Git("push", "-q", "origin", "main")
	ref, st := syncRef(t, m, r, "")
	if got := content(t, m, r, ref.Hash, ""); len(got) != 2 || st.Rebuilt {
		t.Fatalf("%v %+v", got, st)
	}
	info, err := m.Commit(t.Context(), r, ref.Hash)
	if err != nil || len(info.Parents) != 2 {
		t.Fatalf("%+v, %v", info, err)
	}
	fsck(t, m, r)
}

func TestFetchBranchDeleted(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	id := o.Commit("one", map[string]string{"a.json": "1"})
	gittest.Git(t, o.Bare, nil, "branch", "feature/one")
	m := openMirrors(t, Options{})
	r := remoteAt(s, "site.git")
	syncRef(t, m, r, "feature/one")
	syncRef(t, m, r, "main")
	ref, err := m.Resolve(t.Context(), r, gitref.Branch("feature/one"))
	if err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, o.Bare, nil, "branch", "-D", "feature/one")
	if _, err := m.Resolve(t.Context(), r, gitref.Branch("feature/one")); KindOf(err) != BranchNotFound {
		t.Fatalf("resolve: %v", err)
	}
	ref.Hash = strings.Repeat("12", 20)
	if _, _, err := fetchOnly(t, m, r, ref); KindOf(err) != BranchNotFound {
		t.Fatalf("fetch: %v", err)
	}
	// A branch whose name is below the old one, which files could not hold.
	o.Git("checkout", "-q", "-b", "feature")
	o.Commit("two", map[string]string{"a.json": "2"})
	syncRef(t, m, r, "feature")
	refs, err := pack.ReadRefs(mirrorDir(t, m, r))
	if err != nil || len(refs) != 2 || refs["refs/heads/main"].String() != id {
		t.Fatalf("refs of the mirror: %v, %v", refs, err)
	}
	fsck(t, m, r)
}

func TestFetchMovedAndUnknown(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	first := o.Commit("one", map[string]string{"a.json": "1"})
	m := openMirrors(t, Options{})
	r := remoteAt(s, "site.git")
	ref, err := m.Resolve(t.Context(), r, gitref.Branch(""))
	if err != nil {
		t.Fatal(err)
	}
	o.Commit("two", map[string]string{"a.json": "2"})
	// The branch moved on after it was resolved: the older commit still comes.
	if _, st, err := fetchOnly(t, m, r, ref); err != nil || st.Requests != 1 {
		t.Fatalf("%+v, %v", st, err)
	}
	if _, err := m.Commit(t.Context(), r, first); err != nil {
		t.Fatal(err)
	}
	_, _, err = fetchOnly(t, m, r, Ref{Name: "refs/heads/main", Hash: strings.Repeat("ab", 20)})
	if KindOf(err) != Moved {
		t.Fatalf("a commit that is nowhere: %v (%s)", err, KindOf(err))
	}
	for _, bad := range []Ref{{Name: "refs/heads/main", Hash: "HEAD"}, {Name: "refs/../x", Hash: first}, {Name: "main", Hash: first},
		{Name: "--upload-pack=x", Hash: first}} {
		if _, _, err := fetchOnly(t, m, r, bad); KindOf(err) != Refused {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := m.Tree(t.Context(), r, strings.Repeat("ab", 20), ""); !errors.Is(err, ErrUnknownCommit) {
		t.Errorf("tree of an unknown commit: %v", err)
	}
	if _, err := m.Changes(t.Context(), r, strings.Repeat("ab", 20), first, ""); !errors.Is(err, ErrUnknownCommit) {
		t.Errorf("changes from an unknown commit: %v", err)
	}
	if _, err := m.Tree(t.Context(), remoteAt(s, "never.git"), first, ""); !errors.Is(err, ErrUnknownCommit) {
		t.Errorf("tree of a mirror that is not there: %v", err)
	}
	fsck(t, m, r)
}

// A disk that is full ends the fetch cleanly; the mirror stays. The limit that
// stands for it hits every file of a process, also those that the test runner
// has open, so the test proper runs in a child.
func TestFetchOnFullDisk(t *testing.T) {
	t.Parallel()
	const inChild = "LIMPET_TEST_FULL_DISK"
	if os.Getenv(inChild) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFetchOnFullDisk$", "-test.v")
		cmd.Env = append(os.Environ(), inChild+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("--- PASS: TestFetchOnFullDisk")) {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	_, o, m, r, ref, files := site(t, Options{})
	before := maps.Clone(files)
	files["big.json"] = gittest.Dashboard("big", 1, 4000)
	o.Commit("two", files)
	next, err := m.Resolve(t.Context(), r, gitref.Branch(""))
	if err != nil {
		t.Fatal(err)
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	// A limit of file sizes gives the same error at the same places: EFBIG in
	// place of ENOSPC.
	small := old
	small.Cur = 8 << 10
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &small); err != nil {
		t.Fatal(err)
	}
	_, err = m.Fetch(t.Context(), r, next)
	if serr := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); serr != nil {
		t.Fatal(serr)
	}
	gittest.ErrorIs(t, err, Unknown, "too large")
	if got := content(t, m, r, ref.Hash, ""); !maps.Equal(got, before) {
		t.Fatal("content differs")
	}
	fsck(t, m, r)
	if _, err := m.Fetch(t.Context(), r, next); err != nil {
		t.Fatal(err)
	}
	fsck(t, m, r)
}
