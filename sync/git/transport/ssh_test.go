package transport_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"limpet/sync/git"

	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"

	"limpet/sync/auth"
	"limpet/sync/git/gitref"
	"limpet/sync/git/pack"
	"limpet/sync/testenv/gittest"
	"limpet/sync/testenv/mirrortest"
)

func TestSSHRefuses(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	gittest.NewOrigin(t, root, "site.git").Commit("one", map[string]string{"a.json": "1"})
	gittest.Git(t, root, nil, "init", "-q", "--bare", "empty.git")
	keys := gittest.SSHKeys()
	key, host, other := keys["ed25519"], keys["ecdsa"], keys["rsa"]
	pub := gittest.Must[ssh.PublicKey](t)(ssh.NewPublicKey(key.Public()))
	hostPub := gittest.Must[ssh.PublicKey](t)(ssh.NewPublicKey(host.Public()))
	s := gittest.NewSSHServer(t, root, pub, host)
	site := filepath.ToSlash(root)[1:] + "/site.git"
	good := auth.Credentials{SSHKey: gittest.PrivateKey(t, key, ""), KnownHosts: s.Known(host)}
	with := func(f func(*auth.Credentials)) *auth.Credentials {
		c := good
		f(&c)
		return &c
	}
	cases := []struct {
		name, path string
		creds      *auth.Credentials
		kind       git.Kind
		says       []string
	}{
		{"good", site, &good, "", nil},
		{"no credentials", site, nil, git.Auth, []string{"private key"}},
		{"no known_hosts", site, with(func(c *auth.Credentials) { c.KnownHosts = nil }), git.Auth,
			[]string{ssh.FingerprintSHA256(hostPub), "add this line to known_hosts", xknownhosts.Line([]string{s.Addr()}, hostPub)}},
		{"another kind of key in known_hosts", site, with(func(c *auth.Credentials) { c.KnownHosts = s.Known(other) }), git.Auth,
			[]string{"kinds in known_hosts"}},
		{"revoked", site, with(func(c *auth.Credentials) {
			c.KnownHosts = []byte("@revoked " + strings.Split(string(s.Known(host)), "\n")[1])
		}), git.Auth, []string{"revoked"}},
		{"nonsense in known_hosts", site, with(func(c *auth.Credentials) { c.KnownHosts = []byte("host ssh-rsa !!") }), git.Auth,
			[]string{"cannot be read"}},
		{"no key at all", site, with(func(c *auth.Credentials) { c.SSHKey = []byte(gittest.Secret) }), git.Auth, []string{"cannot be read"}},
		{"a large key", site, with(func(c *auth.Credentials) { c.SSHKey, _ = gittest.LargeRSA(t) }), git.Auth, []string{"more than 8192 bits"}},
		{"no such repository", "nowhere/x.git", &good, git.NotFound, nil},
		{"empty repository", filepath.ToSlash(root)[1:] + "/empty.git", &good, git.Empty, nil},
	}
	m := mirrortest.Open(t, git.Options{})
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := m.Resolve(t.Context(), git.Remote{URL: s.RemoteURL(c.path), Creds: c.creds}, gitref.Branch(""))
			if c.kind == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			gittest.ErrorIs(t, err, c.kind, c.says...)
		})
	}
	if left := gittest.Glob(t, mirrortest.Dir(m), "*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	for line := range strings.SplitSeq(s.Said(), "\n") {
		if !strings.HasPrefix(line, "git-upload-pack '") {
			t.Errorf("the server was told %q", line)
		}
	}
}

// Limits hold over ssh as well.
func TestSSHLimits(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	var text strings.Builder
	for i := range 40_000 {
		fmt.Fprintf(&text, "%x", i*i*7919)
	}
	gittest.NewOrigin(t, root, "site.git").Commit("one", map[string]string{"a.json": text.String()})
	key := gittest.SSHKeys()["ed25519"]
	pub := gittest.Must[ssh.PublicKey](t)(ssh.NewPublicKey(key.Public()))
	s := gittest.NewSSHServer(t, root, pub, key)
	m := mirrortest.Open(t, git.Options{})
	r := git.Remote{URL: s.RemoteURL(filepath.ToSlash(root)[1:] + "/site.git"),
		Creds: &auth.Credentials{SSHKey: gittest.PrivateKey(t, key, ""), KnownHosts: s.Known(key)}}
	ref, err := m.Resolve(t.Context(), r, gitref.Branch(""))
	if err != nil {
		t.Fatal(err)
	}
	r.Limits = pack.Limits{PackBytes: 20_000}
	_, err = m.Fetch(t.Context(), r, ref)
	gittest.ErrorIs(t, err, git.TooLarge, "pack of")
	r.Limits = pack.Limits{ObjectBytes: 1000}
	_, err = m.Fetch(t.Context(), r, ref)
	gittest.ErrorIs(t, err, git.TooLarge, "object of")
	r.Limits = pack.Limits{RefsBytes: 100}
	_, err = m.Resolve(t.Context(), r, gitref.Branch(""))
	gittest.ErrorIs(t, err, git.TooLarge, "list of refs")
	r.Limits = pack.Limits{}
	if _, err = m.Fetch(t.Context(), r, ref); err != nil {
		t.Fatal(err)
	}
	mirrortest.Fsck(t, m, r)
}

// Paths and users reach the server as git would send them.
func TestSSHPathsAndUsers(t *testing.T) {
	t.Parallel()
	keys := gittest.SSHKeys()
	pub := gittest.Must[ssh.PublicKey](t)(ssh.NewPublicKey(keys["ed25519"].Public()))
	s := gittest.NewSSHServer(t, t.TempDir(), pub, keys["ed25519"])
	s.Instead(func(ch ssh.Channel) { io.WriteString(ch.Stderr(), "ERROR: Repository not found.\x1b[2J\n") })
	m := mirrortest.Open(t, git.Options{})
	creds := &auth.Credentials{SSHKey: gittest.PrivateKey(t, keys["ed25519"], ""), KnownHosts: s.Known(keys["ed25519"])}
	host := s.Addr()
	for url, want := range map[string]string{
		"ssh://" + host + "/a/b.git":      "git-upload-pack '/a/b.git'",
		"ssh://ann@" + host + "/~/b.git":  "git-upload-pack 'b.git'",
		"ssh://ann@" + host + "/~bob/b":   "git-upload-pack '~bob/b'",
		"ssh://" + host + "/it's/$(id)!x": `git-upload-pack '/it'\''s/$(id)'\!'x'`,
	} {
		_, err := m.Resolve(t.Context(), git.Remote{URL: url, Creds: creds}, gitref.Branch(""))
		gittest.ErrorIs(t, err, git.NotFound)
		if said := s.Said(); !strings.HasSuffix(said, want) {
			t.Errorf("%s: the server was told %q, want %q", url, said, want)
		}
	}
	users := fmt.Sprint(s.Users())
	if !strings.Contains(users, "git") || !strings.Contains(users, "ann") {
		t.Errorf("users %s", users)
	}
}

func TestSSHSilence(t *testing.T) {
	t.Parallel()
	keys := gittest.SSHKeys()
	key := keys["ed25519"]
	pub := gittest.Must[ssh.PublicKey](t)(ssh.NewPublicKey(key.Public()))
	s := gittest.NewSSHServer(t, t.TempDir(), pub, key)
	release := make(chan struct{})
	s.Instead(func(ch ssh.Channel) { <-release })
	creds := &auth.Credentials{SSHKey: gittest.PrivateKey(t, key, ""), KnownHosts: s.Known(key)}
	mute := gittest.Must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0")) // accepts and says nothing
	defer mute.Close()
	for _, addr := range []string{s.Addr(), mute.Addr().String()} {
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		began := time.Now()
		_, err := mirrortest.Open(t, git.Options{}).Resolve(ctx, git.Remote{URL: "ssh://" + addr + "/x", Creds: creds}, gitref.Branch(""))
		cancel()
		gittest.ErrorIs(t, err, git.Timeout)
		_, err = mirrortest.Open(t, git.Options{Stall: 100 * time.Millisecond}).Resolve(t.Context(),
			git.Remote{URL: "ssh://" + addr + "/x", Creds: creds}, gitref.Branch(""))
		gittest.ErrorIs(t, err, git.Timeout, "silent")
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s: %s", addr, took)
		}
	}
	close(release)
}
