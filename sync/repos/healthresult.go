package repos

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
	"limpet/sync/forge"
	"limpet/sync/git"
	"limpet/sync/netx"
)

// typeLocal is the type of a Repository that is a directory of plain files on this host, and
// localPath its field.
const (
	typeLocal = "local"
	localPath = "spec.local.path"
)

// healthResult is the result of a health check. Codes and reasons are those of Grafana's test
// results.
type healthResult struct {
	code   int // of HTTP; 0 = healthy
	errors []api.FieldError
	mirror string // the message about the mirror that has answered; "" = none has
}

// reasonInvalid is the reason of a spec that cannot work.
const reasonInvalid = "InvalidSpec"

func (f healthResult) ok() bool { return f.code == 0 }

// Error implements error, for a result that is not ok.
func (f healthResult) Error() string { return f.ready().Message }

// failed returns the result as an error, nil when it is ok.
func (f healthResult) failed() error {
	if f.ok() {
		return nil
	}
	return f
}

func (f healthResult) messages() []string {
	if f.ok() && f.mirror != "" {
		return []string{f.mirror}
	}
	var out []string
	for _, e := range f.errors {
		out = append(out, e.Detail)
	}
	return out
}

func (f healthResult) ready() api.Condition {
	if f.ok() {
		return api.Condition{Type: "Ready", Status: "True", Reason: "Available", Message: withNote("Resource is available", ": ", f.mirror)}
	}
	reason := map[int]string{codeQuota: "QuotaExceeded", http.StatusUnauthorized: "AuthenticationFailed",
		http.StatusForbidden: "AuthenticationFailed", http.StatusTooManyRequests: "RateLimited"}[f.code]
	if f.code >= http.StatusInternalServerError {
		reason = "ServiceUnavailable"
	}
	return api.Condition{Type: "Ready", Status: "False", Reason: cmp.Or(reason, reasonInvalid), Message: f.messages()[0]}
}

// permanent reports whether it takes a person to put it right.
func (f healthResult) permanent() bool {
	return f.code < http.StatusInternalServerError && f.code != http.StatusTooManyRequests
}

// codeQuota marks a Repository that is one too many; it is no code of HTTP.
const codeQuota = -1

// invalidResult returns the result for a spec that breaks these rules.
func invalidResult(errs field.ErrorList) (f healthResult) {
	for _, e := range errs {
		f.code = http.StatusBadRequest
		fault := api.FieldError{Type: string(e.Type), Field: e.Field, Detail: e.Field + ": " + e.ErrorBody()}
		switch e.BadValue.(type) { // others have no form that a person wrote
		case string, bool, int64:
			fault.BadValue = e.BadValue
		}
		f.errors = append(f.errors, fault)
	}
	return f
}

// remoteResult returns the result for a remote that was asked; err is of package git, nil when the
// answer was good.
func remoteResult(repo api.Repository, err error) healthResult {
	if err == nil {
		return healthResult{}
	}
	if _, minted := errors.AsType[*netx.Error](err); minted {
		if repo.Spec.Connection == nil {
			return forgeResult(err, "secure.token") // that of a provider of identities
		}
		return forgeResult(err, "spec.connection.name") // the token of its Connection
	}
	kind := repo.Spec.Type
	at := fieldsOf{url: "spec." + kind + ".url", ref: "spec." + kind + ".branch", secret: "secure.token",
		named: repo.Spec.GitBlock().Branch}
	if kind == typeLocal {
		at = fieldsOf{url: localPath, ref: localPath, secret: localPath}
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

// gitCodes are the codes of the errors of package git. Others may be over by the next check: 503.
var gitCodes = map[git.Kind]int{
	git.Auth:           http.StatusUnauthorized,
	git.NotFound:       http.StatusNotFound,
	git.BranchNotFound: http.StatusBadRequest,
	git.CommitNotFound: http.StatusBadRequest,
	git.Empty:          http.StatusBadRequest,
	git.Refused:        http.StatusBadRequest,
	git.Protocol:       http.StatusBadRequest,
	git.TooLarge:       http.StatusBadRequest,
	git.PathNotFound:   http.StatusBadRequest,
	git.Throttled:      http.StatusTooManyRequests,
}

// result returns the result for an error of package git.
func (at fieldsOf) result(err error) healthResult {
	kind, text := git.KindOf(err), gitText(err)
	code := cmp.Or(gitCodes[kind], http.StatusServiceUnavailable)
	f := fieldResult(code, at.url, text)
	fault := &f.errors[0]
	switch kind {
	case git.Auth:
		fault.Field = at.secret
	case git.NotFound:
		fault.Type = string(field.ErrorTypeNotFound)
	case git.BranchNotFound, git.CommitNotFound, git.Empty:
		fault.Type, fault.Field = string(field.ErrorTypeNotFound), at.ref
		if kind == git.Empty {
			text = "repository has no branches: push a first commit to it"
		} else if at.named != "" {
			fault.BadValue = at.named
		}
	case git.Timeout: // its own text says how long it was waited, which is another each time
		text = "no answer in time"
	}
	if !f.permanent() {
		fault.Type = string(field.ErrorTypeInternal)
	}
	fault.Detail = fault.Field + ": " + text
	return f
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

// forgeCodes are the codes of the errors of package forge. Others are about the object.
var forgeCodes = map[netx.ErrorKind]int{
	netx.Unauthorized: http.StatusUnauthorized,
	netx.Forbidden:    http.StatusForbidden,
	netx.NotFound:     http.StatusNotFound,
	netx.RateLimited:  http.StatusTooManyRequests,
	netx.Unavailable:  http.StatusServiceUnavailable,
	netx.Protocol:     http.StatusServiceUnavailable,
	netx.Cancelled:    http.StatusServiceUnavailable,
	netx.Unknown:      http.StatusServiceUnavailable,
}

// forgeResult returns the result for a host that was asked about an identity. at is the
// field that it is about where the error names none.
func forgeResult(err error, at string) healthResult {
	if err == nil {
		return healthResult{}
	}
	f := fieldResult(cmp.Or(forgeCodes[netx.KindOf(err)], http.StatusBadRequest), at, err.Error())
	if errors.Is(err, forge.ErrNoSecret) {
		f.code = http.StatusUnauthorized
	} else if !f.permanent() {
		f.errors[0].Type = string(field.ErrorTypeInternal)
	}
	if e, ok := errors.AsType[*netx.Error](err); ok && len(e.Fields) > 0 {
		f.errors = nil
		for _, to := range e.Fields {
			f.errors = append(f.errors, api.FieldError{Type: to.Type, Field: to.Field, Detail: to.Field + ": " + to.Detail})
		}
	}
	return f
}

// protectionResult returns the result for a branch that the workflow "write" is to change.
func protectionResult(branch string, p forge.Protection) healthResult {
	why := map[forge.Protection]string{forge.ReviewsRequired: "takes changes by pull requests only", forge.Locked: "is locked"}[p]
	if why == "" {
		return healthResult{}
	}
	return fieldResult(http.StatusBadRequest, "spec.workflows", fmt.Sprintf(
		"branch %q is protected and %s, so the workflow %q cannot change it: leave it out, or use another branch", branch, why, workflowWrite))
}

// fieldResult returns the result for one invalid field.
func fieldResult(code int, at, text string) healthResult {
	return healthResult{code: code, errors: []api.FieldError{{Type: string(field.ErrorTypeInvalid), Field: at, Detail: at + ": " + text}}}
}
