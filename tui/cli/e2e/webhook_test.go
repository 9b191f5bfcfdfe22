package e2e

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"limpet/sync/testenv/suite"

	"limpet/sync/testenv"
)

const (
	webhookSecret = "canary-77aa-webhook-secret"
	webhookPath   = "/apis/provisioning.grafana.app/v0alpha1/namespaces/default/repositories/boards/webhook"
)

// webhookSite is an agent on its embedded API that receives webhooks for default/boards, whose
// interval is too long to matter.
type webhookSite struct {
	*home
	repo  *testenv.Repository
	flags []string
	agent *daemon
	url   string
}

func newWebhookSite(t *testing.T) *webhookSite {
	t.Helper()
	h := &webhookSite{home: newHome(t), repo: testenv.Repo(t, 5, 8)}
	host := testenv.Git(t, testenv.GitOptions{})
	url := host.Serve("ops/dashboards.git", h.repo.Dir)
	h.file(t, "credentials/default.boards/webhookSecret", webhookSecret+"\n")
	h.flags = []string{"--credentials-dir", filepath.Join(h.dir, "credentials"), "--webhook-listen", "127.0.0.1:0", "--webhook-trusted-proxy",
		"127.0.0.1"}
	h.start(t)
	h.must(t, 0, "repo", "create", "boards", "--url", url, "--branch", testenv.Branch, "--path", testenv.Directory, "--interval", "24h")
	until(t, "the first pull is done", func() bool { return len(h.history(t)) == 1 })
	return h
}

var listening = regexp.MustCompile(`"msg":"webhooks","address":"([^"]+)"`)

func (h *webhookSite) start(t *testing.T) {
	t.Helper()
	h.agent = h.daemon(t, h.flags...)
	until(t, "webhooks are received", func() bool {
		found := listening.FindStringSubmatch(h.agent.log.String())
		if found != nil {
			h.url = "http://" + found[1]
		}
		return found != nil
	})
}

// pushBody is the payload of a push as GitHub sends it.
func pushBody(branch, after string) []byte {
	return fmt.Appendf(nil, `{"ref":"refs/heads/%s","after":%q,"repository":{"full_name":"ops/dashboards"},"commits":[{"id":%q,"added":[],"removed":[],"modified":["grafana/x.json"]}]}`, branch, after, after)
}

func signature(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// delivery is a request as GitHub makes it, from a client of its own.
func (h *webhookSite) delivery(t testing.TB, event, signature string, body io.Reader, from string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+webhookPath, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-GitHub-Event", event)
	req.Header.Set("X-Hub-Signature-256", signature)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Forwarded-For", from)
	return req
}

// deliver sends a signed event and returns the answer.
func (h *webhookSite) deliver(t *testing.T, event string, body []byte) (code int, answer string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(h.delivery(t, event, signature(webhookSecret, body), bytes.NewReader(body), "192.0.2.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// TestWebhookPull: a signed push is pulled at once, and once.
func TestWebhookPull(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newWebhookSite(t)
	if code, answer := h.deliver(t, "ping", []byte(`{"zen":"x"}`)); code != 200 {
		t.Errorf("ping: %d %s", code, answer)
	}
	board := h.repo.Dashboards()[2]
	head := h.repo.Edit(t, board.Path)
	push := pushBody(testenv.Branch, head)
	code, answer := h.deliver(t, "push", push)
	var job struct {
		Kind     string
		Metadata struct{ Name, UID string }
		Spec     struct {
			Action, Repository string
			Pull               struct{ Incremental bool }
		}
	}
	if err := json.Unmarshal([]byte(answer), &job); err != nil || code != 202 || job.Kind != "Job" || job.Metadata.Name != "boards-sync" ||
		job.Spec.Action != "pull" || job.Spec.Repository != "boards" || !job.Spec.Pull.Incremental {
		t.Fatalf("push: %d %s, %v", code, answer, err)
	}
	until(t, "the push is pulled", func() bool {
		records := h.history(t)
		return len(records) == 2 && records[0].UID == job.Metadata.UID && records[0].State == "success"
	})
	title := h.repo.Dashboards()[2].Title
	if got := h.must(t, 0, "get", "dashboard", board.UID, "-n", "default", "-o", "json").out; !strings.Contains(got, title) {
		t.Errorf("the pull has not brought %q: %s", title, got)
	}
	same := func(when string) {
		t.Helper()
		if code, answer := h.deliver(t, "push", push); code != 200 || !strings.Contains(answer, `"added":"ok"`) {
			t.Errorf("the same delivery %s: %d %s", when, code, answer)
		}
	}
	same("again")
	if code := h.agent.stop(t); code != 0 {
		t.Errorf("the daemon ended with %d", code)
	}
	h.start(t)
	same("after a restart")
	h.agent.kill()
	h.start(t)
	same("after a kill")
	for branch, want := range map[string]int{"other": 200, testenv.Branch: 202} {
		if code, answer := h.deliver(t, "push", pushBody(branch, strings.Repeat("ab", 20))); code != want {
			t.Errorf("push to %s: %d %s", branch, code, answer)
		}
	}
	if code, answer := h.deliver(t, "pull_request",
		[]byte(`{"action":"opened","number":3,"pull_request":{"base":{"ref":"main"}},"repository":{"full_name":"ops/dashboards"}}`)); code != 200 {
		t.Errorf("a pull request that no worker takes: %d %s", code, answer)
	}
	until(t, "the last push is pulled", func() bool { return len(h.history(t)) == 3 })
	if strings.Contains(h.agent.log.String(), webhookSecret) {
		t.Error("the secret is in the log")
	}
}

// TestWebhookFlood sends what a stranger can think of to the built program:
// forged, replayed, truncated and oversized requests from many clients. It makes
// no job, breaks nothing, and each has its right answer.
func TestWebhookFlood(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	const requests = 4_000
	h := newWebhookSite(t)
	push := pushBody(testenv.Branch, h.repo.Edit(t, h.repo.Dashboards()[1].Path))
	if code, answer := h.deliver(t, "push", push); code != 202 {
		t.Fatalf("%d %s", code, answer)
	}
	until(t, "the push is pulled", func() bool { return len(h.history(t)) == 2 })
	before := readUsage(t, h.agent.cmd.Process.Pid)
	began := time.Now()

	seed := uint64(began.UnixNano())
	t.Logf("seed %d", seed)
	const senders = 8
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: senders}}
	defer client.CloseIdleConnections()
	var mu sync.Mutex // guards counts
	counts := map[string]int{}
	flood := func(half uint64) usage {
		var running sync.WaitGroup
		for s := range senders {
			running.Go(func() {
				r := rand.New(rand.NewPCG(seed, half<<32|uint64(s)))
				for range requests / 2 / senders {
					attack := attacks[r.IntN(len(attacks))]
					from := fmt.Sprintf("198.%d.%d.%d", r.IntN(256), r.IntN(256), r.IntN(256))
					code, err := attack.send(h, t, client, r, push, from)
					if err != nil || code != attack.want {
						t.Errorf("%s: %d, want %d: %v", attack.name, code, attack.want, err)
					}
					mu.Lock()
					counts[attack.name]++
					mu.Unlock()
				}
			})
		}
		running.Wait()
		return readUsage(t, h.agent.cmd.Process.Pid)
	}
	first, after := flood(0), flood(1)
	took := time.Since(began)
	limited := 0
	for range 100 { // one client alone
		body := []byte("{}")
		resp, err := client.Do(h.delivery(t, "push", signature("x", body), bytes.NewReader(body), "203.0.113.66"))
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") != "" {
			limited++
		}
		resp.Body.Close()
	}
	if limited < 50 {
		t.Errorf("%d of 100 requests of one client were turned away", limited)
	}
	t.Logf("%d requests in %s: %v\nbefore %s\nhalfway %s\nafter %s", requests, took.Round(time.Millisecond), counts, before, first, after)
	if got := h.history(t); len(got) != 2 {
		t.Errorf("%d jobs, want 2", len(got))
	}
	if out := h.must(t, 0, "job", "list", "-o", "name").out; strings.TrimSpace(out) != "" {
		t.Errorf("jobs are queued: %s", out)
	}
	// The largest bodies have their room, 32 MiB and as much that waits for the
	// collector; a second flood needs no more than the first.
	if first.peak > 128<<10 || after.peak > first.peak+32<<10 {
		t.Errorf("the agent has held %d MiB, then %d MiB", first.peak>>10, after.peak>>10)
	}
	next := pushBody(testenv.Branch, h.repo.Edit(t, h.repo.Dashboards()[3].Path))
	if code, answer := h.deliver(t, "push", next); code != 202 {
		t.Errorf("an honest push after the flood: %d %s", code, answer)
	}
	until(t, "the honest push is pulled", func() bool { return len(h.history(t)) == 3 })
}

// attack is one kind of request and the answer that it must have.
type attack struct {
	name string
	want int
	send func(h *webhookSite, t *testing.T, c *http.Client, r *rand.Rand, push []byte, from string) (int, error)
}

// posted makes an attack of a request that is sent as it is.
func posted(change func(r *rand.Rand, push []byte) (event, signature string, body []byte)) func(*webhookSite, *testing.T, *http.Client,
	*rand.Rand, []byte, string) (int, error) {
	return func(h *webhookSite, t *testing.T, c *http.Client, r *rand.Rand, push []byte, from string) (int, error) {
		event, signature, body := change(r, push)
		return finish(c.Do(h.delivery(t, event, signature, bytes.NewReader(body), from)))
	}
}

func finish(resp *http.Response, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

var attacks = []attack{
	{"forged: no signature", 401, posted(func(_ *rand.Rand, push []byte) (string, string, []byte) { return "push", "", push })},
	{"forged: another secret", 401, posted(func(r *rand.Rand, push []byte) (string, string, []byte) {
		return "push", signature(fmt.Sprint(r.Uint64()), push), push
	})},
	{"forged: a changed body", 401, posted(func(r *rand.Rand, push []byte) (string, string, []byte) {
		body := bytes.Clone(push)
		body[r.IntN(len(body))] ^= byte(1 + r.IntN(255))
		return "push", signature(webhookSecret, push), body
	})},
	{"truncated: the body ends early, the length too", 401, posted(func(r *rand.Rand, push []byte) (string, string, []byte) {
		return "push", signature(webhookSecret, push), push[:r.IntN(len(push))]
	})},
	{"replayed", 200, posted(func(_ *rand.Rand, push []byte) (string, string, []byte) {
		return "push", signature(webhookSecret, push), push
	})},
	{"replayed as another event", 200, posted(func(_ *rand.Rand, push []byte) (string, string, []byte) {
		return "pull_request", signature(webhookSecret, push), push
	})},
	{"oversized", 413, func(h *webhookSite, t *testing.T, _ *http.Client, _ *rand.Rand, push []byte, from string) (int, error) {
		return h.raw(t, from, push, fmt.Sprintf("Content-Length: %d\r\n", 26<<20), nil)
	}},
	{"truncated: the connection ends", 400, func(h *webhookSite, t *testing.T, _ *http.Client, r *rand.Rand, push []byte, from string) (int,
		error) {
		return h.raw(t, from, push, fmt.Sprintf("Content-Length: %d\r\n", len(push)), push[:r.IntN(len(push))])
	}},
	{"another repository", 401, func(h *webhookSite, t *testing.T, c *http.Client, r *rand.Rand, push []byte, from string) (int, error) {
		req := h.delivery(t, "push", signature(webhookSecret, push), bytes.NewReader(push), from)
		req.URL.Path = strings.Replace(webhookPath, "/boards/", fmt.Sprintf("/boards-%d/", r.IntN(1000)), 1)
		return finish(c.Do(req))
	}},
}

// raw writes a request by hand, ends its own side, and reads the code.
func (h *webhookSite) raw(t *testing.T, from string, signed []byte, headers string, body []byte) (int, error) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: %s\r\nX-GitHub-Event: push\r\nX-Hub-Signature-256: %s\r\n%s\r\n",
		webhookPath, from, signature(webhookSecret, signed), headers)
	c.Write(body)
	return ended(c)
}

func ended(c net.Conn) (int, error) {
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return 0, err
	}
	var code int
	_, err := fmt.Fscanf(c, "HTTP/1.1 %d", &code)
	return code, err
}
