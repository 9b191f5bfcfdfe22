package repos

import (
	"cmp"
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
	"limpet/sync/source"
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

// check is a step to run: it returns what it has found, for people, or why it failed, as a
// healthResult. Any other error ends the test without a result.
type check struct {
	name     string
	optional bool // without a detail or when it is skipped, it is no step
	run      func() (detail string, err error)
}

// runChecks runs checks until one fails; the others are skipped.
func runChecks(ctx context.Context, checks ...check) (TestResults, error) {
	t := TestResults{Code: http.StatusOK, Success: true, Errors: []api.FieldError{}}
	for _, c := range checks {
		if !t.Success {
			if !c.optional {
				t.Steps = append(t.Steps, Step{c.name, StepSkipped, ""})
			}
			continue
		}
		detail, err := c.run()
		failed, is := errors.AsType[healthResult](err)
		switch {
		case ctx.Err() != nil:
			return TestResults{}, context.Cause(ctx)
		case err != nil && !is:
			return TestResults{}, err
		case is:
			t.Code, t.Success, t.Errors = failed.code, false, failed.errors
			t.Steps = append(t.Steps, Step{c.name, StepFailed, failed.ready().Message})
		case detail != "" || !c.optional:
			t.Steps = append(t.Steps, Step{c.name, StepOK, detail})
		}
	}
	return t, nil
}

// checkRules checks the rules of admission.
func checkRules(obj, old *unstructured.Unstructured) check {
	return check{stepRules, false, func() (string, error) {
		return specValid, invalidResult(admission.Check(obj, old)).failed()
	}}
}

// KeyCheck describes the keys of a Repository, "" for none. An error says that nothing
// can be pulled or committed.
type KeyCheck func(ctx context.Context, namespace, name string, repo api.Repository) (string, error)

// CheckOptions are what TestRepository needs. Signers and Signing may be nil.
type CheckOptions struct {
	Remotes Remotes
	Git     Prober
	Hosts   Hosts    // nil = no host is asked for more than Git
	Signers KeyCheck // of what has to be signed
	Signing KeyCheck // of what commits are signed with
}

// TestRepository checks a Repository as its controller does, and writes nothing. One that
// is on no API is checked as a new one. An error says that there is no result.
func TestRepository(ctx context.Context, o CheckOptions, obj *unstructured.Unstructured) (TestResults, error) {
	repo, err := api.RepositoryView(obj)
	if err != nil {
		return TestResults{}, fmt.Errorf("test repository %s: %w", obj.GetName(), err)
	}
	old := obj
	if obj.GetUID() == "" {
		old = nil
	}
	p := &probe{}
	checks := []check{checkRules(obj, old)}
	if repo.Spec.Type == typeLocal {
		checks = append(checks, check{stepDirectory, false, func() (string, error) { return "", localResult().failed() }})
	} else {
		checks = append(checks,
			check{stepCredentials, false, func() (string, error) {
				options := &Options{Remotes: o.Remotes, Git: o.Git, Hosts: o.Hosts}
				if p, err = newProbe(ctx, options, Key{obj.GetNamespace(), obj.GetName()}, repo); err != nil {
					return "", err
				}
				return describeCredentials(p.remote.Creds), remoteResult(repo, p.err).failed()
			}},
			checkKeys(ctx, stepSigners, "metadata.annotations", o.Signers, obj, repo),
			checkKeys(ctx, stepSigning, "secure.commitSigningKey", o.Signing, obj, repo))
		ref := check{stepBranch, false, func() (string, error) { return p.describeRef(), p.health().failed() }}
		if repo.GitRef != "" {
			ref.name = stepRevision
		}
		checks = append(checks, check{stepRemote, false, func() (string, error) {
			if err := p.ask(ctx); err != nil {
				return "", err
			}
			if !answered(p.err) {
				return "", p.health()
			}
			return p.describeAnswer(), nil
		}}, ref)
		if writes(repo) {
			checks = append(checks, check{stepWrite, false, func() (string, error) {
				result, err := p.checkWritable(ctx, obj)
				return p.access.describe(), cmp.Or(err, result.failed())
			}})
		}
	}
	t, err := runChecks(ctx, checks...)
	if err != nil {
		return t, fmt.Errorf("test repository %s: %w", obj.GetName(), err)
	}
	t.addMirrors(ctx, p)
	return t, nil
}

// answered reports whether a remote has answered, if only that there is no such ref.
func answered(err error) bool {
	kind := git.KindOf(err)
	return err == nil || kind == git.BranchNotFound || kind == git.Empty
}

// checkKeys checks keys, where there is a check.
func checkKeys(ctx context.Context, name, field string, keys KeyCheck, obj *unstructured.Unstructured, repo api.Repository) check {
	return check{name, true, func() (string, error) {
		if keys == nil {
			return "", nil
		}
		detail, err := keys(ctx, obj.GetNamespace(), obj.GetName(), repo)
		if err != nil {
			failed := fieldResult(http.StatusUnprocessableEntity, field, err.Error())
			failed.errors[0].Detail = err.Error()
			return "", failed
		}
		return detail, nil
	}}
}

// describe returns what is known where nothing is in the way, for people.
func (a *access) describe() string {
	if a.unknown != nil {
		return "not known: " + gitText(a.unknown)
	}
	return "the remote accepts a push"
}

// addMirrors adds a step for each mirror after that of the remote. One that does not
// serve makes no Repository unhealthy.
func (t *TestResults) addMirrors(ctx context.Context, p *probe) {
	at := slices.IndexFunc(t.Steps, func(s Step) bool { return s.Name == stepRemote && s.Result != StepSkipped }) + 1
	if at == 0 || len(p.remote.Fallbacks) == 0 {
		return
	}
	sel, err := p.selector()
	if err != nil {
		return
	}
	for i, a := range p.o.Git.CheckFallbacks(ctx, p.remote, sel) {
		step := Step{"mirror " + a.URL, StepOK, answeredIn(a.Took) + ", " + describeRef(a.Ref)}
		switch {
		case a.Err != nil:
			step.Result, step.Detail = StepWarning, gitText(a.Err)
		case p.err == nil && a.Ref.Hash != p.ref.Hash:
			step.Result, step.Detail = StepWarning, fmt.Sprintf("it has %s, expected %s", describeRef(a.Ref), describeRef(p.ref))
		}
		t.Steps = slices.Insert(t.Steps, at+i, step)
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
	var result healthResult
	t, err := runChecks(ctx, checkRules(obj, obj),
		check{stepSecret, false, func() (string, error) {
			connection, err := forge.ConnectionOf(obj)
			if err != nil {
				return "", err
			}
			place, missing := identities.Place(ctx, connection)
			if result, err = checkConnection(ctx, identities, obj); err != nil || missing != nil {
				return "", cmp.Or(err, result.failed())
			}
			return place, nil
		}},
		check{stepHost, false, func() (string, error) { return "accepts the identity", result.failed() }})
	if err != nil {
		return t, fmt.Errorf("test connection %s: %w", obj.GetName(), err)
	}
	return t, nil
}

// SourceOptions are the Git side of a GitRepository and what its test needs of an agent.
type SourceOptions struct {
	Source  source.Git
	Invalid error // why the spec cannot be read; nil = it can
	Git     Prober
	Remote  func(context.Context) (git.Remote, error) // finds how the host is reached
	Signers func(context.Context) (string, error)     // describes the keys of those who may sign, for people
}

// TestSource checks a GitRepository of Flux: its spec, whether its host accepts the
// credentials, and which revision it stands for. It blocks for one ls-remote and the
// requests for a token, and writes nothing. An error says that there is no result.
func TestSource(ctx context.Context, o SourceOptions) (TestResults, error) {
	var p probe
	var reason, revision string
	fail := func(err error) (_ string, failed error) {
		if _, away := errors.AsType[*kube.UnavailableError](err); away {
			return "", err
		}
		failed, reason = sourceResult(err)
		return "", failed
	}
	t, err := runChecks(ctx,
		check{stepRules, false, func() (string, error) {
			if o.Invalid != nil {
				return fail(o.Invalid)
			}
			return cmp.Or(strings.Join(o.Source.Warnings, "; "), specValid), nil
		}},
		check{stepCredentials, false, func() (detail string, err error) {
			if p.remote, err = o.Remote(ctx); err != nil {
				return fail(err)
			}
			return describeIdentity(o.Source.Provider, p.remote.Creds), nil
		}},
		check{stepSigners, true, func() (string, error) {
			if o.Source.Verify == "" {
				return "", nil
			}
			detail, err := o.Signers(ctx)
			_, away := errors.AsType[*kube.UnavailableError](err)
			if _, is := errors.AsType[*auth.SourceError](err); err != nil && !is && !away {
				err = &auth.SourceError{Reason: auth.ReasonVerify, Field: auth.FieldSigners, Err: err}
			}
			if err != nil {
				return fail(err)
			}
			return detail, nil
		}},
		check{stepRemote, false, func() (string, error) {
			limited, cancel := context.WithTimeout(ctx, min(probeTimeout, cmp.Or(o.Source.Timeout, probeTimeout)))
			defer cancel()
			sel := o.Source.Selector
			if sel.Commit != "" { // for a stored commit no host is asked, and this is a test of the host
				sel = gitref.Branch(sel.Branch)
			}
			began := time.Now()
			p.ref, _, p.err = resolve(limited, o.Git, &p.remote, sel, o.Remote)
			p.took = time.Since(began)
			if !answered(p.err) {
				return fail(p.err)
			}
			return p.describeAnswer(), nil
		}},
		check{stepRevision, false, func() (string, error) {
			if p.err != nil {
				return fail(p.err)
			}
			note := ""
			if commit := o.Source.Selector.Commit; commit != "" && commit != p.ref.Hash {
				p.ref.Hash, note = commit, ", as it is asked for: whether the host has it is seen when it is fetched"
			}
			revision = o.Source.Revision(p.ref)
			return revision + note, nil
		}})
	if err != nil {
		return t, err
	}
	t.Reason, t.Revision = reason, revision
	if len(o.Source.Warnings) > 0 && t.Steps[0].Result == StepOK {
		t.Steps[0].Result = StepWarning
	}
	return t, nil
}

// sourceResult returns the result and Flux's reason for an error of reading the object, of
// a host that makes tokens, or of package git.
func sourceResult(err error) (result healthResult, reason string) {
	at := fieldsOf{url: "spec.url", ref: "spec.ref", secret: auth.FieldSecret}
	invalid, isInvalid := errors.AsType[*auth.SourceError](err)
	refused, isForge := errors.AsType[*forge.Error](err)
	_, isGit := errors.AsType[*git.Error](err)
	switch reason = auth.ReasonAuthentication; {
	case isInvalid:
		reason, result = invalid.Reason, fieldResult(http.StatusBadRequest, invalid.Field, text.Redact(invalid.Err.Error()))
		if reason == auth.ReasonAuthentication {
			result.code = http.StatusUnauthorized
		}
	case isForge && refused.Kind == forge.Invalid:
		reason, result = auth.ReasonProvider, forgeResult(err, auth.FieldProvider)
	case isForge:
		result = forgeResult(err, at.secret)
	case !isGit:
		result = fieldResult(http.StatusUnauthorized, at.secret, text.Redact(err.Error()))
	case git.KindOf(err) == git.Empty:
		reason, result = auth.ReasonEmpty, at.result(err)
	default:
		reason, result = auth.ReasonOperation, at.result(err)
	}
	if reason != "" {
		result.errors[0].Detail += " (" + reason + ")"
	}
	return result, reason
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
