package push_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"limpet/sync/git"

	"golang.org/x/crypto/ssh"

	"limpet/sync/auth"
	"limpet/sync/git/pack"
	"limpet/sync/testenv/gittest"
	"limpet/sync/testenv/mirrortest"
)

// TestPushable: only what is sure to refuse a push is said to. The accounts are
// git http-backend's own: whether it serves a push, and to whom.
func TestPushable(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	for name, allowed := range map[string]string{"open.git": "true", "readonly.git": "false"} {
		gittest.NewOrigin(t, s.Root, name).Commit("one", map[string]string{"a.json": "1"})
		gittest.Git(t, filepath.Join(s.Root, name), nil, "config", "http.receivepack", allowed)
	}
	gittest.NewOrigin(t, s.Root, "unsaid.git").Commit("one", map[string]string{"a.json": "1"}) // and nobody has logged in
	gittest.Git(t, s.Root, nil, "init", "-q", "--bare", "empty.git")
	gittest.Git(t, filepath.Join(s.Root, "empty.git"), nil, "config", "http.receivepack", "true")
	answer := func(status int, media, body string, headers ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("service") != "git-receive-pack" || r.Method != http.MethodGet {
				t.Errorf("it was asked for %s", r.URL)
			}
			w.Header().Set("Content-Type", media)
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	const smart = "application/x-git-receive-pack-advertisement"
	for _, c := range []struct {
		name, repo string
		hook       http.HandlerFunc
		kind       git.Kind // "" = it takes a push
		says       []string
	}{
		{"it takes pushes", "open.git", nil, "", nil},
		{"an empty one takes pushes", "empty.git", nil, "", nil},
		{"it takes none", "readonly.git", nil, git.ReadOnly, []string{"write permission denied", "right to write"}},
		{"it takes none from nobody", "unsaid.git", nil, git.ReadOnly, nil},
		{"GitHub, GitLab, Gitea", "open.git", answer(403, "text/plain", "Write access to repository not granted. "+gittest.Secret), git.ReadOnly,
			[]string{"denied: Write access to repository not granted. ***"}},
		{"a login is wanted", "open.git", answer(401, "text/html", "<html>", "WWW-Authenticate", "Basic"), git.ReadOnly, nil},
		{"a line of the protocol", "open.git", answer(200, smart, "001f# service=git-receive-pack\n0000001eERR access denied \x1b[2Jx\n0000"),
			git.ReadOnly, []string{"access denied [2Jx"}},
		// What follows says nothing of the right to write.
		{"a page of something in between", "open.git", answer(403, "text/html; charset=utf-8", "<html>"), git.Auth, nil},
		{"asked too often", "open.git", answer(403, "application/json", `{}`, "Retry-After", "60"), git.Auth, nil},
		{"asked too often, in clear", "open.git", answer(429, "text/plain", ""), git.Throttled, nil},
		{"no such service", "open.git", answer(404, "text/plain", "Not Found"), git.NotFound, nil},
		{"no such method", "open.git", answer(405, "text/plain", ""), git.Protocol, nil},
		{"in repair", "open.git", answer(503, "text/plain", ""), git.Unreachable, nil},
		{"a captive portal", "open.git", answer(200, "text/html", "<html>"), git.Unreachable, nil},
		{"another service", "open.git", answer(200, "application/x-git-upload-pack-advertisement", ""), git.Protocol, nil},
		{"cut off", "open.git", answer(200, smart, "001f# service=git-receive-pack\n0000"), git.Protocol, nil},
		{"an error line of another kind", "open.git", answer(200, smart, "001f# service=git-receive-pack\n0000000dERR busy\n0000"), git.Protocol,
			nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := mirrortest.At(s, c.repo)
			var refused atomic.Int64
			r.Creds, r.AllowInsecure = &auth.Credentials{Username: "u", Password: gittest.Secret, Forget: func() { refused.Add(1) }}, true
			s.During(c.hook)
			defer s.During(nil)
			m := mirrortest.Open(t, git.Options{})
			before := s.Requests.Load()
			err := m.Pushable(t.Context(), r)
			if n := s.Requests.Load() - before; n != 1 {
				t.Errorf("%d requests", n)
			}
			if refused.Load() > 0 {
				t.Error("the credentials were given up, which are good for reading")
			}
			if c.kind == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			gittest.ErrorIs(t, err, c.kind, c.says...)
		})
	}
}

// TestPushableIsBounded: in time and in bytes.
func TestPushableIsBounded(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer silent.Close()
	defer close(release)
	m := mirrortest.Open(t, git.Options{Stall: 50 * time.Millisecond})
	gittest.ErrorIs(t, m.Pushable(t.Context(), git.Remote{URL: silent.URL + "/site.git"}), git.Timeout, "silent")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	gittest.ErrorIs(t, mirrortest.Open(t, git.Options{}).Pushable(ctx, git.Remote{URL: silent.URL + "/site.git"}), git.Cancelled)
	pkt := func(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }
	many := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-receive-pack-advertisement")
		io.WriteString(w, "001f# service=git-receive-pack\n0000"+pkt(strings.Repeat("0", 40)+" capabilities^{}\x00report-status\n"))
		for i := range 10_000 {
			if _, err := io.WriteString(w, pkt(fmt.Sprintf("%040x refs/heads/%d\n", i+1, i))); err != nil {
				return
			}
		}
	}))
	defer many.Close()
	gittest.ErrorIs(t, mirrortest.Open(t, git.Options{}).Pushable(t.Context(),
		git.Remote{URL: many.URL + "/site.git", Limits: pack.Limits{RefsBytes: 100 << 10}}), git.TooLarge)
}

func TestPushableOverSSH(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	gittest.NewOrigin(t, root, "site.git").Commit("one", map[string]string{"a.json": "1"})
	gittest.Git(t, root, nil, "init", "-q", "--bare", "empty.git")
	key := gittest.SSHKeys()["ed25519"]
	pub := gittest.Must[ssh.PublicKey](t)(ssh.NewPublicKey(key.Public()))
	s := gittest.NewSSHServer(t, root, pub, key)
	creds := &auth.Credentials{SSHKey: gittest.PrivateKey(t, key, ""), KnownHosts: s.Known(key)}
	says := func(text string) func(ssh.Channel) {
		return func(ch ssh.Channel) { io.WriteString(ch.Stderr(), text) }
	}
	for _, c := range []struct {
		name, repo string
		instead    func(ssh.Channel)
		kind       git.Kind
		says       []string
	}{
		{"it takes pushes", "site.git", nil, "", nil},
		{"an empty one takes pushes", "empty.git", nil, "", nil},
		{"a deploy key of GitHub", "site.git", says("ERROR: The key you are authenticating with has been marked as read only.\n"), git.ReadOnly,
			[]string{"write permission denied: ERROR: The key"}},
		{"gitolite", "site.git", says("FATAL: W any site edge DENIED by fallthru\x1b[2J\n"), git.ReadOnly, []string{"DENIED by fallthru[2J"}},
		{"Gitea", "site.git", says("Gitea: Unauthorized\nKey: 3:edge is not authorized to write to site."), git.ReadOnly, nil},
		{"git-shell without the command", "site.git", says("fatal: unrecognized command 'git-receive-pack'\n"), git.Unknown, nil},
		{"no such repository", "site.git", says("ERROR: Repository not found.\n"), git.NotFound, nil},
		{"it hangs up", "site.git", func(ssh.Channel) {}, git.Protocol, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.Instead(c.instead)
			err := mirrortest.Open(t, git.Options{}).Pushable(t.Context(), git.Remote{URL: s.RemoteURL(filepath.ToSlash(root)[1:] + "/" + c.repo),
				Creds: creds})
			if c.kind == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			gittest.ErrorIs(t, err, c.kind, c.says...)
		})
	}
	for line := range strings.SplitSeq(s.Said(), "\n") {
		if !strings.HasPrefix(line, "git-receive-pack '") {
			t.Errorf("the server was told %q", line)
		}
	}
	if refs := gittest.Git(t, filepath.Join(root, "empty.git"), nil, "for-each-ref"); refs != "" {
		t.Errorf("something was written: %s", refs)
	}
}
