package repos

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
	"limpet/sync/forge"
	"limpet/sync/git"
)

// typeLocal is the type of a Repository that is a directory of its server.
const typeLocal = "local"

// healthResult is the result of a health check. Codes and reasons are those of Grafana's
// test results.
type healthResult struct {
	code   int // of HTTP; 0 = healthy
	errors []api.FieldError
	mirror string // the message about the mirror that has answered; "" = none has
}

func (f healthResult) ok() bool { return f.code == 0 }

func (f healthResult) messages() []string {
	var out []string
	if f.ok() && f.mirror != "" {
		out = append(out, f.mirror)
	}
	for _, e := range f.errors {
		out = append(out, e.Detail)
	}
	return out
}

// ready returns the condition Ready.
func (f healthResult) ready() api.Condition {
	if f.ok() {
		c := api.Condition{Type: "Ready", Status: "True", Reason: "Available", Message: "Resource is available"}
		if f.mirror != "" {
			c.Message += ": " + f.mirror
		}
		return c
	}
	c := api.Condition{Type: "Ready", Status: "False", Reason: "InvalidSpec", Message: "Resource is unavailable"}
	switch {
	case f.code == codeQuota:
		c.Reason = "QuotaExceeded"
	case f.code == http.StatusUnauthorized || f.code == http.StatusForbidden:
		c.Reason = "AuthenticationFailed"
	case f.code == http.StatusTooManyRequests:
		c.Reason = "RateLimited"
	case f.code >= http.StatusInternalServerError:
		c.Reason = "ServiceUnavailable"
	}
	if m := f.messages(); len(m) > 0 {
		c.Message = m[0]
	}
	return c
}

// permanent reports whether it takes a person to put it right.
func (f healthResult) permanent() bool {
	return f.code < http.StatusInternalServerError && f.code != http.StatusTooManyRequests
}

// codeQuota marks a Repository that is one too many; it is no code of HTTP.
const codeQuota = -1

func overQuotaResult(text string) healthResult {
	return healthResult{code: codeQuota, errors: []api.FieldError{{Type: string(field.ErrorTypeForbidden), Detail: text}}}
}

// invalidResult returns the result for a spec that breaks rules.
func invalidResult(errs field.ErrorList) healthResult {
	f := healthResult{code: http.StatusBadRequest}
	for _, e := range errs {
		fault := api.FieldError{Type: string(e.Type), Field: e.Field, Detail: e.Field + ": " + e.ErrorBody()}
		switch v := e.BadValue.(type) { // others have no form that a person wrote
		case string, bool, int64:
			fault.BadValue = v
		}
		f.errors = append(f.errors, fault)
	}
	return f
}

// remoteResult returns the result for a remote that was asked; err is of package git, nil
// when the answer was good.
func remoteResult(repo api.Repository, err error) healthResult {
	if err == nil {
		return healthResult{}
	}
	if _, minted := errors.AsType[*forge.Error](err); minted {
		if repo.Spec.Connection == nil {
			return forgeResult(err, "secure.token") // that of a provider of identities
		}
		return forgeResult(err, "spec.connection.name") // the token of its Connection
	}
	kind := repo.Spec.Type
	at := fieldsOf{url: "spec." + kind + ".url", ref: "spec." + kind + ".branch", secret: "secure.token"}
	if b := repo.Spec.Block(); b != nil {
		at.named = b.Branch
	}
	if repo.GitRef != "" {
		at.ref, at.named = "metadata.annotations["+api.AnnoGitRef+"]", repo.GitRef
	}
	return at.result(err)
}

// fieldsOf names the fields of an object that an answer of a remote is about.
type fieldsOf struct {
	url, ref, secret string
	named            string // what ref says; "" = nothing
}

// result returns the result for an error of package git.
func (at fieldsOf) result(err error) healthResult {
	text := gitText(err)
	fault := api.FieldError{Type: string(field.ErrorTypeInvalid), Field: at.url}
	code := http.StatusBadRequest
	switch git.KindOf(err) {
	case git.Auth:
		code, fault.Field = http.StatusUnauthorized, at.secret
	case git.NotFound:
		code, fault.Type = http.StatusNotFound, string(field.ErrorTypeNotFound)
	case git.BranchNotFound, git.CommitNotFound:
		fault.Type, fault.Field = string(field.ErrorTypeNotFound), at.ref
		if at.named != "" {
			fault.BadValue = at.named
		}
	case git.Empty:
		fault.Type, fault.Field = string(field.ErrorTypeNotFound), at.ref
		text = "repository has no branches: push a first commit to it"
	case git.Throttled:
		code, fault.Type = http.StatusTooManyRequests, string(field.ErrorTypeInternal)
	case git.Timeout: // its own text says how long it was waited, which is another each time
		code, fault.Type, text = http.StatusServiceUnavailable, string(field.ErrorTypeInternal), "no answer in time"
	case git.Refused, git.Protocol, git.TooLarge, git.PathNotFound:
	default: // it may be over by the next check
		code, fault.Type = http.StatusServiceUnavailable, string(field.ErrorTypeInternal)
	}
	fault.Detail = fmt.Sprintf("%s: %s", fault.Field, text)
	return healthResult{code: code, errors: []api.FieldError{fault}}
}

// gitText returns the text of an error of package git without the operation and the URL,
// which are known where it is shown.
func gitText(err error) string {
	e, ok := errors.AsType[*git.Error](err)
	switch {
	case !ok:
		return err.Error()
	case e.Hint != "":
		return e.Err.Error() + " (" + e.Hint + ")"
	}
	return e.Err.Error()
}

// forgeResult returns the result for a host that was asked about an identity. at is the
// field that it is about where the error names none.
func forgeResult(err error, at string) healthResult {
	if err == nil {
		return healthResult{}
	}
	f := healthResult{code: http.StatusBadRequest}
	kind := field.ErrorTypeInvalid
	switch forge.KindOf(err) {
	case forge.Unauthorized:
		f.code = http.StatusUnauthorized
	case forge.Forbidden:
		f.code = http.StatusForbidden
	case forge.NotFound:
		f.code = http.StatusNotFound
	case forge.RateLimited:
		f.code, kind = http.StatusTooManyRequests, field.ErrorTypeInternal
	case forge.Unavailable, forge.Protocol, forge.Cancelled, forge.Unknown:
		f.code, kind = http.StatusServiceUnavailable, field.ErrorTypeInternal
	}
	if errors.Is(err, forge.ErrNoSecret) {
		f.code = http.StatusUnauthorized
	}
	e, ok := errors.AsType[*forge.Error](err)
	if ok {
		for _, to := range e.Fields {
			f.errors = append(f.errors, api.FieldError{Type: to.Type, Field: to.Field, Detail: to.Field + ": " + to.Detail})
		}
	}
	if len(f.errors) == 0 {
		f.errors = []api.FieldError{{Type: string(kind), Field: at, Detail: at + ": " + err.Error()}}
	}
	return f
}

// localResult returns the result for a directory of this host. prefixes are the
// directories below which it may be; with none nothing may be read. Whether it can be
// written to is not tested.
func localResult(path string, prefixes []string, exists func(string) bool) healthResult {
	const at = "spec.local.path"
	fault := func(code int, kind field.ErrorType, text string) healthResult {
		return healthResult{code: code, errors: []api.FieldError{{Type: string(kind), Field: at, Detail: at + ": " + text, BadValue: path}}}
	}
	switch {
	case path == "":
		return fault(http.StatusBadRequest, field.ErrorTypeRequired, "the directory to read")
	case len(prefixes) == 0:
		return fault(http.StatusBadRequest, field.ErrorTypeForbidden,
			`this agent reads no local directories; give the repository type "git" with the URL of a repository`)
	}
	for _, prefix := range prefixes {
		rel, err := filepath.Rel(prefix, path)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		if exists(path) {
			return healthResult{}
		}
		return fault(http.StatusNotFound, field.ErrorTypeNotFound, "no such directory")
	}
	return fault(http.StatusBadRequest, field.ErrorTypeForbidden, "the directory is outside of those that may be read")
}

// wireErrors is status.fieldErrors.
func wireErrors(errs []api.FieldError) []any {
	out := make([]any, len(errs))
	for i, e := range errs {
		m := map[string]any{}
		for name, value := range map[string]string{"type": e.Type, "field": e.Field, "detail": e.Detail, "origin": e.Origin} {
			if value != "" {
				m[name] = value
			}
		}
		if e.BadValue != nil {
			m["badValue"] = e.BadValue
		}
		out[i] = m
	}
	return out
}

// readOnlyResult returns the result for a remote that takes no push.
func readOnlyResult(err error) healthResult {
	const at = "secure.token"
	return fieldResult(http.StatusForbidden, at, gitText(err)+`, or empty spec.workflows to have it read only`)
}

// protectionResult returns the result for a branch that the workflow "write" is to change.
func protectionResult(branch string, p forge.Protection) healthResult {
	why := ""
	switch p {
	case forge.ReviewsRequired:
		why = "takes changes by pull requests only"
	case forge.Locked:
		why = "is locked"
	default:
		return healthResult{}
	}
	return fieldResult(http.StatusBadRequest, "spec.workflows", fmt.Sprintf(
		"branch %q is protected and %s, so the workflow %q cannot change it: leave it out, or use another branch", branch, why, workflowWrite))
}

// fieldResult returns the result for one invalid field.
func fieldResult(code int, at, text string) healthResult {
	return healthResult{code: code, errors: []api.FieldError{{Type: string(field.ErrorTypeInvalid), Field: at, Detail: at + ": " + text}}}
}
