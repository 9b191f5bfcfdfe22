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
