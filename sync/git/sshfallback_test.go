package git

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"limpet/sync/auth"
	"limpet/sync/testenv"
	"limpet/sync/testenv/gittest"
)

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
		gittest.ErrorIs(t, err, Unreachable, append(says, "it answers 502 Bad Gateway; mirror "+s.URL(p.copied)+": ")...)
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
	refuses("refuses the ssh key")
	mirror(&auth.Credentials{SSHKey: client.Private, KnownHosts: []byte(s.Known(host))})
	ref := p.pulled(mainBranch, next)
	if want := "fetched from mirror " + s.URL(p.copied) + "; " + p.one.URL +
		"/site.git is unreachable: it answers 502 Bad Gateway"; ref.Via.String() != want {
		t.Errorf("via %q, want %q", ref.Via, want)
	}
	if log := s.Log(); strings.Contains(log, "ann-of-the-host") || strings.Contains(log, gittest.Secret) ||
		!strings.Contains(log, "Accepted publickey for "+s.User) {
		t.Errorf("sshd says %s", log)
	}
	// What logs leave out of a URL is said behind it where it is the difference.
	p.m = openMirrors(t, Options{})
	nobody := Fallback{URL: strings.Replace(s.URL(p.copied), s.User+"@", "nobody-of-that-name@", 1), Credentials: p.r.Fallbacks[0].Credentials}
	p.r.Fallbacks = []Fallback{nobody, p.r.Fallbacks[0]}
	for i, user := range []string{"", "nobody-of-that-name", s.User} {
		if name := p.r.serverName(i); strings.HasSuffix(name, " as "+user) != (i > 0) || i == 0 && name != p.one.URL+"/site.git" {
			t.Errorf("server %d is %q", i, name)
		}
	}
	if ref, err := p.m.Resolve(t.Context(), p.r, mainBranch); err != nil || ref.Hash != next ||
		!strings.Contains(ref.Via.String(), " as "+s.User) {
		t.Errorf("the fallback behind one that refuses: %+v, %v", ref, err)
	}
	for i, a := range p.m.CheckFallbacks(t.Context(), p.r, mainBranch) {
		if (a.Err == nil) != (i == 1) || a.URL != p.r.serverName(i+1) {
			t.Errorf("%+v", a)
		}
	}
}
