package diff

// edit says that lines a to endA of one text became lines b to endB of the other;
// ends are not included.
type edit struct{ a, endA, b, endB int }

// mostEdits bounds the lines that two texts may differ by before their middles are
// told as wholly different: the work grows with it times the lines, the memory with
// its square (4 MiB).
const mostEdits = 1000

// edits finds a shortest way from one text to the other: Myers, "An O(ND)
// Difference Algorithm and Its Variations", 1986. False says that it is too long,
// and all between the common beginning and the common end is one edit.
func edits(a, b []string) ([]edit, bool) {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	if head == len(a) && head == len(b) {
		return nil, true
	}
	mid := func(lines []string) []string { return lines[head : len(lines)-tail] }
	x, y := numbered(mid(a), mid(b))
	out, ok := shortest(x, y)
	if !ok {
		out = []edit{{endA: len(x), endB: len(y)}}
	}
	for i := range out {
		e := &out[i]
		e.a, e.endA, e.b, e.endB = e.a+head, e.endA+head, e.b+head, e.endB+head
	}
	return out, ok
}

// numbered gives equal lines the same number, so that they are compared once.
func numbered(a, b []string) (x, y []int32) {
	known := make(map[string]int32, len(a))
	number := func(lines []string) []int32 {
		out := make([]int32, len(lines))
		for i, l := range lines {
			n, ok := known[l]
			if !ok {
				n = int32(len(known))
				known[l] = n
			}
			out[i] = n
		}
		return out
	}
	return number(a), number(b)
}

// shortest is the algorithm: after d steps furthest[k] is how far into a one can
// get on the diagonal k, which is the place in a less that in b. The way is found
// back through what furthest was before each step.
func shortest(a, b []int32) ([]edit, bool) {
	most := min(len(a)+len(b), mostEdits)
	furthest := make([]int32, 2*most+3) // diagonal k at k+most+1
	at := func(k int) *int32 { return &furthest[k+most+1] }
	var before [][]int32 // furthest of -d-1..d+1 before step d
	for d := 0; d <= most; d++ {
		kept := make([]int32, 2*d+3)
		copy(kept, furthest[most-d:most+d+3])
		before = append(before, kept)
		for k := -d; k <= d; k += 2 {
			x := *at(k - 1) + 1
			if down(d, k, *at(k - 1), *at(k + 1)) {
				x = *at(k + 1)
			}
			for int(x) < len(a) && int(x)-k < len(b) && a[x] == b[int(x)-k] {
				x++
			}
			*at(k) = x
			if int(x) >= len(a) && int(x)-k >= len(b) {
				return back(before, len(a), len(b)), true
			}
		}
	}
	return nil, false
}

// down says that step d comes to the diagonal k with a line of b, not one of a.
func down(d, k int, left, right int32) bool {
	return k == -d || k != d && left < right
}

// back collects the steps from the end to the beginning.
func back(before [][]int32, x, y int) []edit {
	var out []edit // last first
	for d := len(before) - 1; d > 0; d-- {
		k := x - y
		was := before[d]
		left, right := was[k-1+d+1], was[k+1+d+1]
		var e edit
		if down(d, k, left, right) {
			x = int(right)
			y = x - (k + 1)
			e = edit{x, x, y, y + 1}
		} else {
			x = int(left)
			y = x - (k - 1)
			e = edit{x, x + 1, y, y}
		}
		if n := len(out); n > 0 && out[n-1].a == e.endA && out[n-1].b == e.endB {
			out[n-1].a, out[n-1].b = e.a, e.b
			continue
		}
		out = append(out, e)
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}
