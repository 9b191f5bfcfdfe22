package text

import "strings"

// maxWord bounds the input: the work grows with the product of both lengths.
const maxWord = 100 // bytes

// Nearest returns the candidate that a mistyped word means: one with word as its prefix, else the most similar one within
// an edit distance of a third of its length. "" means none.
func Nearest(word string, candidates []string) string {
	best, least := "", len(word)/3+1
	for _, c := range candidates {
		if len(word) >= 3 && strings.HasPrefix(c, word) {
			return c
		}
		if d := Distance(word, c); d < least {
			best, least = c, d
		}
	}
	return best
}

// Distance returns the edit distance of two words in bytes, with transpositions, for
// "did you mean". A word longer than maxWord is similar to none.
func Distance(a, b string) int {
	if len(a) > maxWord || len(b) > maxWord {
		return max(len(a), len(b))
	}
	// The rows of the table for the byte before the last, the last, and this one.
	two, one, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		two, one, row = one, row, two
		row[0] = i + 1
		for j := range len(b) {
			cost := one[j]
			if a[i] != b[j] {
				cost++
			}
			row[j+1] = min(cost, row[j]+1, one[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], two[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
