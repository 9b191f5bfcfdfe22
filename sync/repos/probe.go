package repos

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/forge"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
)

// probeTimeout bounds one request to a remote or to the API of its host.
const probeTimeout = 20 * time.Second

// probe asks the remote of a Repository, at most once: what a health check, an empty
// branch and the interval want to know is in one answer.
type probe struct {
	o      *Options
	key    Key
	repo   api.Repository
	remote git.Remote
	access *access

	asked   bool
	took    time.Duration
	renewed bool // the host refused the token from memory, and there is another now
	ref     git.Ref
	err     error // *git.Error, nil when there was an answer
}

// newProbe finds out how the remote is asked. An error is temporary.
func newProbe(ctx context.Context, o *Options, k Key, repo api.Repository) (*probe, error) {
	p := &probe{o: o, key: k, repo: repo, access: &access{}}
	if repo.Spec.Type == typeLocal {
		p.asked = true
		return p, nil
	}
	var err error
	p.remote, err = o.Remotes.Remote(ctx, k.Namespace, k.Name, repo)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if _, permanent := errors.AsType[*git.Error](err); err != nil && !permanent {
		return nil, err
	}
	if err != nil {
		p.asked, p.err = true, err
	}
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
	p.ref, p.renewed, p.err = resolve(limited, p.o.Git, &p.remote, sel, func(ctx context.Context) (git.Remote, error) {
		return p.o.Remotes.Remote(ctx, p.key.Namespace, p.key.Name, p.repo)
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p.asked, p.took = true, time.Since(began)
	return nil
}

// selector returns what the Repository selects.
func (p *probe) selector() (gitref.Selector, error) {
	branch := ""
	if b := p.repo.Spec.Block(); b != nil {
		branch = b.Branch
	}
	return gitref.Of(p.repo.GitRef, branch)
}

// resolve asks a remote what a selector stands for, and where it refuses a token from
// memory, which was revoked then, once more with what again finds. renewed reports that
// it was another one; remote is then the one that was asked.
func resolve(
	ctx context.Context, from Prober, remote *git.Remote, sel gitref.Selector, again func(context.Context) (git.Remote, error),
) (ref git.Ref, renewed bool, err error) {
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

// health returns what the answer says about health.
func (p *probe) health() healthResult {
	if p.repo.Spec.Type == typeLocal {
		return localResult()
	}
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

// A Repository with workflows is written to by people, so a check of its health asks two
// more things: whether the remote takes a push from these credentials, and, on GitHub with
// the workflow "write", whether the branch is protected. The request of the interval asks
// neither.
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

// protectionFor is how long it holds that a branch is not protected, or that this may not
// be read: each question counts against the few thousand that a token has in an hour. A
// protection that is in the way is read at each check.
const protectionFor = time.Hour

// errUnreachable is why a host is not asked for more.
var errUnreachable = errors.New("the host is unreachable, a mirror answers in its place")

// writes reports whether people write to the Repository.
func writes(repo api.Repository) bool {
	return repo.Spec.Type != typeLocal && len(repo.Spec.Workflows) > 0
}

// checkWritable asks the remote, after it has answered well. An error comes only when ctx
// ends.
func (p *probe) checkWritable(ctx context.Context, obj *unstructured.Unstructured) (healthResult, error) {
	if !writes(p.repo) {
		return healthResult{}, nil
	}
	err := p.askPush(ctx)
	switch {
	case ctx.Err() != nil:
		return healthResult{}, context.Cause(ctx)
	case git.KindOf(err) == git.ReadOnly:
		p.access.refused, p.access.unknown = err, nil
	case err == nil:
		p.access.refused, p.access.unknown = nil, nil
	default:
		p.access.unknown = err
	}
	if p.access.refused != nil {
		return readOnlyResult(p.access.refused), nil
	}
	return p.checkProtection(ctx, obj)
}

func (p *probe) askPush(ctx context.Context) error {
	if p.mirrored() {
		return errUnreachable
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return p.o.Git.Pushable(ctx, p.remote)
}

// checkProtection reads the protection of the branch, where that decides.
func (p *probe) checkProtection(ctx context.Context, obj *unstructured.Unstructured) (healthResult, error) {
	kind := forge.Kind(p.repo.Spec.Type)
	if p.o.Hosts == nil || kind != forge.GitHub && kind != forge.GitHubEnterprise || !slices.Contains(p.repo.Spec.Workflows, workflowWrite) {
		return healthResult{}, nil
	}
	a, branch := p.access, p.ref.Branch()
	known := a.branch == branch && !a.read.IsZero() && time.Since(a.read) < protectionFor
	if result := protectionResult(branch, a.protection); known && result.ok() {
		return result, nil
	}
	limited, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	protection := forge.ProtectionUnknown
	host, err := p.o.Hosts.Host(limited, obj, p.remote.Creds)
	if err == nil {
		protection, err = host.Protection(limited, branch)
	}
	switch {
	case ctx.Err() != nil:
		return healthResult{}, context.Cause(ctx)
	case err != nil:
		protection = forge.ProtectionUnknown
	}
	a.branch, a.protection, a.read = branch, protection, time.Now()
	return protectionResult(branch, protection), nil
}

// completeSpec fills into the spec what a person may leave out and the host knows: the
// branch, and on github.com the number of the repository, which stays when it is renamed.
// Only the branch is required.
func (c *Controller) completeSpec(ctx context.Context, a *attempt) error {
	block := "/spec/" + a.facts.repo.Spec.Type
	var ops []op
	if branch := a.probe.defaultBranch(); branch != "" {
		ops = append(ops, op{"add", block + "/branch", branch})
	}
	required, url := len(ops) > 0, ""
	if a.health.ok() {
		var id int64
		if id, url = c.identify(ctx, a); id != 0 {
			// The number is that of this URL and of no other.
			ops = append(ops, op{"test", block + "/url", url}, op{"add", block + "/repoID", id})
		}
	}
	if len(ops) == 0 {
		return nil
	}
	unchanged := !a.facts.specChanged()
	now, err := c.server.patch(ctx, a.key, false, append(guard(a.obj, "spec"), ops...))
	switch {
	case err != nil && (required || ctx.Err() != nil || errors.Is(err, errConflict)):
		c.o.Meter.Failed(phaseBranch, false)
		return err
	case err != nil:
		a.memory.specAfter = a.facts.now.Add(refusedCooldown)
		c.logOf(a).Debug("cannot write the number of the repository", "err", err)
		return nil
	}
	a.wrote(now)
	a.ownGeneration(now, unchanged)
	if url != "" {
		a.memory.identified = url
	}
	return nil
}

// ownGeneration notes a generation that a write of this controller has made, which needs
// no work if the one before did not.
func (a *attempt) ownGeneration(now *unstructured.Unstructured, done bool) {
	generation := now.GetGeneration()
	a.facts.generation, a.memory.generation = generation, generation
	if done {
		a.facts.ownGeneration, a.memory.ownVersion = generation, generation
	}
}

// identify asks the host for the number of the repository, once for each URL. 0 is for
// nothing to write.
func (c *Controller) identify(ctx context.Context, a *attempt) (id int64, url string) {
	block := a.facts.repo.Spec.Block()
	if c.o.Hosts == nil || block == nil || a.probe.mirrored() || a.facts.repo.Spec.Type != string(forge.GitHub) ||
		pauseLeft(a.memory.specAfter, a.facts.now) > 0 {
		return 0, ""
	}
	has, there, _ := unstructured.NestedFieldNoCopy(a.obj.Object, "spec", "github", "repoID")
	if there && has != nil && (a.memory.identified == "" || a.memory.identified == block.URL) {
		a.memory.identified = block.URL
		return 0, ""
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var facts forge.Facts
	host, err := c.o.Hosts.Host(ctx, a.obj, a.probe.remote.Creds)
	if err == nil {
		facts, err = host.Facts(ctx)
	}
	if err != nil || facts.ID == 0 {
		a.memory.specAfter = a.facts.now.Add(refusedCooldown)
		c.logOf(a).Debug("the host does not return the number of the repository", "err", err)
		return 0, ""
	}
	if has == facts.ID {
		a.memory.identified = block.URL
		return 0, ""
	}
	return facts.ID, block.URL
}
