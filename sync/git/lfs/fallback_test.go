package lfs_test

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"limpet/sync/git"

	"limpet/sync/auth"
	"limpet/sync/git/gitref"
	"limpet/sync/testenv/gittest"
	"limpet/sync/testenv/mirrortest"
)

// TestLargeOfAFallback: what Git LFS keeps comes from the mirror that has told the commit,
// from another one while the own host is away, and each is asked with what is its own.
// So it is with the submodules.
func TestLargeOfAFallback(t *testing.T) {
	t.Parallel()
	one, two := newLFSHost(t), newLFSHost(t)
	lib := gittest.NewOrigin(t, one.git.Root, "lib.git")
	at := lib.Commit("lib", map[string]string{"l.json": "1"})
	site := gittest.NewOrigin(t, one.git.Root, "site.git")
	site.Commit("site", map[string]string{"x.json": "1", ".lfsconfig": "[lfs]\n\turl = " + one.front + "/site.git/info/lfs\n"})
	commit := site.Link("[submodule \"lib\"]\n\tpath = lib\n\turl = ../lib.git\n", map[string]string{"lib": at})
	for _, name := range []string{"site.git", "lib.git"} {
		gittest.Git(t, two.git.Root, nil, "clone", "-q", "--mirror", filepath.Join(one.git.Root, name), filepath.Join(two.git.Root, name))
	}
	m := mirrortest.Open(t, git.Options{Pause: time.Nanosecond})
	r := one.remote
	theirs := &auth.Credentials{CA: two.ca, Username: "bob", Password: "mirror-secret"}
	r.Fallbacks = []git.Fallback{{URL: two.front + "/site.git", Credentials: func(context.Context) (*auth.Credentials, error) {
		return theirs,
			nil
	}}}
	down := func(h *lfsHost) {
		h.during(func(w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, "", http.StatusBadGateway)
			return true
		}, nil)
	}
	mine, other := gittest.BasicAuth("ann", gittest.Secret), gittest.BasicAuth("bob", "mirror-secret")
	content := func(text string) git.Pointer { one.add(text); return two.add(text) }
	asks := func(l *git.Large, text string, h *lfsHost, path, credentials string) {
		t.Helper()
		one.take()
		two.take()
		if got, err := openLarge(t, l, content(text)); err != nil || got != text {
			t.Errorf("%q, %v", got, err)
		}
		asked := h.take()
		if len(asked) != 2 || !strings.HasPrefix(asked[0], "POST "+path+"/info/lfs/objects/batch auth=\""+credentials+"\"") {
			t.Errorf("%s: asked %q", text, asked)
		}
		for _, line := range append(one.take(), two.take()...) {
			if strings.Contains(line, " /store/") || strings.Contains(line, other) == (h == two) {
				t.Errorf("%s: asked besides: %s", text, line)
			}
		}
	}

	// The own host is away as a whole: the mirror tells, and is asked.
	one.git.Fails(http.StatusBadGateway)
	down(one)
	ref, err := m.Resolve(t.Context(), r, gitref.Branch("main"))
	if err != nil || ref.Hash != commit || ref.Via.URL == "" {
		t.Fatalf("%+v, %v", ref, err)
	}
	if _, err := m.Fetch(t.Context(), r, ref); err != nil {
		t.Fatal(err)
	}
	tree, err := m.WholeTree(t.Context(), r, commit, "")
	if err != nil {
		t.Fatal(err)
	}
	l := m.Large(r, ref)
	defer l.Close()
	asks(l, "from who has told it", two, "/site.git", other)
	if asked := one.take(); len(asked) != 0 {
		t.Errorf("the own host was asked: %q", asked)
	}
	in := m.LargeWithin(l, tree.Submodules["lib"])
	defer in.Close()
	asks(in, "of a submodule, while its own host is away", two, "/lib.git", other)

	// Only its Git LFS is away.
	one.git.Fails(0)
	own := m.Large(r, git.Ref{Name: ref.Name, Hash: commit})
	defer own.Close()
	asks(own, "while Git LFS is away", two, "/site.git", other)
	one.during(nil, nil)
	asks(own, "of the own host", one, "/site.git", mine)
	asks(in, "of the own host of a submodule", one, "/lib.git", mine)
	asks(l, "still from who has told it", two, "/site.git", other)

	// The mirror has it not, nor does it know the credentials: the own host may.
	two.during(func(w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, "", http.StatusUnauthorized)
		return true
	}, nil)
	if got, err := openLarge(t, l, one.add("of the own host alone")); err != nil || got != "of the own host alone" {
		t.Errorf("%q, %v", got, err)
	}
	// What the own host refuses is asked of nobody else.
	one.during(func(w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, "", http.StatusForbidden)
		return true
	}, nil)
	two.during(nil, nil)
	_, err = openLarge(t, own, two.add("refused"))
	gittest.ErrorIs(t, err, git.Auth)
	if asked := two.take(); len(asked) != 0 {
		t.Errorf("the mirror was asked %q", asked)
	}
}
