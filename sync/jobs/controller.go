// Package jobs is the controller of provisioning jobs as one agent runs it: it claims Jobs of the
// API under a lease, lets a Worker do them, keeps their progress and their history, and settles
// claims that others have left.
//
// # How a job travels
//
//	handlers.go   the watch and the periodic scan (scanner.go) put keys into the queue
//	workqueue.go  the queue of one agent; its order and its laws are package queue
//	driver.go     a driver takes a key, reads the job, claims and runs it
//	admission.go  whether this agent is to run it
//	claimer.go    the delay for agents that come first (queue.ClaimDelay); intent in the
//	              state file, labels written, claim in the state file
//	exclusion.go  an agent that finds another one at work on the repository yields
//	heldjob.go    a job under our claim, written in turns (jobwriter.go) and renewed (renewal.go)
//	runner.go     the Worker is called and waited for
//	progress.go   what the worker reports (results.go), written at most so often
//	finisher.go   record, HistoricJob (archiver.go), DELETE, end of the claim; or it lets go
//
// Beside the way: recoverer.go settles claims of a process that stopped (claims.go), rescuer.go
// expired claims of others, pruner.go deletes old history. Events are one stream (events.go); what
// there is at a moment is in Snapshot.
//
// # Promises
//
// Delivery is at least once: after a crash a job goes on from its last mark, or begins anew on
// another agent. A result is in the state file before it is sent to the API, and it is sent once.
// After the loss of a lease nothing is written about the job. A lease does not fence: what a worker
// writes has to be harmless when written twice.
package jobs

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/jobs/lease"
	"limpet/sync/jobs/queue"
	"limpet/sync/kube"
	"limpet/sync/netx"
)

// Controller runs the parts. Make it with New before the informers run.
type Controller struct {
	env       *env
	await     func(context.Context) error // blocks while the API is known to be unreachable; an error when ctx ends first
	jobs      lister
	queue     *workQueue
	admission *admission
	exclusion *exclusion
	delay     *queue.ClaimDelay
	finisher  *finisher
	recoverer *recoverer
	driver    *driver
	scanner   *scanner
	rescuer   *rescuer
	pruner    *pruner
	drain     *drain
	recovered atomic.Bool // the claims of the last process have been loaded
}

// New makes a controller. It registers its handlers with the informers, which must not run yet, and
// starts nothing. Both informers are run by the caller and may be shared. It returns an error when
// o is not safe.
func New(c *kube.Client, jobs, repos *kube.Informer, store *state.Store, workers []Worker, o Options) (*Controller, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	// Two hosts may have one name: copied images do, and agents side by side.
	o.self = rand.Text()[:12]
	o = o.withDefaults()
	timeout := o.terms().CallTimeout()
	k := newController(&env{
		o:        o,
		server:   apiServer{client: c, timeout: timeout},
		renewals: apiServer{client: c.Lease(), timeout: timeout},
		store:    store,
		clock:    clock{server: c.Clock(), host: realHost{}, maxError: o.terms().ClockError()},
	}, jobs, repos)
	k.await = c.WaitAvailable
	for _, w := range workers {
		if k.admission.workers[w.Action()] != nil {
			return nil, fmt.Errorf("two workers for action %q", w.Action())
		}
		k.admission.workers[w.Action()] = w
	}
	for _, action := range o.Actions {
		if k.admission.workers[action] == nil {
			return nil, fmt.Errorf("no worker for action %q", action)
		}
	}
	jobs.AddHandler(k.jobHandler())
	repos.AddHandler(k.repoHandler())
	return k, nil
}

func newController(e *env, jobs, repos lister) *Controller {
	e.events, e.life = newEmitter(e.o.Logger, e.o.Observe), context.Background()
	e.claims = &claimTable{held: map[string]*heldJob{}, pending: map[string]pendingClaim{}, known: map[string]bool{}}
	c := &Controller{
		env: e, await: context.Cause, jobs: jobs, queue: newWorkQueue(e.events, e.o.self), pruner: &pruner{env: e, wake: make(chan struct{}, 1)},
		admission: &admission{env: e, jobs: jobs, repos: repos, workers: map[string]Worker{}},
		exclusion: &exclusion{env: e, seen: newClaimIndex(e.isOwnClaim), turn: make(chan struct{}, 1)},
		delay:     queue.NewClaimDelay(e.o.self),
	}
	c.drain = &drain{env: e, queue: c.queue}
	if e.o.Drained {
		c.drain.since, c.queue.closed = time.Now(), true
	}
	c.finisher = &finisher{env: e, exclusion: c.exclusion, archiver: &archiver{env: e}, pruner: c.pruner, queue: c.queue}
	claimer := &claimer{env: e, jobs: jobs, exclusion: c.exclusion, delay: c.delay, finisher: c.finisher}
	runner := &runner{env: e, admission: c.admission, finisher: c.finisher}
	c.recoverer = &recoverer{env: e, exclusion: c.exclusion, runner: runner, finisher: c.finisher, queue: c.queue,
		wake: make(chan struct{}, 1)}
	c.driver = &driver{
		env: e, queue: c.queue, hosts: netx.NewTurns(e.o.Drivers, e.o.Drivers, e.o.Silent),
		drain: c.drain, admission: c.admission, exclusion: c.exclusion, delay: c.delay,
		claimer: claimer, recoverer: c.recoverer, runner: runner, finisher: c.finisher,
	}
	c.scanner = &scanner{env: e, queue: c.queue, jobs: jobs, admission: c.admission, recoverer: c.recoverer, again: make(chan struct{}, 1)}
	c.rescuer = &rescuer{
		env: e, jobs: jobs, claimer: claimer, finisher: c.finisher, queue: c.queue, drain: c.drain, suspects: map[string]suspect{},
	}
	return c
}

// Run works until ctx ends. Then every running job is given the grace period to end; one that has
// not ended is released to the queue. It returns when nothing of it runs any more, with an error
// only when it could not begin. It is run once.
func (c *Controller) Run(ctx context.Context) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	c.env.life = life
	defer context.AfterFunc(ctx, func() {
		_ = kube.Sleep(life, c.env.o.Grace)
		end()
	})()
	if err := c.recoverer.load(ctx); err != nil {
		return err
	}
	c.recovered.Store(true)
	if c.env.o.Drained {
		c.drain.announce()
	}
	if err := errors.Join(c.jobs.WaitSynced(ctx), c.admission.repos.WaitSynced(ctx)); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("wait for the watches: %w", err)
	}
	// Before the first driver takes a key, so that it takes the one whose turn it is.
	c.scanner.runOnce()
	var g errgroup.Group
	for i := range c.env.o.Drivers {
		g.Go(func() error { c.driver.Run(context.WithValue(ctx, driverKey{}, strconv.Itoa(i)), c.await); return nil })
	}
	g.Go(func() error { c.recoverer.Run(ctx); return nil })
	g.Go(func() error { c.scanner.Run(ctx); return nil })
	g.Go(func() error { c.rescuer.Run(ctx, c.await); return nil })
	g.Go(func() error { c.pruner.Run(ctx); return nil })
	err := g.Wait()
	c.finisher.ending.Wait()
	return err
}

// Ready returns nil when the agent would claim a job now, else why not.
func (c *Controller) Ready() error {
	switch {
	case c.drain.on():
		return errors.New("draining")
	case !c.recovered.Load():
		return errors.New("own claims are not recovered yet")
	case !c.jobs.HasSynced() || !c.admission.repos.HasSynced():
		return errors.New("the watches have not synced yet")
	}
	_, err := c.env.clock.millis()
	return err
}

// workMargin is how long a driver may have a job beyond its timeout: to claim it, and to end it
// once the worker returns.
const workMargin = 5 * time.Minute

// Stuck returns what has not moved for longer than it may, one line a cause; none before the
// controller works. away says that the API does not answer.
func (c *Controller) Stuck(away bool) []string {
	o := c.env.o
	return c.queue.stuck(o.Timeout+workMargin, 3*o.Interval+time.Minute, o.Drivers, away)
}

// Drain has the agent claim nothing new, or with false claim again. It returns at once; Snapshot
// has the end of what runs.
func (c *Controller) Drain(on bool) { c.drain.set(on) }

const cancelText = "requested by the user"

// Cancel stops a job. One of this agent is stopped at once; for any other the request is written
// into the Job, where its owner, or the agent that takes it up, reads it. The error is that of the
// API (not found, forbidden, conflict after 3 tries).
func (c *Controller) Cancel(ctx context.Context, namespace, name string) error {
	k := queue.Key{Namespace: namespace, Name: name}
	var meant types.UID
	for try := 1; ; try++ {
		job, err := c.env.server.get(ctx, api.Jobs, namespace, name)
		if err == nil && try > 1 && job.GetUID() != meant {
			err = apierrors.NewNotFound(api.Jobs.GroupResource(), name) // the name is that of another job now
		}
		if err != nil {
			return fmt.Errorf("cancel job %s: %w", k, err)
		}
		meant = job.GetUID()
		if h := c.env.claims.get(string(job.GetUID())); h != nil && h.cancelOnRequest(cancelText, false) {
			return nil
		}
		api.SetAnnotation(job, api.AnnoCancel, cancelText)
		if _, err = c.env.server.putJob(ctx, job); err == nil {
			return nil
		}
		if !apierrors.IsConflict(err) || try == progressTries {
			return fmt.Errorf("cancel job %s: %w", k, err)
		}
	}
}

// Defaults of Options. Sources: Grafana's drivers where they have the value too.
const (
	DefaultDrivers     = 3
	DefaultTimeout     = 20 * time.Minute
	DefaultInterval    = 30 * time.Second
	DefaultExpiry      = 60 * time.Second
	DefaultRenew       = 10 * time.Second // Grafana: 20 s; 10 s is safe beside its older versions, which expire after 30 s
	DefaultMaxAttempts = 3
	DefaultGrace       = 4 * time.Second // a stop takes 5 s at most, also where no server answers
)

// What to do with expired claims of others (Options.Cleanup).
const (
	CleanupRequeue = "requeue" // make the job eligible again, fail it after MaxAttempts
	CleanupFail    = "fail"    // end the job as error, as Grafana does
	CleanupOff     = "off"     // leave it to the server
)

// Options configure a Controller. Zero values mean the defaults above.
type Options struct {
	// Drivers is how many jobs run at once. Where there are several, one host does not get all, and
	// hosts that did not answer last share half.
	Drivers int
	// Silent reports whether a host, by name and port, did not answer last; nil = none.
	Silent func(host string) bool
	// Timeout of one run of a job; below 0 = none.
	Timeout time.Duration
	// Interval of the periodic scan of all known jobs, and the delay of a job that was released.
	Interval time.Duration
	// Expiry is the age at which others may consider a claim dead, Renew how often a held one is
	// renewed. Expiry must be at least three times Renew.
	Expiry, Renew time.Duration
	// MaxAttempts is how many claims of one job may end without a result.
	MaxAttempts int
	// Cleanup is CleanupRequeue, CleanupFail or CleanupOff.
	Cleanup string
	// Selector chooses repositories by their labels; nil = all.
	Selector labels.Selector
	// Actions that this agent takes; nil = all that it has workers for.
	Actions []string
	// HistoryExpiration is the age at which HistoricJobs are deleted from the API; 0 = never. It is
	// also the age for the local history unless LocalHistory is set.
	HistoryExpiration time.Duration
	// LocalHistory is the age at which records of the state file are deleted, LocalRecords how many
	// are kept at most, and LocalBytes how many bytes they may have with their keys and frames; 0 = no
	// limit.
	LocalHistory time.Duration
	LocalRecords int
	LocalBytes   int64
	// OldestRecord, when set, returns when the oldest record of the state file ended, for an API whose
	// objects are in that file too: when the local history has been at its bounds, HistoricJobs that
	// are older are deleted with it.
	OldestRecord func(ctx context.Context) (time.Time, error)
	// QueueHistory adds the record of each job that this agent has ended to state.HistoryQueue.
	QueueHistory bool
	// Grace is how long running jobs may take to end when Run is told to stop.
	Grace time.Duration
	// Drained makes the agent begin as if Drain(true) had been called.
	Drained bool
	// Agent is the name of this agent in history.
	Agent string
	// self tells this agent from all others, those of the same name too: its claims carry it, and it
	// decides in which order it takes jobs. "" = Agent.
	self string
	// Namespace to work in; "" = all.
	Namespace string
	// Logger; nil = slog.Default().
	Logger *slog.Logger
	// Observe is called for every event, from many goroutines at once. It must be quick and must not
	// call the controller.
	Observe func(Event)

	// hook is called at every failpoint that a job of this controller passes, for tests that stop one
	// of several agents in a process there.
	hook func(point string, job jobRef)
}

func (o Options) withDefaults() Options {
	o.Drivers = cmp.Or(o.Drivers, DefaultDrivers)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Interval = cmp.Or(o.Interval, DefaultInterval)
	o.Expiry = cmp.Or(o.Expiry, DefaultExpiry)
	o.Renew = cmp.Or(o.Renew, DefaultRenew)
	o.MaxAttempts = cmp.Or(o.MaxAttempts, DefaultMaxAttempts)
	o.Cleanup = cmp.Or(o.Cleanup, CleanupRequeue)
	o.Grace = cmp.Or(o.Grace, DefaultGrace)
	o.Agent = cmp.Or(o.Agent, "limpet")
	o.self = cmp.Or(o.self, o.Agent)
	o.LocalHistory = cmp.Or(o.LocalHistory, o.HistoryExpiration)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Selector == nil {
		o.Selector = labels.Everything()
	}
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	return o
}

func (o Options) terms() lease.Terms { return lease.Terms{Expiry: o.Expiry, Renew: o.Renew} }

// Validate returns every reason why these options, with the defaults for zero values, are not safe
// to run with.
func (o Options) Validate() error {
	o = o.withDefaults()
	errs := []error{o.terms().Validate()}
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(o.Drivers < 1, "drivers must be at least 1, not %d", o.Drivers)
	refuse(o.Interval < time.Second, "job interval %s is below 1s", o.Interval)
	refuse(o.MaxAttempts < 1, "max attempts must be at least 1, not %d", o.MaxAttempts)
	refuse(o.Cleanup != CleanupRequeue && o.Cleanup != CleanupFail && o.Cleanup != CleanupOff,
		"cleanup %q is none of requeue, fail, off", o.Cleanup)
	refuse(o.HistoryExpiration < 0 || o.LocalHistory < 0 || o.LocalRecords < 0 || o.LocalBytes < 0,
		"history expiration and limits must not be negative")
	refuse(o.Grace < 0, "grace period must not be negative")
	return errors.Join(errs...)
}
