package cli_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"limpet/sync/testenv"
)

// TestCredentialKinds pulls with each kind of credentials that a person can give:
// from git http-backend behind TLS with a token, a password, a bearer token and a
// client certificate, and from a real sshd with an open and an encrypted key. Then
// all of them are wrong, and hosts repeat what they were sent. No secret is
// anywhere, neither before nor afterwards. The secrets of providers have
// TestIdentities, those of proxies TestProxyOfARepository.
func TestCredentialKinds(t *testing.T) {
	t.Parallel()
	const canary = "s3cr3t-canary-kinds"
	repo := testenv.Repo(t, 2, 2)
	backend, mine, others := testenv.Git(t, testenv.GitOptions{}), newIdentity(t, "site"), newIdentity(t, "others")
	var refuse atomic.Bool
	host := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		user, password, _ := r.BasicAuth()
		good := map[string]bool{
			"token": user == "git" && password == "token-"+canary, "password": user == "ann" && password == "password-"+canary,
			"bearer": r.Header.Get("Authorization") == "Bearer bearer-"+canary, "mtls": len(r.TLS.PeerCertificates) == 1,
		}[who]
		if !good || refuse.Load() {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			http.Error(w, fmt.Sprintf("no %s %s %s", r.Header.Get("Authorization"), user, password), http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	host.TLS = &tls.Config{Certificates: []tls.Certificate{mine.server}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: mine.trust}
	host.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(io.Discard, nil), 0)
	host.StartTLS()
	t.Cleanup(host.Close)

	h := newHome(t)
	give := func(name string, files map[string]string) {
		for key, text := range files {
			h.file(t, "credentials/default."+name+"/"+key, text)
		}
	}
	ca := string(mine.ca)
	give("token", map[string]string{"token": "token-" + canary + "\n", "ca.crt": ca})
	give("password", map[string]string{"username": "ann", "password": "password-" + canary, "ca.crt": ca})
	give("bearer", map[string]string{"bearerToken": "bearer-" + canary, "ca.crt": ca})
	give("mtls", map[string]string{"tls.crt": string(mine.cert), "tls.key": string(mine.priv), "ca.crt": ca})
	urls := map[string]string{}
	for _, name := range []string{"token", "password", "bearer", "mtls"} {
		backend.Serve(name+"/site.git", repo.Dir)
		urls[name] = host.URL + "/" + name + "/site.git"
	}
	secrets := []string{canary, secretLine(string(mine.priv))}
	// Where sshd is missing the others are tried all the same.
	t.Run("ssh", func(t *testing.T) {
		key := testenv.NewSSHKey(t, "ed25519", "")
		locked := testenv.NewSSHKey(t, "rsa", "passphrase-"+canary)
		hostKey := testenv.NewSSHKey(t, "ecdsa", "")
		s := testenv.SSH(t, testenv.SSHOptions{HostKeys: []testenv.SSHKey{hostKey}, Accept: []testenv.SSHKey{key, locked}})
		h.sshPulls(t, s, repo.Dir, canary, key, locked, hostKey)
		secrets = append(secrets, secretLine(string(key.Private)), secretLine(string(locked.Private)))
	})

	d := h.daemon(t, "--credentials-dir", filepath.Join(h.dir, "credentials"), "--sink-prefix", h.dir)
	for name, url := range urls {
		h.must(t, 0, "repo", "create", name, "--url", url, "--branch", testenv.Branch, "--path", testenv.Directory, "--interval", "24h", "--sink-dir", filepath.Join(h.dir, "sinks", name))
	}
	for name := range urls {
		until(t, name+" is pulled", func() bool { return h.run(t, "repo", "pull", name, "--wait", "--full").code == 0 })
	}
	var out strings.Builder
	out.WriteString(h.evidence(t, d, "bearer"))
	give("mtls", map[string]string{"tls.crt": string(others.cert), "tls.key": string(others.priv)})
	refuse.Store(true) // a certificate of another authority than those it asks for is not even shown
	for name := range urls {
		until(t, name+" is refused in words", func() bool {
			r := h.run(t, "repo", "pull", name, "--wait", "--full", "--timeout", "20s")
			out.WriteString(r.out + r.err)
			return r.code != 0 && strings.Contains(r.out+r.err, "refuses these credentials")
		})
	}
	out.WriteString(h.evidence(t, d, "bearer"))
	d.stop(t)
	secrets = append(secrets, secretLine(string(others.priv)))
	h.noSecret(t, d.log.String()+out.String(), secrets...)
}

// secretLine is a line out of the middle of a private key in PEM.
func secretLine(pem string) string {
	lines := strings.Split(strings.TrimSpace(pem), "\n")
	return lines[len(lines)/2]
}

// sshPulls pulls with an open and an encrypted key, and then with a host whose
// key has changed and with a wrong passphrase.
func (h *home) sshPulls(t *testing.T, s *testenv.SSHServer, dir, canary string, key, locked, hostKey testenv.SSHKey) {
	t.Helper()
	known := testenv.Hashed(t, s.Known(hostKey))
	for name, text := range map[string]string{
		"open/identity": string(key.Private), "open/known_hosts": known,
		"locked/identity": string(locked.Private), "locked/known_hosts": s.Known(hostKey), "locked/password": "passphrase-" + canary,
	} {
		h.file(t, "credentials/default."+name, text)
	}
	d := h.daemon(t, "--credentials-dir", filepath.Join(h.dir, "credentials"), "--sink-prefix", h.dir)
	var out strings.Builder
	for _, name := range []string{"open", "locked"} {
		h.must(t, 0, "repo", "create", name, "--url", s.URL(dir), "--branch", testenv.Branch, "--path", testenv.Directory, "--interval", "24h", "--sink-dir", filepath.Join(h.dir, "sinks", name))
		until(t, name+" is pulled", func() bool { return h.run(t, "repo", "pull", name, "--wait", "--full").code == 0 })
	}
	out.WriteString(h.evidence(t, d, "locked"))
	h.file(t, "credentials/default.open/known_hosts", s.Known(testenv.NewSSHKey(t, "ecdsa", "")))
	h.file(t, "credentials/default.locked/password", "wrong-"+canary)
	for name, want := range map[string]string{"open": "not the one in known_hosts", "locked": "does not open the ssh key"} {
		until(t, name+" is refused in words", func() bool {
			r := h.run(t, "repo", "pull", name, "--wait", "--full", "--timeout", "20s")
			out.WriteString(r.out + r.err)
			return r.code != 0 && strings.Contains(r.out+r.err, want)
		})
	}
	out.WriteString(h.evidence(t, d, "locked"))
	d.stop(t)
	h.noSecret(t, d.log.String()+out.String(), canary, secretLine(string(key.Private)), secretLine(string(locked.Private)))
}
