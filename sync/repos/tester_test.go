package repos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/git"
	"limpet/sync/kube"
	"limpet/sync/netx"
	"limpet/sync/testenv"
	"limpet/sync/testenv/forgetest"
)

// stepsOf reports the steps of a test on a line.
func stepsOf(t TestResults) string {
	var out []string
	for _, s := range t.Steps {
		out = append(out, s.Name+" "+s.Result)
	}
	return strings.Join(out, ", ")
}

// TestCheckOfAConnection: a test of a Connection says at which step it ends, with the
// code and the field that its controller would tell, and shows no secret.
func TestCheckOfAConnection(t *testing.T) {
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
		who := forge.NewMinter(hosts, func(context.Context, auth.Lookup) (*auth.Credentials, error) {
			if !tt.secret {
				return nil, nil
			}
			return &auth.Credentials{Password: token, Source: "the test"}, nil
		}, auth.NewTokens(0))
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": "Connection",
			"metadata": map[string]any{"name": "lab", "namespace": "default"}, "spec": map[string]any{"title": "Lab", "type": "gitlab",
				"url": tt.url}}}
		got, err := (&Tester{Minter: who}).Test(t.Context(), u)
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

// TestStoredSecretsGoToTheirURL: a file with the name of a stored object and another URL gets none
// of its secrets.
func TestStoredSecretsGoToTheirURL(t *testing.T) {
	t.Parallel()
	object := func(kind, spec string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"kind": kind, "metadata": map[string]any{"name": "a", "namespace": "default"}}}
		var content map[string]any
		if err := json.Unmarshal([]byte(spec), &content); err != nil {
			t.Fatal(err)
		}
		u.Object["spec"] = content
		return u
	}
	stored := map[string]*unstructured.Unstructured{
		"Repository":    object("Repository", `{"type":"git","git":{"url":"https://a.example/x.git"},"connection":{"name":"c"}}`),
		"GitRepository": object("GitRepository", `{"url":"https://a.example/x.git","secretRef":{"name":"x"}}`),
		"Connection":    object("Connection", `{"url":"https://c.example"}`),
	}
	stored["Repository"].Object["secure"] = map[string]any{"token": map[string]any{"name": "x"}}
	tester := &Tester{Stored: func(_ context.Context, kind, _ string) ([]unstructured.Unstructured, error) {
		return []unstructured.Unstructured{*stored[kind]}, nil
	}}
	named := auth.Lookup{Secure: map[string]string{"token": "x"}}
	secret := &auth.Credentials{Password: "stored"}
	for name, c := range map[string]struct {
		kind, spec string
		l          auth.Lookup
		want       string // password
	}{
		"same":                  {"Repository", `{"type":"git","git":{"url":"https://A.example/x.git"}}`, auth.Lookup{Secure: map[string]string{"token": "x"}}, "stored"},
		"another host":          {"Repository", `{"type":"git","git":{"url":"https://b.example/x.git"}}`, auth.Lookup{Secure: map[string]string{"token": "x"}}, ""},
		"another path":          {"Repository", `{"type":"git","git":{"url":"https://a.example/y.git"}}`, auth.Lookup{Repository: "a"}, ""},
		"another type":          {"Repository", `{"type":"gitlab","gitlab":{"url":"https://b.example/x"}}`, auth.Lookup{Connection: "a"}, ""},
		"a rule":                {"Repository", `{"type":"git","git":{"url":"https://b.example/rule"}}`, auth.Lookup{Repository: "a", URL: "rule"}, "of the rule"},
		"a source":              {"GitRepository", `{"url":"https://b.example/x.git"}`, auth.Lookup{Secure: map[string]string{"secretRef": "x"}}, ""},
		"new":                   {"new Repository", `{"git":{"url":"https://A.example/y.git"}}`, named, "stored"},
		"new, elsewhere":        {"new Repository", `{"git":{"url":"https://b.example/x.git"}}`, named, ""},
		"new, both":             {"new Repository", `{"git":{"url":"https://a.example/x"},"gitlab":{"url":"https://b.example/x"}}`, named, ""},
		"new, not secure":       {"new Repository", `{"git":{"url":"http://a.example/x.git"}}`, named, ""},
		"new, other Secret":     {"new Repository", `{"git":{"url":"https://a.example/x.git"}}`, auth.Lookup{Secure: map[string]string{"token": "y"}}, ""},
		"new, webhook":          {"new Repository", `{"git":{"url":"https://b.example/x.git"}}`, auth.Lookup{Repository: "b", Secure: map[string]string{"webhookSecret": "y"}}, "stored"},
		"new, by directory":     {"new Repository", `{"git":{"url":"https://b.example/x.git"}}`, auth.Lookup{Repository: "b"}, "stored"},
		"new, no URL":           {"new Repository", `{"git":{"URL":"https://b.example/x.git"}}`, named, ""},
		"new, Connection":       {"new Repository", `{"github":{"url":"https://c.example/x/y"}}`, auth.Lookup{Connection: "a"}, "stored"},
		"new, its user's host":  {"new Repository", `{"github":{"url":"https://a.example/x/y"}}`, auth.Lookup{Connection: "c"}, "stored"},
		"new, its other host":   {"new Repository", `{"github":{"url":"https://b.example/x/y"}}`, auth.Lookup{Connection: "a"}, ""},
		"new source":            {"new GitRepository", `{"url":"https://a.example/y.git"}`, auth.Lookup{Secure: map[string]string{"secretRef": "x"}}, "stored"},
		"new source, elsewhere": {"new GitRepository", `{"url":"https://b.example/y.git"}`, auth.Lookup{Secure: map[string]string{"secretRef": "x"}}, ""},
		"the source as it is":   {"GitRepository", `{"url":"https://a.example/x.git"}`, auth.Lookup{Secure: map[string]string{"secretRef": "x"}}, "stored"},
		"both blocks, one else": {"Repository", `{"git":{"url":"https://a.example/x.git"},"gitlab":{"url":"https://b.example/x"}}`, auth.Lookup{Repository: "a"}, ""},
	} {
		from := func(_ context.Context, l auth.Lookup) (*auth.Credentials, error) {
			switch {
			case len(l.Secure) > 0 || l.Connection != "" || l.Repository != "":
				return secret, nil
			case l.URL == "rule":
				return &auth.Credentials{Password: "of the rule"}, nil
			}
			return nil, nil
		}
		kind, isNew := strings.CutPrefix(c.kind, "new ")
		u := object(kind, c.spec)
		if isNew {
			u.SetName("b")
		}
		c.l.Namespace = "default"
		got, err := tester.atStoredURL(from, u)(t.Context(), c.l)
		if c.want == "" && !errors.Is(err, errAnotherURL) || c.want != "" && (err != nil || got.Password != c.want) {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
}

// TestCheckOfARepository: a test of a Repository ends at the step where its controller
// would find it wanting, and says where the credentials are, never what they are.
func TestCheckOfARepository(t *testing.T) {
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
	right, sinks := &auth.Credentials{Password: password, Source: "it"}, t.TempDir()
	for _, tt := range []struct {
		name      string
		git       map[string]any
		sink      string
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
		{name: "a tag", git: map[string]any{"url": url}, revision: "semver:1.x", creds: right, code: 200,
			steps: "spec ok, credentials ok, remote ok, revision ok", inDetails: "semver:1.x is v1.0.0, commit " + origin.Head(t)},
		{name: "no tag", git: map[string]any{"url": url}, revision: "semver:2.x", creds: right, code: 400, field: "metadata.annotations[limpet/git-ref]",
			steps: "spec ok, credentials ok, remote ok, revision failed", inDetails: "the highest of 1 versions is v1.0.0"},
		{name: "no revision", git: map[string]any{"url": url}, revision: "v1.0.0", code: 400, field: "metadata.annotations[limpet/git-ref]",
			steps: "spec failed, credentials skipped, remote skipped, revision skipped", inDetails: "write tag:NAME"},
		{name: "a rule", git: map[string]any{"url": ""}, code: 400, field: "spec.git.url",
			steps: "spec failed, credentials skipped, remote skipped, branch skipped"},
		{name: "no credentials", git: map[string]any{"url": url}, noRemote: &git.Error{Kind: git.Auth, Err: errors.New("no credentials for it")},
			code: 401, field: "secure.token", steps: "spec ok, credentials failed, remote skipped, branch skipped",
			inDetails: "no credentials for it"},
		{name: "wrong", git: map[string]any{"url": url}, creds: &auth.Credentials{Password: "wrong-one", Source: "directory /x"},
			code: 401, field: "secure.token", steps: "spec ok, credentials ok, remote failed, branch skipped", inDetails: "basic, directory /x"},
		{name: "away", git: map[string]any{"url": "http://127.0.0.1:1/site.git"}, code: 503, field: "spec.git.url",
			steps: "spec ok, credentials ok, remote failed, branch skipped", inDetails: "none configured (anonymous)"},
		{name: "no branch", git: map[string]any{"url": url, "branch": "mian"}, creds: right, code: 400, field: "spec.git.branch",
			steps: "spec ok, credentials ok, remote ok, branch failed"},
		{name: "well", git: map[string]any{"url": url, "branch": testenv.Branch}, creds: right, code: 200,
			steps: "spec ok, credentials ok, remote ok, branch ok", inDetails: testenv.Branch + " is at " + origin.Head(t)},
		{name: "path", git: map[string]any{"url": url, "path": "grafana/"}, creds: right, code: 200,
			steps: "spec ok, credentials ok, remote ok, branch ok, path ok", inDetails: "grafana/, "},
		{name: "no path", git: map[string]any{"url": url, "path": "boards"}, creds: right, code: 400, field: "spec.git.path",
			steps: "spec ok, credentials ok, remote ok, branch ok, path failed", inDetails: "there is no directory"},
		{name: "sink", git: map[string]any{"url": url}, sink: sinks + "/site/boards", creds: right, code: 200,
			steps: "spec ok, credentials ok, sink ok, remote ok, branch ok"},
		{name: "no prefix", git: map[string]any{"url": url}, sink: "/srv/boards", creds: right, code: 422,
			field: "metadata.annotations[limpet/sink-dir]", inDetails: "--sink-prefix",
			steps: "spec ok, credentials ok, sink failed, remote skipped, branch skipped"},
		{name: "the branch of the remote", git: map[string]any{"url": url}, creds: right, code: 200,
			steps: "spec ok, credentials ok, remote ok, branch ok", inDetails: testenv.Branch + " is at " + origin.Head(t)},
		{name: "written to", git: map[string]any{"url": url}, workflows: []any{"branch"}, creds: right, code: 200,
			steps: "spec ok, credentials ok, remote ok, branch ok, write access ok", inDetails: "the remote accepts a push"},
		{name: "not written to", git: map[string]any{"url": closed}, workflows: []any{"branch"}, creds: right, code: 403, field: "secure.token",
			steps: "spec ok, credentials ok, remote ok, branch ok, write access failed", inDetails: "write permission denied"},
		{name: "no branch to write to", git: map[string]any{"url": url, "branch": "mian"}, workflows: []any{"branch"}, creds: right, code: 400, field: "spec.git.branch",
			steps: "spec ok, credentials ok, remote ok, branch failed, write access skipped"},
		{name: "away, and written to", git: map[string]any{"url": "http://127.0.0.1:1/site.git"}, workflows: []any{"branch"}, code: 503,
			field: "spec.git.url",
			steps: "spec ok, credentials ok, remote failed, branch skipped, write access skipped", inDetails: "none configured (anonymous)"},
		{name: "local", kind: "local", git: map[string]any{"path": "/srv/boards"}, code: 400, field: "spec.local.path",
			steps: "spec ok, credentials ok, remote failed, branch skipped"},
	} {
		kind := cmp.Or(tt.kind, "git")
		tester := &Tester{Git: mirrors, Insecure: true, Sinks: []string{sinks}, Now: time.Now}
		tester.Credentials.Repositories = auth.Source(func(context.Context, auth.Lookup) (*auth.Credentials, error) {
			return tt.creds, tt.noRemote
		})
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": "Repository",
			"metadata": map[string]any{"name": "site", "namespace": "default"},
			"spec": map[string]any{"title": "Site", "type": kind, kind: tt.git, "workflows": tt.workflows,
				"sync": map[string]any{"enabled": false, "target": "folder"}}}}
		if tt.revision != "" {
			u.SetAnnotations(map[string]string{api.AnnoGitRef: tt.revision})
		}
		if tt.sink != "" {
			u.SetAnnotations(map[string]string{api.AnnoSinkDir: tt.sink})
		}
		got, err := tester.Test(t.Context(), u)
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

// TestCheckOfASource: a token that was revoked is replaced once, each question ends in
// time, and what passes is no verdict on the source. The rest has the built program.
func TestCheckOfASource(t *testing.T) {
	t.Parallel()
	const token = "s3cr3t-canary-token"
	host := testenv.Git(t, testenv.GitOptions{User: "git", Password: token})
	repo := testenv.Repo(t, 1, 1)
	link := host.Serve("x.git", repo.Dir)
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(silent.Close)
	mirrors, err := git.Open(t.TempDir(), git.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mirrors.Close() })
	object := func(link, more string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(`{"apiVersion":"source.toolkit.fluxcd.io/v1","kind":"GitRepository","metadata":{"name":"site","namespace":"apps"},"spec":{"url":"`+link+`","ref":{"branch":"main"}`+more+`}}`), u); err != nil {
			t.Fatal(err)
		}
		return u
	}
	asked, forgotten := 0, 0
	with := func(source auth.Source) *Tester {
		tester := &Tester{Git: mirrors, Insecure: true, Now: time.Now}
		tester.Credentials.Sources = source
		return tester
	}
	given := func(passwords ...string) *Tester {
		asked, forgotten = 0, 0
		return with(func(context.Context, auth.Lookup) (*auth.Credentials, error) {
			asked++
			return &auth.Credentials{Username: "git", Password: passwords[min(asked, len(passwords))-1], Forget: func() { forgotten++ }}, nil
		})
	}
	if got, err := given("revoked", token).Test(t.Context(), object(link, "")); err != nil ||
		got.Revision != "main@sha1:"+repo.Head(t) || asked != 2 || forgotten != 1 {
		t.Errorf("revoked: %+v, %v; asked for %d times, forgotten %d times", got, err, asked, forgotten)
	}
	if got, err := given("wrong").Test(t.Context(), object(link, "")); err != nil || got.Code != 401 ||
		got.Reason != auth.ReasonOperation || asked != 2 {
		t.Errorf("wrong: %+v, %v; asked for %d times", got, err, asked)
	}
	asked = 0
	own := with(func(context.Context, auth.Lookup) (*auth.Credentials, error) { // not from memory: it is tried once
		asked++
		return &auth.Credentials{Username: "git", Password: "wrong"}, nil
	})
	if got, err := own.Test(t.Context(), object(link, "")); err != nil || got.Code != 401 || asked != 1 {
		t.Errorf("a person's own: %+v, %v; asked for %d times", got, err, asked)
	}
	if got, err := given("").Test(t.Context(), object(silent.URL+"/x.git", `,"timeout":"100ms"`)); err != nil || got.Code != 503 ||
		got.Reason != auth.ReasonOperation || !strings.Contains(got.Errors[0].Detail, "no answer in time") {
		t.Errorf("silent: %+v, %v", got, err)
	}
	// A commit that is in the mirror proves nothing about who may ask for it now.
	pinned := object(link, "")
	pinned.Object["spec"].(map[string]any)["ref"] = map[string]any{"commit": repo.Head(t)}
	if _, err := mirrors.Fetch(t.Context(),
		git.Remote{URL: link, AllowInsecure: true, Creds: &auth.Credentials{Username: "git", Password: token}},
		git.Ref{Name: repo.Head(t), Hash: repo.Head(t), Pinned: true}); err != nil {
		t.Fatal(err)
	}
	for password, want := range map[string]string{token: "sha1:" + repo.Head(t), "wrong": ""} {
		if got, err := given(password).Test(t.Context(), pinned); err != nil || got.Revision != want || got.Success != (want != "") {
			t.Errorf("a commit that is here: %+v, %v", got, err)
		}
	}
	for spec, want := range map[string]string{`,"serviceAccountName":"x"`: "400 InvalidProviderConfiguration spec.serviceAccountName",
		`,"timeout":"soon"`: "400  spec.timeout"} {
		if got, err := given(token).Test(t.Context(), object(link, spec)); err != nil ||
			fmt.Sprint(got.Code, " ", got.Reason, " ", got.Errors[0].Field) != want || asked != 0 {
			t.Errorf("%s: %+v, %v; asked %d times", spec, got, err, asked)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := given(token).Test(gone, object(silent.URL+"/x.git", "")); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %+v, %v", got, err)
	}
	for name, c := range map[string]struct {
		err    error
		reason string // "" = nothing can be told
		code   int
		at     string
	}{
		"away":     {&kube.UnavailableError{Err: errors.New("no route")}, "", 0, ""},
		"a secret": {errors.New("secret apps/x is not there"), auth.ReasonAuthentication, 401, "spec.secretRef"},
		"provider": {&netx.Error{Kind: netx.Invalid, Op: "use it", Err: errors.New("no key")}, auth.ReasonProvider, 400, "spec.provider"},
		"refused": {&netx.Error{Kind: netx.Unauthorized, Op: "get a token", Err: errors.New("no")}, auth.ReasonAuthentication, 401,
			"spec.secretRef"},
		"cloud out": {&netx.Error{Kind: netx.Unavailable, Op: "get a token", Err: errors.New("no")}, auth.ReasonAuthentication, 503,
			"spec.secretRef"},
	} {
		got, err := with(func(context.Context, auth.Lookup) (*auth.Credentials, error) { return nil, c.err }).Test(t.Context(), object(link, ""))
		if (err != nil) != (c.reason == "") || err == nil && (got.Reason != c.reason || got.Code != c.code || got.Errors[0].Field != c.at ||
			got.Steps[1].Result != StepFailed) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	tester := given(token)
	tester.Places.Secrets = auth.Secrets(func(context.Context, string, string) (map[string][]byte, error) {
		return nil, &kube.UnavailableError{Err: errors.New("no route")}
	})
	if got, err := tester.Test(t.Context(), object(link, `,"verify":{"secretRef":{"name":"s"}}`)); err == nil {
		t.Errorf("keys out of reach: %+v", got)
	}
}
