package git

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"limpet/sync/git/gitref"
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

// TestDeletedVersion: a version that the host has deleted is not brought again by a mirror
// that has it still; the one before counts there.
func TestDeletedVersion(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Nanosecond)
	one := p.at.git("rev-parse", "HEAD")
	gitIn(t, p.at.bare, nil, "tag", "v1.0.0", one)
	two := p.commit("two")
	gitIn(t, p.at.bare, nil, "tag", "v1.1.0", two)
	p.copy()
	versions := gitref.Selector{SemVer: ">=1.0.0"}
	p.pulled(gitref.Selector{Tag: "v1.0.0"}, one)
	p.pulled(versions, two)
	gitIn(t, p.at.bare, nil, "tag", "-d", "v1.1.0")
	gitIn(t, p.at.bare, nil, "update-ref", "refs/heads/main", one)
	p.pulled(versions, one) // which is here: nothing is fetched for it
	p.one.fails(http.StatusBadGateway)
	for range 2 {
		if ref := p.pulled(versions, one); ref.Via.URL == "" || ref.Via.Kept != "" || ref.Name != "refs/tags/v1.0.0" {
			t.Errorf("%+v", ref)
		}
	}
	if _, err := p.pull(gitref.Selector{Tag: "v1.1.0"}); KindOf(err) != Unreachable || !strings.Contains(err.Error(), "has v1.1.0 at "+two[:7]+", which its own host has taken back") {
		t.Errorf("%v", err)
	}
	// A higher one is another.
	three := gitIn(t, p.copied, nil, "commit-tree", "-m", "three", "-p", one, two+"^{tree}")
	gitIn(t, p.copied, nil, "tag", "v1.2.0", three)
	p.pulled(versions, three)
	// The host has it again.
	p.one.fails(0)
	p.r.Last = ""
	gitIn(t, p.at.bare, nil, "tag", "v1.1.0", two)
	p.pulled(versions, two)
	gitIn(t, p.copied, nil, "tag", "-d", "v1.2.0")
	p.one.fails(http.StatusBadGateway)
	p.pulled(versions, two)
	refs, err := readRefs(mirrorDir(t, p.m, p.r))
	if err != nil || len(withdrawn(refs, "refs/tags/v1.1.0")) != 0 || len(withdrawn(refs, "refs/tags/v1.2.0")) != 1 {
		t.Errorf("%v, %v", refs, err)
	}
}

// TestDeletedNamesAreBounded, and so are branches that are deleted.
func TestDeletedNamesAreBounded(t *testing.T) {
	t.Parallel()
	p := newTwins(t, time.Hour)
	first := p.at.git("rev-parse", "HEAD")
	gitIn(t, p.at.bare, nil, "update-ref", "refs/heads/other", first)
	p.copy()
	p.pulled(gitref.Branch("other"), first)
	p.pulled(mainBranch, first)
	dir := mirrorDir(t, p.m, p.r)
	refs, err := readRefs(dir)
	if err != nil {
		t.Fatal(err)
	}
	id, _ := parseID(first)
	for i := range mostGone + 10 {
		refs[fmt.Sprintf("refs/tags/v%d", i)] = id
	}
	if err := writeRefs(dir, refs); err != nil {
		t.Fatal(err)
	}
	if _, err := p.m.Resolve(t.Context(), p.r, mainBranch); err != nil {
		t.Fatal(err)
	}
	if refs, err = readRefs(dir); err != nil || len(refs) != mostGone+2 {
		t.Errorf("%d names, %v", len(refs), err)
	}
	gitIn(t, p.at.bare, nil, "update-ref", "-d", "refs/heads/other")
	if _, err := p.m.Resolve(t.Context(), p.r, mainBranch); err != nil {
		t.Fatal(err)
	}
	p.one.fails(http.StatusBadGateway)
	if _, err := p.pull(gitref.Branch("other")); KindOf(err) != Unreachable || !strings.Contains(err.Error(), "has other at "+first[:7]+", which its own host has taken back") {
		t.Errorf("%v", err)
	}
	p.pulled(mainBranch, first)
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
