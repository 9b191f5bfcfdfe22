package repos

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
	"limpet/sync/reconcile"
)

// probeTimeout bounds one request to a remote or to the API of its host.
const probeTimeout = 20 * time.Second

// probes are what is needed to ask remotes.
type probes struct {
	remotes Remotes
	git     Prober
	hosts   Hosts // nil = no host is asked for more than Git
}

// probe asks the remote of a Repository, at most once: what a health check, an empty
// branch and the interval want to know is in one answer.
type probe struct {
	probes probes
	key    reconcile.Key
	repo   api.Repository
	remote git.Remote
	access *access

	asked   bool
	took    time.Duration
	renewed bool // the host refused the token from memory, and there is another now
	ref     git.Ref
	err     error // *git.Error, nil when there was an answer
}

// open finds out how the remote is asked. An error is temporary.
func (o probes) open(ctx context.Context, k reconcile.Key, repo api.Repository) (*probe, error) {
	p := &probe{probes: o, key: k, repo: repo, access: &access{}}
	var err error
	p.remote, err = o.remotes(ctx, k.Namespace, k.Name, repo)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if _, permanent := errors.AsType[*git.Error](err); err != nil && !permanent {
		return nil, err
	}
	p.asked, p.err = err != nil, err
	return p, nil
}

// ask asks the remote unless that was done. It returns an error only when ctx ends.
func (p *probe) ask(ctx context.Context) error {
	if p.asked {
		return nil
	}
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	sel, err := p.selector()
	if err != nil {
		p.asked, p.err = true, &git.Error{Kind: git.Refused, Op: "resolve", Err: err}
		return nil
	}
	p.ref, p.renewed, p.err = reconcile.Resolve(limited, p.probes.git, &p.remote, sel, func(ctx context.Context) (git.Remote, error) {
		return p.probes.remotes(ctx, p.key.Namespace, p.key.Name, p.repo)
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p.asked, p.took = true, time.Since(began)
	return nil
}

func (p *probe) selector() (gitref.Selector, error) {
	return gitref.Of(p.repo.GitRef, p.repo.Spec.GitBlock().Branch)
}

// check checks a Repository that keeps the rules: first the remote, then whether it may
// be written to. An error comes only when ctx ends.
func (p *probe) check(ctx context.Context, obj *unstructured.Unstructured) (healthResult, error) {
	if err := p.ask(ctx); err != nil {
		return healthResult{}, err
	}
	result := p.health()
	if !result.ok() {
		return result, nil
	}
	writable, err := p.checkWritable(ctx, obj)
	writable.mirror = result.mirror
	return writable, err
}

func (p *probe) health() healthResult {
	result := remoteResult(p.repo, p.err)
	result.mirror = p.ref.Via.String()
	return result
}

// mirrored reports whether a mirror has answered in place of the host.
func (p *probe) mirrored() bool { return p.ref.Via.URL != "" }

// defaultBranch returns the branch that the remote has chosen for a spec that names none,
// "" where there is nothing to choose.
func (p *probe) defaultBranch() string {
	b := p.repo.Spec.Block()
	if b == nil || b.Branch != "" || p.repo.GitRef != "" || p.repo.Spec.Type == typeLocal || p.err != nil || p.mirrored() {
		return ""
	}
	if branch := p.ref.Branch(); branch != p.ref.Name {
		return branch
	}
	return ""
}
