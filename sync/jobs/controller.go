// Package jobs is the queue of provisioning jobs as one agent works on it: it
// claims Jobs of the API under a lease, lets a Worker do them, keeps their
// progress and their history, and takes care of claims that others have left.
//
// # How a job travels
//
//	handlers.go  watch events and the periodic list put names into the queue
//	queue.go     one name once, one job per repository at a time, by priority (priority.go), turn and age (order.go)
//	gate.go      nothing new goes out while the agent drains (drain.go)
//	driver.go    a driver reads the job again and judges whether it is for this agent (eligible.go)
//	crew.go      in which order agents claim at a repository; contention.go says how long each waits for the one before
//	claim.go     intent kept in the state file, labels written, claim kept
//	exclude.go   who finds another agent at work on the repository gives way (neighbours.go)
//	held.go      a job under our claim: write.go writes it, keep.go renews its lease (lease.go)
//	run.go       the worker is called and waited for
//	progress.go  what the worker reports (account.go), written at most so often (throttle.go)
//	complete.go  record, HistoricJob (historic.go), DELETE, end of the claim
//	release.go   the way back into the queue
//	setback.go   the way back for another attempt (attempt.go, resting.go)
//	recover.go   claims of a process that stopped
//	ended.go     jobs that come back although they have ended
//	cleanup.go   expired claims of others
//	prune.go     old history
//
// The state machines (queue, lease, throttle, account) are told the time and do
// no I/O; the API and the state file stand behind the interfaces server and ledger,
// the clocks and chance behind serverClock and host.
//
// # Promises
//
// Delivery is at least once: after a crash a job goes on from its last mark, or
// begins anew on another agent. A result is kept in the state file before it is
// told to the API, and told once. After the loss of a lease nothing is written
// about the job. A lease does not fence: what a worker writes has to be harmless
// when written twice.
package jobs

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/failpoint"
	"limpet/sync/kube"
)

// ledger is what this room needs of the state file.
type ledger interface {
	PutClaim(ctx context.Context, k state.Claim) error
	Claims(ctx context.Context) ([]state.Claim, error)
	PutMark(ctx context.Context, uid string, mark json.RawMessage) error
	DropClaim(ctx context.Context, uid string) error
	Complete(ctx context.Context, uid string, r state.Record) error
	EndClaim(ctx context.Context, uid, historicJob string) error
	History(ctx context.Context, q state.Query) ([]state.Record, error)
	HistoryCount(ctx context.Context) (int, error)
	PruneHistory(ctx context.Context, before time.Time) (int, error)
	TrimHistory(ctx context.Context, maxRecords int) (int, error)
	TrimHistoryBytes(ctx context.Context, maxBytes int64) (int, error)
}

var _ ledger = (*state.Store)(nil)

// lister is what this room needs of an informer.
type lister interface {
	Get(namespace, name string) (*unstructured.Unstructured, bool)
	Objects() []kube.Object
	WaitSynced(ctx context.Context) error
	HasSynced() bool
}

var _ lister = (*kube.Informer)(nil)

// Controller works on the queue. Make it with New before the informers run.
type Controller struct {
	o        Options
	terms    terms
	log      *slog.Logger
	server   server
	renewals server                      // over connections of its own
	await    func(context.Context) error // blocks while the API is known to be away; an error when ctx ends first
	clock    serverClock
	host     host
	jobs     lister
	repos    lister
	store    ledger
	workers  map[string]Worker
	queue    *intake
	live     *scribe
	trims    trimmer

	neighbours *neighbours
	crew       *crew
	rivalry    *rivalry
	again      chan struct{}  // holds one token when the list has to be looked at before its time
	ending     sync.WaitGroup // claims of completed jobs that are being forgotten

	turn      turn          // see chooseByTurn; this and the next two belong to list
	wonBefore int           // claims that were won when fillRest was asked last
	fillAfter time.Duration // what it has said

	mu             sync.Mutex           // guards the fields below
	running        map[string]*held     // by UID
	unsettled      map[string]unsettled // by UID; see holding for those in running
	resting        map[string]respite   // by UID; jobs that were given back
	told           map[string]struct{}  // ids of what was told once
	noArchiveUntil time.Time            // the server keeps no HistoricJobs
	recalled       bool                 // the claims of the last process have been taken over
	drained        time.Time            // since when nothing new is claimed; zero = it is
	dry            bool                 // it was told that nothing of before runs any more
}

// New makes a controller. It registers its handlers with the informers, which
// must not run yet, and starts nothing. Both informers are run by the caller and
// may be shared. It returns an error when o is not safe.
func New(c *kube.Client, jobs, repos *kube.Informer, store *state.Store, workers []Worker, o Options) (*Controller, error) {
	o = o.withDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	// Two hosts may have one name: copied images do, and agents side by side.
	o.self = rand.Text()[:12]
	t := o.terms()
	k := newController(wire{client: c, timeout: t.callTimeout()}, wire{client: c.Lease(), timeout: t.callTimeout()}, c.Clock(), jobs, repos, store, o)
	k.await = c.WaitAvailable
	for _, w := range workers {
		if k.workers[w.Action()] != nil {
			return nil, fmt.Errorf("two workers for action %q", w.Action())
		}
		k.workers[w.Action()] = w
	}
	for _, action := range o.Actions {
		if k.workers[action] == nil {
			return nil, fmt.Errorf("no worker for action %q", action)
		}
	}
	jobs.AddHandler(k.handler())
	repos.AddHandler(k.repoHandler())
	return k, nil
}

func newController(s, renewals server, clock serverClock, jobs, repos lister, store ledger, o Options) *Controller {
	def(&o.self, o.Agent)
	queue := newIntake(queueLimit, o.self)
	queue.pace.meter = o.Meter
	c := &Controller{o: o, terms: o.terms(), log: o.Logger, server: s, renewals: renewals, clock: clock, host: machine{}, jobs: jobs, repos: repos, store: store,
		await: context.Cause, workers: map[string]Worker{}, queue: queue, live: newScribe(), trims: newTrimmer(),
		running: map[string]*held{}, unsettled: map[string]unsettled{}, resting: map[string]respite{}, told: map[string]struct{}{},
		crew: newCrew(o.self), rivalry: newRivalry(), again: make(chan struct{}, 1)}
	c.neighbours = newNeighbours(c.isOwnClaim)
	return c
}

// Run works until ctx ends. Then every running job is given the grace period to
// end; what has not ended is given back to the queue. It returns when nothing of
// it runs any more, with an error only when it could not begin. It is run once.
func (c *Controller) Run(ctx context.Context) error {
	if err := c.recall(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	c.recalled = true
	c.mu.Unlock()
	if c.o.Drained {
		c.Drain(true)
	}
	if err := errors.Join(c.jobs.WaitSynced(ctx), c.repos.WaitSynced(ctx)); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("wait for the watches: %w", err)
	}
	// Before the first driver takes a name, so that it takes the one whose turn it is.
	c.listOnce()
	var g errgroup.Group
	for i := range c.o.Drivers {
		g.Go(func() error { c.drive(withDriver(ctx, i)); return nil })
	}
	g.Go(func() error { c.list(ctx); return nil })
	g.Go(func() error { c.clean(ctx); return nil })
	g.Go(func() error { c.prune(ctx); return nil })
	err := g.Wait()
	c.ending.Wait()
	return err
}

// Ready says whether the agent would claim a job now, and if not, why not.
func (c *Controller) Ready() error {
	c.mu.Lock()
	recalled := c.recalled
	c.mu.Unlock()
	switch {
	case c.draining():
		return errors.New("draining")
	case !recalled:
		return errors.New("own claims are not recovered yet")
	case !c.jobs.HasSynced() || !c.repos.HasSynced():
		return errors.New("the watches have not synced yet")
	}
	_, err := c.millis()
	return err
}

// Waiting returns how many names are in the queue of this agent: jobs that wait,
// run or rest.
func (c *Controller) Waiting() int {
	c.queue.mu.Lock()
	defer c.queue.mu.Unlock()
	return c.queue.queue.len()
}

// Cancel asks that a job be stopped, whoever runs it. A job of this agent is
// told at once; for any other the wish is written into the Job, where its owner
// sees it. A job that nobody runs ends as cancelled when an agent takes it up.
// The error is that of the API (not found, forbidden, conflict after 3 tries).
func (c *Controller) Cancel(ctx context.Context, namespace, name string) error {
	k := key{namespace, name}
	var meant types.UID
	for try := 1; ; try++ {
		job, err := c.server.job(ctx, k)
		if err == nil && try > 1 && job.GetUID() != meant {
			err = apierrors.NewNotFound(api.Jobs.GroupResource(), name) // the name is that of another job now
		}
		if err != nil {
			return fmt.Errorf("cancel job %s: %w", k, err)
		}
		meant = job.GetUID()
		if h := c.heldJob(string(job.GetUID())); h != nil {
			if h.interrupt(cancelText, false) {
				c.tell(EventCancelled, h.about, cancelText)
			}
			return nil
		}
		api.SetAnnotation(job, api.AnnoCancel, cancelText)
		if _, err = c.server.putJob(ctx, job); err == nil {
			return nil
		}
		if !apierrors.IsConflict(err) || try == claimTries {
			return fmt.Errorf("cancel job %s: %w", k, err)
		}
	}
}

const cancelText = "a person asked for it"

// selected says whether the repository selector takes a repository.
func (c *Controller) selected(repo *unstructured.Unstructured) bool {
	return c.o.Selector.Matches(labels.Set(repo.GetLabels()))
}

// millis is the server's time for a claim; an error when it is not known well
// enough to claim.
func (c *Controller) millis() (int64, error) { return c.clock.Millis(c.terms.clockError()) }

// nowMillis is the server's time as far as it is known, else the local time. It
// is for records, never for decisions.
func (c *Controller) nowMillis() int64 {
	if t, _, ok := c.clock.Now(); ok {
		return t.UnixMilli()
	}
	return c.host.now().wall.UnixMilli()
}

// renewed is told of every renewal of a held job.
func (c *Controller) renewed(h *held, err error, next time.Time) {
	if err != nil {
		c.tell(EventRenewal, h.about, fmt.Sprintf("lease not renewed, next try in %s: %s", next.Sub(c.host.now().Time).Round(100*time.Millisecond), err))
		return
	}
	c.tell(EventRenewed, h.about, "lease renewed")
}

// step tells tests that a job has come to a failpoint: those of this package by
// the hook of one controller, those of the whole program by the failpoint.
func (c *Controller) step(point string, a about) {
	if c.o.hook != nil {
		c.o.hook(point, a)
	}
	_ = failpoint.Pass(point) // errors are for places that can fail
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
