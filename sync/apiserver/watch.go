package apiserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/state"
	"limpet/sync/api"
)

// Times of a watch.
const (
	// minWatchTimeout is how long a watch without timeoutSeconds lasts; the real
	// time is between this and twice it. Source: the real server's
	// --min-request-timeout.
	minWatchTimeout = 30 * time.Minute
	// bookmarkInterval is the time between bookmarks; the last one is sent
	// bookmarkBefore the end. Source: the real server's watch cache.
	bookmarkInterval = time.Minute
	bookmarkBefore   = 2 * time.Second
	// writeTimeout is how long a client may take to accept an event.
	writeTimeout = 30 * time.Second
)

// stream is an open watch. It lives in the goroutine of its request.
type stream struct {
	*call
	options listOptions
	conn    *http.ResponseController
	// position is the revision up to which all events have been sent.
	position uint64
	headers  bool // the header of a table has been sent
}

func (c *call) watch() error {
	o, err := listParameters(c.req.URL.Query(), c.target, true)
	if err != nil {
		return err
	}
	timeout := time.Duration(float64(minWatchTimeout) * (1 + rand.Float64())) // spreads reconnects
	if o.TimeoutSeconds != nil && *o.TimeoutSeconds > 0 {
		timeout = time.Duration(*o.TimeoutSeconds) * time.Second
	}
	if !c.until.IsZero() { // a client without a new token sees no more
		timeout = min(timeout, time.Until(c.until))
	}
	w := &stream{call: c, options: o, conn: http.NewResponseController(c.w), position: o.revision}
	if w.initial() {
		// The objects must be at least as new as the requested revision.
		if err := c.feed.wait(c.req.Context(), o.revision); err != nil {
			return err
		}
	} else if o.revision == 0 {
		w.position = c.feed.seen()
	}
	ctx, cancel := context.WithTimeout(c.req.Context(), timeout)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	// From here on every fault is reported as an event.
	w.w.Header().Set("Content-Type", mediaJSON)
	w.w.Header().Set("Cache-Control", "no-cache, private")
	w.w.WriteHeader(http.StatusOK)
	// The connection may serve other requests afterwards.
	defer func() { _ = w.conn.SetWriteDeadline(time.Time{}) }()
	err = w.flush()
	if err == nil && w.initial() {
		err = w.begin(ctx)
	}
	if err == nil {
		err = w.follow(ctx)
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, errGone) {
		if data, err := json.Marshal(w.statusOf(ctx, err)); err == nil {
			// Best effort: the client may have disconnected.
			_ = w.send("ERROR", data)
			_ = w.flush()
		}
	}
	return nil
}

// initial reports whether the watch begins with the present objects.
func (w *stream) initial() bool {
	return w.options.SendInitialEvents != nil && *w.options.SendInitialEvents
}

// errGone means that the client has disconnected.
var errGone = errors.New("client is gone")

// begin sends the initial events: the objects as of one revision.
func (w *stream) begin(ctx context.Context) error {
	all, err := w.store.Objects(ctx, state.ObjectQuery{Resource: resourceName(w.kind), Namespace: w.namespace})
	if err != nil {
		return err
	}
	for _, item := range all.Items {
		if w.options.matches(w.target, item.Data) {
			if err := w.sendObject(ctx, state.EventAdded, item.Data); err != nil {
				return err
			}
		}
	}
	w.position = all.Revision
	if err := w.sendBookmark(true); err != nil {
		return err
	}
	return w.flush()
}

// follow sends events and bookmarks until ctx ends.
func (w *stream) follow(ctx context.Context) error {
	bookmarks := time.NewTimer(nextBookmark(ctx))
	defer bookmarks.Stop()
	for ctx.Err() == nil {
		events, reached, moved, err := w.feed.next(resourceName(w.kind), w.position)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := w.sendEvent(ctx, e); err != nil {
				return err
			}
		}
		if err := w.flush(); err != nil {
			return err
		}
		w.position = max(w.position, reached)
		select {
		case <-moved:
		case <-bookmarks.C:
			if err := w.sendBookmark(false); err != nil {
				return err
			}
			bookmarks.Reset(nextBookmark(ctx))
		case <-ctx.Done():
		}
	}
	return nil
}

// nextBookmark returns the time to the next bookmark: a minute, or shortly before the end of the watch.
func nextBookmark(ctx context.Context) time.Duration {
	deadline, _ := ctx.Deadline()
	if left := time.Until(deadline) - bookmarkBefore; left > 0 && left < bookmarkInterval {
		return left
	}
	return bookmarkInterval
}

// sendEvent sends a change as seen through the selectors: an object that begins
// to match is added, one that ceases to match is deleted.
func (w *stream) sendEvent(ctx context.Context, e state.ObjectEvent) error {
	is := e.Type != state.EventDeleted && w.options.matches(w.target, e.Object.Data)
	was := w.options.matches(w.target, e.Previous)
	switch {
	case is && was:
		return w.sendObject(ctx, state.EventModified, e.Object.Data)
	case is:
		return w.sendObject(ctx, state.EventAdded, e.Object.Data)
	case was:
		// The last state that matched, at the revision at which it ceased to.
		return w.sendObject(ctx, state.EventDeleted, atRevision(e.Previous, e.Object.Revision))
	}
	return nil
}

func (w *stream) sendObject(ctx context.Context, kind string, stored []byte) error {
	data, err := w.reveal(ctx, w.kind, stored)
	if err == nil {
		data, err = w.inForm(data)
	}
	if err != nil {
		return err
	}
	return w.send(kind, data)
}

// sendBookmark sends a bookmark of the position; end marks the end of the initial events.
func (w *stream) sendBookmark(end bool) error {
	if !w.options.AllowWatchBookmarks {
		return nil
	}
	meta := map[string]any{"resourceVersion": formatRevision(w.position)}
	if end {
		meta["annotations"] = map[string]any{metav1.InitialEventsAnnotationKey: "true"}
	}
	data, err := encodeObject(map[string]any{"apiVersion": w.apiVersion(), "kind": w.kind.Kind, "metadata": meta})
	if err == nil {
		data, err = w.inForm(data)
	}
	if err != nil {
		return err
	}
	return w.send("BOOKMARK", data)
}

// inForm is that of the call, with the header of a table once.
func (w *stream) inForm(data []byte) ([]byte, error) {
	if w.media.as != asTable || !w.headers {
		w.headers = true
		return w.call.inForm(data)
	}
	table, err := w.table([][]byte{data})
	if err != nil {
		return nil, err
	}
	table.ColumnDefinitions = nil
	return json.Marshal(table)
}

// send writes one event.
func (w *stream) send(kind string, object []byte) error {
	// A transport without deadlines, such as the one inside the process, is fine.
	_ = w.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := fmt.Fprintf(w.w, "{\"type\":%q,\"object\":%s}\n", kind, object); err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}

func (w *stream) flush() error {
	if err := w.conn.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}

// The feed keeps the newest events of each resource, in the order of their commits. Watches read it at their
// own pace by a revision: there is no buffer per watch, and a watch that falls behind the window gets an error.
//
// Events hold the stored bytes of objects, not maps: a burst of 12,000 objects
// leaves a window of some hundred kilobytes behind.

// Bounds of the events of one resource beside their number.
const (
	// feedBytes bounds their objects. Dashboards of 40 kB are the largest objects
	// that change in bursts: 50 changes of them are kept.
	feedBytes = 2 << 20
	// freshTimeout is how long a request waits for a revision that the server has
	// not reached. Source: the real server's watch cache.
	freshTimeout = 3 * time.Second
)

func sizeOf(e state.ObjectEvent) int {
	return len(e.Object.Data) + len(e.Previous) + len(e.Object.Key.Namespace) + len(e.Object.Key.Name) + 96
}

type feed struct {
	window int

	mu        sync.Mutex // guards the fields below
	resources map[string]*window
	reached   uint64        // all events up to this revision are here
	moved     chan struct{} // closed when reached grows
}

// window is the newest events of one resource, the oldest first. The object of a deletion is its last state
// at the revision of the deletion; Previous is that state as it was stored.
type window struct {
	events []state.ObjectEvent
	bytes  int    // sum of their sizes
	floor  uint64 // all changes after this revision are held
}

func newFeed(size int, revision uint64) *feed {
	f := &feed{window: cmp.Or(size, defaultWindow), resources: map[string]*window{}, reached: revision, moved: make(chan struct{})}
	for _, k := range api.Kinds {
		f.resources[resourceName(k)] = &window{floor: revision}
	}
	return f
}

// publish adds the changes of a commit. The store calls it after each commit, in
// the order of commits, before the writes return.
func (f *feed) publish(changes []state.ObjectEvent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range changes {
		f.reached = max(f.reached, c.Object.Revision)
		w := f.resources[c.Object.Key.Resource]
		if w == nil {
			continue // a resource of an older version of this program
		}
		if c.Type == state.EventDeleted {
			c.Previous, c.Object.Data = c.Object.Data, atRevision(c.Object.Data, c.Object.Revision)
		}
		w.events = append(w.events, c)
		w.bytes += sizeOf(c)
		// The newest one stays, so that a watch that is up to date never falls behind by one large object.
		n := 0
		for ; n < len(w.events)-1 && (len(w.events)-n > f.window || w.bytes > feedBytes); n++ {
			w.bytes -= sizeOf(w.events[n])
			w.floor = w.events[n].Object.Revision
		}
		clear(w.events[:n]) // otherwise the backing array keeps the old objects alive
		w.events = w.events[n:]
	}
	close(f.moved)
	f.moved = make(chan struct{})
}

// seen returns the revision of the newest change of any object.
func (f *feed) seen() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reached
}

// wait blocks until a revision is reached; the error is that of freshTimeout.
func (f *feed) wait(ctx context.Context, revision uint64) error {
	ctx, cancel := context.WithTimeout(ctx, freshTimeout)
	defer cancel()
	for {
		f.mu.Lock()
		reached, moved := f.reached, f.moved
		f.mu.Unlock()
		if reached >= revision {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", revision, reached), 1)
			err.ErrStatus.Details.Causes = []metav1.StatusCause{{
				Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
			}}
			return err
		}
	}
}

// next returns the events of a resource after a revision. They are all up to reached, and
// moved is closed at the next commit. The error is the 410 of a revision before the window.
func (f *feed) next(resource string, after uint64) (events []state.ObjectEvent, reached uint64, moved <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.resources[resource]
	if after < w.floor {
		return nil, 0, nil, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", after, w.floor))
	}
	from, _ := slices.BinarySearchFunc(w.events, after+1, func(e state.ObjectEvent, r uint64) int { return cmp.Compare(e.Object.Revision, r) })
	return slices.Clone(w.events[from:]), f.reached, f.moved, nil
}
