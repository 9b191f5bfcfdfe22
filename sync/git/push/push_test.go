package push_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"limpet/sync/git"

	"limpet/sync/auth"
	"limpet/sync/git/gitref"
	"limpet/sync/git/pack"
	"limpet/sync/testenv"
	"limpet/sync/testenv/gittest"
	"limpet/sync/testenv/mirrortest"
)

// pushable is a repository with a commit that may be written to.
func pushable(t testing.TB, root string) (o *gittest.Origin, head string) {
	t.Helper()
	o = gittest.NewOrigin(t, root, "site.git")
	gittest.Git(t, o.Bare, nil, "config", "http.receivepack", "true")
	return o, o.Commit("first", map[string]string{"a.json": "1", "b.json": "2", "c/d.json": "3"})
}

// TestPush writes over each transport, to real git at the other end.
func TestPush(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"http", "ssh", "file"} {
		t.Run(way, func(t *testing.T) {
			s := gittest.NewServer(t)
			o, head := pushable(t, s.Root)
			r := mirrortest.At(s, "site.git")
			var options git.Options
			switch way {
			case "ssh":
				host, client := testenv.NewSSHKey(t, "ed25519", ""), testenv.NewSSHKey(t, "ed25519", "")
				d := testenv.SSH(t, testenv.SSHOptions{HostKeys: []testenv.SSHKey{host}, Accept: []testenv.SSHKey{client}})
				r = git.Remote{URL: d.URL(o.Bare), Creds: &auth.Credentials{SSHKey: client.Private, KnownHosts: []byte(d.Known(host))}}
			case "file":
				options.AllowLocal = []string{s.Root}
				r = git.Remote{URL: o.Bare}
			}
			m := mirrortest.Open(t, options)
			w := write(t, m, r, "main", git.Edit{Path: "a.json"}, git.Edit{Path: "c/", To: "e/c/"}, git.Edit{Path: "new.json", Blob: git.NewBlob([]byte("n"))})
			if got := gittest.Git(t, o.Bare, nil, "diff-tree", "-r", "-M", "--name-status", "--no-commit-id",
				w.Hash); got != "D\ta.json\nR100\tc/d.json\te/c/d.json\nA\tnew.json" {
				t.Errorf("changes\n%s", got)
			}
			// The mirror knows nothing of it before it is fetched.
			if refs := gittest.Must[map[string]pack.ID](t)(pack.ReadRefs(mirrortest.MirrorDir(t, m, r))); refs["refs/heads/main"].String() != head {
				t.Errorf("refs of the mirror: %v", refs)
			}
			if err := m.Push(t.Context(), r, "refs/heads/main", head, w); err != nil {
				t.Errorf("a second time: %v", err)
			}
			ref, st := mirrortest.Sync(t, m, r, "main")
			if ref.Hash != w.Hash || st.Full {
				t.Errorf("fetched %s, %+v", ref.Hash, st)
			}
			// A new branch, and one whose name is in the way of another.
			c := gittest.Must[*git.Composition](t)(m.Compose(t.Context(), r, ref.Hash, []git.Edit{{Path: "b.json"}}))
			side := gittest.Must[*git.NewCommit](t)(c.Commit(making("side")))
			if err := m.Push(t.Context(), r, "refs/heads/edit/side", "", side); err != nil {
				t.Fatal(err)
			}
			gittest.ErrorIs(t, m.Push(t.Context(), r, "refs/heads/edit/side", "", w), git.Overtaken, "moved on")
			if err := m.Push(t.Context(), r, "refs/heads/edit", "", side); git.KindOf(err) != git.Declined && git.KindOf(err) != git.Overtaken {
				t.Errorf("a branch in the way of another: %v", err)
			}
			// Somebody was faster, and nothing of him is lost.
			o.Git("fetch", "-q", "origin")
			o.Git("reset", "-q", "--hard", "origin/main")
			other := o.Commit("faster", map[string]string{"faster.json": "1"})
			gittest.ErrorIs(t, m.Push(t.Context(), r, "refs/heads/main", w.Hash, side), git.Overtaken, "moved on")
			if now := gittest.Git(t, o.Bare, nil, "rev-parse", "main"); now != other {
				t.Errorf("the branch is at %s", now)
			}
			ref, _ = mirrortest.Sync(t, m, r, "main")
			for commit, want := range map[string]bool{w.Hash: true, head: true, other: true, side.Hash: false, strings.Repeat("1", 40): false} {
				if got, err := m.Contains(t.Context(), r, ref, commit); err != nil || got != want {
					t.Errorf("Contains %s: %t, %v", commit, got, err)
				}
			}
			gittest.ErrorIs(t, m.Push(t.Context(), r, "refs/tags/x", "", side), git.Refused)
			gittest.ErrorIs(t, m.Push(t.Context(), r, "refs/heads/../x", "", side), git.Refused)
			gittest.ErrorIs(t, m.Push(t.Context(), r, "refs/heads/x", "HEAD", side), git.Refused)

			// A rule of the host, in its words.
			o.Hook("echo 'GL-HOOK-ERR: main is protected, \x1b[2Jask ops' >&2; exit 1")
			c = gittest.Must[*git.Composition](t)(m.Compose(t.Context(), r, other, []git.Edit{{Path: "b.json"}}))
			late := gittest.Must[*git.NewCommit](t)(c.Commit(making("late")))
			before := string(gittest.Must[[]byte](t)(os.ReadFile(filepath.Join(mirrortest.MirrorDir(t, m, r), "packed-refs"))))
			says := []string{"pre-receive hook declined", "main is protected, [2Jask ops"}
			if way == "file" {
				says = []string{"pre-receive"}
			}
			gittest.ErrorIs(t, m.Push(t.Context(), r, "refs/heads/main", other, late), git.Declined, says...)
			if after := string(gittest.Must[[]byte](t)(os.ReadFile(filepath.Join(mirrortest.MirrorDir(t, m, r), "packed-refs")))); after != before {
				t.Errorf("refs of the mirror:\n%s\nwere\n%s", after, before)
			}
			if now := gittest.Git(t, o.Bare, nil, "rev-parse", "main"); now != other {
				t.Errorf("the branch is at %s", now)
			}
			o.Hook("exit 0")
			if way != "file" {
				if err := m.Push(t.Context(), r, "refs/heads/main", other, late); err != nil {
					t.Error(err)
				}
			}
			// Somebody holds the lock.
			ref, _ = mirrortest.Sync(t, m, r, "main")
			if err := os.Remove(filepath.Join(o.Bare, "hooks", "pre-receive")); err != nil {
				t.Fatal(err)
			}
			lock := filepath.Join(o.Bare, "refs/heads/main.lock")
			if err := os.WriteFile(lock, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			mirrortest.Sync(t, m, r, "main")
			gittest.ErrorIs(t, m.Push(t.Context(), r, "refs/heads/main", ref.Hash, side), git.Overtaken)
			if err := os.Remove(lock); err != nil {
				t.Fatal(err)
			}
			gittest.Git(t, o.Bare, nil, "fsck", "--full", "--strict")
			mirrortest.Fsck(t, m, r)
		})
	}
}

// TestPushers has several agents write to one branch at the same time, each after a look
// of its own: every change of each is in it, once.
func TestPushers(t *testing.T) {
	t.Parallel()
	const agents, each = 3, 3
	for _, way := range []string{"http", "file"} {
		t.Run(way, func(t *testing.T) {
			s := gittest.NewServer(t)
			o, _ := pushable(t, s.Root)
			r, options := mirrortest.At(s, "site.git"), git.Options{}
			if way == "file" {
				r, options.AllowLocal = git.Remote{URL: o.Bare}, []string{s.Root}
			}
			var wg sync.WaitGroup
			for a := range agents {
				m := mirrortest.Open(t, options)
				wg.Go(func() {
					for n := 0; n < each; {
						ref, err := m.Resolve(t.Context(), r, gitref.Branch("main"))
						if err == nil {
							_, err = m.Fetch(t.Context(), r, ref)
						}
						if git.KindOf(err) == git.Moved {
							continue
						}
						if err != nil {
							t.Error(err)
							return
						}
						c, err := m.Compose(t.Context(), r, ref.Hash, []git.Edit{{Path: fmt.Sprintf("agent-%d/%d.json", a, n), Blob: git.NewBlob([]byte("x"))}})
						if err != nil {
							t.Error(err)
							return
						}
						w, err := c.Commit(making(fmt.Sprintf("agent %d, change %d", a, n)))
						if err != nil {
							t.Error(err)
							return
						}
						switch err := m.Push(t.Context(), r, ref.Name, ref.Hash, w); git.KindOf(err) {
						case "":
							n++
						case git.Overtaken:
						default:
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			if n := len(strings.Fields(gittest.Git(t, o.Bare, nil, "rev-list", "main"))); n != 1+agents*each {
				t.Errorf("%d commits", n)
			}
			if n := len(strings.Fields(gittest.Git(t, o.Bare, nil, "ls-tree", "-r", "--name-only", "main"))); n != 3+agents*each {
				t.Errorf("%d files", n)
			}
			gittest.Git(t, o.Bare, nil, "fsck", "--full", "--strict")
		})
	}
}

// TestPushEndsInDoubt: the answer to a push does not come. It may have arrived, and the
// next look tells.
func TestPushEndsInDoubt(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o, head := pushable(t, s.Root)
	r := mirrortest.At(s, "site.git")
	for _, c := range []struct {
		name    string
		arrives bool
		hook    http.HandlerFunc
		kind    git.Kind
	}{
		{"it has arrived", true, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/git-receive-pack") {
				s.Backend(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			}
		}, git.Unreachable},
		{"it has not", false, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/git-receive-pack") {
				panic(http.ErrAbortHandler)
			}
		}, git.Unreachable},
		{"nothing is said", false, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/git-receive-pack") {
				w.Header().Set("Content-Type", "application/x-git-receive-pack-result")
				w.WriteHeader(http.StatusOK)
			}
		}, git.Unreachable},
		{"it is too large for what is in between", false, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/git-receive-pack") {
				http.Error(w, "no more than 1m", http.StatusRequestEntityTooLarge)
			}
		}, git.Protocol},
		{"the token may not write", false, func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.RawQuery, "git-receive-pack") {
				http.Error(w, "Write access to repository not granted. "+gittest.Secret, http.StatusForbidden)
			}
		}, git.ReadOnly},
		{"it leads elsewhere", false, func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.RawQuery, "git-receive-pack") {
				http.Redirect(w, r, "http://example.com/site.git/info/refs", http.StatusFound)
			}
		}, git.Refused},
	} {
		t.Run(c.name, func(t *testing.T) {
			gittest.Git(t, o.Bare, nil, "update-ref", "refs/heads/main", head)
			m := mirrortest.Open(t, git.Options{})
			r := r
			r.Creds, r.AllowInsecure = &auth.Credentials{Username: "u", Password: gittest.Secret}, true
			ref, _ := mirrortest.Sync(t, m, r, "main")
			made := gittest.Must[*git.Composition](t)(m.Compose(t.Context(), r, ref.Hash, []git.Edit{{Path: "a.json"}}))
			w := gittest.Must[*git.NewCommit](t)(made.Commit(making("doubt")))
			s.During(c.hook)
			err := m.Push(t.Context(), r, ref.Name, ref.Hash, w)
			s.During(nil)
			gittest.ErrorIs(t, err, c.kind)
			ref, _ = mirrortest.Sync(t, m, r, "main")
			if got, err := m.Contains(t.Context(), r, ref, w.Hash); err != nil || got != c.arrives {
				t.Errorf("Contains: %t, %v", got, err)
			}
			if err := m.Push(t.Context(), r, ref.Name, head, w); err != nil {
				t.Errorf("once more: %v", err)
			}
			if n := len(strings.Fields(gittest.Git(t, o.Bare, nil, "rev-list", "main"))); n != 2 {
				t.Errorf("%d commits", n)
			}
		})
	}
}

// TestPushStalls: a server that does not take what is sent.
func TestPushStalls(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	_, head := pushable(t, s.Root)
	r := mirrortest.At(s, "site.git")
	look := mirrortest.Open(t, git.Options{})
	mirrortest.Sync(t, look, r, "main")
	noise := make([]byte, 6<<20) // more than the buffers on the way take
	rand.NewChaCha8([32]byte{}).Read(noise)
	c := gittest.Must[*git.Composition](t)(look.Compose(t.Context(), r, head, []git.Edit{{Path: "large.bin", Blob: git.NewBlob(noise)}}))
	w := gittest.Must[*git.NewCommit](t)(c.Commit(making("large")))
	held := make(chan struct{})
	s.During(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			<-held
			panic(http.ErrAbortHandler)
		}
	})
	gittest.ErrorIs(t, mirrortest.Open(t, git.Options{Stall: 2 * time.Second}).Push(t.Context(), r, "refs/heads/main", head, w), git.Timeout,
		"silent")
	close(held)
	s.During(nil)
	small := r
	small.Limits = pack.Limits{PackBytes: 1 << 20}
	gittest.ErrorIs(t, look.Push(t.Context(), small, "refs/heads/main", head, w), git.TooLarge)
	if err := look.Push(t.Context(), r, "refs/heads/main", head, w); err != nil {
		t.Fatal(err)
	}
}

// making is a commit with a message.
func making(message string) git.CommitOptions {
	by := git.Person{Name: "Grafana", Mail: "noreply@grafana.com"}
	return git.CommitOptions{Author: by, Committer: by, Message: message, When: time.Unix(1800000000, 0)}
}

// write makes a commit of edits and pushes it.
func write(t testing.TB, m *git.Mirrors, r git.Remote, branch string, edits ...git.Edit) *git.NewCommit {
	t.Helper()
	ref, _ := mirrortest.Sync(t, m, r, branch)
	c := gittest.Must[*git.Composition](t)(m.Compose(t.Context(), r, ref.Hash, edits))
	if err := errors.Join(c.Outcomes...); err != nil {
		t.Fatal(err)
	}
	w := gittest.Must[*git.NewCommit](t)(c.Commit(making("change")))
	if err := m.Push(t.Context(), r, ref.Name, ref.Hash, w); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestMain(m *testing.M) { os.Exit(gittest.Main(m)) }
