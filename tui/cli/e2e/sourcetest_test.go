package e2e

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"limpet/sync/testenv/suite"

	"limpet/sync/testenv"
)

// sourceTrial is what 'limpet source test -o json' prints.
type sourceTestResult struct {
	Code     int
	Success  bool
	Revision string
	Reason   string
	Errors   []struct{ Field, Detail string }
	Steps    []struct{ Name, Result, Detail string }
}

// steps are the steps in one line.
func (s sourceTestResult) steps() string {
	var out []string
	for _, step := range s.Steps {
		out = append(out, step.Name+" "+step.Result)
	}
	return strings.Join(out, ", ")
}

// testSource calls 'limpet source test', and returns all that it has told too.
func (h *home) testSource(t *testing.T, known schemas, name string) (got sourceTestResult, code int, told string) {
	t.Helper()
	r := h.run(t, "source", "test", name, "-o", "json")
	if err := json.Unmarshal([]byte(r.out), &got); err != nil {
		t.Fatalf("%s: exit %d: %v\n%s%s", name, r.code, err, r.out, r.err)
	}
	known.keeps(t, "trial", r.out)
	if got.Success != (r.code == 0) {
		t.Errorf("%s: exit %d: %s", name, r.code, r.err)
	}
	return got, r.code, r.out + r.err
}

// secretYAML is a Secret as people write it.
func secretYAML(name string, pairs ...string) string {
	out := "---\napiVersion: v1\nkind: Secret\nmetadata: {name: " + name + ", namespace: default}\nstringData:\n"
	for i := 0; i+1 < len(pairs); i += 2 {
		out += fmt.Sprintf("  %s: %q\n", pairs[i], pairs[i+1])
	}
	return out
}

// sourceYAML is a GitRepository with a spec in the flow form of YAML.
func sourceYAML(name, url, more string) string {
	return fmt.Sprintf("---\napiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: %s, namespace: default}\nspec: {url: %q, interval: 5m, %s}\n", name, url, more)
}

// sourceRow is a GitRepository and what a test of it has to tell.
type sourceRow struct {
	url, spec        string
	code             int
	steps            string
	revision, reason string
}

// The steps of a test that ends well, or fails at the one named.
const (
	fine          = "spec ok, credentials ok, remote ok, revision ok"
	noRevision    = "spec ok, credentials ok, remote ok, revision failed"
	noRemote      = "spec ok, credentials ok, remote failed, revision skipped"
	noCredentials = "spec ok, credentials failed, remote skipped, revision skipped"
	noSigners     = "spec ok, credentials ok, signers failed, remote skipped, revision skipped"
	badSpec       = "spec failed, credentials skipped, remote skipped, revision skipped"
)

func sourcesYAML(rows map[string]sourceRow) (objects string) {
	for name, c := range rows {
		objects += sourceYAML(name, c.url, c.spec)
	}
	return objects
}

// examine applies objects and tests the sources of rows: those of alone by itself, and
// all through a daemon, which has ended then. It returns all that was told and logged.
func (h *home) examine(t *testing.T, known schemas, objects string, rows map[string]sourceRow, alone ...string) (told string) {
	t.Helper()
	if r := h.runWithInput(t, objects, "apply", "-f", "-"); r.code != 0 {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	look := func(how, name string) {
		c := rows[name]
		got, code, text := h.testSource(t, known, name)
		told += text
		if code != c.code || got.Success != (c.code == 0) || got.steps() != c.steps || got.Revision != c.revision || got.Reason != c.reason {
			t.Errorf("%s, %s: exit %d, want %d\n%s\nwant %s, %s %s", name, how, code, c.code, text, c.steps, c.revision, c.reason)
		}
	}
	for _, name := range alone {
		look("alone", name)
		r := h.run(t, "source", "test", name) // as a table
		if told += r.out + r.err; r.code != rows[name].code || !strings.Contains(r.out, rows[name].revision) {
			t.Errorf("%s: exit %d\n%s%s", name, r.code, r.out, r.err)
		}
	}
	d := h.daemon(t, "--controllers", "off")
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		look("through the daemon", name)
	}
	d.stop(t)
	return told + d.log.String()
}

// TestSourceTest: the built program, by itself and through its daemon, asks git
// http-backend behind a private authority for what a GitRepository names, with each kind
// of Secret, good and bad. No secret is printed, logged or kept unsealed.
func TestSourceTest(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	const canary = "s3cr3t-canary-source"
	repo := testenv.Repo(t, 3, 2)
	repo.Git(t, "tag", "v1.2.0", testenv.Branch+"~1")
	repo.Git(t, "-c", "user.name=a", "-c", "user.email=a@b", "tag", "-a", "-m", "x", "v1.10.0", testenv.Branch)
	head, before := repo.Head(t), strings.TrimSpace(repo.Git(t, "rev-parse", testenv.Branch+"~1"))
	backend, mine := testenv.Git(t, testenv.GitOptions{}), newCertificates(t, "site")
	backend.Serve("open/x.git", repo.Dir)
	backend.Serve("empty/x.git", testenv.EmptyRepo(t).Dir)
	for _, who := range []string{"basic", "bearer", "mtls"} {
		backend.Serve(who+"/x.git", repo.Dir)
	}
	host := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		user, password, _ := r.BasicAuth()
		good := map[string]bool{"open": r.Header.Get("Authorization") == "", "empty": true, "basic": user == "ann" &&
			(password == "basic-"+canary || password == "url-"+canary),
			"bearer": r.Header.Get("Authorization") == "Bearer bearer-"+canary, "mtls": len(r.TLS.PeerCertificates) == 1}[who]
		if !good { // with all that it was sent, as some hosts do
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
	at := func(who string) string { return host.URL + "/" + who + "/x.git" }

	signer := testenv.NewSSHKey(t, "ed25519", "")
	ca := string(mine.ca)
	objects := secretYAML("ca", "ca.crt", ca) + secretYAML("basic", "username", "ann", "password", "basic-"+canary, "caFile", ca) +
		secretYAML("wrong", "username", "ann", "password", "wrong-"+canary, "ca.crt", ca) + secretYAML("bearer", "bearerToken", "bearer-"+canary,
		"username", "ann", "password", "ignored-"+canary, "ca.crt", ca) +
		secretYAML("mtls", "tls.crt", string(mine.cert), "tls.key", string(mine.priv), "ca.crt", ca) + secretYAML("app", "githubAppID", "12",
		"githubAppPrivateKey", "key-"+canary) +
		secretYAML("signers", "ops.sshpub", signer.Public) + secretYAML("broken", "ops.sshpub", "ssh-ed25519 nonsense")
	main := "ref: {branch: main}"
	inURL := strings.Replace(at("basic"), "://", "://ann:url-"+canary+"@", 1)
	rows := map[string]sourceRow{
		"open":  {url: at("open"), spec: main + ", secretRef: {name: ca}", steps: fine, revision: "main@sha1:" + head},
		"basic": {url: at("basic"), spec: main + ", secretRef: {name: basic}", steps: fine, revision: "main@sha1:" + head},
		"bearer": {url: at("bearer"), spec: "provider: generic, " + main + ", secretRef: {name: bearer}", steps: fine,
			revision: "main@sha1:" + head},
		"mtls": {url: at("mtls"), spec: main + ", secretRef: {name: mtls}", steps: fine, revision: "main@sha1:" + head},
		"semver": {url: at("open"), spec: "ref: {semver: '>=1.0.0 <1.9.0'}, secretRef: {name: ca}", steps: fine, revision: "v1.2.0@sha1:" +
			before},
		"commit": {url: at("open"), spec: "ref: {commit: " + before + "}, secretRef: {name: ca}", steps: fine, revision: "sha1:" + before},
		"pinned": {url: at("open"), spec: "ref: {branch: main, commit: " + before + "}, secretRef: {name: ca}", steps: fine,
			revision: "main@sha1:" + before},
		"signed": {url: at("open"), spec: main + ", secretRef: {name: ca}, verify: {secretRef: {name: signers}}",
			steps: "spec ok, credentials ok, signers ok, remote ok, revision ok", revision: "main@sha1:" + head},
		"no-master": {url: at("open"), spec: "secretRef: {name: ca}", code: 1, steps: noRevision, reason: "GitOperationFailed"},
		"empty":     {url: at("empty"), spec: main + ", secretRef: {name: ca}", code: 1, steps: noRevision, reason: "EmptyGitRepository"},
		"wrong":     {url: at("basic"), spec: main + ", secretRef: {name: wrong}", code: 3, steps: noRemote, reason: "GitOperationFailed"},
		"no-ca":     {url: at("open"), spec: main, code: 1, steps: noRemote, reason: "GitOperationFailed"},
		"no-host":   {url: "https://127.0.0.1:1/x.git", spec: main, code: 1, steps: noRemote, reason: "GitOperationFailed"},
		"gone": {url: at("basic"), spec: main + ", secretRef: {name: gone}", code: 3, steps: noCredentials,
			reason: "AuthenticationFailed"},
		"app": {url: at("basic"), spec: main + ", secretRef: {name: app}", code: 1, steps: noCredentials,
			reason: "InvalidProviderConfiguration"},
		"app-alone": {url: at("basic"), spec: "provider: github, " + main, code: 1, steps: noCredentials,
			reason: "InvalidProviderConfiguration"},
		"account": {url: at("basic"), spec: "provider: azure, serviceAccountName: flux, " + main, code: 1, steps: badSpec,
			reason: "FeatureGateDisabled"},
		"ssh-alone": {url: "ssh://git@127.0.0.1:1/x.git", spec: main, code: 3, steps: noCredentials, reason: "AuthenticationFailed"},
		"no-signers": {url: at("open"), spec: main + ", secretRef: {name: ca}, verify: {secretRef: {name: gone}}", code: 1, steps: noSigners,
			reason: "VerificationError"},
		"bad-signers": {url: at("open"), spec: main + ", secretRef: {name: ca}, verify: {secretRef: {name: broken}}", code: 1, steps: noSigners,
			reason: "VerificationError"},
		"in-url": {url: inURL, spec: main + ", secretRef: {name: ca}", steps: "spec warning, credentials ok, remote ok, revision ok",
			revision: "main@sha1:" + head},
	}
	objects += sourcesYAML(rows)
	h, known := newHome(t), readSchemas(t)
	told := h.examine(t, known, objects, rows, "basic", "in-url", "wrong", "gone", "app", "signed")
	h.must(t, 1, "source", "test", "nobody")
	// A table of the objects has none of it either; the API keeps what it was given.
	tables := h.must(t, 0, "get", "gitrepositories").out + h.must(t, 0, "get", "gitrepositories", "-o", "wide").out +
		h.must(t, 0, "get", "gitrepository", "in-url").out
	if strings.Contains(tables, canary) {
		t.Errorf("the url is not masked:\n%s", tables)
	}
	for _, form := range []string{"json", "yaml"} {
		if r := h.must(t, 0, "get", "gitrepository", "in-url", "-o", form); !strings.Contains(r.out, inURL) {
			t.Errorf("-o %s is not what the API has: %s", form, r.out)
		}
	}
	// The one in the spec is in the state file as the API has it.
	h.noSecret(t, "", "basic-"+canary, "bearer-"+canary, "ignored-"+canary, "wrong-"+canary, "key-"+canary, secretLine(string(mine.priv)))
	if found := holds([]byte(told), canary, secretLine(string(mine.priv)),
		base64.StdEncoding.EncodeToString([]byte("ann:basic"))); found != "" {
		t.Errorf("the secret %s is told", found)
	}
}
