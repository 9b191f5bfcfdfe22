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

func TestNearest(t *testing.T) {
	t.Parallel()
	commands := []string{"demo", "api", "status", "job", "repo", "history", "store", "apply", "get", "delete"}
	for word, want := range map[string]string{
		"stauts": "status", "hist": "history", "jbo": "job", "foo": "", "x": "", "": "", "appyl": "apply", "delte": "delete", "stor": "store",
		"reppo": "repo", "repositories": "",
	} {
		if got := Nearest(word, commands); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
