package git

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestTakenBack: what the host of a repository has set back does not come again from a
// mirror that still has it, however often the host is away, until the host has it again.
func TestTakenBack(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Nanosecond)
	good := p.at.git("rev-parse", "HEAD")
	p.pulled(mainBranch, good)
	// The mirror is ahead of the host, by two.
	p.commit("more")
	bad := p.commit("bad")
	p.copy()
	gitIn(t, p.at.bare, nil, "update-ref", "refs/heads/main", good)
	p.one.fails(http.StatusBadGateway)
	p.pulled(mainBranch, bad)
	p.one.fails(0)
	p.pulled(mainBranch, good)
	says := func(want string) {
		t.Helper()
		p.one.fails(http.StatusBadGateway)
		for range 2 {
			if ref := p.pulled(mainBranch, good); !strings.Contains(ref.Via.Kept, want) {
				t.Errorf("kept because it %q, want %q", ref.Via.Kept, want)
			}
		}
		p.one.fails(0)
		p.pulled(mainBranch, good)
	}
	says("has main at " + bad[:7] + ", which its own host has taken back")
	// What is on the way there was taken back too, and what is on top.
	more := gitIn(t, p.copied, nil, "rev-parse", bad+"^")
	gitIn(t, p.copied, nil, "update-ref", "refs/heads/main", more)
	says("has main at " + more[:7] + ", which its own host has taken back")
	tree := gitIn(t, p.copied, nil, "rev-parse", bad+"^{tree}")
	top := gitIn(t, p.copied, nil, "commit-tree", "-m", "top", "-p", more, tree)
	gitIn(t, p.copied, nil, "update-ref", "refs/heads/main", top)
	says("has " + more[:7] + " before its main at " + top[:7] + ", which its own host has taken back")
	// A commit beside it is none of that.
	aside := gitIn(t, p.copied, nil, "commit-tree", "-m", "aside", "-p", good, tree)
	gitIn(t, p.copied, nil, "update-ref", "refs/heads/main", aside)
	p.one.fails(http.StatusBadGateway)
	p.pulled(mainBranch, aside)
	p.one.fails(0)
	p.pulled(mainBranch, good)
	says("has main at " + aside[:7] + ", which its own host has taken back")
	refs, err := readRefs(mirrorDir(t, p.m, p.r))
	if err != nil || len(withdrawn(refs, "refs/heads/main")) != 2 {
		t.Fatalf("%v, %v", refs, err)
	}
	// So is one that was replaced.
	other := gitIn(t, p.at.bare, nil, "commit-tree", "-m", "other", "-p", good, tree)
	last := gitIn(t, p.at.bare, nil, "commit-tree", "-m", "last", "-p", good, tree)
	for _, at := range []string{other, last, good} {
		gitIn(t, p.at.bare, nil, "update-ref", "refs/heads/main", at)
		p.pulled(mainBranch, at)
	}
	gitIn(t, p.copied, nil, "fetch", "-q", p.at.bare, other)
	gitIn(t, p.copied, nil, "update-ref", "refs/heads/main", other)
	says("has main at " + other[:7] + ", which its own host has taken back")
	// The host has it again.
	gitIn(t, p.at.bare, nil, "update-ref", "refs/heads/main", bad)
	p.pulled(mainBranch, bad)
	next := p.at.commit("next", map[string]string{"n.json": "{}"})
	gitIn(t, p.copied, nil, "fetch", "-q", "--prune")
	p.one.fails(http.StatusBadGateway)
	p.pulled(mainBranch, next)
	if refs, err = readRefs(mirrorDir(t, p.m, p.r)); err != nil || len(withdrawn(refs, "refs/heads/main")) != 3 {
		t.Fatalf("%v, %v", refs, err)
	}
}

// TestTakenBackIsBounded: a branch that is set back all the time makes no heap of names.
func TestTakenBackIsBounded(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Hour)
	good := p.at.git("rev-parse", "HEAD")
	tree := p.at.git("rev-parse", "HEAD^{tree}")
	for range mostWithdrawn + 3 {
		p.pulled(mainBranch, good)
		other := gitIn(t, p.at.bare, nil, "commit-tree", "-m", time.Now().String(), "-p", good, tree)
		gitIn(t, p.at.bare, nil, "update-ref", "refs/heads/main", other)
		p.pulled(mainBranch, other)
		gitIn(t, p.at.bare, nil, "update-ref", "refs/heads/main", good)
	}
	p.pulled(mainBranch, good)
	refs, err := readRefs(mirrorDir(t, p.m, p.r))
	if err != nil || len(withdrawn(refs, "refs/heads/main")) != mostWithdrawn {
		t.Errorf("%d names, %v", len(refs), err)
	}
	p.r.Servers = nil // nobody brings anything back: nothing is noted
	p.m = openMirrors(t, Options{})
	p.pulled(mainBranch, good)
	gitIn(t, p.at.bare, nil, "update-ref", "refs/heads/main", gitIn(t, p.at.bare, nil, "commit-tree", "-m", "x", tree))
	p.pulled(mainBranch, gitIn(t, p.at.bare, nil, "rev-parse", "main"))
	if refs, err = readRefs(mirrorDir(t, p.m, p.r)); err != nil || len(refs) != 1 {
		t.Errorf("%v, %v", refs, err)
	}
}
