package sync

// shelf keeps what was made of each object until the object changes. A picture
// of ten thousand jobs of which one has moved costs one, not ten thousand. The
// caches of the watches never change an object, they replace it, so its address
// says which version it is. A shelf belongs to one goroutine.
type shelf[T any] struct {
	made map[*object]shelved[T]
	turn uint64
}

type shelved[T any] struct {
	value T
	turn  uint64 // in which it was asked for last
}

func newShelf[T any]() *shelf[T] { return &shelf[T]{made: map[*object]shelved[T]{}} }

// of returns what form makes of u.
func (s *shelf[T]) of(u *object, form func(*object) T) T {
	e, ok := s.made[u]
	if ok && e.turn == s.turn {
		return e.value
	}
	if !ok {
		e.value = form(u)
	}
	e.turn = s.turn
	s.made[u] = e
	return e.value
}

// end ends a turn of n objects: what was not asked for in it is gone.
func (s *shelf[T]) end(n int) {
	if len(s.made) > n {
		for u, e := range s.made {
			if e.turn != s.turn {
				delete(s.made, u)
			}
		}
	}
	s.turn++
}
