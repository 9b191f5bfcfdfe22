package transport_test

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"limpet/sync/git"

	"limpet/sync/auth"
	"limpet/sync/git/gitref"
	"limpet/sync/testenv/gittest"
	"limpet/sync/testenv/mirrortest"
	"limpet/sync/testenv/nettest"
)

// TestHTTPS: what is wrong with the certificates of either side is told with what to
// do next, and with the right ones a repository is fetched.
func TestHTTPS(t *testing.T) {
	t.Parallel()
	plain := gittest.NewServer(t)
	gittest.NewOrigin(t, plain.Root, "site.git").Commit("one", map[string]string{"a.json": "1"})
	ca := nettest.NewAuthority(t)
	good := ca.Serve(t, nettest.Site{Handler: plain.Handler(t)})
	mutual := ca.Serve(t, nettest.Site{Handler: plain.Handler(t), Clients: tls.RequireAndVerifyClientCert})
	closed := ca.Serve(t, nettest.Site{Handler: nettest.Answers(403), Clients: tls.RequestClientCert})
	trusting := auth.Credentials{CA: ca.PEM, Username: "u", Password: gittest.Secret}
	paired := trusting
	paired.ClientCert, paired.ClientKey = ca.Client(t, time.Now().Add(time.Hour))
	broken := trusting
	broken.CA = []byte("-----BEGIN NOTHING-----")
	unpaired := paired
	_, unpaired.ClientKey = ca.Client(t, time.Now().Add(time.Hour))
	m := mirrortest.Open(t, git.Options{})
	defer m.Close()
	for name, c := range map[string]struct {
		url   string
		creds auth.Credentials
	}{"own authority": {good, trusting}, "client certificate": {mutual, paired}} {
		r := git.Remote{URL: c.url + "/site.git", Creds: &c.creds}
		ref, err := m.Resolve(t.Context(), r, gitref.Branch(""))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := m.Fetch(t.Context(), r, ref); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	ask := func(url string, creds auth.Credentials) error {
		_, err := m.Resolve(t.Context(), git.Remote{URL: url + "/site.git", Creds: &creds}, gitref.Branch(""))
		return err
	}
	gittest.ErrorIs(t, ask(good, broken), git.Auth, "ca.crt")
	gittest.ErrorIs(t, ask(good, unpaired), git.Auth, "not a pair")
	gittest.ErrorIs(t, ask(closed, paired), git.Auth, "(check the rights of the token)")
	for _, c := range nettest.TLSCases(t) {
		kind := git.Unreachable
		switch {
		case strings.Contains(c.Name, "client certificate"), strings.Contains(c.Name, "that of another"):
			kind = git.Auth
		case c.Name == "no TLS":
			kind = git.Protocol
		}
		c.Creds.Username, c.Creds.Password = "u", gittest.Secret
		t.Run(c.Name, func(t *testing.T) { gittest.ErrorIs(t, ask(c.URL, c.Creds), kind, c.Says...) })
	}
}
