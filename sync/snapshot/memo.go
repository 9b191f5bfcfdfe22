package snapshot

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/kube"
)

// memo keeps what was computed from each object until the object changes, so that
// one changed job in a thousand costs one row. A cached object is immutable, and
// so identifies its version. A memo belongs to one goroutine.
type memo[T any] struct {
	values map[kube.Object]memoized[T]
	round  uint64
}

type memoized[T any] struct {
	value T
	round uint64 // of the last use
}

func newMemo[T any]() *memo[T] { return &memo[T]{values: map[kube.Object]memoized[T]{}} }

// Get returns what compute makes of the object.
func (m *memo[T]) Get(o kube.Object, compute func(*unstructured.Unstructured) T) T {
	e, ok := m.values[o]
	if ok && e.round == m.round {
		return e.value
	}
	if !ok {
		e.value = compute(o.Unstructured())
	}
	e.round = m.round
	m.values[o] = e
	return e.value
}

// Sweep ends a round of n objects and forgets those that were not used in it.
func (m *memo[T]) Sweep(n int) {
	if len(m.values) > n {
		for o, e := range m.values {
			if e.round != m.round {
				delete(m.values, o)
			}
		}
	}
	m.round++
}
