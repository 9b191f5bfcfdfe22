package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/state"
	"limpet/sync/api"
)

// The feed keeps the newest events of each resource, in the order of their commits. Watches read it
// at their own pace by a revision: there is no buffer per watch, and a watch that falls behind the
// window gets an error.
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

// window is the newest events of one resource, the oldest first. The object of a deletion is its
// last state at the revision of the deletion; Previous is that state as it was stored.
type window struct {
	events []state.ObjectEvent
	bytes  int           // sum of their sizes
	floor  uint64        // all changes after this revision are held
	moved  chan struct{} // closed at the next event
}

func newFeed(size int, revision uint64) *feed {
	f := &feed{window: cmp.Or(size, defaultWindow), resources: map[string]*window{}, reached: revision, moved: make(chan struct{})}
	for _, k := range api.Kinds {
		f.resources[resourceName(k)] = &window{floor: revision, moved: make(chan struct{})}
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
		// The newest one stays, so that a watch that is up to date never falls behind by one large
		// object.
		n := 0
		for ; n < len(w.events)-1 && (len(w.events)-n > f.window || w.bytes > feedBytes); n++ {
			w.bytes -= sizeOf(w.events[n])
			w.floor = w.events[n].Object.Revision
		}
		clear(w.events[:n]) // otherwise the backing array keeps the old objects alive
		w.events = w.events[n:]
		close(w.moved)
		w.moved = make(chan struct{})
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

// next returns the events of a resource after a revision. They are all up to reached, and moved is
// closed at the next one of the resource: watches of others sleep on. The error is the 410 of a
// revision before the window.
func (f *feed) next(resource string, after uint64) (events []state.ObjectEvent, reached uint64, moved <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.resources[resource]
	if after < w.floor {
		return nil, 0, nil, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", after, w.floor))
	}
	from, _ := slices.BinarySearchFunc(w.events, after+1, func(e state.ObjectEvent, r uint64) int { return cmp.Compare(e.Object.Revision, r) })
	return slices.Clone(w.events[from:]), f.reached, w.moved, nil
}
