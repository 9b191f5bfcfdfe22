package text

import (
	"strings"
	"testing"
)

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"same", "same", 0}, {"a", "", 1}, {"", "abc", 3}, {"main", "mian", 1}, {"erorr", "error", 1}, {"ab", "ba", 1},
		{"abc", "cba", 2}, {"kitten", "sitting", 3},
		{strings.Repeat("a", maxWord), strings.Repeat("a", maxWord-1), 1},
		{strings.Repeat("a", 2*maxWord), strings.Repeat("a", 2*maxWord-1), 2 * maxWord},
	} {
		if got := Distance(c.a, c.b); got != c.want {
			t.Errorf("%q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
