package repos

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/forge"
	"limpet/sync/git"
)

// A Repository with workflows is written to by people, so a check of its health asks two more
// things: whether the remote takes a push from these credentials, and, on GitHub with the workflow
// "write", whether the branch is protected. The request of the interval asks neither.
//
// Only an answer makes a Repository unhealthy. A host that does not answer, or is away for
// this one question, leaves everything as it was reported the last time.

// workflowWrite is the workflow that changes the branch itself.
const workflowWrite = "write"

// access is what is known of the ways to write under one generation of the spec.
type access struct {
	refused error // of the last push that was asked for and answered; nil = it is taken
	unknown error // why the last question had no answer; nil = it had one

	branch     string // of protection
	protection forge.Protection
	read       time.Time // of protection, by the local clock
}

// protectionFor is how long it holds that a branch is not protected, or that this may not be read:
// each question counts against the few thousand that a token has in an hour. A protection that is
// in the way is read at each check.
const protectionFor = time.Hour

// writes reports whether people write to the Repository.
func writes(repo api.Repository) bool {
	return len(repo.Spec.Workflows) > 0
}

// checkWritable asks the remote, after it has answered well. An error comes only when ctx ends.
func (p *probe) checkWritable(ctx context.Context, obj *unstructured.Unstructured) (healthResult, error) {
	if !writes(p.repo) {
		return healthResult{}, nil
	}
	err := errors.New("host unreachable; a mirror answers")
	if !p.mirrored() {
		limited, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		err = p.probes.git.Pushable(limited, p.remote)
	}
	if ctx.Err() != nil {
		return healthResult{}, context.Cause(ctx)
	}
	if p.access.unknown = err; err == nil || git.KindOf(err) == git.ReadOnly {
		p.access.refused, p.access.unknown = err, nil
	}
	if p.access.refused != nil {
		at := "secure.token"
		if p.repo.Spec.Type == typeLocal {
			at = localPath
		}
		return fieldResult(http.StatusForbidden, at, gitText(p.access.refused)+`, or empty spec.workflows to have it read only`), nil
	}
	return p.checkProtection(ctx, obj)
}

// checkProtection reads the protection of the branch, where that decides.
func (p *probe) checkProtection(ctx context.Context, obj *unstructured.Unstructured) (healthResult, error) {
	kind := forge.Kind(p.repo.Spec.Type)
	if p.probes.hosts == nil || kind != forge.GitHub && kind != forge.GitHubEnterprise || !slices.Contains(p.repo.Spec.Workflows, workflowWrite) {
		return healthResult{}, nil
	}
	a, branch := p.access, p.ref.Branch()
	known := a.branch == branch && !a.read.IsZero() && time.Since(a.read) < protectionFor
	if result := protectionResult(branch, a.protection); known && result.ok() {
		return result, nil
	}
	limited, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	a.branch, a.protection = branch, forge.ProtectionUnknown
	if host, err := p.probes.hosts(limited, obj, p.remote.Creds); err == nil {
		if protection, err := host.Protection(limited, branch); err == nil {
			a.protection = protection
		}
	}
	if ctx.Err() != nil {
		return healthResult{}, context.Cause(ctx)
	}
	a.read = time.Now()
	return protectionResult(branch, a.protection), nil
}
