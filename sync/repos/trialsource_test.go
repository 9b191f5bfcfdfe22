package repos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
	"limpet/sync/kube"
	"limpet/sync/source"
	"limpet/sync/testenv"
)

// noticing remembers until when a remote may answer.
type noticing struct {
	*git.Mirrors
	within time.Duration
}

func (n *noticing) Resolve(ctx context.Context, r git.Remote, sel gitref.Selector) (git.Ref, error) {
	until, _ := ctx.Deadline()
	n.within = time.Until(until)
	return n.Mirrors.Resolve(ctx, r, sel)
}

// TestTrySourceInTime: a token that was revoked is replaced once, each question ends in
// time, and what passes is no verdict on the source. The rest has the built program.
func TestTrySourceInTime(t *testing.T) {
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
	given := func(passwords ...string) SourceOptions {
		asked, forgotten = 0, 0
		return SourceOptions{Git: mirrors, Remote: func(context.Context, source.Git) (git.Remote, error) {
			asked++
			return git.Remote{URL: link, AllowInsecure: true, Creds: &auth.Credentials{Username: "git", Password: passwords[min(asked, len(passwords))-1], Forget: func() { forgotten++ }}}, nil
		}}
	}
	if got, err := TestSource(t.Context(), given("revoked", token), object(link, "")); err != nil || got.Revision != "main@sha1:"+repo.Head(t) || asked != 2 || forgotten != 1 {
		t.Errorf("revoked: %+v, %v; asked for %d times, forgotten %d times", got, err, asked, forgotten)
	}
	if got, err := TestSource(t.Context(), given("wrong"), object(link, "")); err != nil || got.Code != 401 || got.Reason != auth.ReasonOperation || asked != 2 {
		t.Errorf("wrong: %+v, %v; asked for %d times", got, err, asked)
	}
	for spec, want := range map[string]time.Duration{"": probeTimeout, `,"timeout":"5m"`: probeTimeout, `,"timeout":"7s"`: 7 * time.Second} {
		n := &noticing{Mirrors: mirrors}
		o := given(token)
		o.Git = n
		if got, err := TestSource(t.Context(), o, object(link, spec)); err != nil || !got.Success || n.within > want || n.within < want-5*time.Second {
			t.Errorf("%q: %s to answer, want %s; %+v, %v", spec, n.within, want, got, err)
		}
	}
	o := SourceOptions{Git: mirrors, Remote: func(context.Context, source.Git) (git.Remote, error) {
		return git.Remote{URL: silent.URL + "/x.git"}, nil
	}}
	if got, err := TestSource(t.Context(), o, object(link, `,"timeout":"100ms"`)); err != nil || got.Code != 503 || got.Reason != auth.ReasonOperation || !strings.Contains(got.Errors[0].Detail, "no answer in time") {
		t.Errorf("silent: %+v, %v", got, err)
	}
	// A commit that is in the mirror proves nothing about who may ask for it now.
	pinned := object(link, "")
	pinned.Object["spec"].(map[string]any)["ref"] = map[string]any{"commit": repo.Head(t)}
	if _, err := mirrors.Fetch(t.Context(), git.Remote{URL: link, AllowInsecure: true, Creds: &auth.Credentials{Username: "git", Password: token}}, git.Ref{Name: repo.Head(t), Hash: repo.Head(t), Pinned: true}); err != nil {
		t.Fatal(err)
	}
	for password, want := range map[string]string{token: "sha1:" + repo.Head(t), "wrong": ""} {
		if got, err := TestSource(t.Context(), given(password), pinned); err != nil || got.Revision != want || got.Success != (want != "") {
			t.Errorf("a commit that is here: %+v, %v", got, err)
		}
	}
	for spec, want := range map[string]string{`,"serviceAccountName":"x"`: "400 InvalidProviderConfiguration spec.serviceAccountName", `,"timeout":"soon"`: "400  spec.timeout"} {
		if got, err := TestSource(t.Context(), given(token), object(link, spec)); err != nil || fmt.Sprint(got.Code, " ", got.Reason, " ", got.Errors[0].Field) != want || asked != 0 {
			t.Errorf("%s: %+v, %v; asked %d times", spec, got, err, asked)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := TestSource(gone, o, object(link, "")); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %+v, %v", got, err)
	}
	for name, c := range map[string]struct {
		err    error
		reason string // "" = nothing can be told
		code   int
		at     string
	}{
		"away":      {&kube.UnavailableError{Err: errors.New("no route")}, "", 0, ""},
		"a secret":  {errors.New("secret apps/x is not there"), auth.ReasonAuthentication, 401, "spec.secretRef"},
		"provider":  {&forge.Error{Kind: forge.Invalid, Op: "use it", Err: errors.New("no key")}, auth.ReasonProvider, 400, "spec.provider"},
		"refused":   {&forge.Error{Kind: forge.Unauthorized, Op: "get a token", Err: errors.New("no")}, auth.ReasonAuthentication, 401, "spec.secretRef"},
		"cloud out": {&forge.Error{Kind: forge.Unavailable, Op: "get a token", Err: errors.New("no")}, auth.ReasonAuthentication, 503, "spec.secretRef"},
	} {
		o.Remote = func(context.Context, source.Git) (git.Remote, error) { return git.Remote{}, c.err }
		got, err := TestSource(t.Context(), o, object(link, ""))
		if (err != nil) != (c.reason == "") || err == nil && (got.Reason != c.reason || got.Code != c.code || got.Errors[0].Field != c.at || got.Steps[1].Result != StepFailed) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	o.Signers = func(context.Context, source.Git) (string, error) {
		return "", &kube.UnavailableError{Err: errors.New("no route")}
	}
	o.Remote = given(token).Remote
	if got, err := TestSource(t.Context(), o, object(link, `,"verify":{"secretRef":{"name":"s"}}`)); err == nil {
		t.Errorf("keys out of reach: %+v", got)
	}
}
