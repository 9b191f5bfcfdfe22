package git

import (
	"bytes"
	"crypto/sha1"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"limpet/sync/auth"
	"limpet/sync/git/gitref"
	"limpet/sync/testenv/gittest"
	"limpet/sync/testenv/suite"
)

// long makes a repository whose main has n commits, and returns their hashes, the
// oldest first. The file of each commit is all that it changes.
func long(t *testing.T, root, name string, n int) []string {
	t.Helper()
	bare := filepath.Join(root, name)
	gittest.Git(t, root, nil, "init", "-q", "--bare", "-b", "main", bare)
	var in bytes.Buffer
	for i := range n {
		text := fmt.Sprintf("{\"v\": %d}\n", i)
		fmt.Fprintf(&in, "commit refs/heads/main\nmark :%d\ncommitter C <c@example.com> %d +0000\ndata 2\nc\n", i+1, 1_790_000_000+i)
		if i > 0 {
			fmt.Fprintf(&in, "from :%d\n", i)
		}
		fmt.Fprintf(&in, "M 644 inline a.json\ndata %d\n%s\n", len(text), text)
	}
	gittest.Git(t, bare, in.Bytes(), "fast-import", "--quiet")
	return strings.Fields(gittest.Git(t, bare, nil, "rev-list", "--reverse", "main"))
}

// overSSH serves a directory by git upload-pack, which gives out what it tells of
// and nothing else.
func overSSH(t *testing.T) (*gittest.SSHServer, func(name string) Remote) {
	t.Helper()
	key, host := gittest.SSHKeys()["ed25519"], gittest.SSHKeys()["ecdsa"]
	s := gittest.NewSSHServer(t, t.TempDir(), gittest.Must[ssh.PublicKey](t)(ssh.NewPublicKey(key.Public())), host)
	creds := &auth.Credentials{SSHKey: gittest.PrivateKey(t, key, ""), KnownHosts: s.Known(host)}
	return s, func(name string) Remote {
		return Remote{URL: s.RemoteURL(strings.TrimPrefix(filepath.ToSlash(s.Root), "/") + "/" + name), Creds: creds}
	}
}

// depthOf is how many commits a mirror has that are under a name, or below commit.
func depthOf(t *testing.T, m *Mirrors, r Remote, commit string) (n int) {
	t.Helper()
	fmt.Sscan(gittest.Git(t, mirrorDir(t, m, r), nil, "rev-list", "--all", "--count", commit), &n)
	return n
}

// TestPinnedIsSearched: a server that gives out no single commits is asked for more
// and more of the branch, and for no more than it takes.
func TestPinnedIsSearched(t *testing.T) {
	t.Parallel()
	s, remote := overSSH(t)
	commits := long(t, s.Root, "site.git", 700)
	for _, c := range []struct{ back, requests, depth int }{
		{0, 2, 1}, {49, 2, 50}, {50, 3, 500}, {499, 3, 500}, {500, 4, 700}, {699, 4, 700},
	} {
		for _, branch := range []string{"", "main"} {
			if (branch == "") != (c.back%2 == 0) && !suite.HasAll() {
				continue
			}
			pin := commits[len(commits)-1-c.back]
			sel := gitref.Selector{Commit: pin, Branch: branch}
			m := openMirrors(t, Options{})
			r := remote("site.git")
			ref, st := syncSelected(t, m, r, sel)
			depth, requests := c.depth, c.requests
			if !ref.Pinned || ref.Hash != pin || ref.Stored || st.Requests != requests || depthOf(t, m, r, ref.Hash) != depth {
				t.Errorf("%d back on %q: %+v %+v, %d commits, want %d in %d requests", c.back, branch, ref, st, depthOf(t, m, r, ref.Hash), depth,
					requests)
			}
			if got := content(t, m, r, pin, "")["a.json"]; got != fmt.Sprintf("{\"v\": %d}\n", 699-c.back) {
				t.Errorf("%d back: %q", c.back, got)
			}
			again, st := syncSelected(t, m, r, sel)
			if !again.Stored || st.Requests != 0 {
				t.Errorf("%d back on %q, again: %+v %+v", c.back, branch, again, st)
			}
			fsck(t, m, r)
		}
	}
}

// TestPinnedIsGivenOut: where a server gives out single commits, one is fetched
// without its history, whether it is on a branch or not.
func TestPinnedIsGivenOut(t *testing.T) {
	t.Parallel()
	s, remote := overSSH(t)
	commits := long(t, s.Root, "site.git", 60)
	bare := filepath.Join(s.Root, "site.git")
	tree := gittest.Git(t, bare, nil, "rev-parse", "main^{tree}")
	lost := gittest.Git(t, bare, nil, "commit-tree", "-m", "lost", "-p", commits[0], tree)
	pull := gittest.Git(t, bare, nil, "commit-tree", "-m", "pull", "-p", commits[1], tree)
	tagged := gittest.Git(t, bare, nil, "commit-tree", "-m", "tagged", "-p", commits[2], tree)
	gittest.Git(t, bare, nil, "update-ref", "refs/pull/1166/head", pull)
	gittest.Git(t, bare, nil, "tag", "-a", "-m", "release", "v1.0.0", tagged)
	for _, allow := range []string{"", "uploadpack.allowReachableSHA1InWant", "uploadpack.allowAnySHA1InWant"} {
		if allow != "" {
			gittest.Git(t, bare, nil, "config", allow, "true")
		}
		for _, c := range []struct {
			name, pin string
			depth     int // 0 = it is refused
		}{
			{"old", commits[3], map[string]int{"": 60}[allow] + map[string]int{"uploadpack.allowReachableSHA1InWant": 1,
				"uploadpack.allowAnySHA1InWant": 1}[allow]},
			{"pull request", pull, 1},
			{"tagged", tagged, 1},
			{"lost", lost, map[string]int{"uploadpack.allowAnySHA1InWant": 1}[allow]},
		} {
			m := openMirrors(t, Options{})
			r := remote("site.git")
			ref, err := m.Resolve(t.Context(), r, gitref.Selector{Commit: c.pin})
			if err != nil {
				t.Fatal(err)
			}
			_, err = m.Fetch(t.Context(), r, ref)
			if c.depth == 0 {
				gittest.ErrorIs(t, err, CommitNotFound, c.pin, "the 60 commits of refs/heads/main", "name the branch")
				continue
			}
			if err != nil {
				t.Errorf("%s, %q: %v", c.name, allow, err)
				continue
			}
			// A pinned commit has no name in the mirror.
			if n := strings.Fields(gittest.Git(t, mirrorDir(t, m, r), nil, "rev-list", c.pin)); len(n) > 60 || c.depth == 1 && len(n) != 1 {
				t.Errorf("%s, %q: %d commits", c.name, allow, len(n))
			}
			fsck(t, m, r)
		}
		// An annotated tag is told of, the commit behind it is not.
		m := openMirrors(t, Options{})
		ref, st := syncSelected(t, m, remote("site.git"), gitref.Selector{Tag: "v1.0.0"})
		if ref.Hash != tagged || ref.Tag == "" || st.Requests != 1 {
			t.Errorf("%q: %+v %+v", allow, ref, st)
		}
		if k := gittest.Git(t, mirrorDir(t, m, remote("site.git")), nil, "cat-file", "-t", ref.Tag); k != "tag" {
			t.Errorf("the tag object is a %s", k)
		}
	}
}

// TestPinnedOnBranch: a commit that has to be on a branch is looked for there, also
// when it is in the mirror already.
func TestPinnedOnBranch(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	commits := long(t, s.Root, "site.git", 70)
	bare := filepath.Join(s.Root, "site.git")
	gittest.Git(t, bare, nil, "branch", "old", commits[5])
	m := openMirrors(t, Options{})
	r := remoteAt(s, "site.git")
	syncSelected(t, m, r, gitref.Selector{Commit: commits[30]})
	for _, c := range []struct {
		branch string
		says   []string // nil = it is there
	}{
		{"main", nil},
		{"old", []string{commits[30], "not among the 6 commits of refs/heads/old"}},
		{"olf", []string{`no branch "olf"`, "did you mean old"}},
	} {
		ref, err := m.Resolve(t.Context(), r, gitref.Selector{Commit: commits[30], Branch: c.branch})
		if err != nil || ref.Stored {
			if c.branch != "olf" {
				t.Fatalf("%s: %+v, %v", c.branch, ref, err)
			}
		}
		if err == nil {
			_, err = m.Fetch(t.Context(), r, ref)
		}
		if (err == nil) != (c.says == nil) {
			t.Errorf("%s: %v", c.branch, err)
		}
		if c.says != nil {
			gittest.ErrorIs(t, err, KindOf(err), c.says...)
		}
	}
	// It stays known when the branch goes, when others are fetched, and after a restart.
	gittest.Git(t, bare, nil, "branch", "-m", "main", "trunk")
	syncRef(t, m, r, "trunk")
	dir := m.dir
	m.Close()
	m, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	before := s.Requests.Load()
	ref, st := syncSelected(t, m, r, gitref.Selector{Commit: commits[30], Branch: "main"})
	if !ref.Stored || st.Requests != 0 || s.Requests.Load() != before {
		t.Errorf("%+v %+v, %d requests", ref, st, s.Requests.Load()-before)
	}
	fsck(t, m, r)
	// A tag is not a commit.
	gittest.Git(t, bare, nil, "tag", "-a", "-m", "x", "v1", commits[1])
	sel := gitref.Selector{Commit: gittest.Git(t, bare, nil, "rev-parse", "refs/tags/v1")}
	if ref, err = m.Resolve(t.Context(), r, sel); err == nil {
		_, err = m.Fetch(t.Context(), r, ref)
	}
	if err == nil || !strings.Contains(err.Error(), "not a commit") {
		t.Errorf("a tag for a commit: %v", err)
	}
	syncSelected(t, m, r, gitref.Selector{Tag: "v1"})
	if ref, err = m.Resolve(t.Context(), r, sel); err == nil {
		_, err = m.Fetch(t.Context(), r, ref)
	}
	gittest.ErrorIs(t, err, Refused, "not the hash of a commit")
}

// TestPinnedWithinLimits: the search ends where the limits do, and says how far it
// came.
func TestPinnedWithinLimits(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	commits := long(t, s.Root, "site.git", 600)
	m := openMirrors(t, Options{})
	r := remoteAt(s, "site.git")
	r.Limits.Objects = 1200 // three for each commit
	ref, err := m.Resolve(t.Context(), r, gitref.Selector{Commit: commits[0], Branch: "main"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Fetch(t.Context(), r, ref)
	gittest.ErrorIs(t, err, TooLarge, "not among the last 50 commits of refs/heads/main", "number of objects")
	fsck(t, m, r)
}

// TestPinnedLocal: a repository of this host, and no git.
func TestPinnedLocal(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	commits := long(t, root, "site.git", 120)
	bare := filepath.Join(root, "site.git")
	gittest.Git(t, bare, nil, "branch", "old", commits[5])
	gittest.Git(t, bare, nil, "tag", "-a", "-m", "x", "v1.0.0", commits[7])
	m := openMirrors(t, Options{AllowLocal: []string{root}})
	r := Remote{URL: "file://" + bare}
	for _, c := range []struct {
		sel   gitref.Selector
		depth int
	}{
		{gitref.Selector{Commit: commits[100]}, 1}, {gitref.Selector{Commit: commits[80], Branch: "main"}, 50},
		{gitref.Selector{Commit: commits[0], Branch: "main"}, 120},
		{gitref.Selector{Tag: "v1.0.0"}, 1}, {gitref.Selector{SemVer: "1.x"}, 1},
	} {
		m := openMirrors(t, Options{AllowLocal: []string{root}})
		ref, _ := syncSelected(t, m, r, c.sel)
		if ref.Name != ref.Hash && ref.Pinned && depthOf(t, m, r, ref.Hash) != c.depth {
			t.Errorf("%q: %d commits, want %d", c.sel, depthOf(t, m, r, ref.Hash), c.depth)
		}
		if content(t, m, r, ref.Hash, "")["a.json"] == "" {
			t.Errorf("%q: nothing is there", c.sel)
		}
		fsck(t, m, r)
	}
	ref, err := m.Resolve(t.Context(), r, gitref.Selector{Commit: commits[50], Branch: "old"})
	if err == nil {
		_, err = m.Fetch(t.Context(), r, ref)
	}
	gittest.ErrorIs(t, err, CommitNotFound, "not among the 6 commits")
}

// TestMovedRefs: a tag that is made anew is another object even where the commit is
// the same, and a branch that was rewritten is followed.
func TestMovedRefs(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	first := o.Commit("one", map[string]string{"a": "1"})
	gittest.Git(t, o.Bare, nil, "tag", "-a", "-m", "release", "v1.0.0", first)
	m := openMirrors(t, Options{})
	r := remoteAt(s, "site.git")
	sel := gitref.Selector{SemVer: "1.x"}
	before, _ := syncSelected(t, m, r, sel)
	gittest.Git(t, o.Bare, nil, "tag", "-f", "-a", "-m", "released again", "v1.0.0", first)
	after, st := syncSelected(t, m, r, sel)
	if after.Hash != first || before.Hash != first || after.Tag == before.Tag || after.Name != before.Name || st.Objects != 1 {
		t.Errorf("%+v, then %+v %+v", before, after, st)
	}
	if again, st := syncSelected(t, m, r, sel); again != after || st.Requests != 0 {
		t.Errorf("%+v %+v", again, st)
	}
	second := o.Commit("two", map[string]string{"a": "2"})
	gittest.Git(t, o.Bare, nil, "tag", "-f", "-a", "-m", "moved", "v1.0.0", second)
	if moved, _ := syncSelected(t, m, r, sel); moved.Hash != second {
		t.Errorf("%+v", moved)
	}
	o.Git("checkout", "-q", "--orphan", "other")
	rewritten := o.Commit("anew", map[string]string{"b": "3"})
	o.Git("push", "-q", "-f", "origin", "other:main")
	if ref, _ := syncRef(t, m, r, "main"); ref.Hash != rewritten || content(t, m, r, rewritten, "")["b"] != "3" {
		t.Errorf("%+v", ref)
	}
	fsck(t, m, r)
}

// TestTagIsBoundToItsCommit: a server cannot give a tag object for a commit that it
// does not point to.
func TestTagIsBoundToItsCommit(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	first := o.Commit("one", map[string]string{"a": "1"})
	second := o.Commit("two", map[string]string{"a": "2"})
	gittest.Git(t, o.Bare, nil, "tag", "-a", "-m", "release", "v1.0.0", first)
	m := openMirrors(t, Options{})
	r := remoteAt(s, "site.git")
	ref, err := m.Resolve(t.Context(), r, gitref.Selector{Tag: "v1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	syncRef(t, m, r, "main") // the commit is there
	ref.Hash = second
	_, err = m.Fetch(t.Context(), r, ref)
	gittest.ErrorIs(t, err, Corrupt, "the tag ends at the commit "+first)
}

// TestPinnedOverHTTP: over http a commit is asked for whatever the server says that
// it allows, and searched when it does not give it out after all.
func TestPinnedOverHTTP(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	commits := long(t, s.Root, "site.git", 60)
	bare := filepath.Join(s.Root, "site.git")
	lost := gittest.Git(t, bare, nil, "commit-tree", "-m", "lost", "-p", commits[0], gittest.Git(t, bare, nil, "rev-parse", "main^{tree}"))
	r := remoteAt(s, "site.git")
	fetch := func(pin string) (Stats, error) {
		m := openMirrors(t, Options{})
		ref, err := m.Resolve(t.Context(), r, gitref.Selector{Commit: pin})
		if err != nil {
			t.Fatal(err)
		}
		return m.Fetch(t.Context(), r, ref)
	}
	if st, err := fetch(commits[3]); err != nil || st.Objects != 3 || st.Requests != 1 {
		t.Errorf("a commit of the branch: %+v, %v", st, err)
	}
	_, err := fetch(lost)
	gittest.ErrorIs(t, err, CommitNotFound, "not among the 60 commits")
	gittest.Git(t, bare, nil, "config", "uploadpack.allowAnySHA1InWant", "true")
	if st, err := fetch(lost); err != nil || st.Requests != 1 {
		t.Errorf("a commit that no branch has: %+v, %v", st, err)
	}
	s.During(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		req.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte("want "+commits[3])) {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
			text := "ERR upload-pack: not our ref " + commits[3]
			fmt.Fprintf(w, "%04x%s", len(text)+4, text)
		}
	})
	if st, err := fetch(commits[3]); err != nil || st.Requests != 4 { // it, the refs, 50 and 500 commits
		t.Errorf("a commit that is not given out: %+v, %v", st, err)
	}
}

// TestUnshallowIsChecked: a server that says that history goes on, and does not send
// how, does not spoil a mirror.
func TestUnshallowIsChecked(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	commits := long(t, s.Root, "site.git", 60)
	m := openMirrors(t, Options{})
	r := remoteAt(s, "site.git")
	syncRef(t, m, r, "main")
	lies := 0
	s.During(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodPost || lies > 0 {
			return
		}
		lies++
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		pack := []byte("PACK\x00\x00\x00\x02\x00\x00\x00\x00")
		sum := sha1.Sum(pack)
		said := "unshallow " + commits[59]
		fmt.Fprintf(w, "%04x%s0000"+"0008NAK\n"+"%04x\x01%s%s0000", len(said)+4, said, len(pack)+25, pack, sum[:])
	})
	ref, err := m.Resolve(t.Context(), r, gitref.Selector{Commit: commits[30], Branch: "main"})
	if err != nil {
		t.Fatal(err)
	}
	if st, err := m.Fetch(t.Context(), r, ref); err != nil || !st.Rebuilt || lies != 1 {
		t.Errorf("%+v, %v, %d lies", st, err, lies)
	}
	fsck(t, m, r)
}
