package view

// longWord is longer than names are: the work grows with the product of two
// lengths.
const longWord = 100 // bytes

// Distance is how many single bytes have to be changed, added or taken away to
// make one word of the other, for "did you mean". A word longer than names are
// is like no other.
func Distance(a, b string) int {
	if len(a) > longWord || len(b) > longWord {
		return max(len(a), len(b))
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		above := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := above
			if a[i] != b[j] {
				cost++
			}
			above = row[j+1]
			row[j+1] = min(cost, row[j]+1, above+1)
		}
	}
	return row[len(b)]
}
