package repos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/state"
)

// Suspension is the wish of a person that one agent leaves a Repository alone: it
// neither asks its remote nor for pulls. Jobs that somebody else makes are run.
type Suspension struct {
	Namespace  string    `json:"namespace"`
	Repository string    `json:"repository"`
	UID        string    `json:"uid"` // another Repository of that name is not meant
	Since      time.Time `json:"since"`
	Until      time.Time `json:"until,omitzero"` // zero = until it is resumed
}

// over says that the suspension has ended by itself.
func (s Suspension) over(now time.Time) bool { return !s.Until.IsZero() && !now.Before(s.Until) }

// suspendPrefix begins the keys of suspensions among the facts of the state file.
const suspendPrefix = "suspend/"

// factStore is what is needed of the state file.
type factStore interface {
	PutFact(ctx context.Context, key string, data []byte) error
	Facts(ctx context.Context, prefix string) (map[string][]byte, error)
	DeleteFact(ctx context.Context, key string) error
}

var _ factStore = (*state.Store)(nil)

// Suspensions are those of one state file. Its holder makes them once, and is safe
// to ask from everywhere.
type Suspensions struct {
	store factStore
	now   func() time.Time

	writing sync.Mutex // held over a change: the file and all say the same afterwards

	mu   sync.Mutex // guards what follows
	all  map[Key]Suspension
	past map[Key]time.Time // since when one is seen to be over
}

// surelyOver is how long a suspension has to be over before it is dropped: a host may
// start with a clock that is years ahead, and is told the time a little later. By the
// time of this process, which does not jump.
const surelyOver = time.Hour

// OpenSuspensions reads the suspensions.
func OpenSuspensions(ctx context.Context, store factStore) (*Suspensions, error) {
	kept, err := store.Facts(ctx, suspendPrefix)
	if err != nil {
		return nil, fmt.Errorf("read suspensions: %w", err)
	}
	s := &Suspensions{store: store, now: time.Now, all: map[Key]Suspension{}, past: map[Key]time.Time{}}
	for key, data := range kept {
		var one Suspension
		if json.Unmarshal(data, &one) == nil {
			s.all[Key{one.Namespace, one.Repository}] = one
			continue
		}
		err = errors.Join(err, store.DeleteFact(ctx, key))
	}
	return s, err
}

func (k Key) suspension() string { return suspendPrefix + k.Namespace + "/" + k.Name }

// Suspend keeps a suspension, in place of one of before.
func (s *Suspensions) Suspend(ctx context.Context, one Suspension) error {
	data, err := json.Marshal(one)
	if err != nil {
		return fmt.Errorf("encode the suspension: %w", err)
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	k := Key{one.Namespace, one.Repository}
	if err := s.store.PutFact(ctx, k.suspension(), data); err != nil {
		return fmt.Errorf("suspend %s: %w", k, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[k] = one
	delete(s.past, k)
	return nil
}

// Resume ends a suspension, and says whether there was one.
func (s *Suspensions) Resume(ctx context.Context, namespace, repository string) (bool, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	k := Key{namespace, repository}
	one, _ := s.kept(k)
	if err := s.remove(ctx, k); err != nil {
		return false, fmt.Errorf("resume %s: %w", k, err)
	}
	return one.UID != "" && !one.over(s.now()), nil
}

// Drop takes away the suspension of a Repository that is gone.
func (s *Suspensions) Drop(ctx context.Context, k Key, uid string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if one, ok := s.kept(k); !ok || one.UID != uid {
		return nil
	}
	if err := s.remove(ctx, k); err != nil {
		return fmt.Errorf("drop the suspension of %s: %w", k, err)
	}
	return nil
}

// remove takes a suspension out of the file and out of memory. s.writing is held.
func (s *Suspensions) remove(ctx context.Context, k Key) error {
	if err := s.store.DeleteFact(ctx, k.suspension()); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, k)
	delete(s.past, k)
	return nil
}

// kept is what the file says of a name, over or not.
func (s *Suspensions) kept(k Key) (Suspension, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.all[k]
	return one, ok
}

// Of is the suspension of a Repository, false when it has none.
func (s *Suspensions) Of(k Key, uid string) (Suspension, bool) {
	one, ok := s.kept(k)
	return one, ok && one.UID == uid && !one.over(s.now())
}

// stale says that a suspension is over for so long that this is no mistake.
func (s *Suspensions) stale(k Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one, ok := s.all[k]; !ok || !one.over(s.now()) {
		delete(s.past, k)
		return false
	}
	if s.past[k].IsZero() {
		s.past[k] = time.Now()
	}
	return time.Since(s.past[k]) >= surelyOver
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
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i], out[j]
		return strings.Compare(a.Namespace+"/"+a.Repository, b.Namespace+"/"+b.Repository) < 0
	})
	return out, nil
}

// names are the Repositories that the file knows, over or not.
func (s *Suspensions) names() []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.all))
}

// unsuspend drops what is kept for a Repository that is gone, and what is over.
// seen is the UID that the watch shows, "" for none; it may be late, so the server
// is asked.
func (c *Controller) unsuspend(ctx context.Context, k Key, seen string) error {
	if c.o.Suspensions == nil {
		return nil
	}
	one, kept := c.o.Suspensions.kept(k)
	if !kept {
		return nil
	}
	if one.UID != seen {
		obj, err := c.server.get(ctx, k)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err != nil || string(obj.GetUID()) != one.UID {
			return c.o.Suspensions.Drop(ctx, k, one.UID)
		}
	}
	if c.o.Suspensions.stale(k) {
		return c.o.Suspensions.Drop(ctx, k, one.UID)
	}
	return nil
}
