package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"limpet/sync/testenv/suite"

	"limpet/state"
	"limpet/sync/testenv"
)

// facade stands before a Git host: it notes with what that is asked, and may answer in
// its place.
type facade struct {
	*httptest.Server
	status atomic.Int64        // to answer with; 0 = the host does
	held   atomic.Bool         // packs are begun to be asked for, and not sent
	half   atomic.Bool         // of packs one half is sent
	asked  chan struct{}       // has one for each pack that is held, or of which half is sent
	mu     sync.Mutex          // guards seen
	seen   map[string]struct{} // user:password
}

func newFacade(t *testing.T, host http.Handler) *facade {
	f := &facade{asked: make(chan struct{}, 16), seen: map[string]struct{}{}}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		f.mu.Lock()
		f.seen[user+":"+password] = struct{}{}
		f.mu.Unlock()
		switch status := int(f.status.Load()); {
		case status != 0:
			http.Error(w, "", status)
		case f.held.Load() && r.Method == http.MethodPost:
			io.Copy(io.Discard, r.Body) // else nobody sees that the client is gone
			f.asked <- struct{}{}
			<-r.Context().Done()
		case f.half.Load() && r.Method == http.MethodPost:
			whole := httptest.NewRecorder()
			host.ServeHTTP(whole, r)
			w.Header().Set("Content-Type", whole.Header().Get("Content-Type"))
			w.Write(whole.Body.Bytes()[:whole.Body.Len()/2])
			http.NewResponseController(w).Flush()
			f.asked <- struct{}{}
			<-r.Context().Done()
		default:
			host.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(f.Close)
	return f
}

// take returns with what the host was asked, and forgets it.
func (f *facade) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for s := range f.seen {
		out = append(out, s)
	}
	f.seen = map[string]struct{}{}
	slices.Sort(out)
	return out
}

// TestMirroredSite: a site whose host goes away is pulled from its mirror, also after a
// power cut in the middle of that; it goes back to nothing, says who serves it, and
// each host sees what is meant for it.
func TestMirroredSite(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	const first, second = "canary-41-first", "canary-42-second"
	repo := testenv.Repo(t, 2, 3)
	copied := filepath.Join(t.TempDir(), "copy.git")
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	run("clone", "-q", "--mirror", repo.Dir, copied)
	one, two := testenv.Git(t, testenv.GitOptions{User: "git", Password: first}), testenv.Git(t, testenv.GitOptions{User: "bob", Password: second})
	one.Serve("boards.git", repo.Dir)
	two.Serve("copy.git", copied)
	own, other := newFacade(t, one), newFacade(t, two)
	h := newHome(t)
	h.file(t, "credentials/default.site/token", first)
	h.file(t, ".config/limpet/config.yaml", fmt.Sprintf("git-credentials:\n- url: %s\n  values: {username: bob}\n  files: {password: %s}\n", other.URL, h.file(t, "second", second)))
	daemon := func() *daemon {
		return h.daemon(t, "--allow-insecure-git", "--credentials-dir", filepath.Join(h.dir, "credentials"))
	}
	d := daemon()
	if got := h.must(t, 1, "repo", "create", "site", "--url", own.URL+"/boards.git", "--mirror", "http://ann:"+second+"@x/y"); !strings.Contains(got.err, "mirror 1: the url must not contain") || strings.Contains(got.err, second) {
		t.Errorf("%s", got.err)
	}
	h.must(t, 0, "repo", "create", "site", "--url", own.URL+"/boards.git", "--branch", testenv.Branch, "--mirror", other.URL+"/copy.git", "--interval", "10s")
	at := func(commit, words string) {
		t.Helper()
		until(t, "the pull of "+commit, func() bool {
			got := h.must(t, 0, "repo", "show", "site").out
			return strings.Contains(got, commit) && strings.Contains(got, words)
		})
	}
	at(repo.Head(t), "Resource is available")
	if got := other.take(); len(got) > 0 {
		t.Errorf("the mirror is asked although the host answers: %q", got)
	}
	if got := h.must(t, 0, "repo", "test", "site").out; !strings.Contains(got, "mirror "+other.URL+"/copy.git") || strings.Contains(got, "warning") {
		t.Errorf("%s", got)
	}
	if got := h.run(t, "doctor").out; !strings.Contains(got, strings.TrimPrefix(other.URL, "http://")) {
		t.Errorf("the doctor does not look at the mirror:\n%s", got)
	}
	serves := "fetched from mirror " + other.URL + "/copy.git; " + own.URL + "/boards.git is unreachable: it answers 502 Bad Gateway"

	own.status.Store(http.StatusBadGateway)
	next := repo.Edit(t, repo.Dashboards()[0].Path)
	run("-C", copied, "fetch", "-q")
	at(next, serves)
	if !slices.ContainsFunc(h.history(t), func(r state.Record) bool { return strings.Contains(r.Message, serves) }) {
		t.Errorf("no job says who has served it: %s", h.must(t, 0, "history", "list", "-o", "json").out)
	}
	own.status.Store(0)
	at(next, "Ready True Available: Resource is available\n")

	// The power goes while the mirror sends.
	own.status.Store(http.StatusBadGateway)
	other.held.Store(true)
	next = repo.Edit(t, repo.Dashboards()[1].Path)
	run("-C", copied, "fetch", "-q")
	<-other.asked
	d.kill()
	other.held.Store(false)
	d = daemon()
	at(next, serves)

	// The mirror falls behind, and nothing of it is taken.
	run("-C", copied, "update-ref", "refs/heads/"+testenv.Branch, testenv.Branch+"~1")
	at(next, "does not contain commit "+next[:7])

	// A host that refuses is not asked about elsewhere.
	d.kill()
	run("-C", copied, "fetch", "-q")
	own.status.Store(http.StatusUnauthorized)
	if got := other.take(); !slices.Equal(got, []string{"bob:" + second}) {
		t.Errorf("the mirror was asked with %q", got)
	}
	d = daemon()
	until(t, "it is refused", func() bool {
		return strings.Contains(h.must(t, 0, "repo", "show", "site").out, "AuthenticationFailed")
	})
	if got := other.take(); len(got) > 0 {
		t.Errorf("a refusal is asked about at the mirror, with %q", got)
	}
	if got := own.take(); !slices.Equal(got, []string{"git:" + first}) {
		t.Errorf("the host was asked with %q", got)
	}
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	if log := d.log.String(); strings.Contains(log, "canary") {
		t.Errorf("a secret is in the log: %s", log)
	}
}
