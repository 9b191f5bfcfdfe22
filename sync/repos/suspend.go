package repos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

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

	mu  sync.Mutex // guards all
	all map[Key]Suspension
}

// OpenSuspensions reads the suspensions, and drops those that are over.
func OpenSuspensions(ctx context.Context, store factStore) (*Suspensions, error) {
	kept, err := store.Facts(ctx, suspendPrefix)
	if err != nil {
		return nil, fmt.Errorf("read suspensions: %w", err)
	}
	s := &Suspensions{store: store, all: map[Key]Suspension{}}
	for key, data := range kept {
		var one Suspension
		if json.Unmarshal(data, &one) == nil && !one.over(time.Now()) {
			s.all[Key{one.Namespace, one.Repository}] = one
			continue
		}
		err = errors.Join(err, store.DeleteFact(ctx, key))
	}
	return s, err
}

func (k Key) fact() string { return suspendPrefix + k.Namespace + "/" + k.Name }

// Suspend keeps a suspension, in place of one of before.
func (s *Suspensions) Suspend(ctx context.Context, one Suspension) error {
	data, err := json.Marshal(one)
	if err != nil {
		return fmt.Errorf("encode the suspension: %w", err)
	}
	k := Key{one.Namespace, one.Repository}
	if err := s.store.PutFact(ctx, k.fact(), data); err != nil {
		return fmt.Errorf("suspend %s: %w", k, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[k] = one
	return nil
}

// Resume ends a suspension, and says whether there was one.
func (s *Suspensions) Resume(ctx context.Context, namespace, repository string) (bool, error) {
	k := Key{namespace, repository}
	if err := s.store.DeleteFact(ctx, k.fact()); err != nil {
		return false, fmt.Errorf("resume %s: %w", k, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one, was := s.all[k]
	delete(s.all, k)
	return was && !one.over(time.Now()), nil
}

// Of is the suspension of a Repository, false when it has none.
func (s *Suspensions) Of(k Key, uid string) (Suspension, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.all[k]
	return one, ok && one.UID == uid && !one.over(time.Now())
}

// Suspended returns the suspensions that are not over, by namespace and name.
func (s *Suspensions) Suspended(context.Context) ([]Suspension, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Suspension{}
	for _, one := range s.all {
		if !one.over(time.Now()) {
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b Suspension) int {
		return strings.Compare(a.Namespace+"/"+a.Repository, b.Namespace+"/"+b.Repository)
	})
	return out, nil
}
