package git

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"limpet/sync/auth"
	"limpet/sync/git/gitref"
	"limpet/sync/git/pack"
	"limpet/sync/testenv/gittest"
)

// twins are a repository at two servers: the one of the URL, and a copy.
type twins struct {
	t        *testing.T
	at       *gittest.Origin
	one, two *gittest.Server
	copied   string // bare
	m        *Mirrors
	r        Remote
}

// newTwins has its first commit at both, and in no mirror yet.
func newTwins(t *testing.T, pause time.Duration) *twins {
	t.Helper()
	p := &twins{t: t, one: gittest.NewServer(t), two: gittest.NewServer(t)}
	p.at = gittest.NewOrigin(t, p.one.Root, "site.git")
	p.at.Commit("first", map[string]string{"a.json": gittest.Dashboard("a", 1, 20)})
	p.copied = filepath.Join(p.two.Root, "copy.git")
	gittest.Git(t, p.two.Root, nil, "clone", "-q", "--mirror", p.at.Bare, p.copied)
	p.m = openMirrors(t, Options{Pause: pause})
	p.r = remoteAt(p.one, "site.git")
	p.r.Fallbacks = []Fallback{{URL: p.two.URL + "/copy.git"}}
	return p
}

// copy brings the copy up to date.
func (p *twins) copy() { gittest.Git(p.t, p.copied, nil, "fetch", "-q", "--prune") }

// commit makes a commit at the first server.
func (p *twins) commit(message string) string {
	p.t.Helper()
	return p.at.Commit(message, map[string]string{"a.json": gittest.Dashboard("a", int(time.Now().UnixNano()), 20), message + ".json": "{}"})
}

// pull does what a pull does: it resolves, fetches, and resolves again if it is told to.
func (p *twins) pull(sel gitref.Selector) (Ref, error) {
	p.t.Helper()
	for range 3 {
		ref, err := p.m.Resolve(p.t.Context(), p.r, sel)
		if err != nil {
			return ref, err
		}
		if _, err = p.m.Fetch(p.t.Context(), p.r, ref); KindOf(err) != Moved {
			if err == nil && !ref.Pinned {
				p.r.LastSynced = ref.Hash
			}
			return ref, err
		}
	}
	p.t.Fatal("it is moved for ever")
	return Ref{}, nil
}

func (p *twins) pulled(sel gitref.Selector, want string) Ref {
	p.t.Helper()
	ref, err := p.pull(sel)
	if err != nil || ref.Hash != want {
		p.t.Fatalf("pulled %+v, %v, want %s", ref, err, want)
	}
	if _, err := p.m.Tree(p.t.Context(), p.r, want, ""); err != nil {
		p.t.Fatal(err)
	}
	fsck(p.t, p.m, p.r)
	return ref
}

var mainBranch = gitref.Branch("main")

// rejected pulls what the fallback may not serve: neither the branch nor a pin is noted.
func (p *twins) rejected(sel gitref.Selector, says string) {
	p.t.Helper()
	before, _ := pack.ReadRefs(mirrorDir(p.t, p.m, p.r))
	_, err := p.pull(sel)
	gittest.ErrorIs(p.t, err, Unreachable, says)
	after, _ := pack.ReadRefs(mirrorDir(p.t, p.m, p.r))
	if !maps.Equal(before, after) {
		p.t.Errorf("refs were %v and are %v", before, after)
	}
}

func TestFallbackServesWhileTheFirstIsUnreachable(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Hour)
	first := p.at.Git("rev-parse", "HEAD")
	if ref := p.pulled(mainBranch, first); ref.Via != (Via{}) || p.two.Requests.Load() != 0 {
		t.Fatalf("%+v, %d requests at the fallback", ref.Via, p.two.Requests.Load())
	}
	second := p.commit("second")
	p.copy()
	p.one.Fails(http.StatusBadGateway)
	before := p.one.Requests.Load()
	ref := p.pulled(mainBranch, second)
	if want := "fetched from mirror " + p.two.URL + "/copy.git; " + p.one.URL + "/site.git is unreachable: 502 Bad Gateway"; ref.Via.String() != want {
		t.Errorf("via %q, want %q", ref.Via, want)
	}
	for range 5 {
		p.pulled(mainBranch, second)
	}
	if n := p.one.Requests.Load() - before; n != 1 {
		t.Errorf("the first server was asked %d times while its breaker was open", n)
	}
	third := p.commit("third")
	p.one.Fails(0)
	if ref, err := p.m.Resolve(t.Context(), p.r, mainBranch); err != nil || ref.Hash != second {
		t.Errorf("while its breaker is open the first server says %+v, %v", ref, err)
	}
	p.m.reset(p.r.shown())
	asked := p.two.Requests.Load()
	if ref := p.pulled(mainBranch, third); ref.Via != (Via{}) || p.two.Requests.Load() != asked {
		t.Errorf("the fallback is asked although the first answers: %+v", ref.Via)
	}
}

// TestFallbackOfASilentServer: a server that takes connections and says nothing has its
// share of the time, and no more.
func TestFallbackOfASilentServer(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Minute)
	gone := make(chan struct{})
	t.Cleanup(func() { close(gone) })
	p.one.During(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-gone:
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // git of the second has half of it
	defer cancel()
	ref, err := p.m.Resolve(ctx, p.r, mainBranch)
	if err != nil || !strings.Contains(ref.Via.String(), "is unreachable: no answer in time") {
		t.Fatalf("%+v, %v", ref, err)
	}
}

func TestBreaker(t *testing.T) {
	t.Parallel()
	m := openMirrors(t, Options{})
	var pauses []int
	for range 7 {
		m.trip("u", &Error{Kind: Unreachable})
		m.trip("u", &Error{Kind: Unreachable}) // of a second request at the same time
		b := m.breakers["u"]
		pauses = append(pauses, int(b.pause.Seconds()))
		b.until = time.Now().Add(-time.Second)
		m.breakers["u"] = b
	}
	if want := []int{15, 30, 60, 120, 240, 300, 300}; !slices.Equal(pauses, want) {
		t.Fatalf("pauses %v, want %v", pauses, want)
	}
	m.trip("u", &Error{Kind: Unreachable})
	if m.reset("u"); m.tripped("u") != nil {
		t.Error("it is open although the server answers")
	}
	m.trip("u", &Error{Kind: Unreachable, RetryAfter: time.Hour})
	if left := time.Until(m.breakers["u"].until); left < 4*time.Minute || left > longestPause {
		t.Errorf("Retry-After: %s", left)
	}
}

// TestAnswersOfTheFirstCount: what is an answer is never asked about elsewhere.
func TestAnswersOfTheFirstCount(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Nanosecond)
	for status, want := range map[int]Kind{401: Auth, 403: Auth, 404: NotFound, 410: NotFound, 429: Throttled, 400: Protocol, 502: "", 503: ""} {
		asked := p.two.Requests.Load()
		p.one.Fails(status)
		_, err := p.m.Resolve(t.Context(), p.r, mainBranch)
		if KindOf(err) != want || (p.two.Requests.Load() > asked) != (want == "") {
			t.Errorf("%d: %v, %d requests at the fallback", status, err, p.two.Requests.Load()-asked)
		}
	}
	asked := p.two.Requests.Load()
	p.one.Fails(0)
	_, err := p.m.Resolve(t.Context(), p.r, gitref.Branch("nowhere"))
	if KindOf(err) != BranchNotFound || p.two.Requests.Load() > asked {
		t.Errorf("a branch that is not there: %v", err)
	}
}

// TestAllServersAreUnreachable names each, with the kind of the first.
func TestAllServersAreUnreachable(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Minute)
	p.r.Fallbacks = append(p.r.Fallbacks, Fallback{URL: "http://127.0.0.1:1/x.git"}) // where nothing listens
	p.one.Fails(http.StatusBadGateway)
	for status, says := range map[int]string{503: "503 Service Unavailable", 401: "authentication required (401)"} {
		p.two.Fails(status)
		p.m = openMirrors(t, Options{Pause: time.Minute})
		for i := range 2 { // the second time the breakers are open
			asked := p.one.Requests.Load()
			_, err := p.m.Resolve(t.Context(), p.r, mainBranch)
			gittest.ErrorIs(t, err, Unreachable, "resolve "+p.one.URL+"/site.git: 502 Bad Gateway; mirror "+p.two.URL+"/copy.git: "+says+
				"; mirror http://127.0.0.1:1/x.git: connection refused: 127.0.0.1:1")
			// Where every server is unreachable, those with an open breaker are asked again.
			if n := p.one.Requests.Load() - asked; (n == 1) != (i == 0 || status == 503) {
				t.Errorf("%d: the first server was asked %d times", status, n)
			}
		}
	}
	p.one.Fails(0)
	p.m.reset(p.r.shown())
	if ref, err := p.m.Resolve(t.Context(), p.r, mainBranch); err != nil || ref.Via != (Via{}) {
		t.Errorf("%+v, %v", ref, err)
	}
}

// TestFallbackMayNotLeadBack: of a fallback the commit is taken that the first announced,
// or one whose history contains what was synced last.
func TestFallbackMayNotLeadBack(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Hour)
	second := p.commit("second")
	p.at.Advance(120, "a.json", func(i int) string { return gittest.Dashboard("a", i, 5) })
	tip := gittest.Git(t, p.at.Bare, nil, "rev-parse", "main")
	p.copy()
	set := func(commit string) { gittest.Git(t, p.copied, nil, "update-ref", "refs/heads/main", commit) }
	commit := func(parent ...string) string {
		args := []string{"commit-tree", "-m", "other"}
		for _, p := range parent {
			args = append(args, "-p", p)
		}
		return gittest.Git(t, p.copied, nil, append(args, second+"^{tree}")...)
	}
	p.one.Fails(http.StatusBadGateway)
	packs := func(f func()) int64 {
		var n atomic.Int64
		p.two.During(func(_ http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				n.Add(1)
			}
		})
		f()
		return n.Load()
	}
	// Nothing was synced: the first pull has nothing to compare with.
	set(second)
	p.pulled(mainBranch, second)
	// 120 commits further: 50 are not enough.
	set(tip)
	p.pulled(mainBranch, tip)
	// Behind, by commits that are here.
	set(second)
	if n := packs(func() {
		p.rejected(mainBranch, "copy.git: its main at "+second[:7]+" does not contain commit "+tip[:7])
	}); n != 0 {
		t.Errorf("%d packs were fetched", n)
	}
	// Another history, which has to be looked through once.
	aside := commit(second)
	set(aside)
	if n := packs(func() { p.rejected(mainBranch, "its main at "+aside[:7]) }); n == 0 {
		t.Error("rejected without looking")
	}
	if n := packs(func() { p.rejected(mainBranch, "its main at "+aside[:7]) }); n != 0 {
		t.Errorf("%d packs were fetched for the same commit again", n)
	}
	set(commit())
	p.rejected(mainBranch, "does not contain commit "+tip[:7])
	p.rejected(gitref.Branch("nowhere"), `there is no branch "nowhere"`)
	// Another branch counts, if what was synced is in its history.
	next := commit(tip)
	gittest.Git(t, p.copied, nil, "update-ref", "refs/heads/release", next)
	p.pulled(gitref.Branch("release"), next)
	// The commit that was synced last counts where the mirror on disk is lost.
	p.m = openMirrors(t, Options{})
	p.rejected(mainBranch, "does not contain commit "+next[:7])
	p.m, p.r.LastSynced = openMirrors(t, Options{}), second
	set(tip)
	p.pulled(mainBranch, tip)
	// A damaged mirror is made anew of a fallback.
	set(next)
	for _, pack := range gittest.Glob(t, mirrorDir(t, p.m, p.r), "objects/pack/*.pack") {
		if err := errors.Join(os.Chmod(pack, 0o600), os.Truncate(pack, 100)); err != nil {
			t.Fatal(err)
		}
	}
	p.m.mirror(mustAddress(t, p.r.URL)).changed()
	p.pulled(mainBranch, next)
	// What the first announced is served, whatever its history.
	p.one.Fails(0)
	p.m.reset(p.r.shown())
	gittest.Git(t, p.at.Bare, nil, "update-ref", "refs/heads/main", second)
	if ref, err := p.m.Resolve(t.Context(), p.r, mainBranch); err != nil || ref.Hash != second {
		t.Fatalf("%+v, %v", ref, err)
	}
	p.one.Fails(http.StatusBadGateway)
	set(second)
	p.pulled(mainBranch, second)
}

func mustAddress(t *testing.T, url string) auth.Address {
	t.Helper()
	a, err := auth.ParseAddress(url)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestNextFallback: the next one may have more than one that lags.
func TestNextFallback(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Minute)
	third := gittest.NewServer(t)
	p.r.Fallbacks = append(p.r.Fallbacks, Fallback{URL: third.URL + "/copy.git"})
	p.pulled(mainBranch, p.commit("second"))
	next := p.commit("next")
	gittest.Git(t, third.Root, nil, "clone", "-q", "--mirror", p.at.Bare, filepath.Join(third.Root, "copy.git"))
	p.one.Fails(http.StatusBadGateway)
	if ref := p.pulled(mainBranch, next); ref.Via.URL != third.URL+"/copy.git" {
		t.Errorf("via %q", ref.Via)
	}
	p.r.Limits = pack.Limits{Objects: 1}
	p.copy()
	p.m = openMirrors(t, Options{})
	if _, err := p.pull(mainBranch); KindOf(err) != TooLarge {
		t.Errorf("beyond the limits of the repository: %v", err)
	}
}

// TestPinnedCommitOfAFallback: a commit that is asked for by its hash is itself. That it
// is on a branch is believed of a fallback if it contains what was synced last.
func TestPinnedCommitOfAFallback(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Hour)
	second := p.commit("second")
	p.pulled(mainBranch, second)
	third := p.commit("third")
	p.copy()
	p.one.Fails(http.StatusBadGateway)
	onMain := func(commit string) gitref.Selector { return gitref.Selector{Commit: commit, Branch: "main"} }
	first := gittest.Git(t, p.copied, nil, "rev-parse", "main~2")
	p.pulled(gitref.Selector{Commit: first}, first)
	p.pulled(onMain(third), third)
	aside := gittest.Git(t, p.copied, nil, "commit-tree", "-m", "aside", "-p", first, first+"^{tree}")
	gittest.Git(t, p.copied, nil, "update-ref", "refs/heads/main", aside)
	p.rejected(onMain(aside), "does not contain commit "+second[:7])
	p.pulled(gitref.Selector{Commit: aside}, aside)
	p.rejected(onMain(aside), "does not contain commit "+second[:7])
	p.pulled(onMain(third), third)
}

// TestCredentialsOfServers: each sees its own and no others, and those of a server that
// is not asked are not even looked up.
func TestCredentialsOfServers(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Minute)
	second := p.commit("second")
	p.copy()
	var seen [2][]string
	watch := func(i int, s *gittest.Server, status int) {
		s.During(func(w http.ResponseWriter, r *http.Request) {
			user, password, _ := r.BasicAuth()
			seen[i] = append(seen[i], user+":"+password+r.Header.Get("Cookie"))
			if status != 0 {
				http.Error(w, "", status)
			}
		})
	}
	watch(0, p.one, 0)
	watch(1, p.two, 0)
	lookups, forgotten := 0, 0
	p.r.AllowInsecure, p.r.Creds = true, &auth.Credentials{Username: "ann", Password: "first-secret"}
	p.r.Fallbacks[0].Credentials = func(context.Context) (*auth.Credentials, error) {
		lookups++
		return &auth.Credentials{Username: "bob", Password: "second-secret", Forget: func() { forgotten++ }}, nil
	}
	p.pulled(mainBranch, second)
	if lookups != 0 {
		t.Error("credentials of a mirror were looked up that nobody asked")
	}
	watch(0, p.one, http.StatusBadGateway)
	third := p.at.Commit("third", map[string]string{"b.json": "{}"})
	p.copy()
	p.pulled(mainBranch, third)
	for i, want := range []string{"ann:first-secret", "bob:second-secret"} {
		if len(seen[i]) == 0 {
			t.Errorf("server %d was not asked", i)
		}
		for _, got := range seen[i] {
			if got != want {
				t.Errorf("server %d was asked with %s", i, got)
			}
		}
	}
	// Refused by the mirror, they are looked up once more.
	lookups, seen[1] = 0, nil
	watch(1, p.two, http.StatusUnauthorized)
	_, err := p.m.Resolve(t.Context(), p.r, mainBranch)
	if KindOf(err) != Unreachable || lookups != 2 || forgotten != 2 || len(seen[1]) != 2 {
		t.Errorf("%v, %d lookups, %d forgotten, %d requests", err, lookups, forgotten, len(seen[1]))
	}
	// A server that nobody has any for gets none.
	p.r.Fallbacks[0].Credentials, seen[1] = nil, nil
	if _, err := p.m.Resolve(t.Context(), p.r, mainBranch); KindOf(err) != Unreachable || len(seen[1]) != 1 || seen[1][0] != ":" {
		t.Errorf("%v, asked with %q", err, seen[1])
	}
	// Over plain http they go nowhere, unless that is allowed.
	p.r.AllowInsecure, p.r.Creds, seen[1] = false, nil, nil
	p.r.Fallbacks[0].Credentials = func(context.Context) (*auth.Credentials, error) {
		return &auth.Credentials{Username: "bob", Password: "second-secret"}, nil
	}
	if _, err := p.m.Resolve(t.Context(), p.r, mainBranch); !strings.Contains(err.Error(), "credentials would go over plain http") || len(seen[1]) != 0 {
		t.Errorf("%v, asked with %q", err, seen[1])
	}
	// Those that cannot be had are told.
	p.r.Fallbacks[0].Credentials = func(context.Context) (*auth.Credentials, error) { return nil, errors.New("the file is open to all") }
	if _, err = p.m.Resolve(t.Context(), p.r, mainBranch); KindOf(err) != Unreachable || !strings.Contains(err.Error(), "the file is open to all") {
		t.Errorf("%v", err)
	}
}

// TestFirstWithoutCredentials: a host that makes the token of the first server may be
// away as well.
func TestFirstWithoutCredentials(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Minute)
	p.r.Down = &Error{Kind: Unreachable, Err: errors.New("no token can be minted")}
	ref := p.pulled(mainBranch, p.at.Git("rev-parse", "HEAD"))
	if p.one.Requests.Load() != 0 || !strings.HasSuffix(ref.Via.String(), "is unreachable: no token can be minted") {
		t.Errorf("%d requests, via %q", p.one.Requests.Load(), ref.Via)
	}
	p.two.Fails(http.StatusBadGateway)
	if _, err := p.pull(mainBranch); KindOf(err) != Unreachable || !strings.Contains(err.Error(), "no token can be minted; mirror "+p.two.URL) {
		t.Errorf("%v", err)
	}
	p.r.Fallbacks = nil
	if _, err := p.pull(mainBranch); KindOf(err) != Unreachable || !strings.Contains(err.Error(), "no token can be minted") {
		t.Errorf("%v", err)
	}
}

// TestServersGoAwayMidway: between the look and the fetch, and in the middle of a pack.
func TestServersGoAwayMidway(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Minute)
	p.pulled(mainBranch, p.at.Git("rev-parse", "HEAD"))
	second := p.commit("second")
	p.copy()
	// The first one tells, and the mirror has it.
	ref, err := p.m.Resolve(t.Context(), p.r, mainBranch)
	p.one.Fails(http.StatusBadGateway)
	if err == nil {
		_, err = p.m.Fetch(t.Context(), p.r, ref)
	}
	if err != nil || ref.Hash != second {
		t.Fatalf("%+v, %v", ref, err)
	}
	fsck(t, p.m, p.r)
	// The mirror tells, and cuts its pack off.
	third := p.commit("third")
	p.copy()
	p.two.During(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			conn, _, err := http.NewResponseController(w.(*gittest.Touched).ResponseWriter.(gittest.Counting).ResponseWriter).Hijack()
			if err == nil {
				w.(*gittest.Touched).Used = true
				conn.Write([]byte("HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-result\r\nContent-Length: 4000\r\n\r\n0008NAK\n"))
				conn.Close()
			}
		}
	})
	if ref, err = p.m.Resolve(t.Context(), p.r, mainBranch); err != nil || ref.Hash != third {
		t.Fatalf("%+v, %v", ref, err)
	}
	if _, err = p.m.Fetch(t.Context(), p.r, ref); err == nil {
		t.Fatal("a pack that was cut off is taken")
	}
	if refs, err := pack.ReadRefs(mirrorDir(t, p.m, p.r)); err != nil || refs["refs/heads/main"].String() != second {
		t.Errorf("%v, %v", refs, err)
	}
	fsck(t, p.m, p.r)
	p.two.Fails(0)
	p.m.reset(p.r.serverURL(1))
	p.pulled(mainBranch, third)
	// It goes away between the two: somebody else is to be asked.
	fourth := p.commit("fourth")
	p.copy()
	if ref, err = p.m.Resolve(t.Context(), p.r, mainBranch); err != nil || ref.Hash != fourth {
		t.Fatalf("%+v, %v", ref, err)
	}
	p.two.Fails(http.StatusBadGateway)
	p.one.Fails(0)
	if _, err = p.m.Fetch(t.Context(), p.r, ref); KindOf(err) != Moved {
		t.Fatal(err)
	}
	p.pulled(mainBranch, fourth)
}

// TestSubmodulesOfAFallback: a submodule with a relative URL is where the mirror is.
func TestSubmodulesOfAFallback(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Minute)
	lib := gittest.NewOrigin(t, p.one.Root, "lib.git")
	at := lib.Commit("lib", map[string]string{"x.json": gittest.Dashboard("x", 1, 3)})
	gittest.Git(t, p.two.Root, nil, "clone", "-q", "--mirror", lib.Bare, filepath.Join(p.two.Root, "lib.git"))
	p.at.Write(map[string]string{".gitmodules": "[submodule \"lib\"]\n\tpath = lib\n\turl = ../lib.git\n"})
	p.at.Git("update-index", "--add", "--cacheinfo", "160000,"+at+",lib")
	p.at.Git("add", ".gitmodules")
	p.at.Git("commit", "-q", "-m", "submodule")
	p.at.Git("push", "-q", "-f", "origin", "HEAD")
	tip := p.at.Git("rev-parse", "HEAD")
	p.copy()
	p.one.Fails(http.StatusBadGateway)
	p.pulled(mainBranch, tip)
	tree, err := p.m.WholeTree(t.Context(), p.r, tip, "")
	if err != nil || len(tree.Files) != 3 || tree.Files[2].Path != "lib/x.json" || tree.Files[2].Home != p.one.URL+"/lib.git" {
		t.Fatalf("%+v, %v", tree.Files, err)
	}
	for _, url := range []string{"https://elsewhere.example.com/lib.git", p.one.URL + "/lib.git"} {
		if sub, _ := p.r.submodule(url); len(sub.Fallbacks) > 0 {
			t.Errorf("%s is at %+v", url, sub.Fallbacks)
		}
	}
	// It is another repository: what was pulled of its parent is nothing to it.
	p.r.LastSynced = tip
	if sub, err := p.r.submodule("../lib.git"); err != nil || sub.LastSynced != "" || len(sub.Fallbacks) != 1 {
		t.Errorf("%+v, %v", sub, err)
	}
}

// trickles has a server send its packs in signs of life that never end. The count is of
// those that it has begun.
func trickles(s *gittest.Server) *atomic.Int64 {
	var begun atomic.Int64
	s.During(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			return
		}
		begun.Add(1)
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		io.WriteString(w, "00000008NAK\n")
		drop := time.NewTicker(5 * time.Millisecond)
		defer drop.Stop()
		for {
			io.WriteString(w, "0038\x02remote: Counting objects: still at it, please wait\r")
			select {
			case <-drop.C:
			case <-r.Context().Done():
				return
			}
		}
	})
	return &begun
}

// TestWholeIsShared: the time of a fetch is that of all servers together. A server that
// sends in drops has its share, and the next one still has enough.
func TestWholeIsShared(t *testing.T) {
	t.Parallel()
	p, third := newTwins(t, time.Minute), gittest.NewServer(t)
	p.r.Fallbacks = append(p.r.Fallbacks, Fallback{URL: third.URL + "/copy.git"})
	gittest.Git(t, third.Root, nil, "clone", "-q", "--mirror", p.at.Bare, filepath.Join(third.Root, "copy.git"))
	const whole = 6 * time.Second // git of the third has to be begun within a third of it
	p.m = openMirrors(t, Options{Whole: whole, Pause: time.Minute})
	ref := gittest.Must[Ref](t)(p.m.Resolve(t.Context(), p.r, mainBranch))
	own, other := trickles(p.one), trickles(p.two)
	stats, err := p.m.Fetch(t.Context(), p.r, ref)
	if err != nil || own.Load() != 1 || other.Load() != 1 {
		t.Fatalf("%v; %d and %d packs were begun", err, own.Load(), other.Load())
	}
	if stats.Elapsed > whole/3 {
		t.Errorf("the third server took %s", stats.Elapsed)
	}
	fsck(t, p.m, p.r)
	trickles(third)
	p.m = openMirrors(t, Options{Whole: whole / 10, Pause: time.Minute})
	_, err = p.m.Fetch(t.Context(), p.r, ref)
	gittest.ErrorIs(t, err, Timeout, "it takes more than 200ms, with ", "mirror "+p.two.URL+"/copy.git: no answer in time; mirror "+third.URL, "--git-timeout, which is 600ms for all servers together")
	if left := gittest.Glob(t, p.m.dir, "tmp_*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
