package kube

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// testToken is registered as a secret: no output may hold it.
const testToken = "canary-7b1f6c2e"

func TestParseBase(t *testing.T) {
	for in, want := range map[string]string{
		"https://host":                         "https://host",
		" https://host:6446/ ":                 "https://host:6446",
		"https://host/apis":                    "https://host",
		"https://host/apis/":                   "https://host",
		"https://host//apis//":                 "https://host",
		"https://host/grafana":                 "https://host/grafana",
		"https://host/grafana/apis/":           "https://host/grafana",
		"https://host/myapis":                  "https://host/myapis",
		"http://[::1]:3000/":                   "http://[::1]:3000",
		"https://host?x=1#y":                   "https://host",
		"host:6446":                            "error",
		"//host":                               "error",
		"ftp://host":                           "error",
		"https://":                             "error",
		"https://user:" + testToken + "@host/": "error",
		"https://us er:" + testToken + "@%zz":  "error",
		"":                                     "error",
	} {
		u, err := parseBase(in)
		got := "error"
		if err == nil {
			got = u.String()
		} else if strings.Contains(err.Error(), testToken) {
			t.Errorf("%q: error tells the password: %v", in, err)
		}
		if got != want {
			t.Errorf("%q: %s, %v; want %s", in, got, err, want)
		}
	}
}

func FuzzParseBase(f *testing.F) {
	f.Add("https://host/apis/")
	f.Add("https://host:99999/%41pis")
	f.Fuzz(func(t *testing.T, in string) {
		u, err := parseBase(in)
		if err != nil {
			return
		}
		again, err := parseBase(u.String())
		if err != nil || again.String() != u.String() {
			t.Errorf("%q gives %s, that gives %v, %v", in, u, again, err)
		}
	})
}

func TestConnectRefusesBadConfig(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string][]byte{"token": []byte("tok-" + testToken), "empty": []byte(" \n"), "two": []byte("a\nb"),
		"kube": []byte("not: [yaml")})
	f := func(name string) string { return filepath.Join(dir, name) }
	if err := syscall.Mkfifo(f("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		config Config
		want   []string
	}{
		"nothing":          {Config{}, []string{"--provisioning-server-url", "--kubeconfig"}},
		"no scheme":        {Config{Server: "host:80"}, []string{"--provisioning-server-url"}},
		"both tokens":      {Config{Server: "https://h", Token: "abc", TokenFile: f("token")}, []string{"--token-file", "exclude"}},
		"no token file":    {Config{Server: "https://h", TokenFile: f("none")}, []string{"--token-file", "no such file"}},
		"empty token file": {Config{Server: "https://h", TokenFile: f("empty")}, []string{"--token-file", "is empty"}},
		"two lines":        {Config{Server: "https://h", TokenFile: f("two")}, []string{"--token-file", "line break"}},
		"token with space": {Config{Server: "https://h", Token: "a " + testToken}, []string{"--token", "space"}},
		"exchange, no url": {Config{Server: "https://h", Token: "abc", TokenExchangeURL: "sign/access-token"}, []string{"--token-exchange-url"}},
		"exchange, user": {Config{Server: "https://h", Token: "abc", TokenExchangeURL: "https://u:" + testToken + "@h"},
			[]string{"--token-exchange-url"}},
		"exchange, token":   {Config{Server: "https://h", TokenExchangeURL: "https://h/sign"}, []string{"--token-exchange-url", "--token"}},
		"kubeconfig absent": {Config{Kubeconfig: f("none")}, []string{"--kubeconfig", "no such file"}},
		"kubeconfig broken": {Config{Kubeconfig: f("kube")}, []string{"--kubeconfig"}},
		"kubeconfig empty":  {Config{Kubeconfig: f("empty")}, []string{"--kubeconfig"}},
		"a pipe of it":      {Config{Kubeconfig: kubeconfig(t, "https://h", "", "{tokenFile: "+f("pipe")+"}")}, []string{"--kubeconfig", "not a regular"}},
	} {
		_, err := Connect(t.Context(), tc.config)
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, part := range tc.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %q lacks %q", name, err, part)
			}
		}
		if strings.Contains(err.Error(), testToken) {
			t.Errorf("%s: error tells a secret: %v", name, err)
		}
		if Hint(err) == "" {
			t.Errorf("%s: no hint for %v", name, err)
		}
	}
}

func TestConfigKeepsTokenOutOfText(t *testing.T) {
	c := Config{Server: "https://u:" + testToken + "@h", Token: testToken, TokenExchangeURL: "https://h/?token=" + testToken}
	for _, text := range []string{fmt.Sprint(c), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", c), fmt.Sprint(c.LogValue())} {
		if strings.Contains(text, testToken) {
			t.Errorf("told: %s", text)
		}
	}
}

// kubeconfig writes a file with two contexts and returns its path.
func kubeconfig(t *testing.T, server, ca, user string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`
apiVersion: v1
kind: Config
current-context: main
clusters:
- name: c
  cluster: {server: %q, certificate-authority-data: %q}
- name: dead
  cluster: {server: "https://dead.test"}
users:
- name: u
  user: %s
contexts:
- {name: main, context: {cluster: c, user: u}}
- {name: other, context: {cluster: dead, user: u}}
`, server, ca, user)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A kubeconfig gives server, CA and credentials; flags stand above it.
func TestKubeconfig(t *testing.T) {
	ca := newAuthority(t)
	cert, key := ca.issue(t, "server")
	var seen http.Header
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header.Clone()
		okHandler(w, r)
	}), load(t, cert, key), nil)
	caData := base64.StdEncoding.EncodeToString(ca.pem)
	tokenFile := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte("token-of-the-file"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		user   string
		change func(*Config)
		want   string
	}{
		"token":           {`{token: token-of-the-user}`, nil, "Bearer token-of-the-user"},
		"token file":      {`{tokenFile: ` + tokenFile + `}`, nil, "Bearer token-of-the-file"},
		"basic":           {`{username: jo, password: pass-word}`, nil, "Basic " + base64.StdEncoding.EncodeToString([]byte("jo:pass-word"))},
		"flag over token": {`{token: token-of-the-user}`, func(c *Config) { c.Token = "token-of-the-flag" }, "Bearer token-of-the-flag"},
		"flag over basic": {`{username: jo, password: pass-word}`, func(c *Config) { c.Token = "token-of-the-flag" },
			"Bearer token-of-the-flag"},
		"server over server": {`{token: token-of-the-user}`, func(c *Config) { c.Server = url + "/apis" }, "Bearer token-of-the-user"},
	} {
		c := Config{Kubeconfig: kubeconfig(t, url, caData, tc.user), Logger: slog.New(slog.DiscardHandler), UserAgent: "limpet/test"}
		if tc.change != nil {
			tc.change(&c)
		}
		client := connect(t, c)
		if _, _, err := client.once(t.Context(), http.MethodGet, "/apis", nil, "", nil); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := seen.Get("Authorization"); got != tc.want {
			t.Errorf("%s: authorization %q, want %q", name, got, tc.want)
		}
		if got := seen.Get("User-Agent"); got != "limpet/test" {
			t.Errorf("%s: user agent %q", name, got)
		}
	}
	if _, err := os.Stat("/bin/sh"); err == nil { // a credential plugin, as clouds have
		plugin := `{exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, interactiveMode: Never, args: ["-c",
			"echo '{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"token-of-the-plugin\"}}'"]}}`
		client := connect(t, Config{Kubeconfig: kubeconfig(t, url, caData, plugin), Logger: slog.New(slog.DiscardHandler)})
		if _, _, err := client.once(t.Context(), http.MethodGet, "/apis", nil, "", nil); err != nil ||
			seen.Get("Authorization") != "Bearer token-of-the-plugin" {
			t.Errorf("exec plugin: %v, authorization %q", err, seen.Get("Authorization"))
		}
	}
	// Its own word about the certificate holds, even for a loopback host.
	strict := connect(t, Config{Kubeconfig: kubeconfig(t, url, "", "{}"), Logger: slog.New(slog.DiscardHandler)})
	if _, _, err := strict.once(t.Context(), http.MethodGet, "/apis", nil, "", nil); !isCertificateError(err) {
		t.Errorf("kubeconfig without CA: %v", err)
	}
}

// The whole way over sockets: exchange and API with self-made certificates on
// loopback, the token in X-Access-Token, from the flags of the walk-through.
func TestConnectThroughExchange(t *testing.T) {
	ca := newAuthority(t)
	cert, key := ca.issue(t, "server")
	pair := load(t, cert, key)
	exchange := &issuer{}
	var seen http.Header
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header.Clone()
		_, _ = io.Copy(io.Discard, r.Body)
		okHandler(w, r)
	})
	client := connect(t, Config{Server: serve(t, api, pair, nil) + "/apis/", Token: "ProvisioningAdminToken",
		TokenExchangeURL: serve(t, exchange, pair, nil) + "/sign/access-token", Logger: slog.New(slog.DiscardHandler)})
	for range 3 {
		if status, _, err := client.Do(t.Context(), http.MethodPost, "/apis/x", nil, "application/json", []byte(`{}`)); err != nil ||
			status != http.StatusOK {
			t.Fatalf("status %d, %v", status, err)
		}
	}
	if got := seen.Get("X-Access-Token"); !strings.HasPrefix(got, "Bearer ey") || seen.Get("Authorization") != "" {
		t.Errorf("X-Access-Token %q, Authorization %q", got, seen.Get("Authorization"))
	}
	if want := `{"namespace":"*","audiences":["provisioning.grafana.app"]}`; exchange.body != want || len(exchange.requests()) != 1 {
		t.Errorf("%d exchanges, the last %s", len(exchange.requests()), exchange.body)
	}
}

// A redirect to another place takes no token along and is not followed.
func TestRedirectElsewhereIsRefused(t *testing.T) {
	var reached bool
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	t.Cleanup(elsewhere.Close)
	here := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/moved" {
			okHandler(w, r)
			return
		}
		to := "/moved"
		if r.URL.Path == "/apis" {
			to = elsewhere.URL + "/login?from=" + testToken
		}
		http.Redirect(w, r, to, http.StatusFound)
	}))
	t.Cleanup(here.Close)
	client := connect(t, Config{Server: here.URL, Token: "some-token"})
	err := client.Check(t.Context())
	var stranger *NotKubernetesError
	if !errors.As(err, &stranger) || reached || !strings.Contains(err.Error(), "redirect to "+elsewhere.URL+"/login") ||
		strings.Contains(err.Error(), testToken) {
		t.Errorf("error %v, reached %v", err, reached)
	}
	if Retryable(err) {
		t.Error("a redirect is retried")
	}
	if status, _, err := client.Do(t.Context(), http.MethodGet, "/inside", nil, "", nil); err != nil || status != http.StatusOK {
		t.Errorf("redirect inside: %d, %v", status, err)
	}
}
