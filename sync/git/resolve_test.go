package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"limpet/sync/git/gitref"
	"limpet/sync/git/pack"
	"limpet/sync/testenv/gittest"
)

func TestResolve(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	first := o.Commit("one", map[string]string{"a": "1"})
	second := o.Commit("two", map[string]string{"a": "2"})
	for _, args := range [][]string{
		{"branch", "feature/login-page", first}, {"branch", "refs/heads/odd", first}, {"tag", "v1.0.0", first},
		{"tag", "-a", "-m", "release", "v2.0.0", first},
		{"tag", "main", first}, {"update-ref", "refs/pull/7/head", first}, {"branch", "master", first},
	} {
		gittest.Git(t, o.Bare, nil, args...)
	}
	tag := gittest.Git(t, o.Bare, nil, "rev-parse", "refs/tags/v2.0.0")
	m := openMirrors(t, Options{})
	r := remoteAt(s, "site.git")
	for sel, want := range map[gitref.Selector]Ref{
		{}:                                {Name: "refs/heads/main", Hash: second},
		{Branch: "main"}:                  {Name: "refs/heads/main", Hash: second},
		{Branch: "feature/login-page"}:    {Name: "refs/heads/feature/login-page", Hash: first},
		{Name: "refs/heads/main"}:         {Name: "refs/heads/main", Hash: second},
		{Name: "refs/tags/main"}:          {Name: "refs/tags/main", Hash: first},
		{Name: "refs/pull/7/head"}:        {Name: "refs/pull/7/head", Hash: first},
		{Tag: "main"}:                     {Name: "refs/tags/main", Hash: first},
		{Tag: "v1.0.0"}:                   {Name: "refs/tags/v1.0.0", Hash: first},
		{Tag: "v2.0.0"}:                   {Name: "refs/tags/v2.0.0", Hash: first, Tag: tag}, // the commit, and the tag object
		{SemVer: "1.x"}:                   {Name: "refs/tags/v1.0.0", Hash: first},
		{SemVer: "*", SemVerFilter: "^v"}: {Name: "refs/tags/v2.0.0", Hash: first, Tag: tag},
	} {
		before := s.Requests.Load()
		got, err := m.Resolve(t.Context(), r, sel)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", sel, got, err)
		}
		if n := s.Requests.Load() - before; n != 1 {
			t.Errorf("%q took %d requests", sel, n)
		}
		if _, err := m.Fetch(t.Context(), r, got); err != nil {
			t.Errorf("%q: %v", sel, err)
		}
	}
	fsck(t, m, r)
	for sel, hint := range map[gitref.Selector]string{
		{Branch: "mian"}: `branch "mian" (did you mean main`, {Branch: "featur/login-page"}: "did you mean feature/login-page",
		{Branch: "Master"}:   "did you mean master",
		{Branch: "zzzzzzzz"}: "there is ", {Branch: "v1.0.0"}: "there is a tag of that name",
		{Branch: "refs/pull/7/head"}: "the full name of a ref", {Tag: "v1.0.1"}: `tag "v1.0.1" (did you mean v1.0.0`,
		{SemVer: "3.x"}: "the highest of 2 versions is v2.0.0", {SemVer: "*", TagPrefix: "app/"}: "no tag that prefix and filter leave",
		{Name: "refs/pull/8/head"}: "it goes when the request is closed", {Name: "refs/heads/none"}: `no ref "refs/heads/none"`,
	} {
		_, err := m.Resolve(t.Context(), r, sel)
		gittest.ErrorIs(t, err, BranchNotFound, hint)
	}
	before := s.Requests.Load()
	for _, bad := range []string{"-x", "--upload-pack=touch /tmp/x", "a b", "a..b", "a\x00b", "\x1b[2J", "/a", "a/", "a//b", ".a", "a.lock",
		"a@{1}", "@", "a:b", strings.Repeat("a", 300)} {
		for _, sel := range []gitref.Selector{{Branch: bad}, {Tag: bad}, {Name: "refs/" + bad + "/x"}, {Commit: bad}} {
			if sel.Name == "refs/-x/x" || strings.HasPrefix(sel.Name, "refs/@/") { // is none that could be taken for an option
				continue
			}
			_, err := m.Resolve(t.Context(), r, sel)
			gittest.ErrorIs(t, err, Refused)
		}
	}
	_, err := m.Resolve(t.Context(), r, gitref.Selector{Branch: "main", Tag: "v1.0.0"})
	gittest.ErrorIs(t, err, Refused, "only one of them")
	if s.Requests.Load() != before {
		t.Error("the server was asked for what is refused")
	}
}

// TestResolveEqualVersions takes the newest commit of versions that differ in the metadata of the
// build alone, as Flux does, whatever the names and the times of the tags are. The commits are
// fetched once.
func TestResolveEqualVersions(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	commits := map[string]string{}
	for i, c := range []struct{ tag, at, tagged string }{{"v0.1.0+build-1", "2026-01-01T10:00:00Z", "2026-06-01T10:00:00Z"},
		{"v0.1.0+build-2", "2026-01-01T10:30:00Z", ""}, {"v0.1.0+build-3", "2026-01-01T11:00:00Z", "2026-01-01T11:00:00Z"},
		{"1.0.0+b", "2026-03-01T10:00:00Z", ""}, {"1.0.0+c", "2026-01-01T10:00:00Z", ""}} {
		gittest.GitWith(t, o.Work, nil, []string{"GIT_COMMITTER_DATE=" + c.at}, "commit", "-q", "--allow-empty", "-m", fmt.Sprint(i))
		if c.tagged == "" {
			o.Git("tag", c.tag)
		} else {
			gittest.GitWith(t, o.Work, nil, []string{"GIT_COMMITTER_DATE=" + c.tagged}, "tag", "-a", "-m", "x", c.tag)
		}
		commits[c.tag] = o.Git("rev-parse", "HEAD")
	}
	o.Git("push", "-q", "--tags", "origin", "HEAD")
	m, r := openMirrors(t, Options{}), remoteAt(s, "site.git")
	for sel, want := range map[string]string{"<0.2.0": "v0.1.0+build-3", "1.x": "1.0.0+b", ">=0": "1.0.0+b"} {
		ref, err := m.Resolve(t.Context(), r, gitref.Selector{SemVer: sel})
		if err != nil || ref.Name != tagPrefix+want || ref.Hash != commits[want] {
			t.Errorf("%s: %+v, %v, want %s", sel, ref, err, want)
		}
		before := s.Requests.Load()
		if again, err := m.Resolve(t.Context(), r, gitref.Selector{SemVer: sel}); err != nil || again != ref || s.Requests.Load() != before+1 {
			t.Errorf("%s again: %+v, %v, %d requests", sel, again, err, s.Requests.Load()-before)
		}
	}
	fsck(t, m, r)
}

// TestResolveWithoutPeeledTags finds the commits of tags of a server that does not tell them.
func TestResolveWithoutPeeledTags(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	first := o.Commit("one", map[string]string{"a": "1"})
	o.Git("tag", "-a", "-m", "x", "v1.0.0")
	o.Git("tag", "-a", "-m", "y", "v2.0.0", "v1.0.0") // of a tag
	o.Git("tag", "light")
	o.Git("push", "-q", "--tags", "origin")
	s.During(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			return
		}
		seen := httptest.NewRecorder()
		s.Backend(seen, r)
		w.Header().Set("Content-Type", seen.Header().Get("Content-Type"))
		w.Write(regexp.MustCompile(`[0-9a-f]{44} \S+\^\{\}\n`).ReplaceAll(seen.Body.Bytes(), nil))
	})
	m, r := openMirrors(t, Options{}), remoteAt(s, "site.git")
	for _, sel := range []gitref.Selector{{Tag: "light"}, {Tag: "v1.0.0"}, {Tag: "v2.0.0"}, {SemVer: "1.x"}} {
		for range 2 {
			ref, err := m.Resolve(t.Context(), r, sel)
			want := ""
			if sel.Tag != "light" {
				want = gittest.Git(t, o.Bare, nil, "rev-parse", ref.Name)
			}
			if err != nil || ref.Hash != first || ref.Tag != want {
				t.Fatalf("%q: %+v, %v, want tag %q", sel, ref, err, want)
			}
			if _, err := m.Fetch(t.Context(), r, ref); err != nil {
				t.Errorf("%q: %v", sel, err)
			}
		}
	}
	fsck(t, m, r)
}

// TestObjectFormat refuses a SHA-256 repository by its name, wherever it is.
func TestObjectFormat(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	work, bundles := filepath.Join(s.Root, "work"), filepath.Join(s.Root, "bundles")
	gittest.Git(t, s.Root, nil, "init", "-q", "--object-format=sha256", "-b", "main", work)
	gittest.Git(t, work, nil, "commit", "-q", "--allow-empty", "-m", "one")
	gittest.Git(t, s.Root, nil, "clone", "-q", "--bare", work, "full.git")
	gittest.Git(t, s.Root, nil, "init", "-q", bundles)
	gittest.Git(t, work, nil, "bundle", "create", "-q", filepath.Join(bundles, "x.bundle"), "main")
	ssh, over := overSSH(t)
	gittest.Git(t, s.Root, nil, "clone", "-q", "--bare", work, filepath.Join(ssh.Root, "full.git"))
	m := openMirrors(t, Options{AllowLocal: []string{s.Root}})
	for _, r := range []Remote{{URL: s.URL + "/full.git"}, over("full.git"), {URL: "file://" + work}, {URL: "bundle://" + bundles}} {
		_, err := m.Resolve(t.Context(), r, gitref.Selector{})
		gittest.ErrorIs(t, err, Refused, "object format sha256 is not supported by this version")
	}
}

func TestResolveEmptyAndUnborn(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	gittest.Git(t, s.Root, nil, "init", "-q", "--bare", "empty.git")
	m := openMirrors(t, Options{})
	for _, branch := range []string{"", "main"} {
		_, err := m.Resolve(t.Context(), remoteAt(s, "empty.git"), gitref.Branch(branch))
		gittest.ErrorIs(t, err, Empty, "first commit")
	}
	_, err := m.Resolve(t.Context(), remoteAt(s, "none.git"), gitref.Branch(""))
	gittest.ErrorIs(t, err, NotFound)
	o := gittest.NewOrigin(t, s.Root, "unborn.git")
	o.Commit("one", map[string]string{"a": "1"})
	if err := os.WriteFile(filepath.Join(o.Bare, "HEAD"), []byte("ref: refs/heads/trunk\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	ref, err := m.Resolve(t.Context(), remoteAt(s, "unborn.git"), gitref.Branch(""))
	if err != nil || ref.Name != "refs/heads/main" {
		t.Errorf("%+v %v", ref, err)
	}
	// A repository may have tags and no branch.
	o.Git("push", "-q", "origin", "HEAD:refs/tags/v1", ":main")
	_, err = m.Resolve(t.Context(), remoteAt(s, "unborn.git"), gitref.Branch(""))
	gittest.ErrorIs(t, err, Empty, "no branches")
}

func TestDefaultBranch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ head, refs, want string }{
		{"trunk", "main trunk", "trunk"},
		{"trunk", "b main master", "main"},
		{"trunk", "b master a", "master"},
		{"trunk", "b a c", "a"},
		{"", "b a", "a"},
		{"trunk", "", ""},
	} {
		adv := packp.NewAdvRefs()
		if c.head != "" {
			adv.Capabilities.Add(capability.SymRef, "HEAD:refs/heads/"+c.head)
		}
		adv.References["refs/tags/0"] = pack.ID{1}
		for _, name := range strings.Fields(c.refs) {
			adv.References["refs/heads/"+name] = pack.ID{1}
		}
		if got := strings.TrimPrefix(defaultBranch(adv), "refs/heads/"); got != c.want {
			t.Errorf("HEAD %q of %q: %q, want %q", c.head, c.refs, got, c.want)
		}
	}
}

// TestFewListingsAreKept: what a look has shown is held for a fetch that follows at
// once, not for all the Repositories that have nothing new.
func TestFewListingsAreKept(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	o.Commit("one", map[string]string{"a": "1"})
	m := openMirrors(t, Options{})
	const many = 3 * listingsKept
	for i := range many {
		name := fmt.Sprintf("r%d.git", i)
		if err := os.Symlink(o.Bare, filepath.Join(s.Root, name)); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Resolve(t.Context(), remoteAt(s, name), gitref.Branch("main")); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.listings) != listingsKept {
		t.Errorf("%d listings are kept of %d, want %d", len(m.listings), many, listingsKept)
	}
	if _, st := syncRef(t, m, remoteAt(s, fmt.Sprintf("r%d.git", many-1)), "main"); st.Requests != 1 {
		t.Errorf("%d requests for a fetch after a look, want 1", st.Requests)
	}
}

// TestChooseEnds: a look through many tags ends with its context.
func TestChooseEnds(t *testing.T) {
	t.Parallel()
	adv := packp.NewAdvRefs()
	adv.References["refs/tags/v1.0.0"] = pack.ID{1}
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := choose(ctx, adv, gitref.Selector{SemVer: "*"}); !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
}

// FuzzAdvertisement: whatever a server tells of its refs, what is chosen is one of
// them, or an error.
func FuzzAdvertisement(f *testing.F) {
	adv := packp.NewAdvRefs()
	adv.Capabilities.Add(capability.SymRef, "HEAD:refs/heads/main")
	adv.Head = &pack.ID{1}
	adv.References = map[string]pack.ID{"refs/heads/main": {1}, "refs/tags/v1.0.0": {2}, "refs/pull/1/head": {3}}
	adv.Peeled = map[string]pack.ID{"refs/tags/v1.0.0": {4}}
	var seed bytes.Buffer
	if err := adv.Encode(&seed); err != nil {
		f.Fatal(err)
	}
	f.Add(seed.Bytes())
	f.Add(bytes.ReplaceAll(seed.Bytes(), []byte("refs/heads/main"), []byte("refs/heads/../x")))
	f.Add([]byte("0000"))
	f.Fuzz(func(t *testing.T, data []byte) {
		adv := packp.NewAdvRefs()
		if adv.Decode(bytes.NewReader(data)) != nil {
			return
		}
		for _, sel := range []gitref.Selector{{}, {Branch: "main"}, {Tag: "v1.0.0"}, {SemVer: "*"}, {SemVer: ">=0.0.0-0", TagPrefix: "v"},
			{Name: "refs/pull/1/head"}} {
			refs, err := choose(t.Context(), adv, sel)
			if err != nil {
				if KindOf(err) != BranchNotFound && KindOf(err) != Empty {
					t.Fatalf("%q: %v", sel, err)
				}
				continue
			}
			for _, ref := range refs {
				id, there := adv.References[ref.Name]
				if !there || ref.Hash != id.String() && ref.Tag != id.String() {
					t.Fatalf("%q: %+v is not told", sel, ref)
				}
			}
		}
	})
}

// TestLongList: a server whose list of refs is long is asked for the refs that matter, with the
// same refs, errors and mirrors as by version 0 of the protocol.
func TestLongList(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	first := o.Commit("one", map[string]string{"a": "1"})
	second := o.Commit("two", map[string]string{"a": "2"})
	refs := make([]string, 3000)
	for i := range refs {
		refs[i] = fmt.Sprintf("%s refs/pull/%d/head\n", first, i)
	}
	if err := os.WriteFile(filepath.Join(o.Bare, "packed-refs"), []byte(strings.Join(refs, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"branch", "feature/login", first}, {"branch", "main-2", first}, {"branch", "gone", second},
		{"tag", "v1.0.0", first}, {"tag", "v2.0.0-rc1", first}, {"tag", "-a", "-m", "release", "v2.0.0", second},
		{"tag", "app/v3.1.0", second}, {"tag", "both", first}, {"tag", "-a", "-m", "same", "v2.0.0+b", first}, {"pack-refs", "--all"}} {
		gittest.Git(t, o.Bare, nil, args...)
	}
	old := gittest.NewServer(t)
	if err := os.Symlink(o.Bare, filepath.Join(old.Root, "site.git")); err != nil {
		t.Fatal(err)
	}
	old.During(func(_ http.ResponseWriter, r *http.Request) { r.Header.Del("Git-Protocol") })
	both := []*gittest.Server{s, old}
	m := openMirrors(t, Options{})
	look := func(at *gittest.Server, sel gitref.Selector) (Ref, string) {
		t.Helper()
		ref, err := m.Resolve(t.Context(), remoteAt(at, "site.git"), sel)
		if err == nil {
			return ref, ""
		}
		return ref, strings.ReplaceAll(err.Error(), at.URL, "")
	}
	for range 3 { // the first list is long, the second answer names the version
		for _, at := range both {
			look(at, gitref.Branch("main"))
		}
	}
	for _, sel := range []gitref.Selector{{}, {Branch: "main"}, {Branch: "feature/login"}, {Branch: "logn"}, {Branch: "both"},
		{Branch: "refs/pull/1/head"}, {Tag: "v1.0.0"}, {Tag: "v2.0.0"}, {Tag: "v9"}, {SemVer: "*"}, {SemVer: ">=2.0.0-0"}, {SemVer: "9.x"},
		{SemVer: "*", TagPrefix: "app/"}, {SemVer: "*", SemVerFilter: "^v1"}, {Name: "refs/pull/7/head"}, {Name: "refs/pull/9999/head"},
		{Name: "refs/tags/v2.0.0"}} {
		got, gotErr := look(s, sel)
		want, wantErr := look(old, sel)
		if got != want || gotErr != wantErr {
			t.Errorf("%q: %+v %s, in version 0 %+v %s", sel, got, gotErr, want, wantErr)
		}
	}
	before, sent := s.Requests.Load(), s.Sent()
	look(s, gitref.Branch("main"))
	if n, size := s.Requests.Load()-before, s.Sent()-sent; n != 1 || size > 200 {
		t.Errorf("a look took %d requests and %d bytes", n, size)
	}

	same := func(sel gitref.Selector, requests int64) {
		t.Helper()
		var found [2]Ref
		var files [2]map[string]string
		var kept [2]map[string]pack.ID
		for i, at := range both {
			r := remoteAt(at, "site.git")
			before := s.Requests.Load()
			found[i], _ = syncSelected(t, m, r, sel)
			if n := s.Requests.Load() - before; at == s && n > requests {
				t.Errorf("%q: %d requests, want %d", sel, n, requests)
			}
			fsck(t, m, r)
			files[i] = content(t, m, r, found[i].Hash, "")
			var err error
			if kept[i], err = pack.ReadRefs(mirrorDir(t, m, r)); err != nil {
				t.Fatal(err)
			}
		}
		if found[0] != found[1] || !maps.Equal(files[0], files[1]) || !maps.Equal(kept[0], kept[1]) {
			t.Errorf("%q: %+v with %v, in version 0 %+v with %v", sel, found[0], kept[0], found[1], kept[1])
		}
	}
	same(gitref.Branch("main"), 2)
	for i := range 10 {
		o.Commit("next", map[string]string{"a": fmt.Sprint("next ", i), fmt.Sprint("b", i): "new"})
		same(gitref.Branch("main"), 3) // the mirror has tags, of which is asked whether they are there
	}
	same(gitref.Branch("gone"), 3)
	gittest.Git(t, o.Bare, nil, "branch", "-D", "gone")
	same(gitref.Selector{Tag: "v2.0.0"}, 3) // and gone is gone from the mirror
	o.Git("reset", "-q", "--hard", first)
	o.Commit("forced", map[string]string{"c": "3"})
	same(gitref.Selector{}, 3)
	same(gitref.Selector{Commit: second}, 3)
}
