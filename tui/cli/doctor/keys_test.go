package doctor

import (
	"errors"
	"testing"
)

// TestKeyResults: an error goes before a warning, and the first of each is named.
func TestKeyResults(t *testing.T) {
	t.Parallel()
	bad := errors.New("no keys")
	for name, c := range map[string]struct {
		add  func(*keyResults)
		want check
	}{
		"nothing": {func(f *keyResults) { f.add("a/b", "n", "", "", nil) }, check{Result: checkOK, Found: "none"}},
		"good":    {func(f *keyResults) { f.add("a/b", "n", "x", "", nil) }, check{Result: checkOK, Found: "1 keys can be used"}},
		"soon": {func(f *keyResults) { f.add("a/b", "n", "x", "", nil); f.add("a/c", "m", "x", "ends", nil) },
			check{Result: checkWarn, Found: "1 of 2 keys need attention, the first: a/c: ends", Next: "m"}},
		"bad": {func(f *keyResults) {
			f.add("a/b", "n", "x", "ends", nil)
			f.add("a/c", "m", "x", "", bad)
			f.add("a/d", "o", "x", "", bad)
		}, check{Result: checkFail, Found: "2 of 3 keys cannot be used here, the first: a/c: no keys", Next: "m"}},
		"unread": {func(f *keyResults) { f.unread = 3 }, check{Result: checkOK,
			Found: "none; 3 cannot be read from here: 'limpet repo test' checks those"}},
	} {
		var f keyResults
		c.add(&f)
		if got := f.judge("keys", "none", true); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
