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

// finding is what a check of a Repository has shown. Codes and reasons are those
// of Grafana's test results.
type finding struct {
	code   int // of HTTP; 0 = all is well
	errors []api.FieldError
	mirror string // what is told of the mirror that has answered; "" = none has
}

func (f finding) ok() bool { return f.code == 0 }

func (f finding) messages() []string {
	var out []string
	if f.ok() && f.mirror != "" {
		out = append(out, f.mirror)
	}
	for _, e := range f.errors {
		out = append(out, e.Detail)
	}
	return out
}

// ready is the condition that tells the finding.
func (f finding) ready() api.Condition {
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

// lasts says that it takes a person to put it right.
func (f finding) lasts() bool {
	return f.code < http.StatusInternalServerError && f.code != http.StatusTooManyRequests
}

// codeQuota marks a Repository that is one too many; it is no code of HTTP.
const codeQuota = -1

func overQuotaFinding(text string) finding {
	return finding{code: codeQuota, errors: []api.FieldError{{Type: string(field.ErrorTypeForbidden), Detail: text}}}
}

// structural is the finding for a spec that breaks rules.
func structural(errs field.ErrorList) finding {
	f := finding{code: http.StatusBadRequest}
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

// remoteFinding is the finding for a remote that was asked; err is of package git,
// nil when the answer was good.
func remoteFinding(repo api.Repository, err error) finding {
	if err == nil {
		return finding{}
	}
	if _, minted := errors.AsType[*forge.Error](err); minted {
		if repo.Spec.Connection == nil {
			return forgeFinding(err, "secure.token") // that of a provider of identities
		}
		return forgeFinding(err, "spec.connection.name") // the token of its Connection
	}
	kind := repo.Spec.Type
	at := members{url: "spec." + kind + ".url", ref: "spec." + kind + ".branch", secret: "secure.token"}
	if b := repo.Spec.Block(); b != nil {
		at.named = b.Branch
	}
	if repo.GitRef != "" {
		at.ref, at.named = "metadata.annotations["+api.AnnoGitRef+"]", repo.GitRef
	}
	return at.finding(err)
}

// members are those of an object to blame for what a remote answers.
type members struct {
	url, ref, secret string
	named            string // what ref says; "" = nothing
}

// finding is the one for an error of package git.
func (at members) finding(err error) finding {
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
	return finding{code: code, errors: []api.FieldError{fault}}
}

// gitText is an error of package git without what everybody knows who sees the
// Repository.
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

// forgeFinding is the finding for a host that was asked about an identity. at is
// the member to blame where the error names none.
func forgeFinding(err error, at string) finding {
	if err == nil {
		return finding{}
	}
	f := finding{code: http.StatusBadRequest}
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

// localFinding is the finding for a directory of this host. prefixes are the
// directories below which it may be; with none nothing may be read. Whether it
// can be written to is not tested.
func localFinding(path string, prefixes []string, exists func(string) bool) finding {
	const at = "spec.local.path"
	fault := func(code int, kind field.ErrorType, text string) finding {
		return finding{code: code, errors: []api.FieldError{{Type: string(kind), Field: at, Detail: at + ": " + text, BadValue: path}}}
	}
	switch {
	case path == "":
		return fault(http.StatusBadRequest, field.ErrorTypeRequired, "the directory to read")
	case len(prefixes) == 0:
		return fault(http.StatusBadRequest, field.ErrorTypeForbidden, `this agent reads no local directories; give the repository type "git" with the URL of a repository`)
	}
	for _, prefix := range prefixes {
		rel, err := filepath.Rel(prefix, path)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		if exists(path) {
			return finding{}
		}
		return fault(http.StatusNotFound, field.ErrorTypeNotFound, "there is no such directory")
	}
	return fault(http.StatusBadRequest, field.ErrorTypeForbidden, "it is outside of the directories that may be read")
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
