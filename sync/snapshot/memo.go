package snapshot

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/kube"
)

// memo keeps what was computed from each object until the object changes, so that one changed job
// in a thousand costs one row. A cached object is immutable, and so identifies its version. A memo
// belongs to one goroutine.
type memo[T any] struct {
	before, now map[kube.Object]T // used in the last round, and in this one
}

func newMemo[T any]() *memo[T] {
	return &memo[T]{map[kube.Object]T{}, map[kube.Object]T{}}
}

// Get returns what compute makes of the object.
func (m *memo[T]) Get(o kube.Object, compute func(*unstructured.Unstructured) T) T {
	v, ok := m.now[o]
	if !ok {
		if v, ok = m.before[o]; !ok {
			v = compute(o.Unstructured())
		}
		m.now[o] = v
	}
	return v
}

// EndRound forgets what was not used since the last call.
func (m *memo[T]) EndRound() {
	clear(m.before)
	m.before, m.now = m.now, m.before
}
