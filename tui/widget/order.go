package widget

import (
	"slices"
	"sort"
)

// Order is the order of a list: by the sorting of a number, 0 being that of the
// snapshot.
type Order struct {
	By      uint8
	Reverse bool
}

// Sorting is one order that a list can have.
type Sorting[T any] struct {
	Name    string
	Compare func(a, b T) int
}

// Sorted is a list in an order; equal rows stay as they came.
func Sorted[T any](list []T, o Order, by []Sorting[T]) []T {
	if o == (Order{}) {
		return list
	}
	list = slices.Clone(list)
	if compare := by[o.By].Compare; compare != nil {
		sort.SliceStable(list, func(i, j int) bool { return compare(list[i], list[j]) < 0 })
	}
	if o.Reverse {
		slices.Reverse(list)
	}
	return list
}
