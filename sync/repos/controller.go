// Package repos holds the controllers of Repositories and Connections: they check health, queue the
// pulls that are due, and write what they found into the status. A Repository is reconciled in the
// order of Grafana's repository controller, with one patch each time. Each step of that order is in
// the file of its name; those that decide (facts.go, healthresult.go, patch.go) are pure.
//
// # Promises
//
// A Repository that does not change costs one request to its remote per interval and one patch of
// its health every five minutes, and where it has workflows one more request with that. A patch is
// made for one version of the Repository and refused by any other. A pull that was wanted is queued
// once, also when the power goes between the patch and the job.
package repos

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
	"limpet/sync/kube"
	"limpet/sync/netx"
	"limpet/sync/reconcile"
	"limpet/sync/worker"
	"limpet/sync/worker/checkout"
)

// Kinds of the objects that have controllers here.
const (
	Repository = "Repository"
	Connection = "Connection"
)

// Remotes finds how the remote of a Repository is reached. What is wrong with the
// Repository is a *git.Error, any other error is temporary.
type Remotes func(ctx context.Context, namespace, name string, repo api.Repository) (git.Remote, error)

// Prober asks remotes; see git.Mirrors.
type Prober interface {
	Resolve(ctx context.Context, r git.Remote, sel gitref.Selector) (git.Ref, error)
	CheckFallbacks(ctx context.Context, r git.Remote, sel gitref.Selector) []git.FallbackResult
	Pushable(ctx context.Context, r git.Remote) error
	Fetch(ctx context.Context, r git.Remote, ref git.Ref) (git.Stats, error)
	Names(ctx context.Context, r git.Remote, commit, dir string) (git.Tree, error)
}

var _ Prober = (*git.Mirrors)(nil)

// Host is the REST API of a Git host for one repository. *forge.Remote is one.
type Host interface {
	Get(ctx context.Context, id string) (*forge.Hook, error)
	Find(ctx context.Context, url string) (*forge.Hook, error)
	Create(ctx context.Context, h forge.Hook) (forge.Hook, error)
	Edit(ctx context.Context, h forge.Hook) (forge.Hook, error)
	Delete(ctx context.Context, id string) error
	Events() []string
	Protection(ctx context.Context, branch string) (forge.Protection, error)
}

// Hosts opens the Host of a Repository. The error wraps forge.ErrNone where its host has no known
// API.
type Hosts func(ctx context.Context, repo *unstructured.Unstructured, creds *auth.Credentials) (Host, error)

// Forges returns the hosts that package forge knows.
func Forges(hosts *forge.Hosts) Hosts {
	return func(ctx context.Context, repo *unstructured.Unstructured, creds *auth.Credentials) (Host, error) {
		return hosts.Remote(ctx, forge.TargetOf(repo), creds)
	}
}

// Options of a Controller. Remotes, Git and Logger must be set.
type Options struct {
	Remotes Remotes
	Git     Prober
	Silent  func(host string) bool // reports whether a host did not answer last; nil = none
	Hosts   Hosts                  // nil = no host is asked for more than Git
	Store   *state.Store           // keeps secrets; nil = nothing is kept over a restart; must be set with Webhooks
	Trust   *checkout.Signers      // nil = signatures are not verified
	Tokens  *Tokens                // nil = none are minted
	// Webhooks has webhooks made. WebhookBase is the address at which hosts reach the
	// receiver of this agent, where a Repository does not name one; "" = nowhere.
	Webhooks    bool
	WebhookBase string
	Orphans     *worker.Orphans // of a deleted Repository; nil = its finalizers are left to others

	Quota       Quota
	Suspensions *Suspensions      // nil = none
	Selector    labels.Selector   // of Repositories; nil = all
	Uses        reconcile.UseFunc // nil = no call
	Since       time.Time         // what was pulled before may have been lost; zero = nothing was

	Resync  time.Duration         // longest pause after failures; 0 = 60 s
	Observe func(reconcile.Event) // must not block; nil = no call
	Meter   Meter                 // nil = none
	Logger  *slog.Logger
}

// lister is what a controller needs of an informer.
type lister interface {
	Get(namespace, name string) (*unstructured.Unstructured, bool)
	Lookup(namespace, name string) (kube.Object, bool)
	Objects() []kube.Object
	WaitSynced(ctx context.Context) error
}

// Controller reconciles the Repositories of an API. Make it with New before the informers run.
type Controller struct {
	*reconcile.Loop
	o     Options
	now   func() time.Time // of the server, as far as it is known
	repos lister
	facts *factSource
	steps []reconcile.Step[*attempt]
	next  func(a *attempt) reconcile.Result
	gone  func(ctx context.Context, k reconcile.Key, uid string) error // see suspender

	mu       sync.Mutex // guards memories; each belongs to the worker that has its key
	memories map[reconcile.Key]*memory
}

// memory is what a controller remembers of a Repository from one reconcile to the next. All of it
// may be lost.
type memory struct {
	uid        string
	decodedOf  *unstructured.Unstructured // what repo was decoded from
	repo       api.Repository
	generation int64
	started    int64     // of the pull in the status when this generation was seen first
	askedAt    time.Time // when the remote was asked last because of the interval
	missing    time.Time // since when the job of a pull under way is not to be seen
	pullOwed   bool      // see facts
	pulledFull bool      // everything was pulled since this process runs
	ownVersion int64     // see facts.ownGeneration
	deleteErr  string    // the version in which it was written why the deletion cannot end
	access     access    // of generation

	// When something that has failed is tried again; zero = it did not fail.
	webhookAfter, tokenAfter, sealAfter, holdAfter time.Time

	annotations *string // about revision and signatures that were dealt with last; nil = none yet
	verifiedFor *string // by which keys the pull that was queued last verifies; nil = none was

	// last is what the last patch has made, and replaced are the versions before it: the
	// watch may show them for a while.
	last     *unstructured.Unstructured
	replaced map[string]bool
}

// New makes a controller and registers its handlers with the informers, which must not run yet. It
// starts nothing.
func New(c *kube.Client, repos, jobs *kube.Informer, o Options) *Controller {
	k := newController(serverOf(c, api.Repositories), c.Now, repos, jobs, o)
	repos.AddHandler(kube.Handler{Add: k.added, Delete: k.added, Update: func(old, repo kube.Object) {
		if (old.Text(pathDeleted) == "") != (repo.Text(pathDeleted) == "") {
			k.added(repo)
			return
		}
		k.Wake(repo.Namespace(), repo.Name())
	}})
	// A Repository may wait for the end of a job.
	jobs.AddHandler(kube.Handler{Delete: func(job kube.Object) {
		if name := job.Text(pathRepositoryLabel); name != "" {
			if action := job.Text(pathAction); action == "push" || action == "migrate" { // it may have made the branch
				k.WantRecheck(reconcile.Key{Namespace: job.Namespace(), Name: name})
			}
			k.Wake(job.Namespace(), name)
		}
	}})
	return k
}

// newController makes the steps of a reconcile, each of what it needs.
func newController(s server, now func() time.Time, repos, jobs lister, o Options) *Controller {
	o.Resync = cmp.Or(o.Resync, time.Minute)
	if o.Observe == nil {
		o.Observe = func(reconcile.Event) {}
	}
	if o.Meter == nil {
		o.Meter = noMeter{}
	}
	c := &Controller{o: o, now: now, repos: repos, memories: map[reconcile.Key]*memory{}}
	c.Loop = reconcile.NewLoop(reconcile.Options{
		Kind: Repository, Reconcile: c.reconcile, Client: s.Client, MaxRetry: o.Resync,
		Hosts: netx.NewTurns(reconcile.Workers, reconcile.PerHost, o.Silent), Uses: o.Uses, Worked: o.Meter.Worked,
		Logger: o.Logger,
	})
	clock := func() time.Time { return c.now() }
	report, probes := reporter{o.Observe, o.Logger}, probes{o.Remotes, o.Git, o.Hosts}
	c.facts = &factSource{repos: repos, jobs: jobs, quota: o.Quota, since: o.Since, now: clock, interval: intervalOf}
	secrets := &secrets{report, o.Tokens, s, o.Meter, o.Resync}
	webhooks := &webhooks{report, o.Webhooks, o.WebhookBase, probes, o.Store, clock, secrets.handOver}
	observer := &observer{report, o.Meter, c.facts, webhooks, secrets, c.TakeRecheck}
	suspender := suspender{o.Suspensions, s}
	status := statusWriter{report, o.Meter, secrets.send}
	c.next, c.gone = observer.next, suspender.drop
	c.steps = []reconcile.Step[*attempt]{
		(&finalizer{report, s, jobs, o.Orphans, webhooks.clean, c.Next, clock}).finalize,
		suspender.suspend,
		observer.observe,
		validate,
		healthCheck{probes, s, o.Meter, c.Enter}.check,
		syncPlan{o.Trust, report}.plan,
		webhooks.register,
		secrets.mintToken,
		status.write,
		pullQueue{report, s, o.Meter}.queue,
	}
	return c
}

var (
	pathMaxRepositories = kube.PathTo("status", "quota", "maxRepositories")
	pathDeleted         = kube.PathTo("metadata", "deletionTimestamp")
	pathRepositoryLabel = kube.PathTo("metadata", "labels", api.LabelRepository)
)

// added takes in a Repository that was created or deleted. Where their number is limited
// that concerns all of the namespace.
func (c *Controller) added(repo kube.Object) {
	c.Wake(repo.Namespace(), repo.Name())
	if c.o.Quota.Repositories == 0 {
		return
	}
	for _, o := range c.repos.Objects() {
		if o.Namespace() == repo.Namespace() && (c.o.Quota.Repositories != Stated || o.Number(pathMaxRepositories) > 0) {
			c.Wake(o.Namespace(), o.Name())
		}
	}
}

// Run works until ctx ends, and returns when nothing of it runs any more. It may be run again: it
// begins with no memory of what came before, and what became due meanwhile is spread.
func (c *Controller) Run(ctx context.Context) error {
	if c.repos.WaitSynced(ctx) != nil || c.facts.jobs.WaitSynced(ctx) != nil {
		return nil
	}
	c.restart()
	return c.Work(ctx, func() []reconcile.Key {
		keys := keysOf(c.repos)()
		for _, k := range keys { // a flag may have been corrected
			if obj, ok := c.repos.Get(k.Namespace, k.Name); ok {
				list, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
				if _, ready := api.FindCondition(list, "Ready"); ready["reason"] == reasonInvalid {
					c.WantRecheck(k)
				}
			}
		}
		if c.o.Suspensions != nil { // some Repositories may be gone
			keys = append(keys, c.o.Suspensions.names()...)
		}
		return keys
	})
}

func keysOf(objects lister) func() []reconcile.Key {
	return func() (keys []reconcile.Key) {
		for _, o := range objects.Objects() {
			keys = append(keys, reconcile.Key{Namespace: o.Namespace(), Name: o.Name()})
		}
		return keys
	}
}

// restart forgets what is known of Repositories, as a new process does.
func (c *Controller) restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.facts.start, c.memories = reconcile.Start{At: c.now(), Count: len(c.repos.Objects())}, map[reconcile.Key]*memory{}
}

// memoryOf returns the memory of a Repository, a new one for a new Repository.
func (c *Controller) memoryOf(k reconcile.Key, uid string) *memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.memories[k]
	if m == nil || m.uid != uid {
		m = &memory{uid: uid, replaced: map[string]bool{}}
		c.memories[k] = m
	}
	return m
}

// decode returns the view of an object. Between two reconciles it seldom changes.
func (m *memory) decode(obj *unstructured.Unstructured) (api.Repository, error) {
	if m.decodedOf != obj {
		repo, err := api.RepositoryView(obj)
		if err != nil {
			return repo, err
		}
		m.decodedOf, m.repo = obj, repo
	}
	return m.repo, nil
}

// newest returns the Repository as it was seen last: what the watch shows, or what our own last
// patch has made of that.
func (m *memory) newest(seen *unstructured.Unstructured) *unstructured.Unstructured {
	if m.replaced[seen.GetResourceVersion()] {
		return m.last
	}
	m.last, m.replaced = nil, map[string]bool{}
	return seen
}

// wrote notes what a patch has made of the Repository.
func (a *attempt) wrote(now *unstructured.Unstructured) {
	a.memory.replaced[a.obj.GetResourceVersion()] = true
	a.memory.last, a.obj = now, now
}
