package agent

import (
	"limpet/sync/kube"
)

// shelf keeps what was made of each object until the object changes. A picture
// of a thousand jobs of which one has moved costs one, not a thousand. A sight
// never changes, another one takes its place, so it says which version it is of.
// A shelf belongs to one goroutine.
type shelf[T any] struct {
	made map[kube.Object]shelved[T]
	turn uint64
}

type shelved[T any] struct {
	value T
	turn  uint64 // in which it was asked for last
}

func newShelf[T any]() *shelf[T] { return &shelf[T]{made: map[kube.Object]shelved[T]{}} }

// of returns what form makes of the object that is seen.
func (s *shelf[T]) of(seen kube.Object, form func(*object) T) T {
	e, ok := s.made[seen]
	if ok && e.turn == s.turn {
		return e.value
	}
	if !ok {
		e.value = form(seen.Unstructured())
	}
	e.turn = s.turn
	s.made[seen] = e
	return e.value
}

// end ends a turn of n objects: what was not asked for in it is gone.
func (s *shelf[T]) end(n int) {
	if len(s.made) > n {
		for seen, e := range s.made {
			if e.turn != s.turn {
				delete(s.made, seen)
			}
		}
	}
	s.turn++
}
