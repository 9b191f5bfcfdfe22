package lfs_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"limpet/sync/git"

	"golang.org/x/crypto/ssh"

	"limpet/sync/auth"
	"limpet/sync/git/pack"
	"limpet/sync/testenv/gittest"
	"limpet/sync/testenv/mirrortest"
	"limpet/sync/testenv/nettest"
)

// mediaType is the one of the batch API.
const mediaType = "application/vnd.git-lfs+json"

// lfsHost is a Git host with Git LFS, and a store on another host. The Git side is real
// git; the Git LFS side is a fake that speaks the documented batch format, because there
// is no server of it in Debian.
type lfsHost struct {
	t      *testing.T
	git    *gittest.Server
	front  string // https://127.0.0.1
	store  string // https://localhost, another port and another name
	ca     []byte
	remote git.Remote

	mu      sync.Mutex // guards all below
	content map[string]string
	asked   []string // requests of both, without those of Git
	answer  func(w http.ResponseWriter, r *http.Request) bool
	shape   func(oid string, o map[string]any) // changes what the answer says of an object
}

func newLFSHost(t *testing.T) *lfsHost {
	t.Helper()
	h := &lfsHost{t: t, git: gittest.NewServer(t), content: map[string]string{}}
	ca := nettest.NewAuthority(t)
	h.ca = ca.PEM
	backend := h.git.Handler(t)
	h.front = ca.Serve(t, nettest.Site{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Path, "/info/lfs/") && !strings.HasPrefix(r.URL.Path, "/store/") {
			backend.ServeHTTP(w, r)
			return
		}
		h.serve(w, r)
	})})
	h.store = strings.Replace(ca.Serve(t, nettest.Site{Handler: http.HandlerFunc(h.serve)}), "127.0.0.1", "localhost", 1)
	h.remote = git.Remote{URL: h.front + "/site.git", Creds: &auth.Credentials{CA: ca.PEM, Username: "ann", Password: gittest.Secret}}
	return h
}

// serve is the fake: the batch API and the store.
func (h *lfsHost) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h.mu.Lock()
	line := fmt.Sprintf("%s %s auth=%q key=%q", r.Method, r.URL.Path, r.Header.Get("Authorization"), r.Header.Get("X-Store-Key"))
	if len(body) > 0 {
		line += fmt.Sprintf(" accept=%s type=%s %s", r.Header.Get("Accept"), r.Header.Get("Content-Type"), body)
	}
	h.asked = append(h.asked, line)
	answer, shape := h.answer, h.shape
	h.mu.Unlock()
	if answer != nil && answer(w, r) {
		return
	}
	if oid, ok := strings.CutPrefix(r.URL.Path, "/store/"); ok {
		h.mu.Lock()
		text, ok := h.content[oid]
		h.mu.Unlock()
		if !ok {
			http.NotFound(w, r)
			return
		}
		io.WriteString(w, text)
		return
	}
	var q struct {
		Objects []struct {
			OID  string
			Size int64
		}
	}
	if err := json.Unmarshal(body, &q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	objects := []any{}
	for _, o := range q.Objects {
		out := map[string]any{"oid": o.OID, "size": o.Size, "authenticated": true, "actions": map[string]any{"download": map[string]any{
			"href": h.store + "/store/" + o.OID, "header": map[string]string{"X-Store-Key": "key-of-the-answer"}, "expires_in": 3600}}}
		if shape != nil {
			shape(o.OID, out)
		}
		objects = append(objects, out)
	}
	w.Header().Set("Content-Type", mediaType)
	json.NewEncoder(w).Encode(map[string]any{"transfer": "basic", "objects": objects})
}

func (h *lfsHost) during(answer func(http.ResponseWriter, *http.Request) bool, shape func(string, map[string]any)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer, h.shape, h.asked = answer, shape, nil
}

func (h *lfsHost) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.asked
	h.asked = nil
	return out
}

// add puts a content into the store and returns its pointer.
func (h *lfsHost) add(text string) git.Pointer {
	sum := sha256.Sum256([]byte(text))
	p := git.Pointer{OID: hex.EncodeToString(sum[:]), Size: int64(len(text))}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.content[p.OID] = text
	return p
}

func openLarge(t *testing.T, l *git.Large, p git.Pointer) (string, error) {
	t.Helper()
	f, err := l.Open(t.Context(), p)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(data), nil
}

func TestLFSRequests(t *testing.T) {
	t.Parallel()
	h := newLFSHost(t)
	gittest.NewOrigin(t, h.git.Root, "site.git").Commit("one", map[string]string{"a.json": "1"})
	m := mirrortest.Open(t, git.Options{})
	ref, _ := mirrortest.Sync(t, m, h.remote, "")
	a, b := h.add("image"), h.add(strings.Repeat("dashboard ", 100_000))
	l := m.Large(h.remote, ref)
	l.Fetch(t.Context(), []git.Pointer{a, b, a})
	got := h.take()
	slices.Sort(got[1:])
	gets := []string{"GET /store/" + a.OID, "GET /store/" + b.OID}
	slices.Sort(gets)
	want := []string{
		fmt.Sprintf(`POST /site.git/info/lfs/objects/batch auth=%q key="" accept=%s type=%s `, gittest.BasicAuth("ann", gittest.Secret), mediaType, mediaType) +
			fmt.Sprintf(`{"hash_algo":"sha256","objects":[{"oid":%q,"size":%d},{"oid":%q,"size":%d}],"operation":"download","ref":{"name":"refs/heads/main"},"transfers":["basic"]}`, a.OID, a.Size, b.OID, b.Size),
		gets[0] + ` auth="" key="key-of-the-answer"`, gets[1] + ` auth="" key="key-of-the-answer"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("requests\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for p, text := range map[git.Pointer]string{a: "image", b: strings.Repeat("dashboard ", 100_000)} {
		if got, err := openLarge(t, l, p); err != nil || got != text {
			t.Errorf("content of %d bytes: %v", len(got), err)
		}
	}
	l.Close()
	// Another pull asks for nothing; one that finds the cache damaged asks again.
	l = m.Large(h.remote, ref)
	if _, err := openLarge(t, l, a); err != nil || len(h.take()) != 0 {
		t.Errorf("the cache is not used: %v", err)
	}
	l.Close()
	if err := os.WriteFile(filepath.Join(mirrortest.Dir(m), "lfs", filepath.Base(mirrortest.MirrorDir(t, m, h.remote)), a.OID), []byte("imagE"), 0o600); err != nil {
		t.Fatal(err)
	}
	l = m.Large(h.remote, ref)
	defer l.Close()
	if got, err := openLarge(t, l, a); err != nil || got != "image" || len(h.take()) != 2 {
		t.Errorf("from a damaged cache: %q %v", got, err)
	}
	// What one repository may read, another one has to ask for.
	other := h.remote
	other.URL = h.front + "/other.git"
	gittest.NewOrigin(t, h.git.Root, "other.git").Commit("one", map[string]string{"a.json": "1"})
	ref, _ = mirrortest.Sync(t, m, other, "")
	foreign := m.Large(other, ref)
	defer foreign.Close()
	if foreign.Fetch(t.Context(), []git.Pointer{a}); len(h.take()) != 2 {
		t.Error("the content of another repository is given out without asking")
	}
}

// TestLFSCredentials: ours go to the host of the repository only, the answer's to the
// host that it names only.
func TestLFSCredentials(t *testing.T) {
	t.Parallel()
	h := newLFSHost(t)
	gittest.NewOrigin(t, h.git.Root, "site.git").Commit("one", map[string]string{"a.json": "1"})
	m := mirrortest.Open(t, git.Options{})
	ref, _ := mirrortest.Sync(t, m, h.remote, "")
	p := h.add("image")
	get := func(shape func(string, map[string]any), answer func(http.ResponseWriter, *http.Request) bool) ([]string, error) {
		os.RemoveAll(filepath.Join(mirrortest.Dir(m), "lfs"))
		h.during(answer, shape)
		l := m.Large(h.remote, ref)
		defer l.Close()
		_, err := openLarge(t, l, p)
		return h.take()[1:], err
	}
	download := func(href string, header map[string]string) func(string, map[string]any) {
		return func(oid string, o map[string]any) {
			o["authenticated"] = header != nil
			o["actions"] = map[string]any{"download": map[string]any{"href": href + "/store/" + oid, "header": header}}
		}
	}
	redirect := func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && r.URL.RawQuery == "" {
			http.Redirect(w, r, h.store+r.URL.Path+"?there", http.StatusFound)
			return true
		}
		return false
	}
	for _, c := range []struct {
		name   string
		shape  func(string, map[string]any)
		answer func(http.ResponseWriter, *http.Request) bool
		want   []string
	}{
		{"own host", download(h.front, nil), nil, []string{fmt.Sprintf("auth=%q key=%q", gittest.BasicAuth("ann", gittest.Secret), "")}},
		{"other host", download(h.store, nil), nil, []string{`auth="" key=""`}},
		{"other host, its own", download(h.store, map[string]string{"Authorization": "Token t"}), nil, []string{`auth="Token t" key=""`}},
		{"own host, of the answer", download(h.front, map[string]string{"Authorization": "Token t"}), nil, []string{`auth="Token t" key=""`}},
		{"own host redirects", download(h.front, nil), redirect, []string{fmt.Sprintf("auth=%q key=%q", gittest.BasicAuth("ann", gittest.Secret), ""), `auth="" key=""`}},
		{"of the answer, redirected", download(h.front, map[string]string{"Authorization": "Token t", "X-Store-Key": "k"}), redirect, []string{`auth="Token t" key="k"`, `auth="" key=""`}},
	} {
		got, err := get(c.shape, c.answer)
		for i := range got {
			_, got[i], _ = strings.Cut(got[i], p.OID+" ")
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, requests %q, want %q", c.name, err, got, c.want)
		}
	}
	_, err := get(download(strings.Replace(h.store, "https", "http", 1), nil), nil)
	gittest.ErrorIs(t, err, git.Refused, "not https")
	_, err = get(download(strings.Replace(h.store, "://", "://u:hunter@", 1), nil), nil)
	gittest.ErrorIs(t, err, git.Refused, "password")
	for _, host := range []string{"169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "metadata.google.internal", "2852039166"} {
		_, err = get(download("https://"+host, nil), nil)
		gittest.ErrorIs(t, err, git.Refused, "forbidden address")
		_, err = get(download(h.front, nil), func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet {
				w.Header().Set("Location", "https://"+host+"/x")
				w.WriteHeader(http.StatusFound)
			}
			return r.Method == http.MethodGet
		})
		gittest.ErrorIs(t, err, git.Refused, "forbidden address")
	}
	_, err = get(download(h.front, nil), func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		}
		return r.Method == http.MethodGet
	})
	gittest.ErrorIs(t, err, git.Protocol, "redirects")
}

func TestLFSRefusals(t *testing.T) {
	t.Parallel()
	h := newLFSHost(t)
	gittest.NewOrigin(t, h.git.Root, "site.git").Commit("one", map[string]string{"a.json": "1"})
	m := mirrortest.Open(t, git.Options{Limits: pack.Limits{LargeObject: 1000, LargeBytes: 1500}})
	ref, _ := mirrortest.Sync(t, m, h.remote, "")
	p := h.add("image")
	status := func(code int, header ...string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.Header().Set("Content-Type", mediaType)
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"message": "you sent %s"}`, r.Header.Get("Authorization"))
			return true
		}
	}
	gets := func(f func(w http.ResponseWriter)) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet {
				f(w)
			}
			return r.Method == http.MethodGet
		}
	}
	object := func(code int) func(string, map[string]any) {
		return func(_ string, o map[string]any) {
			delete(o, "actions")
			o["error"] = map[string]any{"code": code, "message": "says the server"}
		}
	}
	action := func(change func(map[string]any)) func(string, map[string]any) {
		return func(_ string, o map[string]any) { change(o["actions"].(map[string]any)["download"].(map[string]any)) }
	}
	forgotten := 0
	h.remote.Creds.Forget = func() { forgotten++ }
	for _, c := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request) bool
		shape  func(string, map[string]any)
		kind   git.Kind
		says   string
		posts  int
	}{
		{"401", status(401), nil, git.Auth, "authentication failed (401", 1},
		{"403", status(403), nil, git.Auth, "permission denied (403", 1},
		{"404", status(404), nil, git.NotFound, "not found", 1},
		{"422", status(422), nil, git.Protocol, "422", 1},
		{"429", status(429, "Retry-After", "7"), nil, git.Throttled, "too many requests", 1},
		{"501", status(501), nil, git.Protocol, "501", 1},
		{"503", status(503), nil, git.Unreachable, "503", 1},
		{"redirect", status(302, "Location", "https://localhost/"), nil, git.Protocol, "302", 1},
		{"portal", func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<html>")
			return true
		}, nil, git.Unreachable, "an HTML page", 1},
		{"no JSON", func(w http.ResponseWriter, _ *http.Request) bool { io.WriteString(w, "{"); return true }, nil, git.Protocol, "not that of a Git LFS server", 1},
		{"too long", func(w http.ResponseWriter, _ *http.Request) bool {
			w.Write(bytes.Repeat([]byte(" "), 4<<20+1))
			return true
		}, nil, git.TooLarge, "answer of Git LFS", 1},
		{"object 404", nil, object(404), git.NotFound, "git lfs push", 1},
		{"object 410", nil, object(410), git.NotFound, "not found", 1},
		{"object 422", nil, object(422), git.Protocol, "422", 1},
		{"object 403", nil, object(403), git.Auth, "permission denied (403", 1},
		{"object 429", nil, object(429), git.Throttled, "too many requests", 1},
		{"another size", nil, func(_ string, o map[string]any) { o["size"] = 6 }, git.Corrupt, "6 bytes", 1},
		{"left out", nil, func(_ string, o map[string]any) { o["oid"] = "other" }, git.Protocol, "leaves it out", 1},
		{"no download", nil, func(_ string, o map[string]any) { delete(o, "actions") }, git.Protocol, "no download", 1},
		{"expired", nil, action(func(a map[string]any) { a["expires_in"] = -1 }), git.Auth, "not good any more", 2},
		{"expired by date", nil, action(func(a map[string]any) {
			delete(a, "expires_in")
			a["expires_at"] = time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
		}), git.Auth, "not good any more", 2},
		{"download 401", gets(func(w http.ResponseWriter) { w.WriteHeader(401) }), nil, git.Auth, "not good any more", 2},
		{"download 500", gets(func(w http.ResponseWriter) { w.WriteHeader(500) }), nil, git.Unreachable, strings.TrimPrefix(h.store, "https://") + ": 500", 1},
		{"download refused", nil, action(func(a map[string]any) { a["href"] = "https://localhost:1/x" }), git.Unreachable,
			"connection refused: localhost:1", 1},
		{"echo", gets(func(w http.ResponseWriter) { http.Error(w, "wrong key key-of-the-answer", http.StatusBadGateway) }), nil, git.Unreachable, "wrong key", 1},
		{"other content", gets(func(w http.ResponseWriter) { io.WriteString(w, "imagE") }), nil, git.Corrupt, "SHA-256", 1},
		{"too short", gets(func(w http.ResponseWriter) { io.WriteString(w, "imag") }), nil, git.Corrupt, "4 bytes of 5", 1},
		{"too much", gets(func(w http.ResponseWriter) { io.WriteString(w, "image and more") }), nil, git.TooLarge, "file in Git LFS", 1},
	} {
		h.during(c.answer, c.shape)
		forgotten = 0
		l := m.Large(h.remote, ref)
		_, err := openLarge(t, l, p)
		e := gittest.ErrorIs(t, err, c.kind, c.says)
		if strings.Contains(err.Error(), gittest.Secret) || strings.Contains(err.Error(), gittest.BasicAuth("ann", gittest.Secret)) || strings.Contains(err.Error(), "key-of-the-answer") {
			t.Errorf("%s: the error holds a secret: %v", c.name, err)
		}
		if c.name == "429" && e.RetryAfter != 7*time.Second {
			t.Errorf("retry after %s", e.RetryAfter)
		}
		if (forgotten > 0) != (c.name == "401") {
			t.Errorf("%s: credentials are given up %d times", c.name, forgotten)
		}
		posts := 0
		for _, line := range h.take() {
			if strings.HasPrefix(line, "POST") {
				posts++
			}
		}
		if posts != c.posts {
			t.Errorf("%s: %d requests of the batch API, want %d", c.name, posts, c.posts)
		}
		if l.Close(); len(gittest.Glob(t, mirrortest.Dir(m), "tmp_*"))+len(gittest.Glob(t, mirrortest.Dir(m), "lfs/*/*")) > 0 {
			t.Errorf("%s: something is left behind", c.name)
		}
	}
	h.during(nil, nil)
	l := m.Large(h.remote, ref)
	defer l.Close()
	large, one, two := h.add(strings.Repeat("x", 1001)), h.add(strings.Repeat("y", 900)), h.add(strings.Repeat("z", 900))
	l.Fetch(t.Context(), []git.Pointer{large, one, two})
	if _, err := openLarge(t, l, one); err != nil {
		t.Error(err)
	}
	_, err := openLarge(t, l, large)
	gittest.ErrorIs(t, err, git.TooLarge, "1001")
	_, err = openLarge(t, l, two)
	gittest.ErrorIs(t, err, git.TooLarge, "a pull takes", "1800")
	if n := len(h.take()); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

func TestLFSConfig(t *testing.T) {
	t.Parallel()
	h := newLFSHost(t)
	o := gittest.NewOrigin(t, h.git.Root, "site.git")
	m := mirrortest.Open(t, git.Options{})
	p := h.add("image")
	for _, c := range []struct{ config, path, says string }{
		{"[lfs]\n\turl = " + h.front + "/team/lfs/info/lfs\n", "/team/lfs/info/lfs/objects/batch", ""},
		{"[lfs]\n\turl = \"" + h.store + "/x\"\n", "", "not at " + h.front},
		{"[lfs]\n\turl = " + strings.Replace(h.front, "https", "http", 1) + "/x\n", "", "not at"},
		{"[lfs]\n\turl = " + strings.Replace(h.front, "://", "://u:"+gittest.Secret+"@", 1) + "/x\n", "", "not at"},
		{"[lfs]\n\turl = --upload-pack=x\n", "", "not at"},
		{"[lfs\n", "", ".lfsconfig of the repository: line 1"},
		{"[lfs]\n\tlocksverify = true\n[remote \"origin\"]\n\turl = x\n", "/site.git/info/lfs/objects/batch", ""},
	} {
		o.Commit("config", map[string]string{".lfsconfig": c.config})
		os.RemoveAll(filepath.Join(mirrortest.Dir(m), "lfs"))
		ref, _ := mirrortest.Sync(t, m, h.remote, "")
		l := m.Large(h.remote, ref)
		_, err := openLarge(t, l, p)
		l.Close()
		asked := h.take()
		if c.says != "" {
			gittest.ErrorIs(t, err, git.Refused, c.says)
			if len(asked) > 0 {
				t.Errorf("%q: asked %q", c.config, asked)
			}
			continue
		}
		if err != nil || !strings.HasPrefix(asked[0], "POST "+c.path+" ") {
			t.Errorf("%q: %v, asked %q", c.config, err, asked)
		}
	}
}

// TestLFSCacheIsPruned: the files of a remote that is gone leave with its mirror.
func TestLFSCacheIsPruned(t *testing.T) {
	t.Parallel()
	h := newLFSHost(t)
	gittest.NewOrigin(t, h.git.Root, "site.git").Commit("one", map[string]string{"a.json": "1"})
	m := mirrortest.Open(t, git.Options{})
	ref, _ := mirrortest.Sync(t, m, h.remote, "")
	l := m.Large(h.remote, ref)
	l.Fetch(t.Context(), []git.Pointer{h.add("image")})
	l.Close()
	if n := len(gittest.Glob(t, mirrortest.Dir(m), "lfs/*/*")); n != 1 {
		t.Fatalf("%d files in the cache", n)
	}
	if _, err := m.Prune(nil, -time.Hour); err != nil || len(gittest.Glob(t, mirrortest.Dir(m), "lfs/*/*")) != 0 {
		t.Errorf("a remote that is gone leaves its cache: %v", err)
	}
}

// TestLFSOverSSH: the host says over ssh where the contents are and what to ask with.
func TestLFSOverSSH(t *testing.T) {
	t.Parallel()
	h := newLFSHost(t)
	gittest.NewOrigin(t, h.git.Root, "site.git").Commit("one", map[string]string{"a.json": "1"})
	key := gittest.SSHKeys()["ed25519"]
	public, err := ssh.NewPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	s := gittest.NewSSHServer(t, h.git.Root, public, key)
	m := mirrortest.Open(t, git.Options{})
	r := git.Remote{URL: s.RemoteURL(filepath.ToSlash(h.git.Root)[1:] + "/site.git"), Creds: &auth.Credentials{SSHKey: gittest.PrivateKey(t, key, ""), KnownHosts: s.Known(key), CA: h.ca}}
	ref, _ := mirrortest.Sync(t, m, r, "")
	p := h.add("image")
	said := fmt.Sprintf(`{"href": "%s/site", "header": {"Authorization": "RemoteAuth t", "X-Store-Key": "k"}, "expires_in": 600}`, h.store)
	answer := func(text string) {
		s.Forget()
		s.Instead(func(ch ssh.Channel) {
			io.WriteString(ch, text)
			if text == "" {
				io.WriteString(ch.Stderr(), "no LFS here\n")
			}
			ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(1 - min(len(text), 1))}))
		})
	}
	answer(said)
	l := m.Large(r, ref)
	if got, err := openLarge(t, l, p); err != nil || got != "image" {
		t.Errorf("%q %v", got, err)
	}
	l.Close()
	if want := "git-lfs-authenticate '" + filepath.ToSlash(h.git.Root) + "/site.git' download"; s.Said() != want {
		t.Errorf("commands %q, want %q", s.Said(), want)
	}
	asked := h.take()
	if len(asked) != 2 || !strings.HasPrefix(asked[0], `POST /site/objects/batch auth="RemoteAuth t" key="k"`) || !strings.HasSuffix(asked[1], `auth="" key="key-of-the-answer"`) {
		t.Errorf("requests %q", asked)
	}
	for text, says := range map[string]string{"": "no LFS here", "hello": "no answer", `{"href": "http://localhost/x"}`: "not https", `{"href": "https://169.254.169.254/x"}`: "forbidden address"} {
		os.RemoveAll(filepath.Join(mirrortest.Dir(m), "lfs"))
		answer(text)
		l := m.Large(r, ref)
		if _, err := openLarge(t, l, p); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
		l.Close()
	}
}

// TestLargeWithin: what a submodule keeps in Git LFS is asked for at the submodule, with
// the credentials of the repository, and counts with what the repository takes.
func TestLargeWithin(t *testing.T) {
	t.Parallel()
	h := newLFSHost(t)
	lib := gittest.NewOrigin(t, h.git.Root, "lib.git").Commit("lib", map[string]string{"l.json": "1", ".lfsconfig": "[lfs]\n\turl = " + h.front + "/team/lfs/info/lfs\n"})
	site := gittest.NewOrigin(t, h.git.Root, "site.git")
	site.Commit("site", map[string]string{"x.json": "1"})
	commit := site.Link("[submodule \"lib\"]\n\tpath = lib\n\turl = ../lib.git\n", map[string]string{"lib": lib})
	m := mirrortest.Open(t, git.Options{})
	h.remote.Limits.LargeBytes = 20
	ref, _ := mirrortest.Sync(t, m, h.remote, "")
	tree, err := m.WholeTree(t.Context(), h.remote, commit, "")
	if err != nil || len(tree.Submodules) != 1 || tree.Submodules["lib"].Commit != lib {
		t.Fatalf("submodules %v, %v", tree.Submodules, err)
	}
	h.take()
	l := m.Large(h.remote, ref)
	defer l.Close()
	in := m.LargeWithin(l, tree.Submodules["lib"])
	defer in.Close()
	if got, err := openLarge(t, in, h.add("of the lib")); err != nil || got != "of the lib" {
		t.Errorf("%q %v", got, err)
	}
	if asked := h.take(); len(asked) != 2 || !strings.HasPrefix(asked[0], fmt.Sprintf("POST /team/lfs/info/lfs/objects/batch auth=%q", gittest.BasicAuth("ann", gittest.Secret))) {
		t.Errorf("asked %q", asked)
	}
	_, err = openLarge(t, l, h.add("of the site"))
	gittest.ErrorIs(t, err, git.TooLarge, "what a pull takes from Git LFS of 21 bytes exceeds the limit of 20")
}

func TestMain(m *testing.M) { os.Exit(gittest.Main(m)) }
