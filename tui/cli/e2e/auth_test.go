package e2e

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"limpet/sync/testenv"
	"limpet/sync/testenv/nettest"
	"limpet/sync/testenv/suite"
)

// TestProxyOfARepository pulls over https and over ssh from hosts that only a proxy
// knows, through each kind of proxy, which the annotation of a Repository names. Then
// the proxies take another password. It is nowhere but in its file.
func TestProxyOfARepository(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	const canary = "s3cr3t-canary-of-a-proxy"
	h := newHome(t)
	repo := testenv.Repo(t, 2, 2)
	backend, ca := testenv.Git(t, testenv.GitOptions{}), nettest.NewAuthority(t)
	backend.Serve("site.git", repo.Dir)
	site := strings.TrimPrefix(ca.Serve(t, nettest.Site{Name: "git.nowhere.invalid", Handler: backend}), "https://")
	names := map[string]string{"git.nowhere.invalid:443": site}
	key, hostKey := testenv.NewSSHKey(t, "ed25519", ""), testenv.NewSSHKey(t, "ecdsa", "")
	urls := map[string]string{"https": "https://git.nowhere.invalid/site.git"}
	t.Run("ssh", func(t *testing.T) { // skipped where there is no sshd
		s := testenv.SSH(t, testenv.SSHOptions{HostKeys: []testenv.SSHKey{hostKey}, Accept: []testenv.SSHKey{key}})
		elsewhere := func(text string) string { return strings.ReplaceAll(text, "127.0.0.1", "ssh.nowhere.invalid") }
		urls["ssh"], names[elsewhere(s.Addr)] = elsewhere(s.URL(repo.Dir)), s.Addr
		h.pullsThroughProxies(t, urls, names, map[string]string{
			"ca.crt": string(ca.PEM), "identity": string(key.Private), "known_hosts": elsewhere(s.Known(hostKey)),
		}, canary, secretLine(string(key.Private)))
	})
}

// pullsThroughProxies pulls each URL through a proxy of each kind. The names of hosts are known to
// the proxies alone.
func (h *home) pullsThroughProxies(t *testing.T, urls, names, files map[string]string, canary string, secrets ...string) {
	t.Helper()
	var proxies []*nettest.Proxy
	var all []string
	var objects strings.Builder
	for _, scheme := range []string{"http", "socks5"} {
		p := nettest.Start(t, nettest.Options{Username: "ann", Password: canary, Names: names})
		proxies = append(proxies, p)
		for key, text := range map[string]string{"address": scheme + "://" + p.Addr, "username": "ann", "password": canary} {
			h.file(t, "credentials/default.way-"+scheme+"/"+key, text)
		}
		for kind, url := range urls {
			name := kind + "-by-" + scheme
			all = append(all, name)
			for key, text := range files {
				if (key == "ca.crt") == (kind == "https") {
					h.file(t, "credentials/default."+name+"/"+key, text)
				}
			}
			fmt.Fprintf(&objects, `---
apiVersion: provisioning.grafana.app/v0alpha1
kind: Repository
metadata: {name: %s, namespace: default, annotations: {limpet/git-proxy-secret: way-%s, limpet/sink-dir: %q}}
spec: {title: x, type: git, git: {url: %q, branch: %s, path: %s}, sync: {enabled: true, target: folder, intervalSeconds: 86400}}
`, name, scheme, filepath.Join(h.dir, "sinks", name), url, testenv.Branch, testenv.Directory)
		}
	}
	d := h.daemon(t, "--credentials-dir", filepath.Join(h.dir, "credentials"), "--sink-prefix", h.dir)
	if r := h.runWithInput(t, objects.String(), "apply", "-f", "-"); r.code != 0 {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	for _, name := range all {
		until(t, name+" is pulled", func() bool { return h.run(t, "repo", "pull", name, "--wait", "--full").code == 0 })
		if left, err := os.ReadDir(filepath.Join(h.dir, "sinks", name)); err != nil || len(left) == 0 {
			t.Errorf("%s has written nothing: %v", name, err)
		}
	}
	for _, p := range proxies {
		asked := strings.Join(p.Asked(), " ")
		for name := range names {
			if !strings.Contains(asked, name) {
				t.Errorf("a proxy was not asked for %s: %s", name, asked)
			}
		}
	}
	var out strings.Builder
	out.WriteString(h.evidence(t, d, all[0]))
	for _, scheme := range []string{"http", "socks5"} {
		h.file(t, "credentials/default.way-"+scheme+"/password", "wrong-"+canary)
	}
	for _, name := range all {
		until(t, name+" is refused by its proxy", func() bool {
			r := h.run(t, "repo", "pull", name, "--wait", "--full", "--timeout", "5s")
			out.WriteString(r.out + r.err)
			return r.code != 0
		})
	}
	out.WriteString(h.evidence(t, d, all[0]))
	d.stop(t)
	joined := base64.StdEncoding.EncodeToString([]byte("ann:" + canary))
	h.noSecret(t, d.log.String()+out.String(), append(secrets, canary, strings.TrimRight(joined, "="),
		base64.StdEncoding.EncodeToString([]byte("ann:wrong"))[:10])...)
}

// TestCredentialKinds pulls with each kind of credentials that a person can give: from git
// http-backend behind TLS with a token, a password, a bearer token and a client certificate, and
// from a real sshd with an open and an encrypted key. Then all of them are wrong, and hosts repeat
// what they were sent. No secret is anywhere, neither before nor afterwards. The secrets of
// providers have TestIdentities, those of proxies TestProxyOfARepository.
func TestCredentialKinds(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	const canary = "s3cr3t-canary-kinds"
	repo := testenv.Repo(t, 2, 2)
	backend, mine, others := testenv.Git(t, testenv.GitOptions{}), newCertificates(t, "site"), newCertificates(t, "others")
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
		h.must(t, 0, "repo", "create", name, "--url", url, "--branch", testenv.Branch, "--path", testenv.Directory, "--interval", "24h",
			"--sink-dir", filepath.Join(h.dir, "sinks", name))
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
			return r.code != 0 && !strings.Contains(r.err, "already exists")
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
		h.must(t, 0, "repo", "create", name, "--url", s.URL(dir), "--branch", testenv.Branch, "--path", testenv.Directory, "--interval", "24h",
			"--sink-dir", filepath.Join(h.dir, "sinks", name))
		until(t, name+" is pulled", func() bool { return h.run(t, "repo", "pull", name, "--wait", "--full").code == 0 })
	}
	// A newcomer has the key alone: the test prints the line that is missing.
	h.must(t, 0, "repo", "create", "flags", "--url", s.URL(dir), "--branch", testenv.Branch, "--path", testenv.Directory, "--interval", "24h",
		"--sink-dir", filepath.Join(h.dir, "sinks", "flags"), "--identity-file", filepath.Join(h.dir, "credentials/default.open/identity"))
	tested := h.must(t, exitAuth, "repo", "test", "flags")
	_, line, found := strings.Cut(tested.err, "add this line to known_hosts: ")
	line, _, _ = strings.Cut(line, ")")
	if !found || !strings.HasPrefix(line, "[127.0.0.1]:") {
		t.Fatalf("no line of known_hosts: %s", tested.err)
	}
	h.must(t, 0, "repo", "set", "flags", "--known-hosts", h.file(t, "known", line+"\n"))
	h.must(t, 0, "repo", "pull", "flags", "--wait", "--full")
	out.WriteString(tested.out + tested.err + h.must(t, 0, "get", "repository", "flags", "-o", "yaml").out)
	out.WriteString(h.evidence(t, d, "locked"))
	h.file(t, "credentials/default.open/known_hosts", s.Known(testenv.NewSSHKey(t, "ecdsa", "")))
	h.file(t, "credentials/default.locked/password", "wrong-"+canary)
	for _, name := range []string{"open", "locked"} {
		until(t, name+" is refused", func() bool {
			r := h.run(t, "repo", "pull", name, "--wait", "--full", "--timeout", "20s")
			out.WriteString(r.out + r.err)
			return r.code != 0 && !strings.Contains(r.err, "already exists")
		})
	}
	out.WriteString(h.evidence(t, d, "locked"))
	d.stop(t)
	h.noSecret(t, d.log.String()+out.String(), canary, secretLine(string(key.Private)), secretLine(string(locked.Private)))
}

// TestCredentialsAreCorrected: a site whose credentials are not there yet, then wrong, then right,
// then wrong again. Each has effect within seconds, and not at the next check, which is a minute or
// five away.
func TestCredentialsAreCorrected(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	host := testenv.Git(t, testenv.GitOptions{TLS: true, User: "git", Password: gitToken})
	url := host.Serve("boards.git", testenv.Repo(t, 1, 1).Dir)
	ca, err := os.ReadFile(host.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	h := newHome(t)
	dir := filepath.Join(h.dir, "credentials")
	d := h.daemon(t, "--credentials-dir", dir)
	h.must(t, 0, "repo", "create", "site", "--url", url)
	health := func(what, reason string) {
		t.Helper()
		began := time.Now()
		until(t, what, func() bool {
			var repo struct {
				Status struct {
					Conditions []struct{ Type, Reason string }
				}
			}
			if err := json.Unmarshal([]byte(h.must(t, 0, "get", "repository", "site", "-o", "json").out), &repo); err != nil {
				t.Fatal(err)
			}
			for _, c := range repo.Status.Conditions {
				if c.Type == "Ready" {
					return c.Reason == reason
				}
			}
			return false
		})
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("%s: after %s", what, took)
		}
	}
	health("no directory", "ServiceUnavailable")
	h.file(t, "credentials/default.site/ca.crt", string(ca))
	h.file(t, "credentials/default.site/token", "wrong")
	health("a wrong token", "AuthenticationFailed")
	h.file(t, "credentials/default.site/token", gitToken+"\n")
	health("the right one", "Available")
	h.file(t, "credentials/default.site/token", "expired")
	health("one that has expired", "AuthenticationFailed")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	health("none", "ServiceUnavailable")
	h.noSecret(t, d.log.String(), gitToken)
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// sshSigner makes a key of ssh and returns the options of git that sign with it, and its public
// half.
func sshSigner(t *testing.T) (options []string, public string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v\n%s", err, out)
	}
	data, err := os.ReadFile(file + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	return []string{"-c", "gpg.format=ssh", "-c", "user.signingKey=" + file}, string(data)
}

// signHead puts a signed commit with the same content in the place of the newest.
func signHead(t *testing.T, repo *testenv.Repository, options []string) string {
	t.Helper()
	id := repo.Git(t, append(options, "commit-tree", "-S", "-m", "signed", "HEAD^{tree}")...)
	repo.Git(t, "update-ref", "refs/heads/"+testenv.Branch, id)
	return id
}
