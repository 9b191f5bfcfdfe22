package target

import "testing"

// TestNextPage: a page of whole objects grows at most twofold, and stays within what a client
// accepts of the largest ones.
func TestNextPage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		objects, bytes int
		whole          bool
		want           int
	}{
		"small":           {40, 40 << 10, true, 80},
		"small, the most": {wholePage, 160 << 10, true, wholePage},
		"large":           {80, 16 << 20, true, firstPage},
		"none":            {0, 100, true, firstPage},
		"metadata":        {40, 40 << 10, false, mostPage},
		"large metadata":  {40, 8 << 20, false, firstPage},
	} {
		if got := nextPage(c.objects, c.bytes, c.whole); got != c.want {
			t.Errorf("%s: %d, not %d", name, got, c.want)
		}
	}
	if wholePage*(3<<19) > 256<<20 {
		t.Error("a page of the largest objects is above the limit of an answer")
	}
}
