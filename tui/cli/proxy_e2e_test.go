package cli_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"limpet/sync/testenv"
	"limpet/sync/testenv/nettest"
)

// TestUnreadableProxy: an agent whose proxy of the environment cannot be read says so
// at its start, starts all the same, and goes around that proxy for nobody.
func TestUnreadableProxy(t *testing.T) {
	t.Parallel()
	const canary = "s3cr3t-canary-of-the-environment"
	h := newHome(t)
	h.env = append(h.env, "HTTP_PROXY=http:/ann:"+canary+"@proxy.example.com:3128", "NO_PROXY=10.0.0.0/99,127.0.0.1")
	repo := testenv.Repo(t, 1, 2)
	host := testenv.Git(t, testenv.GitOptions{})
	d := h.daemon(t, "--sink-prefix", h.dir)
	for name, url := range map[string]string{"near": host.Serve("near.git", repo.Dir), "far": "http://git.nowhere.invalid/far.git"} {
		h.must(t, 0, "repo", "create", name, "--url", url, "--branch", testenv.Branch, "--path", testenv.Directory, "--interval", "24h")
	}
	until(t, "what needs no proxy is pulled", func() bool { return h.run(t, "repo", "pull", "near", "--wait").code == 0 })
	told := ""
	until(t, "what needs it says why it is not", func() bool {
		told = h.run(t, "repo", "show", "far").out
		return strings.Contains(told, "HTTP_PROXY is ") && strings.Contains(told, "start the agent again")
	})
	doctor := h.run(t, "doctor")
	if doctor.code == 0 || !strings.Contains(doctor.out, "HTTP_PROXY is ") {
		t.Errorf("doctor: exit %d: %s", doctor.code, doctor.out)
	}
	d.stop(t)
	for _, want := range []string{"HTTP_PROXY is ", "NO_PROXY has "} {
		if !strings.Contains(d.log.String(), want) {
			t.Errorf("the log does not say %q", want)
		}
	}
	h.noSecret(t, d.log.String()+told+doctor.out+doctor.err, canary)
}

// TestProxyOfARepository pulls over https and over ssh from hosts that only a proxy
// knows, through each kind of proxy, which the annotation of a Repository names. Then
// the proxies take another password. It is nowhere but in its file.
func TestProxyOfARepository(t *testing.T) {
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

// pullsThroughProxies pulls each URL through a proxy of each kind. The names of hosts
// are known to the proxies alone.
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
	if r := h.feed(t, objects.String(), "apply", "-f", "-"); r.code != 0 {
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
		until(t, name+" is refused by its proxy in words", func() bool {
			r := h.run(t, "repo", "pull", name, "--wait", "--full", "--timeout", "5s")
			out.WriteString(r.out + r.err)
			return r.code != 0 && strings.Contains(r.out+r.err, "check address, username and password in ") && strings.Contains(r.out+r.err, "/way-")
		})
	}
	out.WriteString(h.evidence(t, d, all[0]))
	d.stop(t)
	joined := base64.StdEncoding.EncodeToString([]byte("ann:" + canary))
	h.noSecret(t, d.log.String()+out.String(), append(secrets, canary, strings.TrimRight(joined, "="), base64.StdEncoding.EncodeToString([]byte("ann:wrong"))[:10])...)
}
