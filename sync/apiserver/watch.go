package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	// beginChunk is the page size of the initial events.
	beginChunk = 256
)

// stream is an open watch. It lives in the goroutine of its request.
type stream struct {
	*call
	options listOptions
	feed    *feed
	// position is the revision up to which all events have been sent.
	position uint64
	headers  bool // the table header has not been sent
}

func (c *call) watch() error {
	if c.media.YAML {
		return notAcceptable("only the following media types are accepted: " + mediaJSON + ";stream=watch")
	}
	o, err := listParameters(c.req.URL.Query(), c.info.Kind, c.info.Name, true)
	if err != nil {
		return err
	}
	o.Select.Namespace = c.info.Namespace
	revision, _, err := o.revision()
	if err != nil {
		return err
	}
	if o.Timeout <= 0 {
		o.Timeout = time.Duration(float64(minWatchTimeout) * (1 + rand.Float64())) // spreads reconnects
	}
	w := &stream{call: c, options: o, feed: c.feeds[resourceName(c.info.Kind)], position: revision, headers: true}
	if o.InitialEvents != nil && *o.InitialEvents {
		// The objects must be at least as new as the requested revision.
		if !c.progress.wait(c.req.Context(), revision, freshTimeout) {
			return c.tooLarge(revision)
		}
	} else if revision == 0 {
		w.position = c.seen()
	}
	w.serve()
	return nil
}

// serve sends events until the client disconnects, the timeout passes, or the
// server closes. It reports every fault as an event.
func (w *stream) serve() {
	ctx, cancel := context.WithTimeout(w.req.Context(), w.options.Timeout)
	defer cancel()
	defer context.AfterFunc(w.life, cancel)()
	w.w.Header().Set("Content-Type", mediaJSON)
	w.w.Header().Set("Cache-Control", "no-cache, private")
	w.w.WriteHeader(http.StatusOK)
	if w.flush() != nil {
		return
	}
	// The connection may serve other requests afterwards.
	defer func() { _ = http.NewResponseController(w.w).SetWriteDeadline(time.Time{}) }()
	err := w.begin(ctx)
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
}

// errGone means that the client has disconnected.
var errGone = errors.New("client is gone")

// begin sends the initial events, if they are requested.
func (w *stream) begin(ctx context.Context) error {
	if w.options.InitialEvents == nil || !*w.options.InitialEvents {
		return nil
	}
	q := state.ObjectQuery{Resource: resourceName(w.info.Kind), Namespace: w.info.Namespace, Limit: beginChunk}
	var sent *state.ObjectKey
	for {
		chunk, err := w.store.Objects(ctx, q)
		if err != nil {
			return err
		}
		if err := w.catchUp(ctx, sent, chunk.Revision); err != nil {
			return err
		}
		for _, item := range chunk.Items {
			if w.options.Select.matches(w.info.Kind, item.Data) {
				if err := w.sendObject(ctx, added, item.Data); err != nil {
					return err
				}
			}
		}
		w.position = chunk.Revision
		if q.After = chunk.Next; q.After == "" {
			break
		}
		sent = &chunk.Items[len(chunk.Items)-1].Key
	}
	if err := w.sendBookmark(true); err != nil {
		return err
	}
	return w.flush()
}

// catchUp sends the events up to a revision of the objects that have been sent,
// which are those up to a key: the client then has all of them as of the
// position. The next chunk has the changes of the others.
func (w *stream) catchUp(ctx context.Context, sent *state.ObjectKey, revision uint64) error {
	if sent == nil {
		return nil
	}
	// The events of the chunk's commit may not be in the feed yet.
	if !w.progress.wait(ctx, revision, freshTimeout) {
		return w.tooLarge(revision)
	}
	events, ok := w.feed.since(w.position, revision)
	if !ok {
		return tooOld(w.position, w.feed.oldest())
	}
	for _, e := range events {
		if byName(state.ObjectKey{Namespace: e.namespace, Name: e.name}, *sent) > 0 {
			continue
		}
		if err := w.sendEvent(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// follow sends events and bookmarks until ctx ends.
func (w *stream) follow(ctx context.Context) error {
	bookmarks := time.NewTimer(w.nextBookmark(ctx))
	defer bookmarks.Stop()
	due := false
	for ctx.Err() == nil {
		// Read before the events: the feed has all of them up to this revision.
		reached := w.seen()
		events, moved, ok := w.feed.after(w.position)
		if !ok {
			return tooOld(w.position, w.feed.oldest())
		}
		for _, e := range events {
			if err := w.sendEvent(ctx, e); err != nil {
				return err
			}
			w.position = e.revision
		}
		if len(events) == 0 {
			w.position = max(w.position, reached)
		}
		if due {
			due = false
			if err := w.sendBookmark(false); err != nil {
				return err
			}
			bookmarks.Reset(w.nextBookmark(ctx))
		}
		if err := w.flush(); err != nil {
			return err
		}
		if moved == nil {
			moved = ready // there are more events
		}
		select {
		case <-moved:
		case <-bookmarks.C:
			due = true
		case <-ctx.Done():
		}
	}
	return nil
}

// ready is a closed channel.
var ready = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// nextBookmark returns the time to the next bookmark: a minute, or shortly before
// the end of the watch.
func (w *stream) nextBookmark(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if left := time.Until(deadline) - bookmarkBefore; ok && left > 0 && left < bookmarkInterval {
		return left
	}
	return bookmarkInterval
}

// sendEvent sends a change as seen through the selectors: an object that begins
// to match is added, one that ceases to match is deleted.
func (w *stream) sendEvent(ctx context.Context, e event) error {
	k, sel := w.info.Kind, w.options.Select
	is := e.kind != deleted && sel.matches(k, e.object)
	was := e.previous != nil && sel.matches(k, e.previous)
	switch {
	case is && was:
		return w.sendObject(ctx, modified, e.object)
	case is:
		return w.sendObject(ctx, added, e.object)
	case was && e.kind == deleted:
		return w.sendObject(ctx, deleted, e.object)
	case was:
		// The last state that matched, at the revision at which it ceased to.
		return w.sendObject(ctx, deleted, atRevision(e.previous, e.revision))
	}
	return nil
}

func (w *stream) sendObject(ctx context.Context, kind string, stored []byte) error {
	data, err := w.reveal(ctx, w.info.Kind, stored)
	if err != nil {
		return err
	}
	data = atVersion(data, apiVersionOf(w.info.Kind, w.info.Version))
	if data, err = w.inForm(data); err != nil {
		return err
	}
	return w.send(kind, data)
}

// inForm converts one object to the requested form.
func (w *stream) inForm(data []byte) ([]byte, error) {
	switch w.media.As {
	case asTable:
		t, err := tableOf(w.req, w.media, w.info.Kind, [][]byte{data}, w.headers)
		if err != nil {
			return nil, err
		}
		w.headers = false
		t.ResourceVersion = text(data, find(data, "metadata", "resourceVersion"))
		return json.Marshal(t)
	case asMetadata, asMetaList:
		return metadataOf(w.media, data), nil
	}
	return data, nil
}

// sendBookmark sends a bookmark of the position; end marks the end of the initial
// events.
func (w *stream) sendBookmark(end bool) error {
	if !w.options.Bookmarks {
		return nil
	}
	meta := map[string]any{"resourceVersion": formatRevision(w.position)}
	if end {
		meta["annotations"] = map[string]any{metav1.InitialEventsAnnotationKey: "true"}
	}
	data, err := encodeObject(map[string]any{
		"apiVersion": apiVersionOf(w.info.Kind, w.info.Version), "kind": w.info.Kind.Kind, "metadata": meta,
	})
	if err != nil {
		return err
	}
	if data, err = w.inForm(data); err != nil {
		return err
	}
	return w.send("BOOKMARK", data)
}

// send writes one event.
func (w *stream) send(kind string, object []byte) error {
	// A transport without deadlines, such as the one inside the process, is fine.
	_ = http.NewResponseController(w.w).SetWriteDeadline(time.Now().Add(writeTimeout))
	line := make([]byte, 0, len(object)+64)
	line = append(line, `{"type":"`...)
	line = append(line, kind...)
	line = append(line, `","object":`...)
	line = append(line, object...)
	line = append(line, "}\n"...)
	if _, err := w.w.Write(line); err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}

func (w *stream) flush() error {
	if err := http.NewResponseController(w.w).Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}

// tooOld returns the 410 error of a watch that is behind the window.
func tooOld(revision, oldest uint64) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", revision, oldest))
}
