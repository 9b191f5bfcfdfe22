package repos

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/util/workqueue"

	"limpet/sync/kube"
)

// loop is the part of a controller that takes names off a queue, has each looked
// into by one worker at a time, and sets when that happens again.
type loop struct {
	what   string // "repository"
	look   func(ctx context.Context, k Key) (next time.Time, period time.Duration, err error)
	resync time.Duration
	worked func(took time.Duration)
	log    *slog.Logger
	await  func(context.Context) error // blocks while the API is known to be away; an error when ctx ends first
	times  *timetable
	lanes  *lanes
	told   Uses // nil = nobody

	say func(k Key, level, text string) // what a person may want to know; nil = nobody

	queueMu sync.Mutex            // guards queue
	queue   *workqueue.Typed[Key] // nil while the loop does not run

	failMu   sync.Mutex // guards what follows
	failures map[Key]int
	unreads  map[Key]string // the version that was told of, see unread

	wishMu sync.Mutex // guards wishes
	wishes map[Key]wish
}

func newLoop(what string, told Uses, look func(context.Context, Key) (time.Time, time.Duration, error), resync time.Duration, worked func(time.Duration), log *slog.Logger) *loop {
	return &loop{what: what, told: told, look: look, resync: resync, worked: worked, log: log, await: context.Cause,
		times: newTimetable(), lanes: newLanes(), failures: map[Key]int{}, unreads: map[Key]string{}, wishes: map[Key]wish{}}
}

// run works until ctx ends, and returns when all workers have. It begins with keys and
// with nothing from an earlier run.
func (l *loop) run(ctx context.Context, workers int, keys func() []Key) error {
	queue := workqueue.NewTyped[Key]()
	l.times.reset()
	l.lanes.reset()
	l.failMu.Lock()
	l.failures, l.unreads = map[Key]int{}, map[Key]string{}
	l.failMu.Unlock()
	l.setQueue(queue)
	for _, k := range keys() {
		queue.Add(k)
	}
	var g errgroup.Group
	for range workers {
		g.Go(func() error { l.work(ctx, queue); return nil })
	}
	g.Go(func() error { l.times.run(ctx, queue.Add); return nil })
	<-ctx.Done()
	l.setQueue(nil)
	queue.ShutDown()
	return g.Wait()
}

func (l *loop) setQueue(q *workqueue.Typed[Key]) {
	l.queueMu.Lock()
	defer l.queueMu.Unlock()
	l.queue = q
}

// add has an object looked into now. It does nothing while the loop does not run: a run
// begins with all objects.
func (l *loop) add(k Key) {
	l.queueMu.Lock()
	defer l.queueMu.Unlock()
	if l.queue != nil {
		l.queue.Add(k)
	}
}

// work takes names off the queue. One name is with one worker at a time.
func (l *loop) work(ctx context.Context, queue *workqueue.Typed[Key]) {
	for {
		k, over := queue.Get()
		if over {
			return
		}
		if l.await(ctx) == nil && ctx.Err() == nil {
			l.handle(ctx, k)
		}
		queue.Done(k)
	}
}

// mostTries is how often something is tried that failed because a service was
// away, before it rests like any other failure. Source: Grafana.
const mostTries = 3

// retryAfter is the rest before the second try; the next is twice as long.
const retryAfter = 2 * time.Second

// movedRest is the rest after a patch that did not fit any more, and mostMoves how
// often in a row that may be because somebody else was faster. Beyond that the
// server has another reason, which a person has to know of.
const (
	movedRest = time.Second
	mostMoves = 10
)

// handle looks into one object and sets its next time.
func (l *loop) handle(ctx context.Context, k Key) {
	began := time.Now()
	next, period, err := l.look(ctx, k)
	l.worked(time.Since(began))
	switch {
	case ctx.Err() != nil || errors.Is(err, errWaits):
		return
	case err == nil:
		l.failed(k, false)
		l.times.set(k, next, period)
		return
	}
	if u, is := errors.AsType[*unreadable](err); is {
		l.unread(k, u)
		l.times.set(k, time.Time{}, 0)
		return
	}
	n := l.failed(k, true)
	if errors.Is(err, errMoved) && n <= mostMoves {
		// The watch shows what has come between, or shows it soon.
		l.times.set(k, time.Now().Add(movedRest), movedRest)
		return
	}
	pause := l.resync
	if passes(err) && n < mostTries {
		pause = retryAfter << (n - 1)
	}
	l.times.set(k, time.Now().Add(pause), l.resync)
	l.log.Warn("cannot look after a "+l.what, "name", k.Name, "namespace", k.Namespace, "err", err, "next_try_in", pause)
}

// passes says that an error is of a service that is away.
func passes(err error) bool {
	_, away := errors.AsType[*kube.UnavailableError](kube.AsUnavailable(err))
	return away
}

// failed counts failures in a row.
func (l *loop) failed(k Key, again bool) int {
	l.failMu.Lock()
	defer l.failMu.Unlock()
	if !again {
		delete(l.failures, k)
		delete(l.unreads, k)
		return 0
	}
	l.failures[k]++
	return l.failures[k]
}
