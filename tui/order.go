package tui

import (
	"slices"
	"sort"
)

// order is the order of a list: by the sorting of a number, 0 being that of the
// picture.
type order struct {
	by      uint8
	reverse bool
}

// sorting is one order that a list can have.
type sorting[T any] struct {
	name    string
	compare func(a, b T) int
}

// sorted is a list in an order; equal rows stay as they came.
func sorted[T any](list []T, o order, by []sorting[T]) []T {
	if o == (order{}) {
		return list
	}
	list = slices.Clone(list)
	if compare := by[o.by].compare; compare != nil {
		sort.SliceStable(list, func(i, j int) bool { return compare(list[i], list[j]) < 0 })
	}
	if o.reverse {
		slices.Reverse(list)
	}
	return list
}
