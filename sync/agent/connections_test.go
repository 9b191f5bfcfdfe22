package agent

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/reconcile"
	"limpet/sync/repos"
	"limpet/sync/testenv"
	"limpet/sync/testenv/forgetest"
)

// TestPullThroughConnection pulls a private repository whose host, a fake GitHub in front of git
// http-backend, lets in nothing but a token that it minted for this one repository. The key of the
// App is kept by the embedded API, or lies in the credentials directory.
func TestPullThroughConnection(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"embedded", "directory"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			pullThroughConnection(t, where == "directory")
		})
	}
}

func pullThroughConnection(t *testing.T, inDirectory bool) {
	host := forgetest.New(t, forgetest.Options{Skew: -3 * 60 * 60 * 1e9})
	app := host.App(t, "123456", map[string]*forgetest.Installation{
		"454545": {Account: "team", Repositories: []string{"site"}, Permissions: forgetest.AllPermissions()}})
	origin := testenv.Repo(t, 1, 3)
	server := testenv.Git(t, testenv.GitOptions{Accept: func(user, token, path string) bool {
		return host.Accepts(user, token, strings.TrimSuffix(path, ".git"))
	}})
	server.Serve("team/site.git", origin.Dir)
	host.Behind(server)

	a, log := newAgent(t, func(c *Config) {
		c.AllowInsecureGit = true
		c.Jobs.MaxAttempts = 1
		if inDirectory {
			c.CredentialsDir = t.TempDir()
			dir := filepath.Join(c.CredentialsDir, "default.app")
			must(t, os.Mkdir(dir, 0o700))
			must(t, os.WriteFile(filepath.Join(dir, "privateKey"), app.Key, 0o600))
		}
	})
	start(t, a.Run)
	connection := map[string]any{"spec": map[string]any{"title": "App", "type": "githubEnterprise",
		"githubEnterprise": map[string]any{"appID": "123456", "installationID": "454545", "serverUrl": host.URL}}}
	if !inDirectory {
		connection["secure"] = map[string]any{"privateKey": map[string]any{"create": string(app.Key)}}
	}
	create(t, a, "Connection", "app", connection)
	create(t, a, "Repository", "site", map[string]any{"spec": map[string]any{"title": "Site", "type": "githubEnterprise",
		"connection":       map[string]any{"name": "app"},
		"githubEnterprise": map[string]any{"serverUrl": host.URL, "url": host.URL + "/team/site", "branch": "main"},
		"sync":             map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(60)}}})

	repository := func() api.Repository {
		t.Helper()
		u, err := a.clients.client.Resource(api.Repositories).Namespace("default").Get(t.Context(), "site", metav1.GetOptions{})
		must(t, err)
		repo, err := api.RepositoryView(u)
		must(t, err)
		return repo
	}
	pulled := func(ref string) func() bool {
		return func() bool {
			repo := repository()
			if repo.Status.Sync.State == api.StateError {
				t.Fatalf("the pull failed: %q", repo.Status.Sync.Message)
			}
			return repo.Status.Sync.State == api.StateSuccess && repo.Status.Sync.LastRef == ref
		}
	}
	eventually(t, "the first pull", pulled(origin.Head(t)))
	first := host.Minted()
	if len(first) != 1 {
		t.Fatalf("%d tokens were minted", len(first))
	}

	// The status tells when it ends, and the API keeps it sealed.
	if status := repository().Status.Token; status.Expiration-status.LastUpdated < (59 * time.Minute).Milliseconds() {
		t.Errorf("status.token %+v", status)
	}
	if sealed, err := a.clients.embedded.SecretOf(t.Context(), "repositories", "default", "site", "token", ""); err != nil ||
		string(sealed) != first[0] {
		t.Errorf("the API keeps %d bytes, %v", len(sealed), err)
	}

	// The token is revoked before its end: the next pull has a new one, and does not fail.
	host.Revoke(first[0])
	head := origin.Edit(t, origin.Dashboards()[0].Path)
	job := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": "Job",
		"metadata": map[string]any{"name": "site-sync", "namespace": "default"},
		"spec":     map[string]any{"action": "pull", "repository": "site", "pull": map[string]any{"incremental": true}}}}
	eventually(t, "the job of the first pull makes room", func() bool {
		_, err := a.clients.client.Resource(api.Jobs).Namespace("default").Create(t.Context(), job, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		return err == nil
	})
	eventually(t, "a pull after the token was revoked", pulled(head))
	second := host.Minted()
	if len(second) != 1 || second[0] == first[0] {
		t.Fatalf("tokens %d", len(second))
	}

	for _, line := range []string{
		`limpet_repository_info{connection="app",name="site",namespace="default",ready="True",suspended="false",target="folder",type="githubEnterprise"} 1`,
		`limpet_repository_healthy{name="site",namespace="default"} 1`, `limpet_repository_last_sync_success{name="site",namespace="default"} 1`,
		`limpet_connection_info{name="app",namespace="default",ready="`, `limpet_repositories{health="healthy"} 1`,
		`limpet_token_cached_items{provider="connection"} 1`, `limpet_token_cache_requests_total{provider="connection",status="success"} 2`,
		`limpet_token_cache_evictions_total{provider="connection",reason="refused"} 1`,
	} {
		eventually(t, "the metrics tell "+line, func() bool { // the watch may be behind
			scrape := httptest.NewRecorder()
			a.metrics.ServeHTTP(scrape, httptest.NewRequest("GET", "/metrics", nil))
			return strings.Contains(scrape.Body.String(), "\n"+line)
		})
	}

	// Its webhook goes with the Repository.
	const hook = "https://edge.example.com/webhook"
	host.Add("team/site", forgetest.Repository{DefaultBranch: "main"})
	id := host.AddHook("team/site", forgetest.Hook{URL: hook, Events: []string{"push"}})
	repositories := a.clients.client.Resource(api.Repositories).Namespace("default")
	patchRepository(t, a, "site", map[string]any{"status": map[string]any{"webhook": map[string]any{"id": json.Number(id), "url": hook}}}, "status")
	putHookSecret(t, a, "site", "of the hook")
	must(t, repositories.Delete(t.Context(), "site", metav1.DeleteOptions{}))
	eventually(t, "the repository is gone", func() bool {
		_, err := repositories.Get(t.Context(), "site", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if left := host.Hooks("team/site"); len(left) != 0 {
		t.Errorf("hooks left: %+v", left)
	}
	if names, err := a.cfg.Store.SecretNames(t.Context(),
		repos.WebhookSecretKey(reconcile.Key{Namespace: "default", Name: "site"})); err != nil || len(names) != 0 {
		t.Errorf("secrets left: %q %v", names, err)
	}

	// The key and the token are nowhere else: not in the log, not the state file, not the mirrors, not
	// the snapshot.
	canaries := [][]byte{[]byte(first[0]), []byte(second[0]), app.Key[40:100]}
	seen := map[string][]byte{"the log": []byte(log.String())}
	shown, err := json.Marshal(fresh(t, a))
	must(t, err)
	seen["the snapshot"] = shown
	err = filepath.WalkDir(filepath.Dir(a.cfg.StatePath), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			seen[path], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) { // a fetch cleans up behind itself
		t.Fatal(err)
	}
	for place, text := range seen {
		for n, canary := range canaries {
			if bytes.Contains(text, canary) {
				t.Errorf("%s shows secret number %d", place, n)
			}
		}
	}
}
