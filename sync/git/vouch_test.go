package git

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"limpet/sync/git/gitref"
)

// onMain is a pin of a commit that has to be on main.
func onMain(commit string) gitref.Selector {
	return gitref.Selector{Commit: commit, Branch: "main"}
}

// refused pulls what no server may vouch for.
func (p *twins) refused(sel gitref.Selector, says string) {
	p.t.Helper()
	_, err := p.pull(sel)
	if KindOf(err) != Unreachable || !strings.Contains(err.Error(), says) {
		p.t.Fatalf("%+v: %v, want %q", sel, err, says)
	}
	refs, err := readRefs(mirrorDir(p.t, p.m, p.r))
	if _, noted := refs[pinName(sel.Commit, headPrefix+"main")]; err != nil || noted {
		p.t.Fatalf("%v, %v", refs, err)
	}
}

// TestMirrorPutsACommitOnABranch: that a commit is on a branch is believed of what
// comes onward from the branch as it is known here, and of what is before it.
func TestMirrorPutsACommitOnABranch(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Hour)
	second := p.commit("second")
	third := p.commit("third")
	p.copy()
	p.pulled(mainBranch, third)
	p.one.fails(http.StatusBadGateway)
	first := gitIn(t, p.copied, nil, "rev-parse", "main~2")
	aside := gitIn(t, p.copied, nil, "commit-tree", "-m", "aside", "-p", second, second+"^{tree}")
	top := gitIn(t, p.copied, nil, "commit-tree", "-m", "top", "-p", aside, aside+"^{tree}")
	gitIn(t, p.copied, nil, "update-ref", "refs/heads/main", top)
	p.refused(onMain(aside), "it has another history: its main at "+top[:7]+" does not come after "+third[:7])
	// By itself it is what was asked for; that says nothing about the branch.
	p.pulled(gitref.Selector{Commit: aside}, aside)
	p.refused(onMain(aside), "it has another history")
	// However far down it leaves the branch.
	at := top
	for range 60 {
		at = gitIn(t, p.copied, nil, "commit-tree", "-m", "on", "-p", at, at+"^{tree}")
	}
	gitIn(t, p.copied, nil, "update-ref", "refs/heads/main", at)
	p.refused(onMain(gitIn(t, p.copied, nil, "rev-parse", "main~1")), "it has another history: its main at "+at[:7]+" does not come after "+third[:7])
	// What is before the branch as it is known is on it, wherever the mirror is.
	p.pulled(onMain(second), second)
	gitIn(t, p.copied, nil, "update-ref", "refs/heads/main", second)
	p.pulled(onMain(first), first)
	// So is what comes after it, however far that is.
	p.one.fails(0)
	p.at.advance(120, "a.json", func(i int) string { return dashboard("a", i, 5) })
	p.one.fails(http.StatusBadGateway)
	p.copy()
	late := gitIn(t, p.copied, nil, "rev-parse", "main~1")
	p.pulled(onMain(late), late)
	if refs, err := readRefs(mirrorDir(t, p.m, p.r)); err != nil || refs["refs/heads/main"].String() != third {
		t.Errorf("%v, %v", refs, err)
	}
}

// TestMirrorPutsBackACommit that its own host has taken off the branch.
func TestMirrorPutsBackACommit(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Nanosecond)
	good := p.at.git("rev-parse", "HEAD")
	more := p.commit("more")
	bad := p.commit("bad")
	p.copy()
	p.pulled(mainBranch, bad)
	gitIn(t, p.at.bare, nil, "update-ref", "refs/heads/main", good)
	p.pulled(mainBranch, good)
	p.one.fails(http.StatusBadGateway)
	p.refused(onMain(bad), "has main at "+bad[:7]+", which its own host has taken back")
	tree := gitIn(t, p.copied, nil, "rev-parse", bad+"^{tree}")
	top := gitIn(t, p.copied, nil, "commit-tree", "-m", "top", "-p", bad, tree)
	gitIn(t, p.copied, nil, "update-ref", "refs/heads/main", top)
	p.refused(onMain(top), "which its own host has taken back")
	p.pulled(onMain(good), good)
	p.one.fails(0)
	gitIn(t, p.at.bare, nil, "update-ref", "refs/heads/main", bad)
	p.pulled(mainBranch, bad)
	p.one.fails(http.StatusBadGateway)
	p.pulled(onMain(more), more)
}

// TestListsOfServersAreApart: the list of refs of a server that goes away before its pack
// decides about no other server.
func TestListsOfServersAreApart(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Minute)
	first := p.at.git("rev-parse", "HEAD")
	p.commit("second") // which the mirror has not got
	p.one.during(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			http.Error(w, "", http.StatusBadGateway)
		}
	})
	p.pulled(onMain(first), first)
	// Nor does that of a mirror decide about the host.
	p.m = openMirrors(t, Options{Rest: time.Minute})
	p.two.during(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			http.Error(w, "", http.StatusBadGateway)
		}
	})
	p.one.fails(http.StatusBadGateway)
	if _, err := p.pull(onMain(first)); KindOf(err) != Unreachable {
		t.Fatal(err)
	}
	p.one.fails(0)
	p.m.back(p.r.shown())
	p.pulled(onMain(first), first)
}
