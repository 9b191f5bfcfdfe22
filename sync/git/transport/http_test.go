package transport_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
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

func TestHTTPAnswers(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	gittest.NewOrigin(t, s.Root, "site.git").Commit("one", map[string]string{"a.json": "1"})
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the other host was asked, with %v", r.Header)
	}))
	defer other.Close()
	// The same port under another name is another host.
	elsewhere := strings.Replace(other.URL, "127.0.0.1", "localhost", 1)
	answer := func(status int, media, body string, headers ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	const smart = "application/x-git-upload-pack-advertisement"
	cases := []struct {
		name  string
		hook  http.HandlerFunc
		kind  git.Kind
		says  []string
		after time.Duration
	}{
		{"401", answer(401, "text/plain", "Bad token "+gittest.Secret+" \x1b[31mred\n"), git.Auth,
			[]string{"authentication failed (401 Unauthorized)", "Bad token *** [31mred", "check that the token"}, 0},
		{"secret at the cut", answer(401, "text/plain", strings.Repeat("x", 190)+gittest.Secret), git.Auth, nil, 0},
		{"secret in pieces", answer(401, "text/plain", "bad "+gittest.Secret[:5]+"\x1b"+gittest.Secret[5:]), git.Auth, []string{"bad ***"}, 0},
		{"403", answer(403, "application/json", `{"message":"no"}`), git.Auth, []string{`"message":"no"`}, 0},
		{"404", answer(404, "text/html", "<html>"), git.NotFound, []string{"check the url"}, 0},
		{"410", answer(410, "text/html", ""), git.NotFound, nil, 0},
		{"429", answer(429, "text/plain", "slow down", "Retry-After", "120"), git.Throttled, []string{"too many requests (429): slow down"},
			2 * time.Minute},
		{"503", answer(503, "text/plain", "", "Retry-After", "7"), git.Unreachable, []string{"503"}, 7 * time.Second},
		{"503 for ever", answer(503, "text/plain", "", "Retry-After", "999999999"), git.Unreachable, nil, time.Hour},
		{"503 nonsense", answer(503, "text/plain", "", "Retry-After", "-5"), git.Unreachable, nil, 0},
		{"503 date", answer(503, "text/plain", "", "Retry-After", time.Now().Add(90*time.Second).UTC().Format(http.TimeFormat)), git.Unreachable,
			nil, -1},
		{"500 endless", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(500)
			for range 100 {
				if _, err := io.WriteString(w, strings.Repeat("x", 1<<16)); err != nil {
					return
				}
			}
		}, git.Unreachable, []string{"500"}, 0},
		{"418", answer(418, "text/plain", "teapot"), git.Protocol, []string{"418"}, 0},
		{"proxy", answer(407, "text/plain", ""), git.Unreachable, []string{"HTTPS_PROXY"}, 0},
		{"captive portal", answer(200, "text/html; charset=utf-8", "<html>Welcome to Hotel Wi-Fi"), git.Unreachable,
			[]string{"an HTML page", "sign-on"}, 0},
		{"captive redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere+"/login?x="+gittest.Secret, http.StatusFound)
		}, git.Unreachable, []string{"a redirect to a page of localhost"}, 0},
		{"redirect elsewhere", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere+r.URL.Path, http.StatusFound)
		}, git.Refused, []string{"another host", "localhost"}, 0},
		{"redirect without location", answer(302, "text/plain", ""), git.Protocol, nil, 0},
		{"dumb", answer(200, "text/plain", "abc\trefs/heads/main\n"), git.Protocol, []string{"smart protocol"}, 0},
		{"other type", answer(200, "image/png", "x"), git.Protocol, []string{"image/png"}, 0},
		{"not pkt-lines", answer(200, smart, "<html>this is a portal that lies"), git.Protocol, nil, 0},
		{"cut off", answer(200, smart, "001e# service=git-upload-pack\n0000"), git.Protocol, nil, 0},
		{"gzip that is none", answer(200, smart, "<html>this is no gzip at all", "Content-Encoding", "gzip"), git.Protocol,
			[]string{"is said to be gzip"}, 0},
		{"gzip with garbage", answer(200, smart, "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xff\xff\xff\xff", "Content-Encoding", "gzip"),
			git.Protocol, []string{"is said to be gzip"}, 0},
		{"nothing", answer(200, smart, ""), git.Protocol, nil, 0},
		{"an error line", answer(200, smart, "001e# service=git-upload-pack\n0000001eERR access denied \x1b[2Jx\n0000"), git.Auth,
			[]string{"access denied [2Jx"}, 0},
		{"not found line", answer(200, smart, "001e# service=git-upload-pack\n0000001eERR Repository not found.\n0000"), git.NotFound, nil, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := mirrortest.Open(t, git.Options{})
			r := mirrortest.At(s, "site.git")
			r.Creds, r.AllowInsecure = &auth.Credentials{Username: "u", Password: gittest.Secret}, true
			s.During(c.hook)
			defer s.During(nil)
			_, err := m.Resolve(t.Context(), r, gitref.Branch("main"))
			e := gittest.ErrorIs(t, err, c.kind, c.says...)
			if c.after >= 0 && e.RetryAfter != c.after || c.after < 0 && (e.RetryAfter < time.Minute || e.RetryAfter > 90*time.Second) {
				t.Errorf("retry after %s, want %s", e.RetryAfter, c.after)
			}
		})
	}
}

func TestHTTPCredentials(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	gittest.NewOrigin(t, s.Root, "site.git").Commit("one", map[string]string{"a.json": "1"})
	var logs bytes.Buffer
	m := mirrortest.Open(t, git.Options{Logger: slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	var want string
	s.During(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != want {
			w.Header().Set("Www-Authenticate", "Basic")
			http.Error(w, "you said "+r.Header.Get("Authorization"), http.StatusUnauthorized)
		}
	})
	basic := func(u, p string) string {
		req := &http.Request{Header: http.Header{}}
		req.SetBasicAuth(u, p)
		return req.Header.Get("Authorization")
	}
	for _, c := range []struct {
		name  string
		url   string
		creds *auth.Credentials
		want  string
	}{
		{"basic", "", &auth.Credentials{Username: "ann", Password: gittest.Secret}, basic("ann", gittest.Secret)},
		{"token alone", "", &auth.Credentials{Password: gittest.Secret}, basic("git", gittest.Secret)},
		{"user from the url", "bob@", &auth.Credentials{Password: gittest.Secret}, basic("bob", gittest.Secret)},
		{"bearer", "", &auth.Credentials{Bearer: gittest.Secret, Password: "x"}, "Bearer " + gittest.Secret},
	} {
		r := git.Remote{URL: strings.Replace(s.URL, "http://", "http://"+c.url, 1) + "/site.git", Creds: c.creds, AllowInsecure: true}
		want = c.want
		if _, err := m.Resolve(t.Context(), r, gitref.Branch("")); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		want = "something else"
		_, err := m.Resolve(t.Context(), r, gitref.Branch(""))
		gittest.ErrorIs(t, err, git.Auth, "you said")
	}
	_, err := m.Resolve(t.Context(), mirrortest.At(s, "site.git"), gitref.Branch(""))
	gittest.ErrorIs(t, err, git.Auth, "authentication required (401)")

	r := mirrortest.At(s, "site.git")
	r.Creds = &auth.Credentials{Username: "u", Password: gittest.Secret}
	before := s.Requests.Load()
	_, err = m.Resolve(t.Context(), r, gitref.Branch(""))
	gittest.ErrorIs(t, err, git.Refused, "plain http")
	r.URL = strings.Replace(r.URL, "http://", "http://u:CANARY@", 1)
	r.AllowInsecure = true
	_, err = m.Resolve(t.Context(), r, gitref.Branch(""))
	gittest.ErrorIs(t, err, git.Refused, "password")
	if s.Requests.Load() != before {
		t.Error("a refused remote was asked")
	}

	want = basic("u", gittest.Secret)
	r.URL = s.URL + "/site.git"
	mirrortest.Sync(t, m, r, "")
	if strings.Contains(logs.String(), "CANARY") {
		t.Error("a secret was logged")
	}
	filepath.WalkDir(filepath.Dir(mirrortest.Dir(m)), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if data, _ := os.ReadFile(path); bytes.Contains(data, []byte("CANARY")) || bytes.Contains(data, []byte(want[6:])) {
				t.Errorf("%s holds a secret", path)
			}
		}
		return err
	})
}

func TestHTTPNobodyThere(t *testing.T) {
	t.Parallel()
	m := mirrortest.Open(t, git.Options{})
	_, err := m.Resolve(t.Context(), git.Remote{URL: "http://127.0.0.1:1/x"}, gitref.Branch("")) // no port that others are given
	gittest.ErrorIs(t, err, git.Unreachable, "connection refused: 127.0.0.1:1")
	_, err = m.Resolve(t.Context(), git.Remote{URL: "https://host.invalid/x"}, gitref.Branch(""))
	gittest.ErrorIs(t, err, git.Unreachable, "no such host: host.invalid")
	for _, url := range []string{"", "ftp://x/y", "/etc", "file:///etc", "--upload-pack=x", "https://h/\x1b]0;x"} {
		_, err := m.Resolve(t.Context(), git.Remote{URL: url}, gitref.Branch(""))
		gittest.ErrorIs(t, err, git.Refused)
	}
}

// What the server says beside the pack ends up in the error, cleaned.
func TestHTTPServerRemarks(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	gittest.NewOrigin(t, s.Root, "site.git").Commit("one", map[string]string{"a.json": "1"})
	m := mirrortest.Open(t, git.Options{})
	r := mirrortest.At(s, "site.git")
	r.Creds, r.AllowInsecure = &auth.Credentials{Username: "u", Password: gittest.Secret}, true
	ref, err := m.Resolve(t.Context(), r, gitref.Branch(""))
	if err != nil {
		t.Fatal(err)
	}
	pkt := func(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }
	for name, c := range map[string]struct {
		body string
		says []string
	}{
		"remark": {pkt("\x02quota for "+gittest.Secret+" is \x1b]52;c;x\x07used\r\n") + pkt("\x02Counting objects: 3\n") + "0000",
			[]string{"quota for *** is ]52;c;xused"}},
		"error": {pkt("\x03the disk is \x9b1mfull\n"), []string{"the disk is 1mfull"}},
	} {
		s.During(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
				io.WriteString(w, pkt("shallow "+ref.Hash)+"0000"+pkt("NAK\n")+c.body)
			}
		})
		_, err := m.Fetch(t.Context(), r, ref)
		s.During(nil)
		if err == nil {
			t.Fatalf("%s: accepted", name)
		}
		gittest.ErrorIs(t, err, git.KindOf(err), c.says...)
	}
}

// The list of refs is bounded in bytes, whoever sends it.
func TestHTTPManyRefs(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	id := o.Commit("one", map[string]string{"a.json": "1"})
	var packed bytes.Buffer
	packed.WriteString("")
	for i := range 100_000 {
		fmt.Fprintf(&packed, "%s refs/pull/%06d/head\n", id, i)
	}
	if err := os.WriteFile(filepath.Join(o.Bare, "packed-refs"), packed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	m := mirrortest.Open(t, git.Options{})
	r := mirrortest.At(s, "site.git")
	began := time.Now()
	ref, err := m.Resolve(t.Context(), r, gitref.Selector{Name: "refs/pull/000777/head"})
	if err != nil {
		t.Fatal(err)
	}
	st, err := m.Fetch(t.Context(), r, ref)
	if err != nil {
		t.Fatal(err)
	}
	if st.Requests != 3 || st.Bytes > 1000 { // what the server can do, the ref alone, and the pack
		t.Errorf("%+v: a long list should not be kept, nor read again", st)
	}
	t.Logf("100,000 refs: %d bytes, %s", st.Bytes, time.Since(began))
	if rep := fetchInChild(t, s.URL+"/site.git", 0); rep.Err != "" || rep.Files != 1 { // it judges the memory too
		t.Errorf("%+v", rep)
	}
	r.Limits.RefsBytes = 1 << 20
	if _, err = m.Resolve(t.Context(), r, gitref.Branch("")); err != nil {
		t.Error(err)
	}
	_, err = m.Resolve(t.Context(), r, gitref.Branch("gone")) // all are read, for a hint
	gittest.ErrorIs(t, err, git.TooLarge, "list of refs")

	s.During(func(w http.ResponseWriter, _ *http.Request) { // one that never ends
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		out := bufio.NewWriter(w)
		line := id + " refs/heads/" + strings.Repeat("x", 900) + "\n"
		for range 1 << 20 {
			if _, err := fmt.Fprintf(out, "%04x%s", len(line)+4, line); err != nil {
				return
			}
		}
	})
	defer s.During(nil)
	_, err = m.Resolve(t.Context(), r, gitref.Branch(""))
	if err == nil {
		t.Fatal("accepted")
	}
}
