package widget

import (
	"slices"
	"sort"
)

// Order is the order of a list: the index of a sorting, 0 for the order of the snapshot.
type Order struct {
	By      uint8
	Reverse bool
}

// Sorting is one possible order of a list.
type Sorting[T any] struct {
	Name    string
	Compare func(a, b T) int
}

// Sorted returns the list in an order; equal rows keep their order.
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
