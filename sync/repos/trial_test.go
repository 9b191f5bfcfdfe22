package repos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/git"
	"limpet/sync/testenv"
	"limpet/sync/testenv/forgetest"
)

// stepsOf tells the steps of a test on a line.
func stepsOf(t TestResults) string {
	var out []string
	for _, s := range t.Steps {
		out = append(out, s.Name+" "+s.Result)
	}
	return strings.Join(out, ", ")
}

// TestTryConnection: a test of a Connection says at which step it ends, with the
// code and the field that its controller would tell, and shows no secret.
func TestTryConnection(t *testing.T) {
	t.Parallel()
	const token = "glpat-of-the-connection"
	host := forgetest.New(t, forgetest.Options{})
	hosts := forge.New(forge.Options{AllowInsecure: true})
	t.Cleanup(hosts.Close)
	for _, tt := range []struct {
		name, url string
		secret    bool
		accepts   bool
		code      int
		field     string
		steps     string
	}{
		{"a rule", "no address", true, true, 400, "spec.url", "spec failed, secret skipped, host skipped"},
		{"no secret", host.URL, false, true, 401, "secure", "spec ok, secret failed, host skipped"},
		{"refused", host.URL, true, false, 401, "secure.token", "spec ok, secret ok, host failed"},
		{"away", "http://127.0.0.1:1", true, true, 503, "secure", "spec ok, secret ok, host failed"},
		{"well", host.URL, true, true, 200, "", "spec ok, secret ok, host ok"},
	} {
		if host.Token(token, forgetest.Rights{}); !tt.accepts {
			host.Revoke(token)
		}
		who := forge.NewMinter(hosts, func(context.Context, auth.ConnectionLookup) (*auth.ConnectionSecret, error) {
			if !tt.secret {
				return nil, nil
			}
			return &auth.ConnectionSecret{Token: token, Source: "the test"}, nil
		}, auth.NewTokens(0))
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": "Connection",
			"metadata": map[string]any{"name": "lab", "namespace": "default"}, "spec": map[string]any{"title": "Lab", "type": "gitlab", "url": tt.url}}}
		got, err := TestConnection(t.Context(), who, u)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if got.Code != tt.code || got.Success != (tt.code == 200) || stepsOf(got) != tt.steps || (tt.field == "") != (len(got.Errors) == 0) {
			t.Errorf("%s: %+v", tt.name, got)
		}
		if tt.field != "" && got.Errors[0].Field != tt.field {
			t.Errorf("%s: field %q", tt.name, got.Errors[0].Field)
		}
		if strings.Contains(fmt.Sprint(got), token) {
			t.Errorf("%s: shows the token: %+v", tt.name, got)
		}
		if tt.secret && tt.steps != "" && tt.code != 400 && !slices.Contains(got.Steps, Step{"secret", StepOK, "the test"}) {
			t.Errorf("%s: does not say where the secret was found: %+v", tt.name, got.Steps)
		}
	}
}

// TestTryRepository: a test of a Repository ends at the step where its controller
// would find it wanting, and says where the credentials are, never what they are.
func TestTryRepository(t *testing.T) {
	t.Parallel()
	const password = "right-one"
	server := testenv.Git(t, testenv.GitOptions{User: "git", Password: password})
	origin := testenv.Repo(t, 1, 1)
	origin.Git(t, "tag", "v1.0.0", "HEAD")
	url := server.Serve("ops/site.git", origin.Dir)
	readOnly := testenv.Repo(t, 1, 1)
	readOnly.Git(t, "config", "http.receivepack", "false")
	closed := server.Serve("ops/closed.git", readOnly.Dir)
	mirrors, err := git.Open(t.TempDir(), git.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mirrors.Close() })
	for _, tt := range []struct {
		name      string
		git       map[string]any
		kind      string
		workflows []any
		creds     *auth.Credentials
		noRemote  error
		code      int
		field     string
		steps     string
		inDetails string
		revision  string
	}{
		{name: "a tag", git: map[string]any{"url": url}, revision: "semver:1.x", creds: &auth.Credentials{Password: password, Source: "it"}, code: 200,
			steps: "spec ok, credentials ok, remote ok, revision ok", inDetails: "semver:1.x is v1.0.0, commit " + origin.Head(t)},
		{name: "no tag", git: map[string]any{"url": url}, revision: "semver:2.x", creds: &auth.Credentials{Password: password, Source: "it"}, code: 400, field: "metadata.annotations[limpet/git-ref]",
			steps: "spec ok, credentials ok, remote ok, revision failed", inDetails: "the highest of 1 versions is v1.0.0"},
		{name: "no revision", git: map[string]any{"url": url}, revision: "v1.0.0", code: 400, field: "metadata.annotations[limpet/git-ref]",
			steps: "spec failed, credentials skipped, remote skipped, revision skipped", inDetails: "write tag:NAME"},
		{name: "a rule", git: map[string]any{"url": ""}, code: 400, field: "spec.git.url", steps: "spec failed, credentials skipped, remote skipped, branch skipped"},
		{name: "no credentials", git: map[string]any{"url": url}, noRemote: &git.Error{Kind: git.Auth, Err: errors.New("no credentials for it")},
			code: 401, field: "secure.token", steps: "spec ok, credentials failed, remote skipped, branch skipped", inDetails: "no credentials for it"},
		{name: "wrong", git: map[string]any{"url": url}, creds: &auth.Credentials{Password: "wrong-one", Source: "directory /x"},
			code: 401, field: "secure.token", steps: "spec ok, credentials ok, remote failed, branch skipped", inDetails: "basic, directory /x"},
		{name: "away", git: map[string]any{"url": "http://127.0.0.1:1/site.git"}, code: 503, field: "spec.git.url",
			steps: "spec ok, credentials ok, remote failed, branch skipped", inDetails: "none configured (anonymous)"},
		{name: "no branch", git: map[string]any{"url": url, "branch": "mian"}, creds: &auth.Credentials{Password: password, Source: "it"}, code: 400, field: "spec.git.branch",
			steps: "spec ok, credentials ok, remote ok, branch failed"},
		{name: "well", git: map[string]any{"url": url, "branch": testenv.Branch}, creds: &auth.Credentials{Password: password, Source: "it"}, code: 200,
			steps: "spec ok, credentials ok, remote ok, branch ok", inDetails: testenv.Branch + " is at " + origin.Head(t)},
		{name: "the branch of the remote", git: map[string]any{"url": url}, creds: &auth.Credentials{Password: password, Source: "it"}, code: 200,
			steps: "spec ok, credentials ok, remote ok, branch ok", inDetails: testenv.Branch + " is at " + origin.Head(t)},
		{name: "written to", git: map[string]any{"url": url}, workflows: []any{"branch"}, creds: &auth.Credentials{Password: password, Source: "it"}, code: 200,
			steps: "spec ok, credentials ok, remote ok, branch ok, write access ok", inDetails: "the remote accepts a push"},
		{name: "not written to", git: map[string]any{"url": closed}, workflows: []any{"branch"}, creds: &auth.Credentials{Password: password, Source: "it"}, code: 403, field: "secure.token",
			steps: "spec ok, credentials ok, remote ok, branch ok, write access failed", inDetails: "write permission denied"},
		{name: "no branch to write to", git: map[string]any{"url": url, "branch": "mian"}, workflows: []any{"branch"}, creds: &auth.Credentials{Password: password, Source: "it"}, code: 400, field: "spec.git.branch",
			steps: "spec ok, credentials ok, remote ok, branch failed, write access skipped"},
		{name: "away, and written to", git: map[string]any{"url": "http://127.0.0.1:1/site.git"}, workflows: []any{"branch"}, code: 503, field: "spec.git.url",
			steps: "spec ok, credentials ok, remote failed, branch skipped, write access skipped", inDetails: "none configured (anonymous)"},
		{name: "local", kind: "local", git: map[string]any{"path": "/srv/boards"}, code: 400, field: "spec.local.path", steps: "spec ok, directory failed"},
	} {
		kind := cmp.Or(tt.kind, "git")
		o := CheckOptions{Git: mirrors, Remotes: remoteFunc(func(context.Context, string, string, api.Repository) (git.Remote, error) {
			return git.Remote{URL: fmt.Sprint(tt.git["url"]), Creds: tt.creds, AllowInsecure: true}, tt.noRemote
		})}
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": "Repository",
			"metadata": map[string]any{"name": "site", "namespace": "default"},
			"spec":     map[string]any{"title": "Site", "type": kind, kind: tt.git, "workflows": tt.workflows, "sync": map[string]any{"enabled": false, "target": "folder"}}}}
		if tt.revision != "" {
			u.SetAnnotations(map[string]string{api.AnnoGitRef: tt.revision})
		}
		got, err := TestRepository(t.Context(), o, u)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if got.Code != tt.code || got.Success != (tt.code == 200) || stepsOf(got) != tt.steps || (tt.field == "") != (len(got.Errors) == 0) {
			t.Errorf("%s: %+v", tt.name, got)
		}
		if tt.field != "" && len(got.Errors) > 0 && got.Errors[0].Field != tt.field {
			t.Errorf("%s: field %q", tt.name, got.Errors[0].Field)
		}
		if text := fmt.Sprint(got); strings.Contains(text, "-one") || !strings.Contains(text, tt.inDetails) {
			t.Errorf("%s: shows a secret, or not %q: %+v", tt.name, tt.inDetails, got)
		}
	}
}

// TestTryTellsWhatTheControllerTells: the test and the controller use the same words.
func TestTryTellsWhatTheControllerTells(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", func(r *rig, _ *Options) {
		r.git = testenv.Git(t, testenv.GitOptions{User: "git", Password: "right"})
	})
	r.repo.Add(t, "a.json")
	r.create(nil, nil)
	told := r.until("it is found ill", func(repo api.Repository) bool { return repo.Status.Health.Checked > 0 })
	_, u := r.get()
	before := u.GetResourceVersion()
	got, err := TestRepository(t.Context(), r.checkOptions(), u)
	if err != nil || !reflect.DeepEqual(got.Errors, told.Status.FieldErrors) || told.Status.Health.Healthy || len(got.Errors) == 0 {
		t.Errorf("the test says %+v %v, the controller %+v", got, err, told.Status.FieldErrors)
	}
	if _, u := r.get(); u.GetResourceVersion() != before {
		t.Error("the test has written")
	}
}
