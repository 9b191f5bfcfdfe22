package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"limpet/sync/worker"
	"limpet/tui/cli/command"
)

// TestSignersJudged: what is wrong goes before what will be, and the first is named.
func TestSignersJudged(t *testing.T) {
	t.Parallel()
	good, soon, bad := worker.SignersLook{Text: "x"}, worker.SignersLook{Text: "x", Soon: "key a ends in 2d"}, errors.New("no keys")
	for name, c := range map[string]struct {
		add           func(*signerResults)
		result, found string
		next          string
		unknown       bool
	}{
		"nothing": {add: func(f *signerResults) { f.add("a/b", "n", worker.SignersLook{}, nil) }, result: checkOK, found: "nothing has to be signed"},
		"well":    {add: func(f *signerResults) { f.add("a/b", "n", good, nil) }, result: checkOK, found: "1 of the rules and repositories ask"},
		"soon":    {add: func(f *signerResults) { f.add("a/b", "n", good, nil); f.add("a/c", "m", soon, nil) }, result: checkWarn, found: "for 1 of 2 that ask for signatures, the first is a/c: key a ends in 2d", next: "m"},
		"bad": {add: func(f *signerResults) {
			f.add("a/b", "n", soon, nil)
			f.add("a/c", "m", good, bad)
			f.add("a/d", "o", good, bad)
		}, result: checkFail, found: "2 of 3 that ask for signatures have no keys of use here, the first is a/c: no keys", next: "m"},
		"unseen":      {add: func(f *signerResults) { f.unseen = 3 }, result: checkOK, found: "of 3 the keys cannot be read now"},
		"not to know": {add: func(f *signerResults) {}, result: checkOK, found: "which repositories ask is not known", unknown: true},
	} {
		var f signerResults
		c.add(&f)
		got := f.judge(check{"signers", checkOK, "", ""}, c.unknown)
		if got.Result != c.result || got.Next != c.next || !strings.Contains(got.Found, c.found) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestPublicKeysAreNoSecrets: the doctor bears that others read the keys of signers, and
// not that they write them.
func TestPublicKeysAreNoSecrets(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode   os.FileMode
		result string
	}{
		"default.site/ops.sshpub": {0o644, checkOK}, "default.site_allowed_signers": {0o644, checkOK}, "default.site/allowed_signers": {0o666, checkFail},
		"default.site/token": {0o644, checkFail}, "default.site/password": {0o600, checkOK},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		p := &examination{Env: &command.Env{Flags: &command.Flags{AgentFlags: command.AgentFlags{CredentialsDir: dir}}}}
		if got := p.checkCredentials(t.Context()); got.Result != c.result {
			t.Errorf("%s %o: %+v", name, c.mode, got)
		}
	}
}
