package git

import (
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// trickles has a server send its packs in signs of life that never end. The count is of
// those that it has begun.
func (s *server) trickles() *atomic.Int64 {
	var begun atomic.Int64
	s.during(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			return
		}
		begun.Add(1)
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		writeAll(w, "00000008NAK\n")
		drop := time.NewTicker(5 * time.Millisecond)
		defer drop.Stop()
		for {
			writeAll(w, "0038\x02remote: Counting objects: still at it, please wait\r")
			select {
			case <-drop.C:
			case <-r.Context().Done():
				return
			}
		}
	})
	return &begun
}

// newTriplets are twins with a second mirror.
func newTriplets(t *testing.T, whole time.Duration) (*twins, *server) {
	t.Helper()
	p, third := newTwins(t, time.Minute), newServer(t)
	p.r.Servers = append(p.r.Servers, Server{URL: third.URL + "/copy.git"})
	gitIn(t, third.root, nil, "clone", "-q", "--mirror", p.at.bare, filepath.Join(third.root, "copy.git"))
	p.m = openMirrors(t, Options{Whole: whole, Rest: time.Minute})
	return p, third
}

// TestWholeIsShared: the time of a fetch is that of all servers together. Who sends in
// drops has its share, and the next one still has enough.
func TestWholeIsShared(t *testing.T) {
	t.Parallel()
	const whole = 9 * time.Second // git of the third has to be begun within a third of it
	p, _ := newTriplets(t, whole)
	ref := must[Ref](t)(p.m.Resolve(t.Context(), p.r, mainBranch))
	own, other := p.one.trickles(), p.two.trickles()
	began := time.Now()
	stats, err := p.m.Fetch(t.Context(), p.r, ref)
	if err != nil || own.Load() != 1 || other.Load() != 1 {
		t.Fatalf("%v; %d and %d packs were begun", err, own.Load(), other.Load())
	}
	if took := time.Since(began); took > whole || stats.Asking < 2*whole/3-100*time.Millisecond || stats.Asking > whole {
		t.Errorf("it took %s, %s of it at servers, of %s", took, stats.Asking, whole)
	}
	fsck(t, p.m, p.r)
}

// TestWholeOfServersThatTrickle ends when it has to, however many they are, and says
// how long each had.
func TestWholeOfServersThatTrickle(t *testing.T) {
	t.Parallel()
	const whole = 1500 * time.Millisecond
	p, third := newTriplets(t, whole)
	p.one.fails(http.StatusBadGateway)
	calm := openMirrors(t, Options{}) // the look may take as long as it does
	ref := must[Ref](t)(calm.Resolve(t.Context(), p.r, mainBranch))
	if ref.Via.URL != p.r.shownAt(1) {
		t.Fatalf("via %q", ref.Via)
	}
	for _, s := range []*server{p.one, p.two, third} {
		s.trickles()
	}
	ends := func(r Remote, ref Ref, most time.Duration, kind Kind, says ...string) time.Duration {
		t.Helper()
		stats, err := p.m.Fetch(t.Context(), r, ref)
		told(t, err, kind, says...)
		if stats.Asking > most+whole/4 { // another share would be more
			t.Errorf("the servers had %s of %s", stats.Asking, most)
		}
		return stats.Asking
	}
	own := ref
	own.Via = Via{}
	ends(p.r, own, whole, Timeout, "it takes more than 500ms, with ", "mirror "+p.two.URL+"/copy.git: no answer in time; mirror "+third.URL, "--git-timeout, which is 1.5s for all servers together")
	// The one that has told has the share of those that do not rest.
	p.m = openMirrors(t, Options{Whole: whole, Rest: time.Minute})
	p.m.rested(p.r.shown(), &Error{Kind: Unreachable})
	p.r.Spent = ends(p.r, ref, whole/2, Moved, "it takes more than 750ms")
	// What was spent before counts, and what is left is for one.
	ref.Via.URL = p.r.shownAt(2)
	p.r.Spent += ends(p.r, ref, whole/2, Moved, "it takes more than ")
	if p.r.Spent < whole-50*time.Millisecond {
		t.Errorf("%s of %s were spent", p.r.Spent, whole)
	}
	p.r.Spent = whole
	ends(p.r, own, 0, Timeout, "it takes more than 1.5s")
	p.r.Servers = nil
	ends(p.r, own, 0, Timeout, "it takes more than 1.5s")
	if left := globbed(t, p.m.dir, "tmp_*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
