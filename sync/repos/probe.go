package repos

import (
	"context"
	"errors"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/api/admission"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
)

// askTimeout bounds one question to a remote.
const askTimeout = 20 * time.Second

// probe asks the remote of a Repository, at most once: what a health check, an
// empty branch and the interval want to know is in one answer.
type probe struct {
	c      *Controller
	key    Key
	repo   api.Repository
	remote git.Remote
	access *access

	asked bool
	took  time.Duration
	// renewed says that the host did not take the token from memory, and that there
	// is another now.
	renewed bool
	ref     git.Ref
	err     error // *git.Error, nil when there was an answer
}

// prepare finds out how the remote is asked. An error is of the moment.
func (c *Controller) prepare(ctx context.Context, k Key, repo api.Repository) (*probe, error) {
	p := &probe{c: c, key: k, repo: repo, access: &access{}}
	if repo.Spec.Type == typeLocal {
		p.asked = true
		return p, nil
	}
	var err error
	p.remote, err = c.o.Remote(ctx, k.Namespace, k.Name, repo)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if _, told := errors.AsType[*git.Error](err); err != nil && !told {
		return nil, err
	}
	if err != nil {
		p.asked, p.err = true, err
	}
	return p, nil
}

// ask asks, if nobody has. It returns an error only when ctx ends.
func (p *probe) ask(ctx context.Context) error {
	if p.asked {
		return nil
	}
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	sel, err := p.selected()
	if err != nil {
		p.asked, p.err = true, &git.Error{Kind: git.Refused, Op: "resolve", Err: err}
		return nil
	}
	p.ref, p.renewed, p.err = resolve(limited, p.c.o.Git, &p.remote, sel, func(ctx context.Context) (git.Remote, error) {
		return p.c.o.Remote(ctx, p.key.Namespace, p.key.Name, p.repo)
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p.asked, p.took = true, time.Since(began)
	return nil
}

// resolve asks a remote what a selector stands for, and where it refuses a token from
// memory, which was revoked then, once more with what again finds. renewed says that it
// was another one; remote is then the one that was asked.
func resolve(ctx context.Context, from Prober, remote *git.Remote, sel gitref.Selector, again func(context.Context) (git.Remote, error)) (ref git.Ref, renewed bool, err error) {
	ref, err = from.Resolve(ctx, *remote, sel)
	if creds := remote.Creds; git.KindOf(err) == git.Auth && creds != nil && creds.Forget != nil {
		if other, none := again(ctx); none == nil {
			*remote, renewed = other, true
			ref, err = from.Resolve(ctx, other, sel)
		}
	}
	if err == nil && ref.Hash == "" {
		err = &git.Error{Kind: git.Unknown, Op: "resolve", Err: errors.New("the answer names no commit")}
	}
	return ref, renewed, err
}

// examine checks a Repository: first the rules, as for an object that replaces old,
// then the remote, then whether it may be written to. broken says that it breaks rules, and that nobody was asked. An
// error comes only when ctx ends.
func (p *probe) examine(ctx context.Context, obj, old *unstructured.Unstructured) (found finding, broken bool, err error) {
	if errs := admission.Check(obj, old); len(errs) > 0 {
		return structural(errs), true, nil
	}
	if err := p.ask(ctx); err != nil {
		return finding{}, false, err
	}
	if found = p.finding(); found.ok() {
		mirror := found.mirror
		found, err = p.mayWrite(ctx, obj)
		found.mirror = mirror
	}
	return found, false, err
}

// finding is what the answer says about health.
func (p *probe) finding() finding {
	if p.repo.Spec.Type == typeLocal {
		path := ""
		if b := p.repo.Spec.Block(); b != nil {
			path = b.Path
		}
		return localFinding(path, p.c.o.LocalPrefixes, isDirectory)
	}
	found := remoteFinding(p.repo, p.err)
	found.mirror = p.ref.Via.String()
	return found
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// defaultBranch is the branch that the remote has chosen for a spec that names
// none, "" where there is nothing to choose.
func (p *probe) defaultBranch() string {
	b := p.repo.Spec.Block()
	if b == nil || b.Branch != "" || p.repo.GitRef != "" || p.repo.Spec.Type == typeLocal || p.err != nil || p.mirrored() || p.ref.Branch() == p.ref.Name {
		return ""
	}
	return p.ref.Branch()
}
