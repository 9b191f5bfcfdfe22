// Package lease elects one of several agents by a Lease of coordination.k8s.io: the
// holder works, the others stand by and take over when the Lease expires.
//
// A holder stops at two thirds of the expiry without a renewal, counted from when the last
// successful renewal was sent, on its own clock. A standby takes over when it has seen no renewal
// for the whole expiry, also on its own clock. So the clocks of hosts need not agree. A Lease
// fences nobody: every write of the holder must name the resourceVersion that it was made for.
package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/kube"
)

// Resource is the resource of Leases.
var Resource = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// DefaultExpiry is how long a Lease is valid without a renewal.
const DefaultExpiry = time.Minute

const (
	// renewals is how many renewals there are in an expiry: the holder may fail two in a row before it
	// stops.
	renewals = 4
	// maxExpiry bounds what the Lease of another agent may claim.
	maxExpiry = 10 * time.Minute
)

type object = unstructured.Unstructured

// Client reads and writes the Leases of one namespace. A dynamic.ResourceInterface is one.
type Client interface {
	Get(ctx context.Context, name string, o metav1.GetOptions, subresources ...string) (*object, error)
	Create(ctx context.Context, u *object, o metav1.CreateOptions, subresources ...string) (*object, error)
	Update(ctx context.Context, u *object, o metav1.UpdateOptions, subresources ...string) (*object, error)
}

// Options of a Lease. Client, Name, Holder, Work and Logger must be set.
type Options struct {
	Client Client
	Name   string // of the Lease
	// Holder identifies this agent; it stays the same after a restart, so that a new
	// process takes over at once from the one before it.
	Holder string
	Expiry time.Duration // 0 = DefaultExpiry
	// Work runs while this agent holds the Lease. Its context ends with the Lease.
	Work func(ctx context.Context) error
	// Changed is called when the holder changes. It must not block; nil = no call.
	Changed func(State)
	Logger  *slog.Logger
}

// State is the role of this agent.
type State struct {
	Active bool   // it holds the Lease, or the API has none
	Holder string // of the Lease; "" = none known
}

// Lease takes part in the election. Use New, then Run once.
type Lease struct {
	o Options

	stamp    string    // renewTime of the last write of this process; "" = none
	stored   string    // that of the last one that the API has confirmed
	observed string    // holder and renewTime of another process, as seen last
	since    time.Time // when that was seen first
	renewed  time.Time // when the last successful write was sent; zero = not held
	known    bool      // the API has Leases

	mu    sync.Mutex // guards state
	state State
}

// New returns a Lease that is not held. It makes no request.
func New(o Options) *Lease {
	o.Expiry = cmp.Or(o.Expiry, DefaultExpiry)
	return &Lease{o: o}
}

// State returns the role of this agent.
func (l *Lease) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

func (l *Lease) setState(s State) {
	l.mu.Lock()
	before := l.state
	l.state = s
	l.mu.Unlock()
	if before == s {
		return
	}
	l.o.Logger.Info("controllers", "active", s.Active, "lease", l.o.Name, "holder", s.Holder)
	if l.o.Changed != nil {
		l.o.Changed(s)
	}
}

// Run works whenever this agent holds the Lease, until ctx ends or the work fails; then
// it releases the Lease. On an API without Leases it works all the time.
func (l *Lease) Run(ctx context.Context) error {
	failed := ""
	for ctx.Err() == nil {
		err := l.acquire(ctx)
		switch {
		case err == nil && l.holds():
			if err := l.work(ctx); err != nil {
				return err
			}
			continue // without a pause: it was lost, or ctx has ended
		case !l.known && kube.NotServed(err):
			l.o.Logger.Warn("this API serves no leases: only one agent may run with --controllers on", "err", err)
			l.setState(State{Active: true})
			return l.o.Work(ctx)
		case err != nil && err.Error() != failed && ctx.Err() == nil:
			failed = err.Error()
			l.o.Logger.Warn("cannot acquire the lease, retrying", "lease", l.o.Name, "err", err)
		}
		_ = kube.Sleep(ctx, l.pause())
	}
	return nil
}

// work runs the work and renews the Lease until it is lost or ctx ends.
func (l *Lease) work(ctx context.Context) error {
	term, stop := context.WithCancel(ctx)
	defer stop()
	l.setState(State{Active: true, Holder: l.o.Holder})
	done := make(chan error, 1)
	go func() { done <- l.o.Work(term) }()
	for ctx.Err() == nil && l.holds() {
		select {
		case err := <-done:
			l.release(ctx)
			return err
		case <-ctx.Done():
		case <-time.After(l.pause()):
			if err := l.acquire(ctx); err != nil && ctx.Err() == nil {
				l.o.Logger.Warn("cannot renew the lease", "lease", l.o.Name, "err", err)
			}
		}
	}
	stop()
	err := <-done
	switch {
	case ctx.Err() != nil:
		l.release(ctx)
	case l.State().Active: // else it is known who holds it
		l.setState(State{})
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// holds reports whether this agent may work. The monotonic clock stands still while a
// host sleeps, so the wall clock is compared too.
func (l *Lease) holds() bool {
	now, limit := time.Now(), l.o.Expiry*2/3
	return !l.renewed.IsZero() && now.Sub(l.renewed) < limit && now.Round(0).Sub(l.renewed.Round(0)) < limit
}

// pause is the time between two requests, with jitter. It ends no later than the time at which a
// holder has to stop.
func (l *Lease) pause() time.Duration {
	d := l.o.Expiry / renewals
	d -= rand.N(d/10 + 1)
	if left := l.o.Expiry*2/3 - time.Since(l.renewed); left > 0 {
		d = min(d, left)
	}
	return d
}

// acquire takes or renews the Lease if no other agent holds it.
func (l *Lease) acquire(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.o.Expiry/renewals/2)
	defer cancel()
	sent := time.Now()
	u, err := l.o.Client.Get(ctx, l.o.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err): // an API without Leases says so when one is created
		u = &object{Object: map[string]any{}}
		u.SetGroupVersionKind(Resource.GroupVersion().WithKind("Lease"))
		u.SetName(l.o.Name)
		l.fill(u, sent)
		_, err = l.o.Client.Create(ctx, u, metav1.CreateOptions{})
	case err != nil:
		return fmt.Errorf("read lease %s: %w", l.o.Name, err)
	case !l.free(u, sent):
		l.known, l.renewed = true, time.Time{}
		l.setState(State{Holder: specText(u, "holderIdentity")})
		return nil
	default:
		l.fill(u, sent)
		_, err = l.o.Client.Update(ctx, u, metav1.UpdateOptions{})
	}
	switch {
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
		return nil // another agent was faster; the next read shows which
	case err != nil:
		return fmt.Errorf("write lease %s: %w", l.o.Name, err)
	}
	l.known = true
	l.renewed = sent
	l.stored = l.stamp
	return nil
}

// free reports whether this process may write the Lease: it holds it, has inherited it
// from the process before it, or nobody has renewed it for its whole expiry.
func (l *Lease) free(u *object, now time.Time) bool {
	holder, stamp := specText(u, "holderIdentity"), specText(u, "renewTime")
	if holder == "" || holder == l.o.Holder && (l.stamp == "" || stamp == l.stamp || stamp == l.stored) {
		l.stored = stamp // what stands there if the write fails
		return true
	}
	if id := holder + " " + stamp; id != l.observed {
		l.observed, l.since = id, now
	}
	seconds, _, _ := unstructured.NestedInt64(u.Object, "spec", "leaseDurationSeconds")
	return now.Sub(l.since) >= min(time.Duration(seconds)*time.Second, maxExpiry)
}

func (l *Lease) fill(u *object, now time.Time) {
	l.stamp = now.UTC().Format(metav1.RFC3339Micro)
	spec, _ := u.Object["spec"].(map[string]any)
	if spec == nil {
		spec = map[string]any{}
		u.Object["spec"] = spec
	}
	if spec["holderIdentity"] != l.o.Holder {
		if spec["acquireTime"] != nil {
			n, _ := spec["leaseTransitions"].(int64)
			spec["leaseTransitions"] = n + 1
		}
		spec["holderIdentity"], spec["acquireTime"] = l.o.Holder, l.stamp
	}
	spec["renewTime"], spec["leaseDurationSeconds"] = l.stamp, max(1, int64(l.o.Expiry/time.Second))
}

// releaseTime bounds the release of a Lease: the agent stops, and without it the Lease expires.
const releaseTime = 3 * time.Second

// release takes this agent off the Lease, so that another one need not wait for its expiry.
func (l *Lease) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(l.o.Expiry/renewals/2, releaseTime))
	defer cancel()
	l.setState(State{})
	l.renewed = time.Time{}
	u, err := l.o.Client.Get(ctx, l.o.Name, metav1.GetOptions{})
	if err == nil && specText(u, "holderIdentity") == l.o.Holder && slices.Contains([]string{l.stamp, l.stored}, specText(u, "renewTime")) {
		unstructured.RemoveNestedField(u.Object, "spec", "holderIdentity")
		_, err = l.o.Client.Update(ctx, u, metav1.UpdateOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		l.o.Logger.Warn("cannot release the lease, it expires", "lease", l.o.Name, "err", err)
	}
}

func specText(u *object, name string) string {
	text, _, _ := unstructured.NestedString(u.Object, "spec", name)
	return text
}
