package doctor

import (
	"errors"
	"os"
	"testing"

	"limpet/tui/cli/command"
)

// TestKeyResults: an error goes before a warning, and the first of each is named.
func TestKeyResults(t *testing.T) {
	t.Parallel()
	texts := keyTexts{bad: "bad %d of %d, first %s", soon: "soon %d of %d, first %s", none: "none", good: "good %d", unknown: "unknown"}
	bad := errors.New("no keys")
	for name, c := range map[string]struct {
		add  func(*keyResults)
		want check
	}{
		"nothing": {func(f *keyResults) { f.add("a/b", "n", "", "", nil) }, check{Result: checkOK, Found: "none"}},
		"good":    {func(f *keyResults) { f.add("a/b", "n", "x", "", nil) }, check{Result: checkOK, Found: "good 1"}},
		"soon": {func(f *keyResults) { f.add("a/b", "n", "x", "", nil); f.add("a/c", "m", "x", "ends", nil) },
			check{Result: checkWarn, Found: "soon 1 of 2, first a/c: ends", Next: "m"}},
		"bad": {func(f *keyResults) {
			f.add("a/b", "n", "x", "ends", nil)
			f.add("a/c", "m", "x", "", bad)
			f.add("a/d", "o", "x", "", bad)
		}, check{Result: checkFail, Found: "bad 2 of 3, first a/c: no keys", Next: "m"}},
		"unseen":  {func(f *keyResults) { f.unseen = 3 }, check{Result: checkOK, Found: "none; of 3 the keys cannot be read now"}},
		"sealed":  {func(f *keyResults) { f.sealed = 2 }, check{Result: checkOK, Found: "none; 2 are sealed, 'limpet repo test' checks those"}},
		"unknown": {func(f *keyResults) { f.unknown = true }, check{Result: checkOK, Found: "none; unknown"}},
	} {
		var f keyResults
		c.add(&f)
		if got := f.judge(texts); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
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
		"default.site/ops.sshpub": {0o644, checkOK}, "default.site_allowed_signers": {0o644, checkOK},
		"default.site/allowed_signers": {0o666, checkFail},
		"default.site/token":           {0o644, checkFail}, "default.site/password": {0o600, checkOK},
	} {
		dir := t.TempDir()
		fileOf(t, c.mode, dir, name)
		none := command.World{Lookup: func(string) (string, bool) { return "", false }}
		p := &examination{Env: &command.Env{World: none, Flags: &command.Flags{AgentFlags: command.AgentFlags{CredentialsDir: dir}}}}
		if got := p.checkCredentials(t.Context()); got.Result != c.result {
			t.Errorf("%s %o: %+v", name, c.mode, got)
		}
	}
}
