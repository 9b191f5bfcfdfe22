package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"limpet/sync/testenv/suite"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/testenv"
	"limpet/sync/testenv/forgetest"
)

var (
	boards  = schema.GroupVersionResource{Group: api.DashboardGroup, Version: "v1", Resource: "dashboards"}
	folders = schema.GroupVersionResource{Group: api.FolderGroup, Version: "v1", Resource: "folders"}
)

// lifecycle is one Repository on the API machinery, default/boards at a GitLab-like host in
// front of git http-backend, and the agent that manages it.
type lifecycle struct {
	*home
	t     *testing.T
	api   *testenv.Server
	user  *apiClient
	forge *forgetest.Host
	git   *testenv.GitServer
	repo  *testenv.Repository
	agent *daemon
	url   string // of the webhook listener
	mark  testenv.Mark
}

func newLifecycle(t *testing.T) *lifecycle {
	t.Helper()
	l := &lifecycle{home: newHome(t), t: t, api: testenv.Start(t, testenv.Options{Leases: true}), repo: testenv.Repo(t, 3, 5),
		forge: forgetest.New(t, forgetest.Options{TLS: true, Speaks: []string{"gitlab"}})}
	l.forge.Add("ops/boards", forgetest.Repository{DefaultBranch: testenv.Branch})
	l.forge.Token(gitToken, forgetest.Rights{Hooks: true})
	l.git = testenv.Git(t, testenv.GitOptions{User: "oauth2", Password: gitToken})
	l.git.Serve("ops/boards.git", l.repo.Dir)
	l.forge.Behind(l.git)
	l.file(t, "credentials/default.boards/token", gitToken)
	l.file(t, "credentials/default.boards/ca.crt", string(l.forge.CA))
	l.args = []string{"--provisioning-server-url", l.api.URL, "--tls-ca-file", l.api.CAFile, "--token-file",
		l.file(t, "token", l.api.TokenOf("agent-0")+"\n")}
	l.user = connectUser(t, l.api, "user", "default")
	l.agent = l.daemon(t, "--controllers", "on", "--credentials-dir", filepath.Join(l.dir, "credentials"), "--claim-expiry", "6s",
		"--lease-renewal-interval", "2s",
		"--webhook-listen", "127.0.0.1:0", "--webhook-url", "https://limpet.example.com")
	until(t, "webhooks are received", func() bool {
		found := listening.FindStringSubmatch(l.agent.log.String())
		if found != nil {
			l.url = "http://" + found[1]
		}
		return found != nil
	})
	l.mark = l.api.Mark(t)
	return l
}

// create creates the Repository as a user does on an API without defaults.
func (l *lifecycle) create() {
	l.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"title": "Boards", "type": "gitlab",
		"workflows": []any{"write"},
		"gitlab":    map[string]any{"url": l.forge.URL + "/ops/boards", "branch": testenv.Branch, "path": testenv.Directory},
		"sync":      map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(10)}}}}
	u.SetAPIVersion(api.Repositories.GroupVersion().String())
	u.SetKind("Repository")
	u.SetName("boards")
	u.SetFinalizers([]string{api.FinalizerRemove, api.FinalizerRemoveJobs, api.FinalizerCleanup})
	if _, err := l.user.Resource(api.Repositories).Namespace("default").Create(l.t.Context(), u, metav1.CreateOptions{}); err != nil {
		l.t.Fatal(err)
	}
}

// until waits for a state of the Repository and returns it.
func (l *lifecycle) until(what string, ok func(api.Repository) bool) (repo api.Repository) {
	l.t.Helper()
	until(l.t, what, func() bool {
		u, err := l.user.Resource(api.Repositories).Namespace("default").Get(l.t.Context(), "boards", metav1.GetOptions{})
		if err != nil {
			l.t.Fatal(err)
		}
		if repo, err = api.RepositoryView(u); err != nil {
			l.t.Fatal(err)
		}
		return ok(repo)
	})
	return repo
}

// awaitPull waits until a commit is synced and its job is gone.
func (l *lifecycle) awaitPull(commit string) api.Repository {
	l.t.Helper()
	repo := l.until("it is pulled", func(repo api.Repository) bool {
		return repo.Status.Sync.LastRef == commit && repo.Status.Sync.State == api.StateSuccess
	})
	until(l.t, "the job is gone", func() bool { return len(l.user.list(api.Jobs)) == 0 })
	return repo
}

// writes returns how often the agent wrote to Repositories, and the jobs that it created, since the last call.
func (l *lifecycle) writes() (repositories, jobs int) {
	l.t.Helper()
	for _, r := range l.api.Writes(l.t, l.mark) {
		_, rest, _ := strings.Cut(r.Path, "/namespaces/default/")
		switch {
		case r.User != "agent-0" || r.Code >= 300:
		case strings.HasPrefix(rest, "repositories/"):
			repositories++
		case rest == "jobs" && r.Method == http.MethodPost:
			jobs++
		}
	}
	l.mark = l.api.Mark(l.t)
	return repositories, jobs
}

// push delivers a push as GitLab does, with a secret.
func (l *lifecycle) push(secret, after string) (code int, answer string) {
	l.t.Helper()
	body := fmt.Appendf(nil, `{"object_kind":"push","ref":"refs/heads/%s","after":%q,"project":{"path_with_namespace":"ops/boards"},"total_commits_count":1,"commits":[{"id":%q,"added":[],"removed":[],"modified":["grafana/x.json"]}]}`, testenv.Branch, after, after)
	req, err := http.NewRequestWithContext(l.t.Context(), http.MethodPost, l.url+webhookPath, bytes.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Gitlab-Event", "Push Hook")
	req.Header.Set("X-Gitlab-Event-UUID", after)
	req.Header.Set("X-Gitlab-Token", secret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// TestRepositoryLifecycle follows a Repository through its creation, first pull, interval pulls, a push and its
// deletion, and counts the writes of the agent. Nothing is left on the API, at the host or in the state file.
func TestRepositoryLifecycle(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	l := newLifecycle(t)
	wrote := func(what string, repositories, jobs int) {
		t.Helper()
		if r, j := l.writes(); r > repositories || j != jobs {
			t.Errorf("%s: %d writes to Repositories, at most %d; %d jobs made, want %d", what, r, repositories, j, jobs)
		}
	}
	l.create()
	repo := l.awaitPull(l.repo.Head(t))
	wrote("created and pulled", 3, 1)
	if s := repo.Status; !s.Health.Healthy || s.ObservedGeneration != 1 || len(s.FieldErrors) > 0 {
		t.Errorf("status %+v", s)
	}
	hooks := l.forge.Hooks("ops/boards")
	if len(hooks) != 1 || hooks[0].URL != "https://limpet.example.com"+webhookPath {
		t.Fatalf("hooks %+v", hooks)
	}

	// Nothing new: the host is asked, nothing is written.
	l.git.Reset()
	checks := 0
	until(t, "the interval has come twice", func() bool { checks += l.git.Reset().InfoRefs; return checks >= 2 })
	wrote("nothing new", 0, 0)

	l.awaitPull(l.repo.Edit(t, l.repo.Dashboards()[1].Path))
	wrote("a new commit", 3, 1)

	head := l.repo.Edit(t, l.repo.Dashboards()[2].Path)
	if code, answer := l.push(hooks[0].Secret, head); code != http.StatusAccepted {
		t.Errorf("push: %d %s", code, answer)
	}
	l.awaitPull(head)
	wrote("a push", 4, 1)

	if err := l.user.Resource(api.Repositories).Namespace("default").Delete(t.Context(), "boards", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "it is gone", func() bool { return len(l.user.list(api.Repositories)) == 0 })
	for _, kind := range []schema.GroupVersionResource{api.Jobs, boards, folders} {
		if left := l.user.list(kind); len(left) > 0 {
			t.Errorf("%d %s are left, such as %s", len(left), kind.Resource, left[0].GetName())
		}
	}
	if hooks := l.forge.Hooks("ops/boards"); len(hooks) > 0 {
		t.Errorf("hooks %+v are left", hooks)
	}
	if code := l.agent.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	l.verifyStateEmpty()
	l.noSecret(t, l.agent.log.String(), gitToken, hooks[0].Secret)
}

// verifyStateEmpty checks that the state file has nothing of the Repository.
func (l *lifecycle) verifyStateEmpty() {
	l.t.Helper()
	store, _, err := state.Open(l.t.Context(), state.Options{Path: l.state()})
	if err != nil {
		l.t.Fatal(err)
	}
	defer store.Close()
	claims, err := store.Claims(l.t.Context())
	if err != nil || len(claims) > 0 {
		l.t.Errorf("claims %+v, %v", claims, err)
	}
	facts, err := store.Facts(l.t.Context(), "")
	if err != nil {
		l.t.Fatal(err)
	}
	for key := range facts {
		if strings.Contains(key, "boards") {
			l.t.Errorf("fact %s is left", key)
		}
	}
	names, err := store.SecretNames(l.t.Context(), "")
	if err != nil {
		l.t.Fatal(err)
	}
	for _, name := range names {
		if strings.Contains(name, "boards") {
			l.t.Errorf("secret %s is left", name)
		}
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(l.state()), "mirrors")); err != nil {
		l.t.Error(err)
	}
}
