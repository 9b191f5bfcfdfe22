// Package controller is the one road of all kinds of sources of Flux, in place of source-controller.
// A reconcile is an ordered list of steps, each in the file of its name; status.go makes of their
// result what is written.
//
//	static, finalize, suspend
//	                   the finalizer; what is static, deleted or suspended ends here
//	validate           the spec, and what the source uses
//	verifyStored, sink the artifact on this host, and the directory that follows it
//	require, restore   what the artifact is made of; bytes that were lost, from this host
//	look               what is the newest revision: the end, where that is stored
//	fetch, pack, sink  its bytes to this host, into the store, into the directory
//
// # Promises
//
// A source that does not change costs one look per interval, no fetch, no archive and no write. What
// the artifact was made of, down to the keys that have verified it, is in one checksum. The status
// is written once for a new revision, and what happened is in the outbox before.
//
// # What a kind brings
//
// A kind is one folder of source/kind that implements Kind, Spec and Upstream of kind.go: how its
// spec is read, Look, Fetch and Pack, and the fields of its status. The rest is the same for all:
// artifact store, serving, scrub, sinks, outbox, suspend, requests, backoff, turns at hosts, Secrets
// that change. Outside of its folder it has
//
//   - one line in the list of sourceKinds (agent/sources.go): its options;
//   - its names in the table Kinds of package api, and its schema in schemas.yaml beside it: from
//     them come the embedded API, the definitions, the watch and the paths of artifacts;
//   - the rules and defaults of its definition in api/admission, beside those of GitRepositories;
//   - its labels in the table of metrics/resourceinfo.go.
//
// Look returns the same Found for the same upstream and the same spec, or the source never settles.
// What a spec, a key or another source adds to the bytes belongs into Found.Checksum; what may be
// said about the upstream, and makes nothing new, into Found.Note. Bytes that are not tar.gz name
// their file by Content.Path. Errors of an upstream are a *Failure with the reason of Flux.
package controller

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"limpet/sync/api"
	"limpet/sync/dependency"
	"limpet/sync/kube"
	"limpet/sync/netx"
	"limpet/sync/notify"
	"limpet/sync/reconcile"
	"limpet/sync/source"
	"limpet/sync/source/artifact"
	"limpet/sync/worker/sink"
)

const (
	// FieldManager owns the status.
	FieldManager = "limpet-source-controller"
	finalizer    = "finalizers.fluxcd.io" // Source: Flux

	// Source: the flags of source-controller.
	minRetry, maxRetry = 750 * time.Millisecond, 15 * time.Minute
	// DependencyRetry is the pause of a source that waits for another one, or for the watch, which may
	// lack it.
	DependencyRetry = 30 * time.Second
	stalledRetry    = time.Hour // after a failure that only a change of the object ends
	jitter          = 0.05      // of the interval, both ways

	// keepOrphans is how long artifacts stay of a source that is gone though its finalizer was not
	// removed here: the API may be a wrong one, or have lost its objects.
	keepOrphans = 24 * time.Hour

	// Of a spec without; Source: Flux.
	defaultTimeout, defaultInterval = time.Minute, time.Minute
	callTimeout                     = 5 * time.Second
	progressAfter                   = time.Second // of a fetch, before the status is set to Reconciling

	// Revisions that are fetched at once, and from one host: what a server sends is examined in memory.
	fetchers, fetchersPerHost = 8, 4
	// Archives that are made at once. One that takes longer than quickPack gives its turn up and is
	// made again in the one turn of slow ones, for longestPack at most: a tree that never ends delays
	// only those like it.
	quickPackers, slowPackers = 2, 1
	quickPack, longestPack    = 5 * time.Second, 5 * time.Minute
)

// Options of a Controller. All but Outbox, Observe and Worked must be set.
type Options struct {
	Kind         Kind
	Client       *kube.Client
	Sources      *source.Watcher // of the kind
	Turns        *Turns          // the controllers of all kinds share them
	SinkPrefixes []string        // directories below which the tree of a source may be written
	MaxBytes     int64           // of the files in one of them, see archive.Options
	SinkPrograms []string        // that may run after that
	Artifacts    *artifact.Store
	Outbox       *notify.Outbox // nil = no events
	References   *dependency.Watcher
	Now          func() time.Time      // of the server
	Observe      func(reconcile.Event) // must not block; nil = no call
	Worked       func(reconcile.Done)  // see reconcile.Options
	Logger       *slog.Logger
}

// Turns bound what the sources of all kinds do at once.
type Turns struct {
	looking, fetching *netx.Turns
	quick, slow       chan struct{} // semaphores of those that pack; slow is of those that took long the last time
}

// NewTurns returns turns for the controllers of one agent. silent reports whether a host has not
// answered lately, and must not block.
func NewTurns(silent func(host string) bool) *Turns {
	return &Turns{
		// Those in line for the mirrors keep the host busy.
		looking:  netx.NewTurns(reconcile.Workers, 2*reconcile.PerHost, silent),
		fetching: netx.NewTurns(fetchers, fetchersPerHost, silent),
		quick:    make(chan struct{}, quickPackers),
		slow:     make(chan struct{}, slowPackers),
	}
}

// Controller reconciles the sources of one kind on an API. Make it with New before the watcher runs.
type Controller struct {
	*reconcile.Loop
	o          Options
	kind       api.Kind
	steps      []reconcile.Step[*attempt]
	quickPack  time.Duration // see the constants
	longest    time.Duration
	programs   sink.Programs
	noChecksum atomic.Bool // the definition has no status.contentConfigChecksum
	fetched    atomic.Int64

	mu       sync.Mutex                                // guards what follows
	memories map[reconcile.Key]*memory                 // each belongs to the worker that has its key
	running  map[reconcile.Key]context.CancelCauseFunc // of reconciles
}

// memory is what is remembered of a source from one reconcile to the next. All of it may be lost.
type memory struct {
	uid        string
	generation int64
	common     common
	spec       Spec
	invalid    error             // of both
	settled    string            // resourceVersion whose status has the artifact; "" = not known
	emitted    string            // the last event, which a failed write of the status must not repeat
	orphaned   time.Time         // since when the object is gone; zero = it is not
	tooLarge   string            // revision and checksum of what is beyond the limits, and is not packed again
	limit      *Failure          // which of them
	slow       bool              // the last archive took longer than quickPack
	packWait   time.Duration     // after the last one that took longer than longestPack; 0 = it did not
	stored     artifact.Artifact // the newest of the index, which nothing else changes; zero = not known
}

// New registers its handlers with the watcher, which must not run yet. It starts nothing.
func New(o Options) *Controller {
	c := &Controller{o: o, kind: o.Kind.Kind(), quickPack: quickPack, longest: longestPack,
		memories: map[reconcile.Key]*memory{}, running: map[reconcile.Key]context.CancelCauseFunc{}}
	c.Loop = reconcile.NewLoop(reconcile.Options{
		Kind: c.kind.Kind, Reconcile: c.reconcile, Client: o.Client, FirstRetry: minRetry, MaxRetry: maxRetry,
		Hosts: o.Turns.looking, Worked: o.Worked, Logger: o.Logger,
	})
	// A directory is brought to an artifact as soon as there is one: to the stored one before other
	// sources and before the host are asked, which may be away, and to what they have given.
	c.steps = []reconcile.Step[*attempt]{
		c.leaveStatic,
		c.finalize,
		suspend,
		c.validate,
		c.verifyStored,
		c.sink,
		require,
		c.restore,
		c.sink,
		c.look,
		c.fetch,
		c.pack,
		c.sink,
	}
	wake := func(obj kube.Object) { c.Wake(obj.Namespace(), obj.Name()) }
	gone := func(obj kube.Object) {
		c.interrupt(reconcile.Key{Namespace: obj.Namespace(), Name: obj.Name()})
		wake(obj)
	}
	o.Sources.AddHandler(kube.Handler{Add: wake, Delete: gone, Update: func(old, obj kube.Object) {
		if old.Text(pathDeleted) != obj.Text(pathDeleted) {
			gone(obj)
			return
		}
		if old.Number(pathGeneration) != obj.Number(pathGeneration) || old.Text(pathRequested) != obj.Text(pathRequested) ||
			old.Text(pathSink) != obj.Text(pathSink) || old.Text(pathExec) != obj.Text(pathExec) || old.Text(pathLinks) != obj.Text(pathLinks) ||
			old.Text(pathDigest) != obj.Text(pathDigest) {
			wake(obj)
		}
	}})
	return c
}

var (
	pathGeneration = kube.PathTo("metadata", "generation")
	pathRequested  = kube.PathTo("metadata", "annotations", source.AnnoRequested)
	pathDeleted    = kube.PathTo("metadata", "deletionTimestamp")
	pathSink       = kube.PathTo("metadata", "annotations", api.AnnoSinkDir)
	pathExec       = kube.PathTo("metadata", "annotations", api.AnnoSinkExec)
	pathLinks      = kube.PathTo("metadata", "annotations", api.AnnoKeepSymlinks)
	pathDigest     = kube.PathTo("metadata", "annotations", api.AnnoAcceptDigest)
)

// Run works until ctx ends, and returns when nothing of it runs any more. It may be run again.
func (c *Controller) Run(ctx context.Context) error {
	c.mu.Lock()
	c.memories = map[reconcile.Key]*memory{}
	c.mu.Unlock()
	return c.Work(ctx, func() (keys []reconcile.Key) {
		all, _ := c.o.Sources.Objects()
		for _, o := range all {
			keys = append(keys, reconcile.Key{Namespace: o.Namespace(), Name: o.Name()})
		}
		stored, err := c.o.Artifacts.All(ctx) // also of sources that were deleted while this did not run
		if err != nil {
			c.o.Logger.Warn("read index of artifacts", "err", err)
		}
		for of := range stored {
			if of.Kind == c.kind.Singular {
				keys = append(keys, reconcile.Key{Namespace: of.Namespace, Name: of.Name})
			}
		}
		return keys
	})
}

// Fetched returns how many bytes the upstreams have sent.
func (c *Controller) Fetched() int64 { return c.fetched.Load() }

// memoryOf returns the memory of a source, a new one for a new source; "" forgets it.
func (c *Controller) memoryOf(k reconcile.Key, uid string) *memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.memories[k]
	if uid == "" {
		delete(c.memories, k)
	} else if m == nil || m.uid != uid {
		m = &memory{uid: uid, generation: -1}
		c.memories[k] = m
	}
	return m
}

// errDeleted ends the reconcile of a source that is being deleted, which is woken for the next one.
var errDeleted = errors.New("the source was deleted")

// interrupt ends the reconcile of a source that runs.
func (c *Controller) interrupt(k reconcile.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.running[k]; cancel != nil {
		cancel(errDeleted)
	}
}

// reconcile reconciles one source, until it is deleted.
func (c *Controller) reconcile(ctx context.Context, k reconcile.Key) (reconcile.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.mu.Lock()
	c.running[k] = cancel
	c.mu.Unlock()
	result, err := c.runOnce(ctx, k)
	c.mu.Lock()
	delete(c.running, k)
	c.mu.Unlock()
	if context.Cause(ctx) == errDeleted {
		return reconcile.Result{}, nil
	}
	return result, err
}

// runOnce reconciles one source.
func (c *Controller) runOnce(ctx context.Context, k reconcile.Key) (reconcile.Result, error) {
	obj, known := c.o.Sources.Get(k.Namespace, k.Name)
	if obj == nil {
		if !known {
			return reconcile.Result{Next: time.Now().Add(DependencyRetry), Unready: true}, nil
		}
		c.o.References.Use(c.ref(k))
		c.o.References.Observe(c.ref(k), "")
		for _, topic := range []string{"", api.ConditionSinkReady} {
			if c.o.Outbox == nil {
				break
			}
			if err := c.o.Outbox.Add(ctx, Deleted(c.kind, k, topic)); err != nil {
				return reconcile.Result{}, err
			}
		}
		return c.removeOrphans(ctx, k)
	}
	a := &attempt{key: k, obj: obj, memory: c.memoryOf(k, string(obj.GetUID()))}
	failed, err := c.run(ctx, a)
	if err != nil || a.over || ctx.Err() != nil {
		return reconcile.Result{}, cmp.Or(err, context.Cause(ctx))
	}
	if version := obj.GetResourceVersion(); !a.unchanged || a.memory.settled != version || a.sink.Status != "" {
		if err := c.writeStatus(ctx, a, failed); err != nil {
			return reconcile.Result{}, err
		}
	}
	if a.program {
		a.sunk, a.written = "", true
		if _, err = c.sink(ctx, a); err == nil && a.sink.Status != "" {
			err = c.writeStatus(ctx, a, failed)
		}
		if err != nil {
			return reconcile.Result{}, err
		}
	}
	interval := time.Duration(float64(a.common.interval) * (1 - jitter + 2*jitter*rand.Float64()))
	switch {
	case failed != nil && !failed.Stalled && failed.Wait == 0:
		return reconcile.Result{}, failed
	case a.sinkErr != nil:
		return reconcile.Result{Next: time.Now().Add(interval)}, a.sinkErr
	case failed == nil:
		// In a full second, as all others: one wake of the processor for many of them.
		return reconcile.Result{Next: time.Now().Add(interval + time.Second).Truncate(time.Second), Cache: a.found.Cache}, nil
	case failed.Stalled:
		return reconcile.Result{Next: time.Now().Add(cmp.Or(failed.Wait, stalledRetry)), Unready: true}, nil
	}
	return reconcile.Result{Next: time.Now().Add(failed.Wait), Unready: true}, nil
}

// removeOrphans removes the artifacts of a source that is gone, when that has lasted.
func (c *Controller) removeOrphans(ctx context.Context, k reconcile.Key) (reconcile.Result, error) {
	if list, err := c.o.Artifacts.List(ctx, c.source(k)); err == nil && len(list) > 0 {
		m := c.memoryOf(k, "none")
		if m.orphaned.IsZero() {
			m.orphaned = c.o.Now()
			c.o.Logger.Warn("artifacts without a source", "name", k.Name, "namespace", k.Namespace, "removed_in", keepOrphans)
		}
		if left := keepOrphans - c.o.Now().Sub(m.orphaned); left > 0 {
			return reconcile.Result{Next: time.Now().Add(left)}, nil
		}
	}
	c.memoryOf(k, "")
	return reconcile.Result{}, c.o.Artifacts.Remove(ctx, c.source(k))
}

// source is the key of the artifacts of a source.
func (c *Controller) source(k reconcile.Key) artifact.Key {
	return artifact.Key{Kind: c.kind.Singular, Namespace: k.Namespace, Name: k.Name}
}

// ref is a source as one that uses others, or that is used.
func (c *Controller) ref(k reconcile.Key) dependency.Ref {
	return dependency.Ref{Kind: c.kind.Kind, Namespace: k.Namespace, Name: k.Name}
}

// requested returns the last request for a reconcile.
func (a *attempt) requested() string { return api.Annotation(a.obj, source.AnnoRequested) }
