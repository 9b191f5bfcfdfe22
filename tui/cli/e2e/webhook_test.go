package e2e

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

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

var listening = regexp.MustCompile(`"msg":"webhooks","component":"webhook","address":"([^"]+)"`)

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

// deliver sends a signed event as GitHub does and returns the answer.
func (h *webhookSite) deliver(t *testing.T, event string, body []byte) (code int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+webhookPath, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, []byte(webhookSecret))
	mac.Write(body)
	req.Header.Set("X-GitHub-Event", event)
	req.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
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
