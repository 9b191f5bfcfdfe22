package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/testenv"
	"limpet/sync/testenv/forgetest"
)

// soon is how fast a change of credentials must have effect: far less than a check is good for, and
// more than a busy machine needs.
const soon = 20 * time.Second

// TestCredentialChanges: a Secret, a file and the token of a Connection have effect when they come,
// when they are corrected, spoilt and taken away, long before the next check.
func TestCredentialChanges(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(c *credentialCase, token string){
		"rule":               (*credentialCase).setRule,
		"secret":             (*credentialCase).setSecret,
		"file":               func(c *credentialCase, token string) { c.setFile("default.site", token) },
		"secret, connection": (*credentialCase).setSecret,
		"file, connection":   func(c *credentialCase, token string) { c.setFile("default.link", token) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &credentialCase{t: t, host: forgetest.New(t, forgetest.Options{}), dir: t.TempDir()}
			c.host.Token("right", forgetest.Rights{})
			server := testenv.Git(t, testenv.GitOptions{Accept: func(user, token, path string) bool { return token == "right" }})
			origin := testenv.Repo(t, 1, 1)
			server.Serve("team/site.git", origin.Dir)
			c.host.Behind(server)
			a, log := newAgent(t, func(cfg *Config) {
				cfg.AllowInsecureGit, cfg.CredentialsDir = true, filepath.Join(c.dir, "git")
				if name == "rule" {
					cfg.GitRules = []auth.Rule{{URL: c.host.URL + "/team", Files: map[string]string{"token": filepath.Join(c.dir, "token")}}}
				}
			})
			c.a = a
			t.Cleanup(func() {
				if t.Failed() {
					t.Log(log)
				}
			})
			start(t, a.Run)
			secure := map[string]any{"token": map[string]any{"name": "creds"}}
			if name == "rule" {
				secure = nil
			}
			spec := map[string]any{"title": "Site", "type": "gitlab", "gitlab": map[string]any{"url": c.host.URL + "/team/site",
				"branch": testenv.Branch},
				"sync": map[string]any{"enabled": false, "target": "folder"}}
			if name == "secret, connection" || name == "file, connection" {
				c.create("Connection", "link", map[string]any{"title": "Link", "type": "gitlab", "url": c.host.URL}, secure)
				spec["connection"] = map[string]any{"name": "link"}
				secure = nil
			}
			c.create("Repository", "site", spec, secure)
			c.health("without", false)
			for _, step := range []struct {
				token string
				well  bool
			}{{"wrong", false}, {"right", true}, {"wrong", false}, {"right", true}, {"", false}, {"right", true}} {
				set(c, step.token)
				c.health("with token "+step.token, step.well)
			}
		})
	}
}

// TestTokenChangeOfHealthyConnection: a Repository is looked into when its Connection gets a token
// that the host takes, but not for this Repository; whether the token is in a Secret or in the
// Connection itself.
func TestTokenChangeOfHealthyConnection(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"secret", "connection"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			c := &credentialCase{t: t, host: forgetest.New(t, forgetest.Options{}), dir: t.TempDir()}
			c.host.Token("right", forgetest.Rights{})
			c.host.Token("other", forgetest.Rights{})
			server := testenv.Git(t, testenv.GitOptions{Accept: func(user, token, path string) bool { return token == "right" }})
			server.Serve("team/site.git", testenv.Repo(t, 1, 1).Dir)
			c.host.Behind(server)
			var log *logText
			c.a, log = newAgent(t, func(cfg *Config) { cfg.AllowInsecureGit = true })
			t.Cleanup(func() {
				if t.Failed() {
					t.Log(log)
				}
			})
			start(t, c.a.Run)
			secure := map[string]any{"name": "creds"}
			if where == "connection" {
				secure = map[string]any{"create": "right"}
			}
			c.setSecret("right")
			c.create("Connection", "link", map[string]any{"title": "Link", "type": "gitlab", "url": c.host.URL}, map[string]any{"token": secure})
			c.create("Repository", "site", map[string]any{"title": "Site", "type": "gitlab",
				"gitlab":     map[string]any{"url": c.host.URL + "/team/site", "branch": testenv.Branch},
				"connection": map[string]any{"name": "link"}, "sync": map[string]any{"enabled": false, "target": "folder"}}, nil)
			res := c.a.clients.client.Resource(api.Connections).Namespace("default")
			well := func() bool {
				u, err := res.Get(t.Context(), "link", metav1.GetOptions{})
				must(t, err)
				view, err := api.ConnectionView(u)
				return err == nil && view.Status.Health.Healthy && view.Status.ObservedGeneration == u.GetGeneration()
			}
			eventually(t, "the connection is well", well)
			c.health("with the right token", true)
			for _, token := range []string{"other", "right"} {
				if where == "secret" {
					c.setSecret(token)
				} else if _, err := res.Patch(t.Context(), "link", types.MergePatchType, []byte(`{"secure":{"token":{"create":"`+token+`"}}}`),
					metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
				c.health("with token "+token, token == "right")
				eventually(t, "the connection stays well", well)
			}
		})
	}
}

// credentialCase is an agent with a Repository whose credentials change.
type credentialCase struct {
	t    *testing.T
	a    *Agent
	host *forgetest.Host
	dir  string
}

func (c *credentialCase) create(kind, name string, spec, secure map[string]any) {
	c.t.Helper()
	content := map[string]any{"spec": spec}
	if secure != nil {
		content["secure"] = secure
	}
	create(c.t, c.a, kind, name, content)
}

// health waits until the Repository is well, or ill.
func (c *credentialCase) health(what string, well bool) {
	c.t.Helper()
	began := time.Now()
	eventually(c.t, what, func() bool {
		u, err := c.a.clients.client.Resource(api.Repositories).Namespace("default").Get(c.t.Context(), "site", metav1.GetOptions{})
		must(c.t, err)
		repo, err := api.RepositoryView(u)
		must(c.t, err)
		return repo.Status.Health.Checked > 0 && repo.Status.Health.Healthy == well
	})
	if took := time.Since(began); took > soon {
		c.t.Errorf("%s: after %s", what, took)
	}
}

func (c *credentialCase) setSecret(token string) {
	c.t.Helper()
	res := c.a.clients.client.Resource(api.Secrets).Namespace("default")
	if token == "" {
		must(c.t, res.Delete(c.t.Context(), "creds", metav1.DeleteOptions{}))
		return
	}
	data, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "creds"},
		"stringData": map[string]any{"token": token}})
	must(c.t, err)
	_, err = res.Patch(c.t.Context(), "creds", types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: "test"})
	must(c.t, err)
}

// setRule writes the file of a rule of the configuration.
func (c *credentialCase) setRule(token string) {
	c.t.Helper()
	path := filepath.Join(c.dir, "token")
	err := os.Remove(path)
	if token != "" {
		err = os.WriteFile(path, []byte(token), 0o600)
	}
	must(c.t, err)
}

// setFile does as Kubernetes does: a new directory, and a link that is swapped.
func (c *credentialCase) setFile(of, token string) {
	c.t.Helper()
	fresh, err := os.MkdirTemp(c.dir, "version-")
	if err == nil && token != "" {
		if err = os.Mkdir(filepath.Join(fresh, of), 0o700); err == nil {
			err = os.WriteFile(filepath.Join(fresh, of, "token"), []byte(token), 0o600)
		}
	}
	if err == nil {
		err = os.Symlink(fresh, filepath.Join(c.dir, "git_tmp"))
	}
	if err == nil {
		err = os.Rename(filepath.Join(c.dir, "git_tmp"), filepath.Join(c.dir, "git"))
	}
	must(c.t, err)
}

// TestTestTriggersHealthCheck checks that a successful test starts the health check of an unhealthy
// Repository.
func TestTestTriggersHealthCheck(t *testing.T) {
	t.Parallel()
	server := testenv.Git(t, testenv.GitOptions{})
	origin := testenv.Repo(t, 1, 1)
	url := server.Serve("another.git", origin.Dir)
	a, _ := newAgent(t, nil)
	c := &credentialCase{t: t, a: a}
	start(t, a.Run)
	c.create("Repository", "site", map[string]any{"title": "Site", "type": "git", "sync": map[string]any{"enabled": false, "target": "folder"},
		"git": map[string]any{"url": strings.Replace(url, "another", "site", 1), "branch": testenv.Branch}}, nil)
	c.health("nothing is there", false)
	server.Serve("site.git", origin.Dir)
	u, err := a.clients.client.Resource(api.Repositories).Namespace("default").Get(t.Context(), "site", metav1.GetOptions{})
	must(t, err)
	u.SetKind("Repository")
	if got, err := a.Test(t.Context(), u); err != nil || !got.Success {
		t.Fatalf("%+v %v", got, err)
	}
	c.health("it is there now", true)
}

// TestKeyChangeInvalidatesTokens: when the key of an App is written again, tokens that were minted
// before are not used any more.
func TestKeyChangeInvalidatesTokens(t *testing.T) {
	t.Parallel()
	host := forgetest.New(t, forgetest.Options{})
	app := host.App(t, "123456", map[string]*forgetest.Installation{
		"454545": {Account: "team", Repositories: []string{"site"}, Permissions: forgetest.AllPermissions()}})
	server := testenv.Git(t, testenv.GitOptions{Accept: func(user, token, path string) bool {
		return host.Accepts(user, token, strings.TrimSuffix(path, ".git"))
	}})
	server.Serve("team/site.git", testenv.Repo(t, 1, 1).Dir)
	host.Behind(server)
	c := &credentialCase{t: t, host: host, dir: t.TempDir()}
	key := filepath.Join(c.dir, "default.app", "privateKey")
	write := func(data []byte) {
		must(t, os.WriteFile(key, data, 0o600))
	}
	must(t, os.Mkdir(filepath.Dir(key), 0o700))
	write(app.Key)
	c.a, _ = newAgent(t, func(cfg *Config) { cfg.AllowInsecureGit, cfg.CredentialsDir = true, c.dir })
	start(t, c.a.Run)
	c.create("Connection", "app", map[string]any{"title": "App", "type": "githubEnterprise",
		"githubEnterprise": map[string]any{"appID": "123456", "installationID": "454545", "serverUrl": host.URL}}, nil)
	c.create("Repository", "site", map[string]any{"title": "Site", "type": "githubEnterprise", "connection": map[string]any{"name": "app"},
		"githubEnterprise": map[string]any{"serverUrl": host.URL, "url": host.URL + "/team/site", "branch": testenv.Branch},
		"sync":             map[string]any{"enabled": false, "target": "folder"}}, nil)
	c.health("with a token", true)
	before := len(host.Minted())
	write(append(app.Key, '\n')) // the same key: what was minted would still be found
	eventually(t, "another token", func() bool { return len(host.Minted()) > before })
	c.health("with another", true)
}
