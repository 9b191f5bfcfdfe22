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
	"slices"
	"strings"
	"testing"

	"limpet/sync/testenv/suite"

	"limpet/sync/testenv"
	"limpet/sync/testenv/forgetest"
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
	forge *forgetest.Host // in front of the Git server
	flags []string
	agent *daemon
	url   string
}

func newWebhookSite(t *testing.T, flags ...string) *webhookSite {
	t.Helper()
	h := &webhookSite{home: newHome(t), repo: testenv.Repo(t, 5, 8), forge: forgetest.New(t, forgetest.Options{})}
	host := testenv.Git(t, testenv.GitOptions{})
	host.Serve("ops/dashboards.git", h.repo.Dir)
	h.forge.Behind(host)
	h.forge.Add("ops/dashboards", forgetest.Repository{DefaultBranch: testenv.Branch})
	h.forge.Token("", forgetest.Rights{}) // no token
	url := h.forge.URL + "/ops/dashboards.git"
	h.file(t, "credentials/default.boards/webhookSecret", webhookSecret+"\n")
	h.flags = []string{"--credentials-dir", filepath.Join(h.dir, "credentials"), "--webhook-listen", "127.0.0.1:0", "--webhook-trusted-proxy",
		"127.0.0.1"}
	h.flags = append(h.flags, flags...)
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
	return fmt.Appendf(nil, `{"ref":"refs/heads/%s","after":%q,"repository":{"full_name":"ops/dashboards"},`+
		`"commits":[{"id":%q,"added":[],"removed":[],"modified":["grafana/x.json"]}]}`, branch, after, after)
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
	until(t, "the last push is pulled", func() bool { return len(h.history(t)) == 3 })
	if strings.Contains(h.agent.log.String(), webhookSecret) {
		t.Error("the secret is in the log")
	}
}

// propose pushes a change of a dashboard to the branch of pull request 7, with the merge that a
// host makes of it.
func (h *webhookSite) propose(t *testing.T, title string) (head string) {
	t.Helper()
	main, board := h.repo.Head(t), h.repo.Dashboards()[0]
	data := fmt.Appendf(nil, `{"uid":%q,"title":%q,"panels":[],"schemaVersion":39,"tags":[]}`, board.UID, title)
	head = h.repo.Commit(t, "change", testenv.Change{Path: board.Path, Data: data})
	h.repo.Git(t, "update-ref", "refs/heads/"+testenv.Branch, main)
	merge := h.repo.Git(t, "-c", "user.name=a", "-c", "user.email=a@b", "commit-tree", head+"^{tree}", "-p", main, "-p", head, "-m", "merge")
	for ref, commit := range map[string]string{"heads/work": head, "pull/7/head": head, "pull/7/merge": merge} {
		h.repo.Git(t, "update-ref", "refs/"+ref, commit)
	}
	h.forge.SetPull("ops/dashboards", forgetest.Pull{Number: 7, Branch: "work", Head: head, Base: testenv.Branch})
	return head
}

// pullBody is the payload of a pull request as GitHub sends it.
func pullBody(action, head string) []byte {
	return fmt.Appendf(nil, `{"action":%q,"number":7,"pull_request":{"html_url":"https://git.example/pull/7","base":{"ref":%q},`+
		`"head":{"ref":"work","sha":%q}},"repository":{"full_name":"ops/dashboards"}}`, action, testenv.Branch, head)
}

// commented waits for the only comment on the pull request to be about a commit.
func (h *webhookSite) commented(t *testing.T, title, head string) {
	t.Helper()
	until(t, "the comment about "+head, func() bool {
		all := h.forge.Comments("ops/dashboards", 7)
		if len(all) > 1 {
			t.Fatalf("%d comments", len(all))
		}
		return len(all) == 1 && strings.Contains(all[0].Body, head[:7]) && strings.Contains(all[0].Body, title)
	})
}

// TestWebhookPullRequest: a signed pull request gets a comment, which the next push edits, and each
// synced commit a status.
func TestWebhookPullRequest(t *testing.T) {
	t.Parallel()
	h := newWebhookSite(t, "--commit-status")
	head := h.propose(t, "Proposed")
	if code, answer := h.deliver(t, "pull_request", pullBody("opened", head)); code != 202 || !strings.Contains(answer, `"boards-pr-7"`) {
		t.Fatalf("opened: %d %s", code, answer)
	}
	h.commented(t, "Proposed", head)
	head = h.propose(t, "Twice")
	// The job of the first push may not have ended: then one follows it.
	if code, answer := h.deliver(t, "pull_request", pullBody("synchronize", head)); code != 202 && code != 409 {
		t.Fatalf("pushed: %d %s", code, answer)
	}
	h.commented(t, "Twice", head)
	if code, answer := h.deliver(t, "pull_request", pullBody("labeled", head)); code != 200 {
		t.Errorf("labeled: %d %s", code, answer)
	}
	board := h.must(t, 0, "get", "dashboard", h.repo.Dashboards()[0].UID, "-n", "default", "-o", "json").out
	if strings.Contains(board, "Twice") {
		t.Error("the pull request was written to the API")
	}
	var states []string
	for _, s := range h.forge.Statuses("ops/dashboards") {
		states = append(states, s.Context+" "+s.State)
	}
	if got := strings.Join(states, ", "); got != "limpet/default/boards pending, limpet/default/boards success" {
		t.Errorf("statuses: %s", got)
	}
}

// TestWebhookPullRequestKilled: an agent that is killed at any step of the review leaves one
// comment.
func TestWebhookPullRequestKilled(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	program, err := failpointBinary()
	if err != nil {
		t.Fatal(err)
	}
	h := newWebhookSite(t)
	h.agent.stop(t)
	plain := h.env
	for i, point := range []string{"working", "worked", "recorded", "deleted"} {
		h.program, h.env = program, append(slices.Clone(plain), "LIMPET_FAILPOINTS="+point+"=kill")
		h.start(t)
		head := h.propose(t, point)
		if code, answer := h.deliver(t, "pull_request", pullBody("synchronize", head)); code != 202 {
			t.Fatalf("%s: %d %s", point, code, answer)
		}
		<-h.agent.done
		h.program, h.env = "", plain
		h.start(t)
		h.commented(t, point, head)
		until(t, "the job has ended", func() bool { return len(h.history(t)) == 2+i && h.history(t)[0].Action == "pr" })
		h.agent.stop(t)
	}
}
