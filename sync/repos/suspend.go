package repos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/state"
	"limpet/sync/reconcile"
)

// Suspension pauses the checks and pulls of a Repository on one agent. Jobs that others create are
// run.
type Suspension struct {
	Namespace  string    `json:"namespace"`
	Repository string    `json:"repository"`
	UID        string    `json:"uid"` // another Repository of that name is not suspended
	Since      time.Time `json:"since"`
	Until      time.Time `json:"until,omitzero"` // zero = until it is resumed
}

// over reports whether the suspension has ended by itself.
func (s Suspension) over(now time.Time) bool { return !s.Until.IsZero() && !now.Before(s.Until) }

// suspendPrefix begins the keys of suspensions among the facts of the state file.
const suspendPrefix = "suspend/"

// Suspensions are those of one state file, which has one process. Safe for concurrent use.
type Suspensions struct {
	store *state.Store
	now   func() time.Time

	mu  sync.Mutex // guards all, and is held over a write, so that the file agrees
	all map[reconcile.Key]Suspension
}

// OpenSuspensions reads the suspensions.
func OpenSuspensions(ctx context.Context, store *state.Store) (*Suspensions, error) {
	kept, err := store.Facts(ctx, suspendPrefix)
	if err != nil {
		return nil, fmt.Errorf("read suspensions: %w", err)
	}
	s := &Suspensions{store: store, now: time.Now, all: map[reconcile.Key]Suspension{}}
	for key, data := range kept {
		var one Suspension
		if json.Unmarshal(data, &one) == nil {
			s.all[reconcile.Key{Namespace: one.Namespace, Name: one.Repository}] = one
			continue
		}
		err = errors.Join(err, store.DeleteFact(ctx, key))
	}
	return s, err
}

func suspensionOf(k reconcile.Key) string { return suspendPrefix + k.Namespace + "/" + k.Name }

// Suspend stores a suspension, in place of one of before.
func (s *Suspensions) Suspend(ctx context.Context, one Suspension) error {
	data, err := json.Marshal(one)
	if err != nil {
		return fmt.Errorf("encode the suspension: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := reconcile.Key{Namespace: one.Namespace, Name: one.Repository}
	if err := s.store.PutFact(ctx, suspensionOf(k), data); err != nil {
		return fmt.Errorf("suspend %s: %w", k, err)
	}
	s.all[k] = one
	return nil
}

// Resume ends a suspension, and reports whether there was one.
func (s *Suspensions) Resume(ctx context.Context, namespace, repository string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := reconcile.Key{Namespace: namespace, Name: repository}
	one := s.all[k]
	if err := s.store.DeleteFact(ctx, suspensionOf(k)); err != nil {
		return false, fmt.Errorf("resume %s: %w", k, err)
	}
	delete(s.all, k)
	return one.UID != "" && !one.over(s.now()), nil
}

// Drop removes the suspension of a Repository that is gone.
func (s *Suspensions) Drop(ctx context.Context, k reconcile.Key, uid string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one, ok := s.all[k]; !ok || one.UID != uid {
		return nil
	}
	if err := s.store.DeleteFact(ctx, suspensionOf(k)); err != nil {
		return fmt.Errorf("drop the suspension of %s: %w", k, err)
	}
	delete(s.all, k)
	return nil
}

// stored returns the suspension of a name, over or not.
func (s *Suspensions) stored(k reconcile.Key) (Suspension, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.all[k]
	return one, ok
}

// Of returns the suspension of a Repository, false when it has none.
func (s *Suspensions) Of(k reconcile.Key, uid string) (Suspension, bool) {
	one, ok := s.stored(k)
	return one, ok && one.UID == uid && !one.over(s.now())
}

// Suspended returns the suspensions that are not over, by namespace and name.
func (s *Suspensions) Suspended(context.Context) ([]Suspension, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Suspension{}
	for _, one := range s.all {
		if !one.over(s.now()) {
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b Suspension) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Repository, b.Repository))
	})
	return out, nil
}

// names returns the Repositories that have a suspension, over or not.
func (s *Suspensions) names() []reconcile.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.all))
}

// suspender is the step that ends the reconcile of a Repository that is suspended.
type suspender struct {
	all    *Suspensions // nil = none
	server server
}

func (s suspender) suspend(ctx context.Context, a *attempt) (bool, error) {
	if s.all == nil {
		return false, nil
	}
	if err := s.drop(ctx, a.key, a.memory.uid); err != nil {
		return false, err
	}
	if one, on := s.all.Of(a.key, a.memory.uid); on {
		a.result.Next = one.Until
		return true, nil
	}
	return false, nil
}

// drop drops the suspension of a Repository that is gone; uid is that of the one that is there now,
// "" for none. One that is over stays until it is replaced: a clock that is ahead for a while must
// not end any.
func (s suspender) drop(ctx context.Context, k reconcile.Key, uid string) error {
	if s.all == nil {
		return nil
	}
	one, stored := s.all.stored(k)
	if !stored || one.UID == uid {
		return nil
	}
	// The watch may not show it yet, or no longer, as behind a selector.
	obj, err := s.server.Get(ctx, k)
	if err != nil && !apierrors.IsNotFound(err) || err == nil && string(obj.GetUID()) == one.UID {
		return err
	}
	return s.all.Drop(ctx, k, one.UID)
}
