// Package repos looks after Repositories: it checks their health, asks for the
// pulls that are due, and tells what it found in their status. It is Grafana's
// repository controller in the same order, with one patch each time.
//
// # How a Repository is looked into
//
//	controller.go  events of the watches put names into the queue
//	loop.go        workers take them, and set the time of the next look
//	timetable.go   names whose time has come without any event
//	spread.go      that a thousand of them do not come at once
//	lanes.go       that a host which does not answer holds up nobody else
//	facts.go       what is known, and which of it is a reason to go on (pure)
//	probe.go       the remote is asked, once
//	access.go      and whether it may be written to, when its health is checked
//	finding.go     what the answer says about health (pure)
//	mirror.go      that one of its mirrors answers in place of its host
//	health.go      when it is checked and noted (pure)
//	strategy.go    which pull is wanted (pure)
//	quota.go       limits of the namespace (pure)
//	patch.go       what is to be written, which is nothing when all is said (pure)
//	reconcile.go   the order of it all
//	ending.go      the end of one that is deleted: its jobs, its webhook, its objects
//	wire.go        patch and pull job, by the API
//	hook.go        the webhook, where the host takes one
//	hooked.go      where the repository was when that was made
//	hooktold.go    what is told of that
//	token.go       the token, where its Connection mints one
//	identity.go    the number by which the host knows it
//	hooksecret.go  what it is signed with, before and after the host has it
//	unreadable.go  what cannot be read is told once
//	suspend.go     that a person wants a Repository left alone
//	connection.go  the same for Connections
//	trial.go       the same look at one of them, step by step, for a person
//	verify.go      that what was pulled has to be verified anew
//	renewed.go     that what they use has changed
//
// # Promises
//
// A Repository that nobody changes costs one request to its remote per interval
// and nothing else but the note of its health every five minutes, and where it has
// workflows one more request with that. A patch is made
// for one version of the Repository and refused by any other. A pull that was
// wanted is queued once, also when the power goes between the note and the job.
package repos

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
	"limpet/sync/kube"
)

// Kinds that are looked after.
const (
	Repository = "Repository"
	Connection = "Connection"
)

// Key names a Repository.
type Key struct{ Namespace, Name string }

func (k Key) String() string { return k.Namespace + "/" + k.Name }

// Prober asks remotes. *git.Mirrors is one.
type Prober interface {
	// Resolve asks what is selected stands for now; see git.Mirrors.
	Resolve(ctx context.Context, r git.Remote, sel gitref.Selector) (git.Ref, error)
	// CheckFallbacks is Resolve at every fallback of the remote; see git.Mirrors.
	CheckFallbacks(ctx context.Context, r git.Remote, sel gitref.Selector) []git.FallbackResult
	// Pushable asks whether a push is taken; see git.Mirrors.
	Pushable(ctx context.Context, r git.Remote) error
}

var _ Prober = (*git.Mirrors)(nil)

// Options of a Controller. Remote, Git and Logger must be set.
type Options struct {
	// Remote says how the remote of a Repository is asked. What is wrong with the
	// Repository is a *git.Error, any other error is of the moment.
	Remote func(ctx context.Context, namespace, name string, repo api.Repository) (git.Remote, error)
	Git    Prober
	// Protection reads what keeps a branch at its host from being written to; nil =
	// that is not asked. An error says that it cannot be read.
	Protection func(ctx context.Context, repo *unstructured.Unstructured, creds *auth.Credentials, branch string) (forge.Protection, error)
	Trust      Trust // nil = nobody verifies
	// Signers says for a test what has to be signed and how the keys for it are, "" for
	// nothing; an error, that nothing can be pulled. Nil = it is not looked at.
	Signers func(ctx context.Context, namespace, name string, repo api.Repository) (string, error)
	// Signing says for a test what commits are signed with, "" for nothing. An error says
	// that nothing can be committed. May be nil.
	Signing func(ctx context.Context, namespace, name string, repo api.Repository) (string, error)
	Judged  FactStore // keeps what this controller has had judged; nil = memory
	Quota   Quota
	// LocalPrefixes are the directories below which Repositories of type local may be.
	LocalPrefixes []string
	// Suspensions are the Repositories to leave alone; nil = none.
	Suspensions *Suspensions
	// Leaver deals with what a Repository leaves behind, and Unhook with its webhook;
	// nil = that is left to others, with its finalizers.
	Leaver Leaver
	Unhook func(ctx context.Context, repo *unstructured.Unstructured) error
	Hooks  *Hooks  // nil = no webhooks are made
	Tokens *Tokens // nil = none are minted
	// Facts asks the host of a Repository what it knows of it; nil = nobody is asked.
	Facts func(ctx context.Context, repo *unstructured.Unstructured, creds *auth.Credentials) (forge.Facts, error)
	// Selector chooses the Repositories of this controller; nil = all.
	Selector labels.Selector
	Uses     Uses // nil = nobody wants to know
	// Since says that what was pulled before may have been lost; zero = nothing was.
	Since   time.Time
	Resync  time.Duration // the rest after something failed; 0 = 60 s
	Workers int           // Repositories that are looked into at once; 0 = 8
	Observe func(Event)   // quick, must not block; nil = nobody
	Meter   Meter         // nil = nobody counts
	Logger  *slog.Logger
}

// lister is what this room needs of an informer.
type lister interface {
	Get(namespace, name string) (*unstructured.Unstructured, bool)
	Lookup(namespace, name string) (kube.Object, bool)
	Objects() []kube.Object
	WaitSynced(ctx context.Context) error
}

var _ lister = (*kube.Informer)(nil)

// Controller looks after the Repositories of an API. Make it with New before the
// informers run.
type Controller struct {
	o      Options
	server server
	now    func() time.Time // of the server, as far as it is known
	repos  lister
	jobs   lister
	*loop

	interval func(api.Repository) time.Duration // intervalOf
	census   census

	mu    sync.Mutex // guards start, notes, and last and before of each; the rest belongs to the worker that has the key
	start start
	notes map[Key]*note
}

// note is what a controller remembers of a Repository from one look to the next.
// All of it may be lost.
type note struct {
	uid        string
	of         *unstructured.Unstructured // what repo was made of
	repo       api.Repository
	generation int64
	started    int64             // of the pull in the status when this generation was seen first
	asked      time.Time         // when the remote was asked last because of the interval
	missing    time.Time         // since when the job of a pull under way is not to be seen
	owed       bool              // see facts
	whole      bool              // it was pulled whole since this process runs
	hookOwed   bool              // the spec has changed, and the webhook was not looked at since
	hooked     string            // see hooked.go; "" = not read, or nothing is kept
	heldUp     string            // the version in which it was noted why its deletion cannot end
	hookAfter  time.Time         // when the webhook is tried again; zero = nothing was in its way
	tokenAfter time.Time         // the same for the token of its Connection
	sealAfter  time.Time         // and for secure values, which the API did not take
	factsAfter time.Time         // and for what its host knows of it
	settled    int64             // see facts
	given      [sha256.Size]byte // of the token that was told last; zero = not by this process
	access     access            // of generation
	asks       *string           // annotations of revision and signatures that were last dealt with; nil = none yet
	judged     *judged           // nil = not read
	ref        git.Ref           // what it stood for then
	identified string            // the URL whose repository the spec names by its number

	// last is what the last patch has made, and before are the versions that it
	// replaced: the watch may show them for a while.
	last   *unstructured.Unstructured
	before map[string]bool
}

// New makes a controller and registers its handlers with the informers, which
// must not run yet. It starts nothing.
func New(c *kube.Client, repos, jobs *kube.Informer, o Options) *Controller {
	k := newController(wire{c, "repositories"}, serverTime(c), repos, jobs, o)
	k.await = c.WaitAvailable
	repos.AddHandler(kube.Handler{Add: k.came, Delete: k.came, Update: func(old, repo kube.Object) {
		if (old.Text(pathDeleted) == "") != (repo.Text(pathDeleted) == "") {
			k.came(repo)
			return
		}
		k.Wake(repo.Namespace(), repo.Name())
	}})
	// The end of a job may be what a Repository waits for.
	jobs.AddHandler(kube.Handler{Delete: func(job kube.Object) {
		if name := job.Text(pathRepositoryLabel); name != "" {
			k.Wake(job.Namespace(), name)
		}
	}})
	return k
}

// serverTime is the time of the server, as far as it is known.
func serverTime(c *kube.Client) func() time.Time {
	return func() time.Time {
		if t, _, ok := c.Clock().Now(); ok {
			return t
		}
		return time.Now()
	}
}

func newController(s server, now func() time.Time, repos, jobs lister, o Options) *Controller {
	if o.Resync <= 0 {
		o.Resync = time.Minute
	}
	if o.Workers <= 0 {
		o.Workers = 8
	}
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	if o.Meter == nil {
		o.Meter = nobody{}
	}
	c := &Controller{o: o, server: s, now: now, repos: repos, jobs: jobs, interval: intervalOf, notes: map[Key]*note{}}
	c.loop = newLoop("repository", o.Uses, c.reconcile, o.Resync, o.Meter.Worked, o.Logger)
	c.say = c.tell
	return c
}

var (
	pathMostRepositories = kube.PathTo("status", "quota", "maxRepositories")
	pathDeleted          = kube.PathTo("metadata", "deletionTimestamp")
	pathRepositoryLabel  = kube.PathTo("metadata", "labels", api.LabelRepository)
)

// came takes in a Repository that has come or goes. Where their number is limited
// that is news for all of the namespace.
func (c *Controller) came(repo kube.Object) {
	c.census.came()
	c.Wake(repo.Namespace(), repo.Name())
	if c.o.Quota.Repositories == 0 {
		return
	}
	for _, s := range c.repos.Objects() {
		if s.Namespace() == repo.Namespace() && (c.o.Quota.Repositories != Stated || s.Number(pathMostRepositories) > 0) {
			c.Wake(s.Namespace(), s.Name())
		}
	}
}

// Wake has a Repository looked into now, because something that it depends on has
// changed. It never blocks.
func (c *Controller) Wake(namespace, name string) { c.add(Key{namespace, name}) }

// Next is when a Repository is looked into without any event; zero = not known.
func (c *Controller) Next(namespace, name string) time.Time {
	return c.times.next(Key{namespace, name})
}

// Run works until ctx ends, and returns when nothing of it runs any more. It may be
// run again: it begins with no memory of what came before, and what became due meanwhile
// is spread.
func (c *Controller) Run(ctx context.Context) error {
	if c.repos.WaitSynced(ctx) != nil || c.jobs.WaitSynced(ctx) != nil {
		return nil
	}
	c.restart()
	return c.run(ctx, c.o.Workers, func() []Key {
		keys := keysOf(c.repos)
		if c.o.Suspensions != nil { // some Repositories may have gone meanwhile
			keys = append(keys, c.o.Suspensions.names()...)
		}
		return keys
	})
}

// restart forgets what is known of Repositories, as a new process does.
func (c *Controller) restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start, c.notes = start{c.now(), len(c.repos.Objects())}, map[Key]*note{}
}

func keysOf(objects lister) []Key {
	var keys []Key
	for _, s := range objects.Objects() {
		keys = append(keys, Key{s.Namespace(), s.Name()})
	}
	return keys
}

// began is when that was.
func (c *Controller) began() start {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.start
}

// noteOf is the note on a Repository, a new one for a new Repository.
func (c *Controller) noteOf(k Key, uid string) *note {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.notes[k]
	if n == nil || n.uid != uid {
		n = &note{uid: uid}
		c.notes[k] = n
	}
	return n
}

// read is what an object says. Between two looks it seldom changes.
func (n *note) read(obj *unstructured.Unstructured) (api.Repository, error) {
	if n.of != obj {
		repo, err := api.RepositoryView(obj)
		if err != nil {
			return repo, err
		}
		n.of, n.repo = obj, repo
	}
	return n.repo, nil
}

// forget drops what is known of a Repository that is gone.
func (c *Controller) forget(k Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.notes, k)
}
