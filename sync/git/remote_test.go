package git

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"limpet/sync/auth"
	"limpet/sync/testenv"

	"limpet/sync/git/gitref"
	"limpet/sync/testenv/gittest"
)

// Tests run against real git: its http-backend behind net/http/cgi, its
// upload-pack behind an ssh server of the tests, its fsck over every mirror.

func openMirrors(t testing.TB, o Options) *Mirrors {
	t.Helper()
	m, err := Open(filepath.Join(t.TempDir(), "mirrors"), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// syncRef resolves branch and fetches it.
func syncRef(t testing.TB, m *Mirrors, r Remote, branch string) (Ref, Stats) {
	t.Helper()
	return syncSelected(t, m, r, gitref.Branch(branch))
}

// syncSelected resolves what is selected and fetches it.
func syncSelected(t testing.TB, m *Mirrors, r Remote, sel gitref.Selector) (Ref, Stats) {
	t.Helper()
	ref, err := m.Resolve(t.Context(), r, sel)
	if err != nil {
		t.Fatal(err)
	}
	st, err := m.Fetch(t.Context(), r, ref)
	if err != nil {
		t.Fatal(err)
	}
	return ref, st
}

// fsck runs git's own check over the mirror of r.
func fsck(t testing.TB, m *Mirrors, r Remote) {
	t.Helper()
	dir := mirrorDir(t, m, r)
	out := gittest.Git(t, dir, nil, "fsck", "--full", "--strict", "--no-dangling")
	if out != "" {
		t.Fatalf("git fsck: %s", out)
	}
	for _, f := range gittest.Glob(t, dir, "objects/pack/*") {
		if strings.HasPrefix(filepath.Base(f), "tmp_") {
			t.Fatalf("left behind: %s", f)
		}
	}
}

func mirrorDir(t testing.TB, m *Mirrors, r Remote) string {
	t.Helper()
	c, err := m.begin(context.Background(), "test", r)
	if err != nil {
		t.Fatal(err)
	}
	defer c.exchange.End()
	return m.mirror(c.exchange.Addr).dir
}

// paths are the paths of a tree with their content.
func content(t testing.TB, m *Mirrors, r Remote, commit, dir string) map[string]string {
	t.Helper()
	tree, err := m.Tree(t.Context(), r, commit, dir)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for _, f := range tree.Files {
		data, err := m.Blob(t.Context(), r, f.Hash, 0)
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(data)) != f.Size {
			t.Fatalf("%s: size %d in the tree, %d bytes", f.Path, f.Size, len(data))
		}
		out[f.Path] = string(data)
	}
	return out
}

// remoteAt is a repository of a server.
func remoteAt(s *gittest.Server, name string) Remote { return Remote{URL: s.URL + "/" + name} }

func TestMain(m *testing.M) { os.Exit(gittest.Main(m)) }

// TestFallbackOverSSH: while a host of http is away, its mirror is asked over ssh, at a real
// sshd, with what is configured for that and with nothing of the host's own.
func TestFallbackOverSSH(t *testing.T) {
	t.Parallel()
	host, other, client := testenv.NewSSHKey(t, "ed25519", ""), testenv.NewSSHKey(t, "ed25519", ""), testenv.NewSSHKey(t, "ed25519", "")
	s := testenv.SSH(t, testenv.SSHOptions{HostKeys: []testenv.SSHKey{host}, Accept: []testenv.SSHKey{client}})
	p := newTwins(t, time.Nanosecond)
	p.r.AllowInsecure, p.r.Creds = true, &auth.Credentials{Username: "ann-of-the-host", Password: gittest.Secret, SSHKey: other.Private,
		KnownHosts: []byte(s.Known(host))}
	p.pulled(mainBranch, p.at.Git("rev-parse", "HEAD"))
	next := p.commit("next")
	p.copy()
	p.one.Fails(http.StatusBadGateway)
	mirror := func(creds *auth.Credentials) {
		p.r.Fallbacks = []Fallback{{URL: s.URL(p.copied), Credentials: func(context.Context) (*auth.Credentials, error) { return creds, nil }}}
	}
	refuses := func(says ...string) {
		t.Helper()
		before := len(s.Log())
		_, err := p.m.Resolve(t.Context(), p.r, mainBranch)
		gittest.ErrorIs(t, err, Unreachable, append(says, "502 Bad Gateway; mirror "+s.URL(p.copied)+": ")...)
		if log := s.Log()[before:]; strings.Contains(log, "Accepted") || strings.Contains(log, "ann-of-the-host") {
			t.Errorf("sshd says %s", log)
		}
	}
	mirror(nil)
	refuses("needs a private key")
	mirror(&auth.Credentials{SSHKey: client.Private})
	refuses("known_hosts")
	mirror(&auth.Credentials{SSHKey: client.Private, KnownHosts: []byte("git.example.com " + host.Public)})
	refuses("not in known_hosts")
	mirror(&auth.Credentials{SSHKey: client.Private, KnownHosts: []byte(s.Known(other))})
	refuses("not the one in known_hosts")
	mirror(&auth.Credentials{SSHKey: other.Private, KnownHosts: []byte(s.Known(host))})
	refuses("permission denied (publickey) for ")
	mirror(&auth.Credentials{SSHKey: client.Private, KnownHosts: []byte(s.Known(host))})
	ref := p.pulled(mainBranch, next)
	if want := "fetched from mirror " + s.URL(p.copied) + "; " + p.one.URL +
		"/site.git is unreachable: 502 Bad Gateway"; ref.Via.String() != want {
		t.Errorf("via %q, want %q", ref.Via, want)
	}
	if log := s.Log(); strings.Contains(log, "ann-of-the-host") || strings.Contains(log, gittest.Secret) ||
		!strings.Contains(log, "Accepted publickey for "+s.User) {
		t.Errorf("sshd says %s", log)
	}
}
