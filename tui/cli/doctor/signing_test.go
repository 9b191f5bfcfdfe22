package doctor

import (
	"errors"
	"strings"
	"testing"

	"limpet/sync/worker"
)

// TestSigningJudged: what is wrong goes before what will be, and the first is named.
func TestSigningJudged(t *testing.T) {
	t.Parallel()
	good, soon, bad := worker.SigningLook{Text: "ssh key x"}, worker.SigningLook{Text: "ssh key x", Soon: "it ends in 2d"}, errors.New("wrong passphrase")
	for name, c := range map[string]struct {
		add           func(*signingResults)
		result, found string
		next          string
		unknown       bool
	}{
		"nothing": {add: func(f *signingResults) { f.add("a/b", "n", worker.SigningLook{}, nil) }, result: checkOK, found: "no commits are signed"},
		"well":    {add: func(f *signingResults) { f.add("a/b", "n", good, nil) }, result: checkOK, found: "1 repositories have keys that sign commits"},
		"soon":    {add: func(f *signingResults) { f.add("a/b", "n", good, nil); f.add("a/c", "m", soon, nil) }, result: checkWarn, found: "1 of 2 keys that sign commits need a look, the first is that of a/c: ssh key x; but it ends in 2d", next: "m"},
		"bad": {add: func(f *signingResults) {
			f.add("a/b", "n", soon, nil)
			f.add("a/c", "m", good, bad)
			f.add("a/d", "o", good, bad)
		}, result: checkFail, found: "2 of 3 keys that sign commits are of no use here, the first is that of a/c: wrong passphrase", next: "m"},
		"unseen":      {add: func(f *signingResults) { f.unseen = 3 }, result: checkOK, found: "of 3 the keys cannot be read now"},
		"sealed":      {add: func(f *signingResults) { f.sealed = 2 }, result: checkOK, found: "2 are sealed"},
		"not to know": {add: func(f *signingResults) {}, result: checkOK, found: "which repositories sign is not known", unknown: true},
	} {
		var f signingResults
		c.add(&f)
		got := f.judge(check{"signing", checkOK, "", ""}, c.unknown)
		if got.Result != c.result || got.Next != c.next || !strings.Contains(got.Found, c.found) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
