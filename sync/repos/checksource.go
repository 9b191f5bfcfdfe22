package repos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
	"limpet/sync/kube"
	"limpet/sync/source"
	"limpet/sync/text"
)

// SourceOptions are what TestSource needs of an agent.
type SourceOptions struct {
	Git Prober
	// Remote says how the host is asked; see sources.Git.Remote.
	Remote func(ctx context.Context, from source.Git) (git.Remote, error)
	// Signers tells the keys of those who may sign, for people.
	Signers func(ctx context.Context, from source.Git) (string, error)
}

// TestSource looks into a GitRepository of Flux: what it names, whether this host may ask
// for it with that, and which revision it stands for. It blocks for one ls-remote and the
// calls for a token, and writes nothing. An error says that nothing can be told.
func TestSource(ctx context.Context, o SourceOptions, obj *unstructured.Unstructured) (TestResults, error) {
	var t TestResults
	from, err := source.ReadGit(obj)
	later := []string{stepCredentials, stepRemote, stepRevision}
	if err != nil {
		return t.refuse(err, stepRules, later...), nil
	}
	t.pass(stepRules, specValid)
	if len(from.Warnings) > 0 {
		t.Steps[0] = Step{stepRules, StepWarning, strings.Join(from.Warnings, "; ")}
	}
	remote, err := o.Remote(ctx, from)
	if passing := unavailable(ctx, obj, err); passing != nil {
		return TestResults{}, passing
	}
	if err != nil {
		return t.refuse(err, stepCredentials, later[1:]...), nil
	}
	t.pass(stepCredentials, describeIdentity(from, remote.Creds))
	if from.Verify != "" {
		text, err := o.Signers(ctx, from)
		if passing := unavailable(ctx, obj, err); passing != nil {
			return TestResults{}, passing
		}
		if _, told := errors.AsType[*auth.SourceError](err); err != nil && !told {
			err = &auth.SourceError{Reason: auth.ReasonVerify, Field: auth.FieldSigners, Err: err}
		}
		if err != nil {
			return t.refuse(err, stepSigners, later[1:]...), nil
		}
		t.pass(stepSigners, text)
	}
	limit := probeTimeout
	if from.Timeout > 0 {
		limit = min(limit, from.Timeout)
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	sel := from.Selector
	if sel.Commit != "" { // one that is here already is nobody asked for, and that is what this is about
		sel = gitref.Branch(sel.Branch)
	}
	began := time.Now()
	ref, _, err := resolve(limited, o.Git, &remote, sel, func(ctx context.Context) (git.Remote, error) { return o.Remote(ctx, from) })
	if passing := unavailable(ctx, obj, nil); passing != nil {
		return TestResults{}, passing
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
	if commit := from.Selector.Commit; commit != "" && commit != ref.Hash {
		ref.Hash, note = commit, ", as it is asked for: whether the host has it is seen when it is fetched"
	}
	t.Revision = from.Revision(ref)
	return t.finish(healthResult{}, stepRevision, t.Revision+note), nil
}

// unavailable is the error of a test that can tell nothing, because its API is away or nobody
// waits for it any more; else nil.
func unavailable(ctx context.Context, obj *unstructured.Unstructured, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	} else if _, away := errors.AsType[*kube.UnavailableError](err); !away {
		return nil
	}
	return fmt.Errorf("test source %s: %w", obj.GetName(), err)
}

// refuse ends with the healthResult for an error: of the room that reads the object, of a host
// that makes tokens, or of package git.
func (t *TestResults) refuse(err error, step string, missed ...string) TestResults {
	at := fieldsOf{url: "spec.url", ref: "spec.ref", secret: auth.FieldSecret}
	var found healthResult
	told, read := errors.AsType[*auth.SourceError](err)
	minted, made := errors.AsType[*forge.Error](err)
	_, answered := errors.AsType[*git.Error](err)
	switch {
	case read:
		t.Reason = told.Reason
		found = blamed(http.StatusBadRequest, told.Field, told.Err)
		if told.Reason == auth.ReasonAuthentication {
			found.code = http.StatusUnauthorized
		}
	case made:
		if t.Reason = auth.ReasonAuthentication; minted.Kind == forge.Invalid {
			t.Reason, at.secret = auth.ReasonProvider, auth.FieldProvider
		}
		found = forgeResult(err, at.secret)
	case !answered:
		t.Reason, found = auth.ReasonAuthentication, blamed(http.StatusUnauthorized, at.secret, err)
	default:
		t.Reason, found = auth.ReasonOperation, at.result(err)
		if git.KindOf(err) == git.Empty {
			t.Reason = auth.ReasonEmpty
		}
	}
	if t.Reason != "" {
		found.errors[0].Detail += " (" + t.Reason + ")"
	}
	return t.finish(found, step, "", missed...)
}

// blamed is the healthResult for one member.
func blamed(code int, at string, err error) healthResult {
	return healthResult{code: code, errors: []api.FieldError{{Type: string(field.ErrorTypeInvalid), Field: at, Detail: at + ": " + text.Redact(err.Error())}}}
}

// describeIdentity says who asks the host, by whom that is made, where it was found, and by
// which way.
func describeIdentity(from source.Git, c *auth.Credentials) string {
	text := "provider " + from.Provider + ", " + describeCredentials(c)
	if way := c.GetProxy(); way != nil {
		text += ", by way of " + way.String()
		if way.Place != "" {
			text += " of " + way.Place
		}
	}
	return text
}
