package agent

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/apiserver"
	"limpet/sync/reconcile"
	"limpet/sync/repos"
	"limpet/sync/webhook"
)

const hookSecret = "canary-91bd-hook-secret"

var hookAddress = regexp.MustCompile(`msg=webhooks component=webhook address=(\S+)`)

// hookURL is where the running agent receives the webhooks of a repository.
func hookURL(t *testing.T, log *logText, name string) string {
	t.Helper()
	var found []byte
	eventually(t, "webhooks are received", func() bool {
		log.mu.Lock()
		defer log.mu.Unlock()
		if m := hookAddress.FindSubmatch(log.text.Bytes()); m != nil {
			found = bytes.Clone(m[1])
		}
		return found != nil
	})
	return "http://" + string(found) + "/apis/provisioning.grafana.app/v0alpha1/namespaces/default/repositories/" + name + "/webhook"
}

// deliver sends a push to main, signed with the secret.
func deliver(t *testing.T, url, secret, id string) *http.Response {
	t.Helper()
	return deliverEvent(t, url, secret, "push", `{"ref":"refs/heads/main","after":"`+id+`","repository":{"full_name":"ops/x"},"commits":[]}`)
}

// deliverReview sends a push to pull request 7, signed with the secret.
func deliverReview(t *testing.T, url, secret, id string) *http.Response {
	t.Helper()
	return deliverEvent(t, url, secret, "pull_request", `{"action":"synchronize","number":7,"repository":{"full_name":"ops/x"},`+
		`"pull_request":{"base":{"ref":"main"},"head":{"ref":"work","sha":"`+id+`"}}}`)
}

func deliverEvent(t *testing.T, url, secret, event, text string) *http.Response {
	t.Helper()
	body := []byte(text)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	must(t, err)
	req.Header.Set("X-GitHub-Event", event)
	req.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	resp.Body.Close()
	return resp
}

// delivered delivers a push and expects a status code.
func delivered(t *testing.T, what, url, secret, id string, code int) {
	t.Helper()
	if resp := deliver(t, url, secret, id); resp.StatusCode != code {
		t.Errorf("%s: %s, want %d", what, resp.Status, code)
	}
}

// hookedRepository creates a Repository that may have a hook.
func hookedRepository(t *testing.T, a *Agent, name string, secure, status map[string]any) {
	t.Helper()
	content := map[string]any{"spec": map[string]any{"title": name, "type": "git",
		"git":  map[string]any{"url": "https://git.example.com/ops/x.git", "branch": "main", "path": name},
		"sync": map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(3600)}}}
	if secure != nil {
		content["secure"] = map[string]any{"webhookSecret": secure}
	}
	create(t, a, "Repository", name, content)
	if status != nil {
		patchRepository(t, a, name, map[string]any{"status": map[string]any{"webhook": status}}, "status")
	}
}

// putHookSecret gives the agent the secret of a webhook.
func putHookSecret(t *testing.T, a *Agent, name, secret string) {
	t.Helper()
	must(t, a.cfg.Store.PutSecret(t.Context(), repos.WebhookSecretKey(reconcile.Key{Namespace: "default", Name: name}), []byte(secret)))
}

// hookedAgent starts the parts of an agent that receive webhooks, with the Repository x, and
// returns where its webhooks go. server is its API, "" for the embedded one.
func hookedAgent(t *testing.T, server string) (*Agent, string) {
	t.Helper()
	a, log := newAgent(t, func(c *Config) { c.API.Server, c.Webhooks.Listen = server, "127.0.0.1:0" })
	start(t, a.repos.Run, a.jobs.Run, a.receiveWebhooks)
	hookedRepository(t, a, "x", nil, map[string]any{"id": 7})
	putHookSecret(t, a, "x", hookSecret)
	eventually(t, "the agent sees x", func() bool {
		u, ok := a.repos.Get("default", "x")
		return ok && u.Object["status"] != nil
	})
	return a, hookURL(t, log, "x")
}

// TestWebhookSecrets: where the secret of a hook is looked for, and in what order.
func TestWebhookSecrets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	give := func(repository, secret string) {
		path := filepath.Join(dir, "default."+repository, "webhookSecret")
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, []byte(secret+"\n"), 0o600))
	}
	a, _ := newAgent(t, func(c *Config) { c.CredentialsDir = dir })
	start(t, a.repos.Run)
	create(t, a, "Secret", "hook", map[string]any{"stringData": map[string]any{"token": "of-the-api"}})
	hookedRepository(t, a, "sealed", map[string]any{"create": "of-the-field"}, nil)
	hookedRepository(t, a, "named", map[string]any{"name": "hook"}, nil)
	hookedRepository(t, a, "missing", map[string]any{"name": "nowhere"}, nil)
	hookedRepository(t, a, "infile", nil, nil)
	hookedRepository(t, a, "none", nil, nil)
	hookedRepository(t, a, "ours", map[string]any{"create": "of-the-field"}, nil)
	for _, name := range []string{"sealed", "named", "missing", "infile", "ours"} {
		give(name, "of-the-file")
	}
	putHookSecret(t, a, "ours", "new\nof-before\n")
	d := a.deliveries
	for name, want := range map[string]string{"sealed": "of-the-field given", "named": "of-the-api given", "missing": "of-the-file given",
		"infile": "of-the-file given", "none": "", "ours": "new of-before"} {
		eventually(t, "the agent sees "+name, func() bool { _, ok := a.repos.Get("default", name); return ok })
		repo := d.Repository(t.Context(), "default", name)
		if repo == nil {
			t.Errorf("%s: no repository", name)
			continue
		}
		got := string(bytes.Join(repo.Secrets, []byte(" ")))
		if repo.Given {
			got += " given"
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if d.Repository(t.Context(), "default", "unknown") != nil {
		t.Error("a repository that is not there has a secret")
	}
}

// TestWebhookRecordsLastEvent checks that the status records a working webhook, and that an unknown
// one is not served.
func TestWebhookRecordsLastEvent(t *testing.T) {
	t.Parallel()
	a, log := newAgent(t, func(c *Config) { c.Webhooks.Listen = "127.0.0.1:0" })
	start(t, a.repos.Run, a.jobs.Run, a.receiveWebhooks)
	hookedRepository(t, a, "x", nil, map[string]any{"id": 7, "url": "https://edge.example.com"})
	hookedRepository(t, a, "y", nil, nil)
	for _, name := range []string{"x", "y"} {
		putHookSecret(t, a, name, hookSecret)
		eventually(t, "the agent sees "+name, func() bool {
			u, ok := a.repos.Get("default", name)
			if !ok {
				return false
			}
			_, hooked, _ := unstructured.NestedMap(u.Object, "status", "webhook")
			return hooked || name == "y"
		})
	}
	delivered(t, "a repository without a hook", hookURL(t, log, "y"), hookSecret, "1", 400)
	began := time.Now()
	delivered(t, "a push", hookURL(t, log, "x"), hookSecret, "1", 202)
	if e := a.builder.Build().Events; len(e) != 1 || e[0].Text != "webhook: push to main → pull queued" || e[0].Repo != "x" {
		t.Errorf("events: %+v", e)
	}
	delivered(t, "while the job waits", hookURL(t, log, "x"), hookSecret, "2", 409)
	eventually(t, "the last event is noted", func() bool {
		u, _ := a.repos.Get("default", "x")
		last, _, _ := unstructured.NestedInt64(u.Object, "status", "webhook", "lastEvent")
		url, _, _ := unstructured.NestedString(u.Object, "status", "webhook", "url")
		return last >= began.Add(-2*time.Second).UnixMilli() && url != ""
	})
}

// apiServer is an API behind a real port that can go away and come back.
type apiServer struct {
	*apiserver.Server
	addr string
	stop context.CancelFunc
	done chan error
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(t.TempDir(), "api.db"), Version: "test"})
	must(t, err)
	server, err := apiserver.New(store, apiserver.Options{})
	must(t, err)
	s := &apiServer{Server: server, addr: "127.0.0.1:0"}
	s.up(t)
	t.Cleanup(func() { s.down(t); server.Close(); store.Close() })
	return s
}

func (s *apiServer) up(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp", s.addr)
	must(t, err)
	s.addr, s.done = ln.Addr().String(), make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go func() { s.done <- apiserver.Serve(ctx, ln, &http.Server{Handler: s.Server}) }()
}

func (s *apiServer) down(t *testing.T) {
	t.Helper()
	s.stop()
	if err := <-s.done; err != nil {
		t.Error(err)
	}
	s.done <- nil
}

// TestWebhookWhileAPIUnavailable: a delivery that cannot be queued may come again, and leads to its
// job then.
func TestWebhookWhileAPIUnavailable(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	_, url := hookedAgent(t, "http://"+server.addr)
	delivered(t, "forged", url, "wrong", "1", 401)
	server.down(t)
	resp := deliver(t, url, hookSecret, "1")
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("while the API is away: %s, Retry-After %q", resp.Status, resp.Header.Get("Retry-After"))
	}
	for _, name := range []string{"x", "unknown"} {
		if resp := deliver(t, strings.Replace(url, "/x/", "/"+name+"/", 1), "wrong", "1"); resp.StatusCode != 503 {
			t.Errorf("forged for %s, while the API is away: %s", name, resp.Status)
		}
	}
	server.up(t)
	eventually(t, "the delivery is queued", func() bool { return deliver(t, url, hookSecret, "1").StatusCode == 202 })
	delivered(t, "once more", url, hookSecret, "1", 200)
}

// TestPushDuringAJob: a push that is refused because a job for one is under way has its own when
// that has ended, once.
func TestPushDuringAJob(t *testing.T) {
	t.Parallel()
	t.Run("pull", func(t *testing.T) { pushDuring(t, "x-sync", deliver) })
	t.Run("pr", func(t *testing.T) { pushDuring(t, "x-pr-7", deliverReview) })
}

func pushDuring(t *testing.T, name string, deliver func(t *testing.T, url, secret, id string) *http.Response) {
	t.Parallel()
	a, url := hookedAgent(t, "")
	delivered := func(t *testing.T, what, url, secret, id string, code int) {
		t.Helper()
		if resp := deliver(t, url, secret, id); resp.StatusCode != code {
			t.Errorf("%s: %s, want %d", what, resp.Status, code)
		}
	}
	delivered(t, "a push", url, hookSecret, "1", 202)
	jobs := a.clients.client.Resource(api.Jobs).Namespace("default")
	first, err := jobs.Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	for _, id := range []string{"2", "3"} {
		delivered(t, "during the job", url, hookSecret, id, 409)
	}
	end := func(uid types.UID) {
		t.Helper()
		must(t, jobs.Delete(t.Context(), name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}))
	}
	end(first.GetUID())
	var second types.UID
	eventually(t, "the missed push has its job", func() bool {
		job, err := jobs.Get(t.Context(), name, metav1.GetOptions{})
		if err == nil {
			second = job.GetUID()
		}
		return err == nil && second != first.GetUID()
	})
	eventually(t, "the agent sees that job", func() bool {
		seen, ok := a.jobs.Lookup("default", name)
		return ok && seen.UID() == string(second)
	})
	end(second)
	eventually(t, "the agent sees its end", func() bool { _, ok := a.jobs.Lookup("default", name); return !ok })
	delivered(t, "a third job was made for two pushes", url, hookSecret, "4", 202)
}

// TestWebhooksOverTLS: the listener speaks TLS itself when it has a certificate.
func TestWebhooksOverTLS(t *testing.T) {
	t.Parallel()
	cert, key, err := apiserver.SelfSigned(t.TempDir())
	must(t, err)
	a, log := newAgent(t, func(c *Config) {
		c.Webhooks = webhook.Config{Listen: "127.0.0.1:0", CertFile: cert, KeyFile: key}
	})
	start(t, a.repos.Run, a.jobs.Run, a.receiveWebhooks)
	url := strings.Replace(hookURL(t, log, "x"), "http://", "https://", 1)
	pem, err := os.ReadFile(cert)
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
	must(t, err)
	resp, err := client.Do(req)
	must(t, err)
	resp.Body.Close()
	if resp.StatusCode != 401 || resp.ProtoMajor != 1 {
		t.Errorf("%s over %s", resp.Status, resp.Proto)
	}
	c := Config{Webhooks: webhook.Config{Listen: "127.0.0.1:0", CertFile: cert}}
	if err := c.Webhooks.Check(); err == nil {
		t.Error("a certificate without a key is taken")
	}
}

// TestWebhookListenIsRetried: an address that is taken does not end the agent.
func TestWebhookListenIsRetried(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	a, log := newAgent(t, func(c *Config) { c.Webhooks.Listen = ln.Addr().String() })
	start(t, a.receiveWebhooks)
	eventually(t, "the address is told", func() bool { return log.count("no webhooks") == 1 })
}

// TestWebhookOfSuspendedRepository checks that a push does not end a suspension.
func TestWebhookOfSuspendedRepository(t *testing.T) {
	t.Parallel()
	a, url := hookedAgent(t, "")
	u, _ := a.repos.Get("default", "x")
	must(t, a.suspensions.Suspend(t.Context(), repos.Suspension{Namespace: "default", Repository: "x", UID: string(u.GetUID())}))
	delivered(t, "suspended", url, hookSecret, "1", 200)
	if _, err := a.suspensions.Resume(t.Context(), "default", "x"); err != nil {
		t.Fatal(err)
	}
	delivered(t, "resumed", url, hookSecret, "2", 202)
}
