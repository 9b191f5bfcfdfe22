package repos

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
	"limpet/sync/forge"
	"limpet/sync/git"
)

// A Repository with workflows is one that people write to, so a check of its
// health asks more than a look at the branch does: whether the remote takes a push
// from these credentials, and, on GitHub with the workflow "write", whether the
// branch is protected. Who looks because of an interval asks for neither: a
// Repository that nobody changes costs one more list of refs in five minutes.
//
// Only an answer makes a Repository ill. A host that does not say, or is away for
// this one question, leaves everything as it was told the last time.

// workflowWrite is the workflow that changes the branch itself.
const workflowWrite = "write"

// access is what is known of the ways to write under one generation of the spec.
type access struct {
	refused error // of the last push that was asked for and answered; nil = it is taken
	unsaid  error // why the last question had no answer; nil = it had one

	branch     string // of protection
	protection forge.Protection
	read       time.Time // of protection, by the local clock
}

// protectionFor is how long it holds that a branch is not protected, or that this
// may not be read: each question counts against the few thousand that a token has
// in an hour. A protection that is in the way is read at each check.
const protectionFor = time.Hour

// text says for people what is known where nothing is in the way.
func (a *access) text() string {
	if a.unsaid != nil {
		return "not known: " + gitText(a.unsaid)
	}
	return "a push is taken"
}

// writes says that people write to the Repository.
func (p *probe) writes() bool {
	return p.repo.Spec.Type != typeLocal && len(p.repo.Spec.Workflows) > 0
}

// mayWrite asks the remote, after it has answered well. An error comes only when
// ctx ends.
func (p *probe) mayWrite(ctx context.Context, obj *unstructured.Unstructured) (finding, error) {
	if !p.writes() {
		return finding{}, nil
	}
	err := p.askPush(ctx)
	switch {
	case ctx.Err() != nil:
		return finding{}, context.Cause(ctx)
	case git.KindOf(err) == git.ReadOnly:
		p.access.refused, p.access.unsaid = err, nil
	case err == nil:
		p.access.refused, p.access.unsaid = nil, nil
	default:
		p.access.unsaid = err
	}
	if p.access.refused != nil {
		return readOnlyFinding(p.access.refused), nil
	}
	return p.unprotected(ctx, obj)
}

func (p *probe) askPush(ctx context.Context) error {
	if p.mirrored() {
		return errAway
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return p.c.o.Git.Pushable(ctx, p.remote)
}

// unprotected reads the protection of the branch, where that decides.
func (p *probe) unprotected(ctx context.Context, obj *unstructured.Unstructured) (finding, error) {
	kind := p.repo.Spec.Type
	if p.c.o.Protection == nil || kind != string(forge.GitHub) && kind != string(forge.GitHubEnterprise) || !slices.Contains(p.repo.Spec.Workflows, workflowWrite) {
		return finding{}, nil
	}
	a, branch := p.access, p.ref.Branch()
	found := protectionFinding(branch, a.protection)
	if a.branch == branch && found.ok() && !a.read.IsZero() && time.Since(a.read) < protectionFor {
		return finding{}, nil
	}
	limited, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	protection, err := p.c.o.Protection(limited, obj, p.remote.Creds, branch)
	switch {
	case ctx.Err() != nil:
		return finding{}, context.Cause(ctx)
	case err != nil:
		protection = forge.ProtectionUnknown
	}
	a.branch, a.protection, a.read = branch, protection, time.Now()
	return protectionFinding(branch, protection), nil
}

// readOnlyFinding is the finding for a remote that takes no push.
func readOnlyFinding(err error) finding {
	fault := api.FieldError{Type: string(field.ErrorTypeInvalid), Field: "secure.token"}
	fault.Detail = fault.Field + ": " + gitText(err) + `, or empty spec.workflows to have it read only`
	return finding{code: http.StatusForbidden, errors: []api.FieldError{fault}}
}

// protectionFinding is the finding for a branch that the workflow "write" is to
// change.
func protectionFinding(branch string, p forge.Protection) finding {
	const at = "spec.workflows"
	why := ""
	switch p {
	case forge.ReviewsRequired:
		why = "takes changes by pull requests only"
	case forge.Locked:
		why = "is locked"
	default:
		return finding{}
	}
	text := fmt.Sprintf("%s: branch %q is protected and %s, so the workflow %q cannot change it: leave it out, or use another branch", at, branch, why, workflowWrite)
	return finding{code: http.StatusBadRequest, errors: []api.FieldError{{Type: string(field.ErrorTypeInvalid), Field: at, Detail: text}}}
}
