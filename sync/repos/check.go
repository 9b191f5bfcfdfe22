package repos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/api/admission"
	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
	"limpet/sync/kube"
	"limpet/sync/text"
)

// TestResults is what a test of a Repository, a Connection or a GitRepository has shown,
// in the form of Grafana's object of that name. Steps is ours: what was checked, in order.
type TestResults struct {
	Code    int              `json:"code"` // of HTTP; 200 = success
	Success bool             `json:"success"`
	Errors  []api.FieldError `json:"errors"`
	Steps   []Step           `json:"steps"`

	// Of a GitRepository alone, in the words of Flux.
	Revision string `json:"revision,omitempty"` // that it stands for
	Reason   string `json:"reason,omitempty"`   // of the failure
}

// Step is one thing that a test has checked.
type Step struct {
	Name   string `json:"name"`
	Result string `json:"result"` // StepOK, StepFailed, StepWarning or StepSkipped
	Detail string `json:"detail,omitempty"`
}

// Results of a Step.
const (
	StepOK      = "ok"
	StepFailed  = "failed"
	StepWarning = "warning" // of a mirror that does not serve: the test goes on
	StepSkipped = "skipped" // a step before it has failed
)

// pass adds a step that went well.
func (t *TestResults) pass(name, detail string) {
	t.Steps = append(t.Steps, Step{name, StepOK, detail})
}

// finish adds the step that failed, or the last one that went well, and the steps that
// were skipped.
func (t *TestResults) finish(result healthResult, name, detail string, skipped ...string) TestResults {
	t.Code, t.Success, t.Errors = http.StatusOK, result.ok(), result.errors
	if t.Errors == nil {
		t.Errors = []api.FieldError{}
	}
	if result.ok() {
		t.pass(name, detail)
		return *t
	}
	t.Code = result.code
	t.Steps = append(t.Steps, Step{name, StepFailed, result.ready().Message})
	for _, name := range skipped {
		t.Steps = append(t.Steps, Step{name, StepSkipped, ""})
	}
	return *t
}

// Names of the steps of a test.
const (
	stepRules       = "spec"
	stepCredentials = "credentials"
	stepSigners     = "signers" // of a Repository in which something has to be signed
	stepSigning     = "signing" // of a Repository whose commits are signed
	stepRemote      = "remote"
	stepBranch      = "branch"
	stepRevision    = "revision"     // of a Repository that names another thing than a branch
	stepWrite       = "write access" // of a Repository that has workflows
	stepDirectory   = "directory"    // of a Repository that is one
	stepSecret      = "secret"       // of a Connection
	stepHost        = "host"
)

const specValid = "valid"

// KeyCheck describes the keys of a Repository, "" for none. An error says that nothing
// can be pulled or committed.
type KeyCheck func(ctx context.Context, namespace, name string, repo api.Repository) (string, error)

// CheckOptions are what TestRepository needs. Signers and Signing may be nil.
type CheckOptions struct {
	Remotes       Remotes
	Git           Prober
	Hosts         Hosts // nil = no host is asked for more than Git
	LocalPrefixes []string
	Signers       KeyCheck // of what has to be signed
	Signing       KeyCheck // of what commits are signed with
}

// stepRef returns the name of the step that finds the commit.
func (p *probe) stepRef() string {
	if p.repo.GitRef != "" {
		return stepRevision
	}
	return stepBranch
}

// TestRepository checks a Repository as its controller does, and writes nothing. One that
// is on no API is checked as a new one. An error says that there is no result.
func TestRepository(ctx context.Context, o CheckOptions, obj *unstructured.Unstructured) (TestResults, error) {
	t, err := testRepository(ctx, o, obj)
	if err != nil {
		return TestResults{}, fmt.Errorf("test repository %s: %w", obj.GetName(), err)
	}
	return t, nil
}

func testRepository(ctx context.Context, o CheckOptions, obj *unstructured.Unstructured) (answer TestResults, err error) {
	repo, err := api.RepositoryView(obj)
	if err != nil {
		return TestResults{}, err
	}
	old := obj
	if obj.GetUID() == "" {
		old = nil
	}
	options := &Options{Remotes: o.Remotes, Git: o.Git, Hosts: o.Hosts, LocalPrefixes: o.LocalPrefixes}
	p, err := newProbe(ctx, options, Key{obj.GetNamespace(), obj.GetName()}, repo)
	if err != nil {
		return TestResults{}, err
	}
	local := repo.Spec.Type == typeLocal
	refused := p.asked && !local // before any request
	result, invalid, err := p.checkObject(ctx, obj, old)
	if err != nil {
		return TestResults{}, err
	}
	var t TestResults
	later := []string{stepCredentials, stepRemote, p.stepRef()}
	if p.writes() {
		later = append(later, stepWrite)
	}
	if local {
		later = []string{stepDirectory}
	}
	if invalid {
		return t.finish(result, stepRules, "", later...), nil
	}
	t.pass(stepRules, specValid)
	if local {
		return t.finish(result, stepDirectory, "exists"), nil
	}
	if refused {
		return t.finish(result, stepCredentials, "", later[1:]...), nil
	}
	t.pass(stepCredentials, describeCredentials(p.remote.Creds))
	for _, keys := range []struct {
		step, field string
		check       KeyCheck
	}{{stepSigners, "metadata.annotations", o.Signers}, {stepSigning, "secure.commitSigningKey", o.Signing}} {
		if keys.check == nil {
			continue
		}
		switch text, err := keys.check(ctx, obj.GetNamespace(), obj.GetName(), repo); {
		case err != nil:
			failed := fieldResult(http.StatusUnprocessableEntity, keys.field, err.Error())
			failed.errors[0].Detail = err.Error()
			return t.finish(failed, keys.step, "", later[1:]...), nil
		case text != "":
			t.pass(keys.step, text)
		}
	}
	defer func() { answer.addMirrors(ctx, p) }()
	if kind := git.KindOf(p.err); p.err != nil && kind != git.BranchNotFound && kind != git.Empty {
		return t.finish(result, stepRemote, "", later[2:]...), nil
	}
	t.pass(stepRemote, p.describeAnswer())
	if p.err != nil || !p.writes() {
		return t.finish(result, p.stepRef(), p.describeRef(), later[3:]...), nil
	}
	t.pass(p.stepRef(), p.describeRef())
	return t.finish(result, stepWrite, p.access.describe()), nil
}

// describe returns what is known where nothing is in the way, for people.
func (a *access) describe() string {
	if a.unknown != nil {
		return "not known: " + gitText(a.unknown)
	}
	return "the remote accepts a push"
}

// addMirrors adds a step for each mirror. One that does not serve makes no Repository
// unhealthy.
func (t *TestResults) addMirrors(ctx context.Context, p *probe) {
	sel, err := p.selector()
	if err != nil || len(p.remote.Fallbacks) == 0 {
		return
	}
	for _, a := range p.o.Git.CheckFallbacks(ctx, p.remote, sel) {
		step := Step{"mirror " + a.URL, StepOK, answeredIn(a.Took) + ", " + describeRef(a.Ref)}
		switch {
		case a.Err != nil:
			step.Result, step.Detail = StepWarning, gitText(a.Err)
		case p.err == nil && a.Ref.Hash != p.ref.Hash:
			step.Result, step.Detail = StepWarning, fmt.Sprintf("it has %s, expected %s", describeRef(a.Ref), describeRef(p.ref))
		}
		at := slices.IndexFunc(t.Steps, func(s Step) bool { return s.Name == stepRemote }) + 1
		for at > 0 && at < len(t.Steps) && strings.HasPrefix(t.Steps[at].Name, "mirror ") {
			at++
		}
		t.Steps = slices.Insert(t.Steps, at, step)
	}
}

// describeCredentials returns what a remote is asked with and where that was found.
func describeCredentials(c *auth.Credentials) string {
	if c.Empty() {
		return "none configured (anonymous)"
	}
	return c.Kind() + ", " + c.Source
}

// Identities knows the hosts of Connections and where their secrets are. *forge.Minter is
// one.
type Identities interface {
	ConnectionTester
	// Place returns where the secret of a Connection was found, for people.
	Place(ctx context.Context, c forge.Connection) (string, error)
}

var _ Identities = (*forge.Minter)(nil)

// TestConnection checks a Connection as its controller does, and writes nothing. An error
// says that there is no result.
func TestConnection(ctx context.Context, identities Identities, obj *unstructured.Unstructured) (TestResults, error) {
	var t TestResults
	if errs := admission.Check(obj, obj); len(errs) > 0 {
		return t.finish(invalidResult(errs), stepRules, "", stepSecret, stepHost), nil
	}
	t.pass(stepRules, specValid)
	connection, err := forge.ConnectionOf(obj)
	if err != nil {
		return TestResults{}, fmt.Errorf("test connection %s: %w", obj.GetName(), err)
	}
	place, missing := identities.Place(ctx, connection)
	result, err := checkConnection(ctx, identities, obj)
	switch {
	case err != nil:
		return TestResults{}, fmt.Errorf("test connection %s: %w", obj.GetName(), err)
	case missing != nil:
		return t.finish(result, stepSecret, "", stepHost), nil
	}
	t.pass(stepSecret, place)
	return t.finish(result, stepHost, "accepts the identity"), nil
}

// SourceOptions are the Git side of a GitRepository and what its test needs of an agent.
type SourceOptions struct {
	Spec     auth.GitRepository
	Invalid  error // why the spec cannot be read; nil = it can
	Selector gitref.Selector
	Timeout  time.Duration // of one request; 0 = not in the spec
	Revision func(git.Ref) string
	Git      Prober
	Remote   func(context.Context) (git.Remote, error) // finds how the host is reached
	Signers  func(context.Context) (string, error)     // describes the keys of those who may sign, for people
}

// TestSource checks a GitRepository of Flux: its spec, whether its host accepts the
// credentials, and which revision it stands for. It blocks for one ls-remote and the
// requests for a token, and writes nothing. An error says that there is no result.
func TestSource(ctx context.Context, o SourceOptions) (TestResults, error) {
	var t TestResults
	later := []string{stepCredentials, stepRemote, stepRevision}
	if o.Invalid != nil {
		return t.refuse(o.Invalid, stepRules, later...), nil
	}
	t.pass(stepRules, specValid)
	if len(o.Spec.Warnings) > 0 {
		t.Steps[0] = Step{stepRules, StepWarning, strings.Join(o.Spec.Warnings, "; ")}
	}
	remote, err := o.Remote(ctx)
	if err := unavailable(ctx, err); err != nil {
		return TestResults{}, err
	}
	if err != nil {
		return t.refuse(err, stepCredentials, later[1:]...), nil
	}
	t.pass(stepCredentials, describeIdentity(o.Spec.Provider, remote.Creds))
	if o.Spec.Verify != "" {
		text, err := o.Signers(ctx)
		if err := unavailable(ctx, err); err != nil {
			return TestResults{}, err
		}
		if _, is := errors.AsType[*auth.SourceError](err); err != nil && !is {
			err = &auth.SourceError{Reason: auth.ReasonVerify, Field: auth.FieldSigners, Err: err}
		}
		if err != nil {
			return t.refuse(err, stepSigners, later[1:]...), nil
		}
		t.pass(stepSigners, text)
	}
	limit := probeTimeout
	if o.Timeout > 0 {
		limit = min(limit, o.Timeout)
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	sel := o.Selector
	if sel.Commit != "" { // for a stored commit no host is asked, and this is a test of the host
		sel = gitref.Branch(sel.Branch)
	}
	began := time.Now()
	ref, _, err := resolve(limited, o.Git, &remote, sel, o.Remote)
	if err := unavailable(ctx, nil); err != nil {
		return TestResults{}, err
	}
	if kind := git.KindOf(err); err != nil && kind != git.BranchNotFound && kind != git.Empty {
		return t.refuse(err, stepRemote, stepRevision), nil
	}
	p := probe{ref: ref, took: time.Since(began)}
	t.pass(stepRemote, p.describeAnswer())
	if err != nil {
		return t.refuse(err, stepRevision), nil
	}
	note := ""
	if commit := o.Selector.Commit; commit != "" && commit != ref.Hash {
		ref.Hash, note = commit, ", as it is asked for: whether the host has it is seen when it is fetched"
	}
	t.Revision = o.Revision(ref)
	return t.finish(healthResult{}, stepRevision, t.Revision+note), nil
}

// unavailable returns the error of a test without a result, because its API is away or ctx
// has ended; else nil.
func unavailable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, away := errors.AsType[*kube.UnavailableError](err); away {
		return err
	}
	return nil
}

// refuse finishes with the result for an error of reading the object, of a host that makes
// tokens, or of package git.
func (t *TestResults) refuse(err error, step string, skipped ...string) TestResults {
	at := fieldsOf{url: "spec.url", ref: "spec.ref", secret: auth.FieldSecret}
	var result healthResult
	invalid, isInvalid := errors.AsType[*auth.SourceError](err)
	refused, isForge := errors.AsType[*forge.Error](err)
	_, isGit := errors.AsType[*git.Error](err)
	switch {
	case isInvalid:
		t.Reason = invalid.Reason
		result = fieldResult(http.StatusBadRequest, invalid.Field, text.Redact(invalid.Err.Error()))
		if invalid.Reason == auth.ReasonAuthentication {
			result.code = http.StatusUnauthorized
		}
	case isForge:
		if t.Reason = auth.ReasonAuthentication; refused.Kind == forge.Invalid {
			t.Reason, at.secret = auth.ReasonProvider, auth.FieldProvider
		}
		result = forgeResult(err, at.secret)
	case !isGit:
		t.Reason = auth.ReasonAuthentication
		result = fieldResult(http.StatusUnauthorized, at.secret, text.Redact(err.Error()))
	default:
		t.Reason, result = auth.ReasonOperation, at.result(err)
		if git.KindOf(err) == git.Empty {
			t.Reason = auth.ReasonEmpty
		}
	}
	if t.Reason != "" {
		result.errors[0].Detail += " (" + t.Reason + ")"
	}
	return t.finish(result, step, "", skipped...)
}

// describeIdentity returns the provider of the credentials, what they are, and the proxy.
func describeIdentity(provider string, c *auth.Credentials) string {
	out := "provider " + provider + ", " + describeCredentials(c)
	if proxy := c.GetProxy(); proxy != nil {
		out += ", by way of " + proxy.String()
		if proxy.Place != "" {
			out += " of " + proxy.Place
		}
	}
	return out
}
