package transport_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"net/http"
	"strings"
	"testing"

	"limpet/sync/git"

	"golang.org/x/crypto/ssh"

	"limpet/sync/auth"
	"limpet/sync/git/gitref"
	"limpet/sync/netx"
	"limpet/sync/testenv/gittest"
	"limpet/sync/testenv/mirrortest"
	"limpet/sync/testenv/nettest"
)

// TestGuarded: addresses that are never dialled are not, by any way to them.
func TestGuarded(t *testing.T) {
	t.Parallel()
	narrow, err := netx.ParseGuard([]string{"none"})
	if err != nil {
		t.Fatal(err)
	}
	s := gittest.NewServer(t)
	gittest.NewOrigin(t, s.Root, "site.git").Commit("one", map[string]string{"a.json": "1"})
	server := nettest.Start(t, nettest.Options{})
	p, err := netx.ParseProxy("http://"+server.Addr, "", "")
	if err != nil {
		t.Fatal(err)
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	forSSH := &auth.Credentials{SSHKey: gittest.PrivateKey(t, key, ""),
		KnownHosts: []byte("localhost " + string(ssh.MarshalAuthorizedKey(gittest.Must[ssh.Signer](t)(ssh.NewSignerFromKey(key)).PublicKey())))}
	cases := []struct {
		name, url string
		guard     netx.Guard
		creds     *auth.Credentials
		says      string
	}{
		{"metadata", "http://169.254.169.254/latest/meta-data", netx.Guard{}, nil, "link-local"},
		{"mapped", "https://[::ffff:169.254.169.254]/x", netx.Guard{}, nil, "link-local"},
		{"ssh", "ssh://git@169.254.169.254/x", netx.Guard{}, forSSH, "link-local"},
		{"scp", "git@[fe80::1]:x", netx.Guard{}, forSSH, "link-local"},
		{"number", "http://2852039166/x", netx.Guard{}, nil, "number"},
		{"through a proxy", "http://169.254.169.254/x", netx.Guard{}, &auth.Credentials{Proxy: p}, "link-local"},
		{"name through a proxy", "http://metadata.google.internal/x", netx.Guard{}, &auth.Credentials{Proxy: p}, "metadata"},
		{"private", s.URL + "/site.git", narrow, nil, "--git-private-networks"},
		{"private by name", strings.Replace(s.URL, "127.0.0.1", "localhost", 1) + "/site.git", narrow, nil, "--git-private-networks"},
		{"ssh by name", "ssh://git@localhost:1/x", narrow, forSSH, "--git-private-networks"},
		{"private proxy", "http://git.example.com/x", narrow, &auth.Credentials{Proxy: p}, "--git-private-networks"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := mirrortest.Open(t, git.Options{Guard: c.guard})
			_, err := m.Resolve(t.Context(), git.Remote{URL: c.url, Creds: c.creds}, gitref.Branch("main"))
			gittest.ErrorIs(t, err, git.Refused, c.says)
		})
	}
	if n, asked := s.Requests.Load(), server.Asked(); n != 0 || len(asked) != 0 {
		t.Errorf("the host was asked %d times, the proxy for %q", n, asked)
	}
}

// TestRedirects: the same host alone, by no weaker scheme, at no other port.
func TestRedirects(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	gittest.NewOrigin(t, s.Root, "site.git").Commit("one", map[string]string{"a.json": "1"})
	byName := strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	other := gittest.NewServer(t)
	for to, want := range map[string]git.Kind{s.URL: "", byName: git.Refused, other.URL: git.Refused, "https://other.example": git.Refused,
		"http://169.254.169.254": git.Refused} {
		s.During(func(w http.ResponseWriter, r *http.Request) {
			if _, pass, _ := r.BasicAuth(); pass != gittest.Secret {
				t.Errorf("%s without credentials", r.URL)
			}
			if rest, old := strings.CutPrefix(r.URL.Path, "/old.git"); old {
				http.Redirect(w, r, to+"/site.git"+rest+"?"+r.URL.RawQuery, http.StatusMovedPermanently)
			}
		})
		m := mirrortest.Open(t, git.Options{})
		remote := git.Remote{URL: s.URL + "/old.git", Creds: &auth.Credentials{Username: "u", Password: gittest.Secret}, AllowInsecure: true}
		ref, err := m.Resolve(t.Context(), remote, gitref.Branch("main"))
		if want != "" {
			gittest.ErrorIs(t, err, want, "redirects to another")
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Fetch(t.Context(), remote, ref); err != nil {
			t.Fatal(err)
		}
	}
	if other.Requests.Load() != 0 {
		t.Error("another port was asked")
	}
}

// TestThroughProxies fetches from a host whose name only the proxy knows.
func TestThroughProxies(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	o.Commit("one", map[string]string{"a.json": "1"})
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer := gittest.Must[ssh.Signer](t)(ssh.NewSignerFromKey(key))
	_, hostKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	shell := gittest.NewSSHServer(t, s.Root, signer.PublicKey(), hostKey)
	sshAddr := shell.Addr()
	webAddr := s.Listener.Addr().String()
	server := nettest.Start(t, nettest.Options{Username: "ann", Password: gittest.Secret,
		Names: map[string]string{"git.nowhere.invalid": webAddr, "git.nowhere.invalid:80": webAddr, "git.nowhere.invalid:22": sshAddr}})
	hostSigner := gittest.Must[ssh.Signer](t)(ssh.NewSignerFromKey(hostKey))
	known := []byte("git.nowhere.invalid " + string(ssh.MarshalAuthorizedKey(hostSigner.PublicKey())))
	forSSH := auth.Credentials{SSHKey: gittest.PrivateKey(t, key, ""), KnownHosts: known}
	for _, scheme := range []string{"http", "socks5"} {
		for url, creds := range map[string]auth.Credentials{"http://git.nowhere.invalid/site.git": {}, "ssh://git@git.nowhere.invalid" + s.Root +
			"/site.git": forSSH} {
			for given, want := range map[string]git.Kind{gittest.Secret: "", "CANARY": git.Unreachable} {
				t.Run(scheme+" "+url[:4]+" "+string(want), func(t *testing.T) {
					creds.Proxy, creds.Source = gittest.Must[*netx.Proxy](t)(netx.ParseProxy(scheme+"://"+server.Addr, "ann", given)), "secret a/b"
					m := mirrortest.Open(t, git.Options{})
					defer m.Close()
					remote := git.Remote{URL: url, Creds: &creds}
					ref, err := m.Resolve(t.Context(), remote, gitref.Branch("main"))
					if want != "" {
						gittest.ErrorIs(t, err, want, "proxy", "secret a/b")
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					if _, err := m.Fetch(t.Context(), remote, ref); err != nil {
						t.Fatal(err)
					}
				})
			}
		}
	}
	gone := nettest.Start(t, nettest.Options{})
	m := mirrortest.Open(t, git.Options{})
	nowhere := &auth.Credentials{Source: "secret a/b", Proxy: &netx.Proxy{Scheme: "http", Host: "127.0.0.1:1"}}
	_, err = m.Resolve(t.Context(), git.Remote{URL: "https://git.nowhere.invalid/site.git", Creds: nowhere}, gitref.Branch("main"))
	gittest.ErrorIs(t, err, git.Unreachable, "no way through the proxy", "secret a/b")
	closed := &auth.Credentials{Source: "secret a/b", Proxy: &netx.Proxy{Scheme: "socks5", Host: gone.Addr}}
	_, err = m.Resolve(t.Context(), git.Remote{URL: "https://git.nowhere.invalid/site.git", Creds: closed}, gitref.Branch("main"))
	gittest.ErrorIs(t, err, git.Unreachable, "no way through the proxy", "secret a/b")
	m.Close()
}
