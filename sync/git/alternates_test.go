package git

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"limpet/sync/auth"
	"limpet/sync/git/gitref"
)

// twins are a repository at two servers: the one of the URL, and a copy.
type twins struct {
	t        *testing.T
	at       *origin
	one, two *server
	copied   string // bare
	m        *Mirrors
	r        Remote
}

// newTwins has its first commit at both, and in no mirror yet.
func newTwins(t *testing.T, rest time.Duration) *twins {
	t.Helper()
	p := &twins{t: t, one: newServer(t), two: newServer(t)}
	p.at = newOrigin(t, p.one.root, "site.git")
	p.at.commit("first", map[string]string{"a.json": dashboard("a", 1, 20)})
	p.copied = filepath.Join(p.two.root, "copy.git")
	gitIn(t, p.two.root, nil, "clone", "-q", "--mirror", p.at.bare, p.copied)
	p.m = openMirrors(t, Options{Rest: rest})
	p.r = p.one.remote("site.git")
	p.r.Servers = []Server{{URL: p.two.URL + "/copy.git"}}
	return p
}

// copy brings the copy up to date.
func (p *twins) copy() { gitIn(p.t, p.copied, nil, "fetch", "-q", "--prune") }

// commit makes a commit at the first server.
func (p *twins) commit(message string) string {
	p.t.Helper()
	return p.at.commit(message, map[string]string{"a.json": dashboard("a", int(time.Now().UnixNano()), 20), message + ".json": "{}"})
}

// fails has a server answer with a status; 0 = as it should.
func (s *server) fails(status int) {
	if status == 0 {
		s.during(nil)
		return
	}
	s.during(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", status) })
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
				p.r.Last = ref.Hash
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

func TestMirrorServesWhileTheFirstIsAway(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Hour)
	first := p.at.git("rev-parse", "HEAD")
	if ref := p.pulled(mainBranch, first); ref.Via != (Via{}) || p.two.requests.Load() != 0 {
		t.Fatalf("%+v, %d requests at the mirror", ref.Via, p.two.requests.Load())
	}
	second := p.commit("second")
	p.copy()
	p.one.fails(http.StatusBadGateway)
	before := p.one.requests.Load()
	ref := p.pulled(mainBranch, second)
	if want := "fetched from mirror " + p.two.URL + "/copy.git; " + p.one.URL + "/site.git is unreachable: it answers 502 Bad Gateway"; ref.Via.String() != want {
		t.Errorf("via %q, want %q", ref.Via, want)
	}
	for range 5 {
		p.pulled(mainBranch, second)
	}
	if n := p.one.requests.Load() - before; n != 1 {
		t.Errorf("the first server was asked %d times within its rest", n)
	}
	third := p.commit("third")
	p.one.fails(0)
	if ref, err := p.m.Resolve(t.Context(), p.r, mainBranch); err != nil || ref.Hash != second {
		t.Errorf("within its rest the first server says %+v, %v", ref, err)
	}
	p.m.mu.Lock()
	r := p.m.rests[p.r.shown()]
	r.until = time.Now()
	p.m.rests[p.r.shown()] = r
	p.m.mu.Unlock()
	if ref, err := p.m.Resolve(t.Context(), p.r, mainBranch); err != nil || ref.Hash != third || ref.Via != (Via{}) {
		t.Errorf("after its rest the first server says %+v, %v", ref, err)
	}
	if p.m.mu.Lock(); len(p.m.rests) > 0 {
		t.Errorf("the next rest begins where the last one ended: %+v", p.m.rests)
	}
	p.m.mu.Unlock()
	asked := p.two.requests.Load()
	p.pulled(mainBranch, third)
	if n := p.two.requests.Load() - asked; n != 0 {
		t.Errorf("the mirror is asked %d times although the first is back", n)
	}
}

// TestMirrorOfASilentServer: a server that takes connections and says nothing has its
// share of the time, and no more.
func TestMirrorOfASilentServer(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Minute)
	gone := make(chan struct{})
	t.Cleanup(func() { close(gone) })
	p.one.during(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-gone:
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	ref, err := p.m.Resolve(ctx, p.r, mainBranch)
	if err != nil || !strings.Contains(ref.Via.String(), "is unreachable: no answer in time") {
		t.Fatalf("%+v, %v", ref, err)
	}
}

func TestRestsGrow(t *testing.T) {
	t.Parallel()
	m := openMirrors(t, Options{Rest: time.Hour})
	for i, least := range []time.Duration{45 * time.Minute, 45 * time.Minute} {
		m.rested("u", errors.New("away"))
		m.mu.Lock()
		r := m.rests["u"]
		if left := time.Until(r.until); left < least-time.Minute || left > 76*time.Minute {
			t.Errorf("rest %d: %s", i, left)
		}
		r.until = time.Now().Add(-time.Second)
		m.rests["u"] = r
		m.mu.Unlock()
	}
	m = openMirrors(t, Options{})
	var pauses []time.Duration
	for range 7 {
		m.rested("u", &Error{Kind: Unreachable})
		m.rested("u", &Error{Kind: Unreachable}) // of a second look at the same time
		m.mu.Lock()
		r := m.rests["u"]
		pauses = append(pauses, r.pause)
		r.until = time.Now().Add(-time.Second)
		m.rests["u"] = r
		m.mu.Unlock()
	}
	for i, want := range []int{15, 30, 60, 120, 240, 300, 300} {
		if pauses[i] != time.Duration(want)*time.Second {
			t.Fatalf("pauses %v", pauses)
		}
	}
	if m.back("u"); m.resting("u") != nil {
		t.Error("it rests although it is back")
	}
	m.rested("u", &Error{Kind: Unreachable, RetryAfter: time.Hour})
	if left := time.Until(m.rests["u"].until); left < 4*time.Minute || left > longestRest {
		t.Errorf("Retry-After: %s", left)
	}
}

// TestAnswersOfTheFirstCount: what is an answer is never asked about elsewhere.
func TestAnswersOfTheFirstCount(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]Kind{401: Auth, 403: Auth, 404: NotFound, 410: NotFound, 429: Throttled, 400: Protocol, 502: "", 503: ""} {
		p := newTwins(t, time.Minute)
		p.one.fails(status)
		_, err := p.m.Resolve(t.Context(), p.r, mainBranch)
		if KindOf(err) != want || (p.two.requests.Load() > 0) != (want == "") {
			t.Errorf("%d: %v, %d requests at the mirror", status, err, p.two.requests.Load())
		}
	}
	p := newTwins(t, time.Minute)
	_, err := p.m.Resolve(t.Context(), p.r, gitref.Branch("nowhere"))
	if KindOf(err) != BranchNotFound || p.two.requests.Load() > 0 {
		t.Errorf("a branch that is not there: %v, %d requests at the mirror", err, p.two.requests.Load())
	}
}

// TestAllServersAreAway tells of each, with the kind of the first.
func TestAllServersAreAway(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Minute)
	third := newServer(t)
	third.Close()
	p.r.Servers = append(p.r.Servers, Server{URL: third.URL + "/x.git"})
	p.one.fails(http.StatusBadGateway)
	for _, c := range []struct {
		status int
		says   string
	}{
		{http.StatusServiceUnavailable, p.two.URL + "/copy.git: it answers 503 Service Unavailable; mirror " + third.URL + "/x.git: nothing listens there"},
		{http.StatusUnauthorized, p.two.URL + "/copy.git: it wants credentials"},
	} {
		p.two.fails(c.status)
		p.m = openMirrors(t, Options{Rest: time.Minute})
		for range 2 { // the second time both rest, and are asked all the same
			asked := p.one.requests.Load()
			_, err := p.m.Resolve(t.Context(), p.r, mainBranch)
			if KindOf(err) != Unreachable || !strings.Contains(err.Error(), "resolve "+p.one.URL+"/site.git: it answers 502 Bad Gateway; mirror "+c.says) {
				t.Errorf("%v", err)
			}
			if n := p.one.requests.Load() - asked; n != 1 {
				t.Errorf("%d: the first server was asked %d times", c.status, n)
			}
		}
	}
	p.one.fails(0)
	if ref, err := p.m.Resolve(t.Context(), p.r, mainBranch); err != nil || ref.Via != (Via{}) {
		t.Errorf("a mirror that refuses keeps the first one away: %+v, %v", ref, err)
	}
}

// TestMirrorThatLags: what is here stays, whether the tip of the mirror is known here
// or not, and no pack is fetched for it.
func TestMirrorThatLags(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Minute)
	p.pulled(mainBranch, p.at.git("rev-parse", "HEAD"))
	for range 3 {
		p.commit("more")
	}
	p.copy()
	for range 3 {
		p.commit("more")
	}
	p.r.Last = ""
	p.m = openMirrors(t, Options{Rest: time.Minute}) // begins at the newest, with no history
	last := p.commit("last")
	p.pulled(mainBranch, last)
	p.one.fails(http.StatusBadGateway)
	var packs atomic.Int64
	p.two.during(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			packs.Add(1)
		}
	})
	sent := p.two.sent.Load()
	ref := p.pulled(mainBranch, last)
	if !strings.Contains(ref.Via.String(), "nothing new from mirror "+p.two.URL+"/copy.git: it has not got commit "+last[:7]+", which is here, before its main at ") {
		t.Errorf("via %q", ref.Via)
	}
	for range 3 {
		p.pulled(mainBranch, last)
	}
	if n, bytes := packs.Load(), p.two.sent.Load()-sent; n != 1 || bytes > 4000 {
		t.Errorf("a mirror that lags was asked for %d packs and sent %d bytes", n, bytes)
	}
	// It comes after all.
	p.two.fails(0)
	p.one.fails(0)
	next := p.commit("next")
	p.copy()
	p.one.fails(http.StatusBadGateway)
	p.pulled(mainBranch, next)
	if n := len(globbed(t, mirrorDir(t, p.m, p.r), "objects/pack/*.pack")); n != 2 {
		t.Errorf("%d packs", n)
	}
	// And falls behind, to a commit that is here.
	gitIn(t, p.copied, nil, "update-ref", "refs/heads/main", last)
	asked := p.two.requests.Load()
	ref = p.pulled(mainBranch, next)
	if !strings.Contains(ref.Via.String(), "is behind: it has main at "+last[:7]+", and "+next[:7]+" is here") || p.two.requests.Load() != asked+1 {
		t.Errorf("via %q, %d requests", ref.Via, p.two.requests.Load()-asked)
	}
	// To the commit just before the end of the history that is here, known by its name only.
	p.m, p.r.Last = openMirrors(t, Options{Rest: time.Minute}), ""
	p.one.fails(0)
	p.pulled(mainBranch, next)
	p.one.fails(http.StatusBadGateway)
	if ref = p.pulled(mainBranch, next); !strings.Contains(ref.Via.String(), "is behind: it has main at "+last[:7]) {
		t.Errorf("via %q", ref.Via)
	}
}

// TestMirrorBesideOneThatLags: the next mirror may have more.
func TestMirrorBesideOneThatLags(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Minute)
	third := newServer(t)
	p.r.Servers = append(p.r.Servers, Server{URL: third.URL + "/copy.git"})
	p.pulled(mainBranch, p.commit("second"))
	next := p.commit("next")
	gitIn(t, third.root, nil, "clone", "-q", "--mirror", p.at.bare, filepath.Join(third.root, "copy.git"))
	p.one.fails(http.StatusBadGateway)
	if ref := p.pulled(mainBranch, next); ref.Via.URL != third.URL+"/copy.git" {
		t.Errorf("via %q", ref.Via)
	}
	third.fails(http.StatusNotFound)
	ref := p.pulled(mainBranch, next)
	if ref.Via.URL != p.two.URL+"/copy.git" || ref.Via.Kept == "" {
		t.Errorf("via %q", ref.Via)
	}
}

// TestNamesThatAMirrorHasNot: what is known of them is not forgotten with a fetch from it.
func TestNamesThatAMirrorHasNot(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Hour)
	old := p.at.git("rev-parse", "HEAD")
	second := p.commit("second")
	gitIn(t, p.at.bare, nil, "update-ref", "refs/heads/other", second)
	other := gitref.Branch("other")
	p.pulled(mainBranch, second)
	p.pulled(other, second)
	third := p.commit("third")
	gitIn(t, p.copied, nil, "fetch", "-q", "origin", "+refs/heads/main:refs/heads/main")
	gitIn(t, p.copied, nil, "update-ref", "-d", "refs/heads/other")
	p.one.fails(http.StatusBadGateway)
	p.r.Last = ""
	p.pulled(mainBranch, third)
	gitIn(t, p.copied, nil, "update-ref", "refs/heads/other", old)
	p.r.Last = ""
	if ref := p.pulled(other, second); ref.Via.Kept == "" {
		t.Errorf("via %q", ref.Via)
	}
}

// TestLimitsOfAMirror: they are those of the repository.
func TestLimitsOfAMirror(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Minute)
	p.one.fails(http.StatusBadGateway)
	p.r.Limits = Limits{Objects: 1}
	if _, err := p.pull(mainBranch); KindOf(err) != TooLarge {
		t.Errorf("%v", err)
	}
}

// TestMirrorWithAnotherHistory is refused, and nothing of it is kept by name.
func TestMirrorWithAnotherHistory(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(*testing.T, *twins){
		"a commit replaced": func(t *testing.T, p *twins) {
			tree := gitIn(t, p.copied, nil, "rev-parse", "main^{tree}")
			other := gitIn(t, p.copied, nil, "commit-tree", "-m", "other", "-p", "main^", tree)
			gitIn(t, p.copied, nil, "update-ref", "refs/heads/main", other)
		},
		"and built on": func(t *testing.T, p *twins) {
			at := gitIn(t, p.copied, nil, "rev-parse", "main^")
			for range 70 {
				at = gitIn(t, p.copied, nil, "commit-tree", "-m", "other", "-p", at, at+"^{tree}")
			}
			gitIn(t, p.copied, nil, "update-ref", "refs/heads/main", at)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newTwins(t, time.Minute)
			p.pulled(mainBranch, p.at.git("rev-parse", "HEAD"))
			p.commit("second")
			third := p.commit("third")
			p.copy()
			p.pulled(mainBranch, third)
			p.r.Last = "" // what is here counts by itself
			p.one.fails(http.StatusBadGateway)
			make(t, p)
			for range 2 {
				_, err := p.pull(mainBranch)
				if KindOf(err) != Unreachable || !strings.Contains(err.Error(), "copy.git: it has another history: its main at ") || !strings.Contains(err.Error(), third[:7]+", which is here") {
					t.Fatal(err)
				}
			}
			refs, err := readRefs(mirrorDir(t, p.m, p.r))
			if err != nil || refs["refs/heads/main"].String() != third {
				t.Errorf("%v, %v", refs, err)
			}
			fsck(t, p.m, p.r)
			p.one.fails(0)
			p.m.back(p.r.shown())
			p.pulled(mainBranch, third)
		})
	}
	// What shares nothing is not told from what lags far behind.
	p := newTwins(t, time.Minute)
	second := p.commit("second")
	p.pulled(mainBranch, second)
	p.one.fails(http.StatusBadGateway)
	root := gitIn(t, p.copied, nil, "commit-tree", "-m", "root", "main^{tree}")
	gitIn(t, p.copied, nil, "update-ref", "refs/heads/main", root)
	if ref := p.pulled(mainBranch, second); !strings.Contains(ref.Via.Kept, "or has another history") {
		t.Errorf("via %q", ref.Via)
	}
}

// TestMirrorAndALostDirectory: the commit that was pulled last counts where the
// directory knows nothing, as another agent's does.
func TestMirrorAndALostDirectory(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Minute)
	second := p.commit("second")
	p.at.advance(120, "a.json", func(i int) string { return dashboard("a", i, 5) })
	tip := gitIn(t, p.at.bare, nil, "rev-parse", "main")
	p.copy()
	p.one.fails(http.StatusBadGateway)
	p.r.Last = second
	p.pulled(mainBranch, tip) // 120 commits further: 50 are not enough
	fresh := func(last string) {
		p.m, p.r.Last = openMirrors(t, Options{Rest: time.Minute}), last
	}
	fresh(tip)
	if ref := p.pulled(mainBranch, tip); ref.Via.Kept != "" {
		t.Errorf("via %q", ref.Via)
	}
	gitIn(t, p.copied, nil, "update-ref", "refs/heads/main", "main~60")
	fresh(tip)
	if _, err := p.pull(mainBranch); KindOf(err) != Unreachable || !strings.Contains(err.Error(), "has not got commit "+tip[:7]) {
		t.Errorf("behind what was pulled elsewhere: %v", err)
	}
	if dirs := globbed(t, p.m.dir, "*"); len(dirs) != 0 {
		t.Errorf("left behind: %v", dirs)
	}
	// What is here is older than what was pulled elsewhere, and is not gone back to.
	fresh("")
	back := gitIn(t, p.copied, nil, "rev-parse", "main")
	p.pulled(mainBranch, back)
	p.r.Last = tip
	for range 2 {
		if ref, err := p.pull(mainBranch); KindOf(err) != Unreachable || !strings.Contains(err.Error(), tip[:7]) {
			t.Errorf("back to what is here: %+v, %v", ref, err)
		}
	}
	// A damaged directory is made anew of a mirror, if that leads on.
	p.r.Last = back
	gitIn(t, p.copied, nil, "update-ref", "refs/heads/main", tip)
	for _, pack := range globbed(t, mirrorDir(t, p.m, p.r), "objects/pack/*.pack") {
		if err := os.Chmod(pack, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(pack, 100); err != nil {
			t.Fatal(err)
		}
	}
	p.m.mirror(mustAddress(t, p.r.URL)).changed()
	p.pulled(mainBranch, tip)
}

func mustAddress(t *testing.T, url string) auth.Address {
	t.Helper()
	a, err := auth.ParseAddress(url)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestVersionsOfAMirrorDoNotGoDown(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Minute)
	tag := func(name string) string {
		hash := p.commit(name)
		p.at.git("tag", "-a", "-m", "release", name)
		p.at.git("push", "-q", "origin", name)
		return hash
	}
	versions := gitref.Selector{SemVer: "1.x"}
	one := tag("v1.0.0")
	p.copy()
	two := tag("v1.1.0")
	object := p.at.git("rev-parse", "v1.1.0")
	p.pulled(versions, two)
	p.one.fails(http.StatusBadGateway)
	ref := p.pulled(versions, two)
	if !strings.Contains(ref.Via.String(), "has no newer version than v1.0.0, and v1.1.0 is here") || ref.Name != "refs/tags/v1.1.0" || ref.Tag != object {
		t.Errorf("%+v", ref)
	}
	// With no directory to know from, the mirror has to have what was pulled.
	p.m = openMirrors(t, Options{Rest: time.Minute})
	if _, err := p.pull(versions); KindOf(err) != Unreachable || !strings.Contains(err.Error(), "has not got the version that was pulled last, commit "+two[:7]) {
		t.Errorf("%v", err)
	}
	// A person may ask for less, by name or by range, if the mirror is not behind.
	p.copy()
	p.pulled(versions, two)
	if ref := p.pulled(gitref.Selector{SemVer: "<1.1.0"}, one); ref.Via.Kept != "" {
		t.Errorf("%+v", ref)
	}
	p.r.Last = two
	p.pulled(gitref.Selector{Tag: "v1.0.0"}, one)
	// Higher ones need not come after: they may be on another branch.
	side := gitIn(t, p.copied, nil, "commit-tree", "-m", "side", "-p", one, one+"^{tree}")
	gitIn(t, p.copied, nil, "tag", "v1.2.0", side)
	p.r.Last = two
	p.pulled(versions, side)
	// A tag that is moved goes on, not back and not aside.
	gitIn(t, p.copied, nil, "tag", "-f", "v1.2.0", one)
	if ref := p.pulled(versions, side); !strings.Contains(ref.Via.Kept, "is behind: it has v1.2.0 at "+one[:7]) {
		t.Errorf("%+v", ref)
	}
	gitIn(t, p.copied, nil, "tag", "-f", "v1.2.0", two)
	if _, err := p.pull(versions); !strings.Contains(err.Error(), "it has another history: its v1.2.0") {
		t.Errorf("%v", err)
	}
	on := gitIn(t, p.copied, nil, "commit-tree", "-m", "on", "-p", side, side+"^{tree}")
	gitIn(t, p.copied, nil, "tag", "-f", "v1.2.0", on)
	p.pulled(gitref.Selector{Tag: "v1.2.0"}, on)
}

func TestOtherRefsOfAMirror(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Minute)
	first := p.at.git("rev-parse", "HEAD")
	second := p.commit("second")
	p.copy()
	p.pulled(mainBranch, second)
	p.one.fails(http.StatusBadGateway)
	// A commit is itself.
	p.pulled(gitref.Selector{Commit: first}, first)
	p.pulled(gitref.Selector{Commit: first, Branch: "main"}, first)
	// So is one that is named anew, where what was pulled is known to be another ref's.
	p.r.Last = second
	gitIn(t, p.copied, nil, "update-ref", "refs/heads/old", first)
	p.pulled(gitref.Branch("old"), first)
	// What the server chooses is not chosen by a mirror.
	p.r.Last = second
	gitIn(t, p.copied, nil, "symbolic-ref", "HEAD", "refs/heads/old")
	if _, err := p.pull(gitref.Selector{}); err == nil || !strings.Contains(err.Error(), "is behind: it has old at "+first[:7]) {
		t.Errorf("%v", err)
	}
	// Branches that a mirror has not got are not forgotten, nor made up.
	gitIn(t, p.copied, nil, "update-ref", "-d", "refs/heads/main")
	if ref := p.pulled(mainBranch, second); !strings.Contains(ref.Via.Kept, `has less than is asked for: there is no branch "main"`) {
		t.Errorf("%+v", ref)
	}
	if _, err := p.pull(gitref.Branch("nowhere")); KindOf(err) != Unreachable || !strings.Contains(err.Error(), `there is no branch "nowhere"`) {
		t.Errorf("%v", err)
	}
}

// TestCredentialsOfServers: each sees its own and no others, and those of a server that
// is not asked are not even looked up.
func TestCredentialsOfServers(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Minute)
	second := p.commit("second")
	p.copy()
	var seen [2][]string
	watch := func(i int, s *server, status int) {
		s.during(func(w http.ResponseWriter, r *http.Request) {
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
	p.r.Servers[0].Credentials = func(context.Context) (*auth.Credentials, error) {
		lookups++
		return &auth.Credentials{Username: "bob", Password: "second-secret", Forget: func() { forgotten++ }}, nil
	}
	p.pulled(mainBranch, second)
	if lookups != 0 {
		t.Error("credentials of a mirror were looked up that nobody asked")
	}
	watch(0, p.one, http.StatusBadGateway)
	third := p.at.commit("third", map[string]string{"b.json": "{}"})
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
	p.r.Servers[0].Credentials, seen[1] = nil, nil
	if _, err := p.m.Resolve(t.Context(), p.r, mainBranch); KindOf(err) != Unreachable || len(seen[1]) != 1 || seen[1][0] != ":" {
		t.Errorf("%v, asked with %q", err, seen[1])
	}
	// Over plain http they go nowhere, unless that is allowed.
	p.r.AllowInsecure, p.r.Creds, seen[1] = false, nil, nil
	p.r.Servers[0].Credentials = func(context.Context) (*auth.Credentials, error) {
		return &auth.Credentials{Username: "bob", Password: "second-secret"}, nil
	}
	if _, err := p.m.Resolve(t.Context(), p.r, mainBranch); !strings.Contains(err.Error(), "credentials would go over plain http") || len(seen[1]) != 0 {
		t.Errorf("%v, asked with %q", err, seen[1])
	}
	// Those that cannot be had are told.
	p.r.Servers[0].Credentials = func(context.Context) (*auth.Credentials, error) { return nil, errors.New("the file is open to all") }
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
	ref := p.pulled(mainBranch, p.at.git("rev-parse", "HEAD"))
	if p.one.requests.Load() != 0 || !strings.HasSuffix(ref.Via.String(), "is unreachable: no token can be minted") {
		t.Errorf("%d requests, via %q", p.one.requests.Load(), ref.Via)
	}
	p.two.fails(http.StatusBadGateway)
	if _, err := p.pull(mainBranch); KindOf(err) != Unreachable || !strings.Contains(err.Error(), "no token can be minted; mirror "+p.two.URL) {
		t.Errorf("%v", err)
	}
	p.r.Servers = nil
	if _, err := p.pull(mainBranch); KindOf(err) != Unreachable || !strings.Contains(err.Error(), "no token can be minted") {
		t.Errorf("%v", err)
	}
}

// TestServersGoAwayMidway: between the look and the fetch, and in the middle of a pack.
func TestServersGoAwayMidway(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Minute)
	p.pulled(mainBranch, p.at.git("rev-parse", "HEAD"))
	second := p.commit("second")
	p.copy()
	// The first one tells, and the mirror has it.
	ref, err := p.m.Resolve(t.Context(), p.r, mainBranch)
	p.one.fails(http.StatusBadGateway)
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
	p.two.during(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			conn, _, err := http.NewResponseController(w.(*touched).ResponseWriter.(counting).ResponseWriter).Hijack()
			if err == nil {
				w.(*touched).used = true
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
	t.Log(err)
	if refs, err := readRefs(mirrorDir(t, p.m, p.r)); err != nil || refs["refs/heads/main"].String() != second {
		t.Errorf("%v, %v", refs, err)
	}
	fsck(t, p.m, p.r)
	p.two.fails(0)
	p.m.back(p.r.shownAt(1))
	p.pulled(mainBranch, third)
	// It goes away between the two: somebody else is to be asked.
	fourth := p.commit("fourth")
	p.copy()
	if ref, err = p.m.Resolve(t.Context(), p.r, mainBranch); err != nil || ref.Hash != fourth {
		t.Fatalf("%+v, %v", ref, err)
	}
	p.two.fails(http.StatusBadGateway)
	p.one.fails(0)
	if _, err = p.m.Fetch(t.Context(), p.r, ref); KindOf(err) != Moved {
		t.Fatal(err)
	}
	p.pulled(mainBranch, fourth)
}

// TestSubmodulesOfAMirror: a submodule with a relative URL is where the mirror is.
func TestSubmodulesOfAMirror(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Minute)
	lib := newOrigin(t, p.one.root, "lib.git")
	at := lib.commit("lib", map[string]string{"x.json": dashboard("x", 1, 3)})
	gitIn(t, p.two.root, nil, "clone", "-q", "--mirror", lib.bare, filepath.Join(p.two.root, "lib.git"))
	p.at.write(map[string]string{".gitmodules": "[submodule \"lib\"]\n\tpath = lib\n\turl = ../lib.git\n"})
	p.at.git("update-index", "--add", "--cacheinfo", "160000,"+at+",lib")
	p.at.git("add", ".gitmodules")
	p.at.git("commit", "-q", "-m", "submodule")
	p.at.git("push", "-q", "-f", "origin", "HEAD")
	tip := p.at.git("rev-parse", "HEAD")
	p.copy()
	p.one.fails(http.StatusBadGateway)
	p.pulled(mainBranch, tip)
	tree, err := p.m.WholeTree(t.Context(), p.r, tip, "")
	if err != nil || len(tree.Files) != 3 || tree.Files[2].Path != "lib/x.json" || tree.Files[2].Home != p.one.URL+"/lib.git" {
		t.Fatalf("%+v, %v", tree.Files, err)
	}
	for _, url := range []string{"https://elsewhere.example.com/lib.git", p.one.URL + "/lib.git"} {
		if got := p.r.beside(url); len(got) > 0 {
			t.Errorf("%s is at %+v", url, got)
		}
	}
	// It is another repository: what was pulled of its parent is nothing to it.
	p.r.Last = tip
	if sub, _, err := p.r.submodule("../lib.git"); err != nil || sub.Last != "" || len(sub.Servers) != 1 {
		t.Errorf("%+v, %v", sub, err)
	}
}

// TestManyPacksOfAMirror: a long time without the host leaves no heap of packs.
func TestManyPacksOfAMirror(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Hour)
	p.pulled(mainBranch, p.at.git("rev-parse", "HEAD"))
	p.one.fails(http.StatusBadGateway)
	p.at.advance(maxPacks+5, "a.json", func(i int) string { return dashboard("a", i, 5) })
	p.copy()
	steps := strings.Fields(gitIn(t, p.copied, nil, "rev-list", "--reverse", "main"))[1:]
	for _, id := range steps {
		gitIn(t, p.copied, nil, "update-ref", "refs/heads/main", id)
		ref, err := p.pull(mainBranch)
		if err != nil || ref.Hash != id {
			t.Fatalf("%+v, %v", ref, err)
		}
	}
	if n := len(globbed(t, mirrorDir(t, p.m, p.r), "objects/pack/*.pack")); n > maxPacks {
		t.Errorf("%d packs", n)
	}
	fsck(t, p.m, p.r)
}
