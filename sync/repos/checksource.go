package repos

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
	"limpet/sync/kube"
	"limpet/sync/netx"
	"limpet/sync/reconcile"
	"limpet/sync/source"
	"limpet/sync/text"
)

// testSource checks a GitRepository of Flux: its spec, whether its host accepts the credentials,
// and which revision it stands for. It blocks for one ls-remote and the requests for a token.
func (t *Tester) testSource(ctx context.Context, u *unstructured.Unstructured, credentials auth.Source) (TestResults, error) {
	from, invalid := source.ReadGit(u)
	remote := func(ctx context.Context) (git.Remote, error) {
		return from.Remote(ctx, credentials, t.Insecure)
	}
	var p probe
	var reason, revision string
	fail := func(err error) (failed error) {
		if _, away := errors.AsType[*kube.UnavailableError](err); away {
			return err
		}
		failed, reason = sourceResult(err)
		return failed
	}
	results, err := runChecks(ctx,
		check{stepRules, false, func() (string, error) {
			if invalid != nil {
				return "", fail(invalid)
			}
			return cmp.Or(strings.Join(from.Warnings, "; "), specValid), nil
		}},
		check{stepCredentials, false, func() (detail string, err error) {
			if p.remote, err = remote(ctx); err != nil {
				return "", fail(err)
			}
			return describeIdentity(from.Provider, p.remote.Creds), nil
		}},
		check{stepSigners, true, func() (string, error) {
			if from.Verify == "" {
				return "", nil
			}
			detail, err := t.describeSigners(ctx, from)
			_, away := errors.AsType[*kube.UnavailableError](err)
			if _, is := errors.AsType[*auth.SourceError](err); err != nil && !is && !away {
				err = &auth.SourceError{Reason: auth.ReasonVerify, Field: auth.FieldSigners, Err: err}
			}
			if err != nil {
				return "", fail(err)
			}
			return detail, nil
		}},
		check{stepRemote, false, func() (string, error) {
			limited, cancel := context.WithTimeout(ctx, min(probeTimeout, cmp.Or(from.Timeout, probeTimeout)))
			defer cancel()
			sel := from.Selector
			if sel.Commit != "" { // for a stored commit no host is asked, and this is a test of the host
				sel = gitref.Branch(sel.Branch)
			}
			began := time.Now()
			p.ref, _, p.err = reconcile.Resolve(limited, t.Git, &p.remote, sel, remote)
			p.took = time.Since(began)
			if !answered(p.err) {
				return "", fail(p.err)
			}
			return p.describeAnswer(), nil
		}},
		check{stepRevision, false, func() (string, error) {
			if p.err != nil {
				return "", fail(p.err)
			}
			note := ""
			if commit := from.Selector.Commit; commit != "" && commit != p.ref.Hash {
				p.ref.Hash, note = commit, ", from the spec: checked when it is fetched"
			}
			revision = from.Revision(p.ref)
			return revision + note, nil
		}})
	if err != nil {
		return results, err
	}
	results.Reason, results.Revision = reason, revision
	if len(from.Warnings) > 0 && results.Steps[0].Result == StepOK {
		results.Steps[0].Result = StepWarning
	}
	return results, nil
}

// describeSigners returns the keys of those who may sign, for people.
func (t *Tester) describeSigners(ctx context.Context, from source.Git) (string, error) {
	found, err := from.NamedSigners(ctx, t.Places)
	if err != nil {
		return "", err
	}
	look, err := t.Signers.LookAtKeys(from.Verify, "spec.verify", found, t.Now())
	return withNote(look.Text, "; to be replaced: ", look.Soon), err
}

// sourceResult returns the result and Flux's reason for an error of reading the object, of
// a host that makes tokens, or of package git.
func sourceResult(err error) (result healthResult, reason string) {
	at := fieldsOf{url: "spec.url", ref: "spec.ref", secret: auth.FieldSecret}
	invalid, isInvalid := errors.AsType[*auth.SourceError](err)
	_, isForge := errors.AsType[*netx.Error](err)
	_, isGit := errors.AsType[*git.Error](err)
	switch reason = source.Reason(err); {
	case isInvalid:
		result = fieldResult(http.StatusBadRequest, invalid.Field, text.Redact(invalid.Err.Error()))
		if reason == auth.ReasonAuthentication {
			result.code = http.StatusUnauthorized
		}
	case isForge && reason == auth.ReasonProvider:
		result = forgeResult(err, auth.FieldProvider)
	case isForge:
		result = forgeResult(err, at.secret)
	case !isGit:
		result = fieldResult(http.StatusUnauthorized, at.secret, text.Redact(err.Error()))
	default:
		result = at.result(err)
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
		out += ", by way of " + withNote(proxy.String(), " of ", proxy.Place)
	}
	return out
}

// describeAnswer returns how the remote has answered, for people.
func (p *probe) describeAnswer() string {
	if p.ref.Stored {
		return "not asked: the commit is stored and does not change"
	}
	txt := answeredIn(p.took)
	if p.mirrored() {
		txt += ", " + p.ref.Via.String()
	}
	return txt
}

func answeredIn(took time.Duration) string { return "answered in " + text.Took(took) }

// Look asks what the newest revision of a source is, and fetches nothing. A failure has the reason of
// Flux; an error without one means that nothing can be said.
type Look func(ctx context.Context, u *unstructured.Unstructured) (revision, reason string, err error)

// testLook tests a source that has its address in spec.url.
func (t *Tester) testLook(ctx context.Context, u *unstructured.Unstructured) (TestResults, error) {
	var revision, reason string
	failed := func(field string, err error) error {
		return fieldResult(http.StatusUnprocessableEntity, field, err.Error()).failed()
	}
	results, err := runChecks(ctx, checkRules(u, nil),
		check{stepCredentials, true, func() (string, error) {
			name, _, _ := unstructured.NestedString(u.Object, "spec", "secretRef", "name")
			if name == "" {
				return "", nil
			}
			elsewhere, err := t.elsewhere(ctx, u, auth.Lookup{Secure: map[string]string{"token": name}})
			if elsewhere {
				err = failed("spec.secretRef", errAnotherURL)
			}
			return "secret " + u.GetNamespace() + "/" + name, err
		}},
		check{stepRevision, false, func() (_ string, err error) {
			if revision, reason, err = t.Look(ctx, u); reason != "" {
				err = failed("spec", err)
			}
			return revision, err
		}})
	results.Reason, results.Revision = reason, revision
	return results, err
}
