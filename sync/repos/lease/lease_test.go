package lease

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// store is the Leases of an API: one object with versions and conflicts.
type store struct {
	mu      sync.Mutex // guards what follows
	object  *unstructured.Unstructured
	version int
	refuse  error // the answer to each request; nil = none
}

var errDown = errors.New("no route to host")

// link is the way of one agent to the store.
type link struct {
	*store
	down, readOnly atomic.Bool
}

func (l *link) fails(write bool) error {
	if l.down.Load() || write && l.readOnly.Load() {
		return errDown
	}
	return l.refuse
}

func (l *link) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	if err := l.fails(false); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.object == nil {
		return nil, apierrors.NewNotFound(Resource.GroupResource(), name)
	}
	return l.object.DeepCopy(), nil
}

func (l *link) Create(_ context.Context, u *unstructured.Unstructured, _ metav1.CreateOptions, _ ...string) (*unstructured.Unstructured,
	error) {
	return l.put(u, true)
}

func (l *link) Update(_ context.Context, u *unstructured.Unstructured, _ metav1.UpdateOptions, _ ...string) (*unstructured.Unstructured,
	error) {
	return l.put(u, false)
}

func (l *link) put(u *unstructured.Unstructured, create bool) (*unstructured.Unstructured, error) {
	if err := l.fails(true); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case create && l.object != nil:
		return nil, apierrors.NewAlreadyExists(Resource.GroupResource(), u.GetName())
	case !create && (l.object == nil || l.object.GetResourceVersion() != u.GetResourceVersion()):
		return nil, apierrors.NewConflict(Resource.GroupResource(), u.GetName(), nil)
	}
	l.version++
	l.object = u.DeepCopy()
	l.object.SetResourceVersion(strconv.Itoa(l.version))
	return l.object.DeepCopy(), nil
}

// agent is a Lease with a record of its terms.
type agent struct {
	*Lease
	link *link
	stop func()
}

// working holds the agents that work now.
type working struct {
	mu  sync.Mutex // guards now
	now map[string]int
}

func (w *working) add(name string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now[name] += n
}

func (w *working) names() (names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, n := range w.now {
		for range n {
			names = append(names, name)
		}
	}
	return names
}

func (w *working) begin(t *testing.T, s *store, name string) *agent {
	return w.over(t, &link{store: s}, name)
}

// over begins with a link of its own.
func (w *working) over(t *testing.T, way *link, name string) *agent {
	a := &agent{link: way}
	a.Lease = New(Options{Client: a.link, Name: "limpet-controllers", Holder: name, Logger: slog.New(slog.DiscardHandler),
		Work: func(ctx context.Context) error {
			w.add(name, 1)
			<-ctx.Done()
			w.add(name, -1)
			return nil
		}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	a.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	return a
}

func one(t *testing.T, what string, w *working, want string) {
	t.Helper()
	synctest.Wait()
	if got := w.names(); len(got) != 1 || got[0] != want {
		t.Errorf("%s: %q work, want %q", what, got, want)
	}
}

// TestOneWorks: of several agents one works; another takes over at once when it is
// stopped, and within the expiry and a poll when it is cut off, after the first has
// stopped working.
func TestOneWorks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w := &store{}, &working{now: map[string]int{}}
		a := w.begin(t, s, "a")
		one(t, "the first", w, "a")
		b := w.begin(t, s, "b")
		time.Sleep(time.Hour)
		one(t, "the standby waits", w, "a")
		if got, want := b.State(), (State{Holder: "a"}); got != want {
			t.Errorf("standby: %+v", got)
		}
		a.link.down.Store(true)
		time.Sleep(DefaultExpiry*2/3 - time.Second)
		for range 60 {
			time.Sleep(time.Second)
			synctest.Wait()
			if n := len(w.names()); n > 1 {
				t.Fatalf("%d work", n)
			}
		}
		one(t, "after the expiry", w, "b")
		a.link.down.Store(false)
		time.Sleep(time.Hour)
		one(t, "the first is back", w, "b")
		b.stop()
		time.Sleep(DefaultExpiry / renewals)
		one(t, "the second was stopped", w, "a")
		transitions, _, _ := unstructured.NestedInt64(s.object.Object, "spec", "leaseTransitions")
		if transitions != 2 {
			t.Errorf("%d transitions", transitions)
		}
		a.stop()
		if holder := specText(s.object, "holderIdentity"); holder != "" {
			t.Errorf("still held by %q", holder)
		}
	})
}

// TestShortOutage: the holder goes on through two renewals that fail, also when only the
// write did.
func TestShortOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w := &store{}, &working{now: map[string]int{}}
		a := w.begin(t, s, "a")
		synctest.Wait()
		b := w.begin(t, s, "b")
		time.Sleep(time.Minute)
		a.link.down.Store(true)
		for range 22 {
			time.Sleep(time.Second)
			one(t, "in an outage", w, "a")
		}
		a.link.down.Store(false)
		time.Sleep(time.Hour)
		one(t, "after the outage", w, "a")
		for _, readOnly := range []bool{true, false} {
			a.link.readOnly.Store(readOnly)
			for range 20 {
				time.Sleep(time.Second)
				one(t, "a write that fails", w, "a")
			}
		}
		a.stop()
		b.stop()
	})
}

// TestRestart: a process takes over at once from the one before it, and of two with the
// same identity, such as those of a copied state file, one works.
func TestRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w := &store{}, &working{now: map[string]int{}}
		crashed := w.begin(t, s, "a")
		synctest.Wait()
		crashed.link.down.Store(true)
		crashed.stop()
		again := w.begin(t, s, "a")
		one(t, "after a restart", w, "a")
		twin := w.begin(t, s, "a")
		time.Sleep(DefaultExpiry)
		for range 600 {
			time.Sleep(time.Second)
			one(t, "twins", w, "a")
		}
		again.stop()
		twin.stop()
	})
}

// TestFailedWrite: a holder whose write has failed knows its Lease again, at its start and when it
// is stopped.
func TestFailedWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w := &store{}, &working{now: map[string]int{}}
		crashed := w.begin(t, s, "a")
		synctest.Wait()
		crashed.link.down.Store(true)
		crashed.stop()
		way := &link{store: s}
		way.readOnly.Store(true)
		again := w.over(t, way, "a")
		synctest.Wait()
		way.readOnly.Store(false)
		time.Sleep(DefaultExpiry / renewals)
		one(t, "after a write that failed", w, "a")
		way.readOnly.Store(true)
		time.Sleep(DefaultExpiry / renewals)
		synctest.Wait()
		way.readOnly.Store(false)
		again.stop()
		if holder := specText(s.object, "holderIdentity"); holder != "" {
			t.Errorf("still held by %q", holder)
		}
	})
}

// TestNoLeases: on an API that serves none, or forbids them, the agent works at once.
func TestNoLeases(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusNotFound, http.StatusForbidden, http.StatusMethodNotAllowed} {
		synctest.Test(t, func(t *testing.T) {
			s, w := &store{refuse: apierrors.NewGenericServerResponse(code, "post", schema.GroupResource{}, "", "", 0, true)},
				&working{now: map[string]int{}}
			a := w.begin(t, s, "a")
			one(t, strconv.Itoa(code), w, "a")
			if got := a.State(); got != (State{Active: true}) {
				t.Errorf("%d: %+v", code, got)
			}
			a.stop()
		})
	}
}

// TestNotReachable: an API that is away at the start is tried again.
func TestNotReachable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w := &store{}, &working{now: map[string]int{}}
		a := w.begin(t, s, "a")
		synctest.Wait()
		a.link.down.Store(true)
		time.Sleep(time.Hour)
		if got := w.names(); len(got) > 0 {
			t.Errorf("%q work without a lease", got)
		}
		a.link.down.Store(false)
		time.Sleep(DefaultExpiry / renewals)
		one(t, "it is back", w, "a")
		a.stop()
	})
}
