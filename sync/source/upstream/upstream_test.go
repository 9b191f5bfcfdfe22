package upstream_test

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
	"limpet/sync/source/upstream"
	"limpet/sync/testenv"
	"limpet/sync/testenv/gittest"
	"limpet/sync/testenv/mirrortest"
	"limpet/sync/testenv/sourcetest"
)

func TestMain(m *testing.M) {
	if state.RunProbe() {
		return
	}
	os.Exit(testenv.Main(m))
}

// TestUpstream: a limpet reads what another one has fetched, as from a Git host, and asks no Git
// host.
func TestUpstream(t *testing.T) {
	t.Parallel()
	o := gittest.NewOrigin(t, t.TempDir(), "x.git")
	files := map[string]string{"README.md": "hi", "d/a.json": gittest.Dashboard("a", 1, 200), "d/b.json": gittest.Dashboard("b", 1, 200)}
	first, before := o.Commit("first", files), maps.Clone(files)
	parent, origin := mirrortest.Open(t, git.Options{AllowLocal: []string{filepath.Dir(o.Bare)}}), git.Remote{URL: "file://" + o.Bare}
	client := sourcetest.Connect(t, sourcetest.Embedded(t))
	branch := "main"
	synced := func(name string, status map[string]any) {
		t.Helper()
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": api.Repositories.GroupVersion().String(), "kind": "Repository",
			"spec": map[string]any{"title": "x", "type": "git", "git": map[string]any{"url": origin.URL, "branch": branch, "path": name},
				"sync": map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(60)}}}}
		u.SetName(name)
		at := client.Resource(api.Repositories).Namespace("default")
		if _, err := at.Create(t.Context(), u, metav1.CreateOptions{}); err != nil && !strings.Contains(err.Error(), "already exists") {
			t.Fatal(err)
		}
		u, err := at.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		u.Object["status"] = status
		if _, err := at.UpdateStatus(t.Context(), u, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	lastRef := func(hash string, more ...any) map[string]any {
		return map[string]any{"sync": map[string]any{"lastRef": hash, "state": "success", "message": []any{}}, "conditions": more}
	}
	server := httptest.NewServer(upstream.Handler(client, parent, func() (string, error) { return "CANARY-token", nil }))
	t.Cleanup(server.Close)
	child := mirrortest.Open(t, git.Options{})
	at := func(path string) git.Remote {
		return git.Remote{URL: strings.Replace(server.URL, "http:", "limpet+http:", 1) + path, Creds: &auth.Credentials{Bearer: "CANARY-token"}}
	}
	ref, _ := mirrortest.Sync(t, parent, origin, "main")
	synced("boards", lastRef(ref.Hash))
	remote := at("/repository/default/boards")

	got, stats := mirrortest.Sync(t, child, remote, "")
	if got.Hash != ref.Hash || got.Name != ref.Name || !stats.Full || !strings.Contains(got.Via.String(), "verifies no signature") {
		t.Fatalf("%+v %+v, want %+v", got, stats, ref)
	}
	if have := mirrortest.Content(t, child, remote, got.Hash, ""); !maps.Equal(have, files) {
		t.Error("content differs")
	}
	mirrortest.Fsck(t, child, remote)
	if _, stats := mirrortest.Sync(t, child, remote, "main"); stats.Requests != 0 {
		t.Errorf("nothing is new: %+v", stats)
	}

	// Several branches and tags may have one commit: the ref is that which the object follows, also
	// after it has moved on.
	o.Git("push", "-q", "origin", "main:prod")
	for _, branch = range []string{"prod", "moved"} {
		mirrortest.Sync(t, parent, origin, "prod")
		synced(branch, lastRef(ref.Hash))
		if got, err := child.Resolve(t.Context(), at("/repository/default/"+branch), gitref.Branch(branch)); err != nil || got.Hash != ref.Hash {
			t.Errorf("%s: %+v %v", branch, got, err)
		}
	}
	branch = "main"

	for i := range 3 { // the child misses some
		files["d/a.json"] = gittest.Dashboard("a", 2+i, 200)
		o.Commit("next", files)
		ref, _ = mirrortest.Sync(t, parent, origin, "main")
	}
	since := time.Date(2026, 11, 26, 10, 0, 0, 0, time.UTC)
	down := lastRef(ref.Hash, map[string]any{"type": "Ready", "status": "False", "reason": "X", "message": "x",
		"lastTransitionTime": since.Format(time.RFC3339)},
		map[string]any{"type": api.ConditionVerified, "status": "True", "reason": "Verified",
			"message": api.Verification{Trust: "x", Object: ref.Hash}.Message("signed")})
	down["health"] = map[string]any{"healthy": false, "checked": since.UnixMilli()}
	synced("boards", down)
	got, stats = mirrortest.Sync(t, child, remote, "main")
	if got.Hash != ref.Hash || stats.Full || stats.Bytes > 4000 {
		t.Fatalf("%+v %+v, want %s", got, stats, ref.Hash)
	}
	for _, want := range []string{"which verified the signature", "since 2026-11-26T10:00:00Z"} {
		if !strings.Contains(got.Via.String(), want) {
			t.Errorf("%q does not say %q", got.Via, want)
		}
	}
	if have := mirrortest.Content(t, child, remote, got.Hash, ""); !maps.Equal(have, files) {
		t.Error("content differs")
	}
	mirrortest.Fsck(t, child, remote)

	// The object goes back: to one that was read, of a reader that has all, and of one that has the
	// newest commit alone.
	shallow := mirrortest.Open(t, git.Options{})
	mirrortest.Sync(t, shallow, remote, "main")
	synced("boards", lastRef(first))
	for name, reader := range map[string]*git.Mirrors{"all": child, "shallow": shallow} {
		got, _ := mirrortest.Sync(t, reader, remote, "main")
		if have := mirrortest.Content(t, reader, remote, got.Hash, ""); got.Hash != first || !maps.Equal(have, before) {
			t.Errorf("%s: %+v, want %s", name, got, first)
		}
		mirrortest.Fsck(t, reader, remote)
	}

	synced("unsigned", lastRef(ref.Hash, map[string]any{"type": api.ConditionVerified, "status": "False", "reason": "UnknownKey", "message": "x"}))
	synced("empty", map[string]any{})
	foreign := at("/repository/default/boards")
	foreign.Creds = &auth.Credentials{Bearer: "another"}
	plain := at("/repository/default/boards")
	plain.URL = "limpet+http://example.com/default/boards"
	for name, c := range map[string]struct {
		remote git.Remote
		kind   git.Kind
	}{
		"not verified": {at("/repository/default/unsigned"), git.Unreachable}, "nothing synced": {at("/repository/default/empty"), git.Unreachable},
		"no object": {at("/repository/default/absent"), git.NotFound}, "no kind": {at("/secret/default/x"), git.NotFound},
		"no source": {at("/default/absent"), git.NotFound}, "no path": {at("/x"), git.Refused},
		"other token": {foreign, git.Auth}, "not this host": {plain, git.Refused},
	} {
		_, err := child.Resolve(t.Context(), c.remote, gitref.Selector{})
		if git.KindOf(err) != c.kind || err != nil && strings.Contains(err.Error(), "CANARY") {
			t.Errorf("%s: %v, want %s", name, err, c.kind)
		}
	}
	gittest.ErrorIs(t, child.Pushable(t.Context(), remote), git.ReadOnly)

	for header, want := range map[string]int{"Bearer CANARY-token": 200, "CANARY-token": 401, "Token CANARY-token": 401, "": 401,
		"Basic " + base64.StdEncoding.EncodeToString([]byte("git:CANARY-token")): 200} {
		req, _ := http.NewRequestWithContext(t.Context(), "HEAD", server.URL+"/repository/default/boards/latest.bundle", nil)
		req.Header.Set("Authorization", header)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if res.Body.Close(); res.StatusCode != want {
			t.Errorf("%q: %d, want %d", header, res.StatusCode, want)
		}
	}

	// Clients that take nothing do not keep others waiting, however many they are.
	noise := make([]byte, 12<<20)
	_, _ = rand.Read(noise)
	files["noise"] = string(noise)
	o.Commit("large", files)
	ref, _ = mirrortest.Sync(t, parent, origin, "main")
	synced("large", lastRef(ref.Hash))
	for range 6 {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, "GET /repository/default/large/latest.bundle HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer CANARY-token\r\n\r\n")
		if _, err := c.Read(make([]byte, 1)); err != nil { // it has begun
			t.Fatal(err)
		}
	}
	began := time.Now()
	if got, _ := mirrortest.Sync(t, child, at("/repository/default/large"), ""); got.Hash != ref.Hash || time.Since(began) > 50*time.Second {
		t.Errorf("%+v after %v, want %s", got, time.Since(began), ref.Hash)
	}
	open := upstream.Handler(client, parent, nil)
	for _, path := range []string{"/repository/default/r%2fstatus/", "/repository/a%2fb/x/", "/gitrepository/default/%2e%2e/", "/repository/default/a%25b/"} {
		answer := httptest.NewRecorder()
		if open.ServeHTTP(answer, httptest.NewRequest("GET", path+upstream.File, nil)); answer.Code != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
		}
	}
}
