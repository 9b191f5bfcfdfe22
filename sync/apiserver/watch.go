package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/state"
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
	call    *call
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
		if err := c.server.feed.wait(c.req.Context(), o.revision); err != nil {
			return err
		}
	} else if o.revision == 0 {
		w.position = c.server.feed.seen()
	}
	ctx, cancel := context.WithTimeout(c.req.Context(), timeout)
	defer cancel()
	defer context.AfterFunc(c.server.life, cancel)()
	// From here on every fault is reported as an event.
	w.call.w.Header().Set("Content-Type", mediaJSON)
	w.call.w.Header().Set("Cache-Control", "no-cache, private")
	w.call.w.WriteHeader(http.StatusOK)
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
		if data, err := json.Marshal(w.call.server.statusOf(ctx, err)); err == nil {
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
	all, err := w.call.server.store.Objects(ctx, state.ObjectQuery{Resource: resourceName(w.call.target.kind), Namespace: w.call.target.namespace})
	if err != nil {
		return err
	}
	for _, item := range all.Items {
		if w.options.matches(w.call.target, item.Data) {
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
	for due := false; ctx.Err() == nil; {
		events, reached, moved, err := w.call.server.feed.next(resourceName(w.call.target.kind), w.position)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := w.sendEvent(ctx, e); err != nil {
				return err
			}
		}
		w.position = max(w.position, reached)
		if due {
			if err := w.sendBookmark(false); err != nil {
				return err
			}
			bookmarks.Reset(nextBookmark(ctx))
		}
		if due || len(events) > 0 {
			if err := w.flush(); err != nil {
				return err
			}
		}
		due = false
		select {
		case <-moved:
		case <-bookmarks.C:
			due = true
		case <-ctx.Done():
		}
	}
	return nil
}

// nextBookmark returns the time to the next bookmark: a minute, or shortly before the end of the
// watch.
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
	is := e.Type != state.EventDeleted && w.options.matches(w.call.target, e.Object.Data)
	was := w.options.matches(w.call.target, e.Previous)
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
	data, err := w.call.server.reveal(ctx, w.call.target.kind, stored)
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
	data, err := encodeObject(map[string]any{"apiVersion": w.call.target.apiVersion(), "kind": w.call.target.kind.Kind, "metadata": meta})
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
	if w.call.media.as != asTable || !w.headers {
		w.headers = true
		return w.call.inForm(data)
	}
	table, err := w.call.table([][]byte{data})
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
	if _, err := fmt.Fprintf(w.call.w, "{\"type\":%q,\"object\":%s}\n", kind, object); err != nil {
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
