package signature

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// gpgHome is a home of gpg that runs it at a time of 2020 or later.
type gpgHome struct {
	t   *testing.T
	dir string
}

func newGPG(t *testing.T) gpgHome {
	dir, err := os.MkdirTemp("", "gpg") // short: a socket is in it
	if err != nil {
		t.Fatal(err)
	}
	g := gpgHome{t, dir}
	// How often its own files hash a passphrase: what it exports does so as often as always.
	if err := os.WriteFile(filepath.Join(dir, "gpg-agent.conf"), []byte("s2k-count 65536\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop := exec.Command("gpgconf", "--kill", "all")
		stop.Env = append(os.Environ(), "GNUPGHOME="+dir)
		stop.Run()
		os.RemoveAll(dir)
	})
	return g
}

func (g gpgHome) at(when, in string, args ...string) []byte {
	g.t.Helper()
	cmd := exec.Command("gpg", append([]string{"--quiet", "--no-tty", "--yes", "--pinentry-mode", "loopback", "--passphrase", "", "--faked-system-time", when}, args...)...)
	cmd.Env = append(os.Environ(), "GNUPGHOME="+g.dir, "TZ=UTC")
	var errs strings.Builder
	cmd.Stdin, cmd.Stderr = strings.NewReader(in), &errs
	out, err := cmd.Output()
	if err != nil {
		g.t.Fatalf("gpg %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out
}

func (g gpgHome) export(name string) []byte {
	return g.at("20210601T000000", "", "--batch", "--armor", "--export", name)
}

func fingerprintOf(g gpgHome, name string) string {
	g.t.Helper()
	return strings.Split(string(g.at("20210304T120000", "", "--batch", "--with-colons", "--list-keys", name)), "fpr:::::::::")[1][:40]
}

// judged is what a list of keys says of a signature, in 2026.
func judged(t *testing.T, files map[string][]byte, text string, signature []byte) Kind {
	t.Helper()
	k, err := ParseKeys(files, "test")
	if err != nil {
		t.Fatal(err)
	}
	_, err = k.Verify([]byte(text), signature, Claim{Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)})
	return KindOf(err)
}

// TestLaterWordsLeaveTheEnd: what a key says about itself later, without a word of
// when it expires, does not make it last. It is what gpg writes for a designated revoker.
func TestLaterWordsLeaveTheEnd(t *testing.T) {
	g := newGPG(t)
	g.at("20200304T120000", "", "--batch", "--quick-generate-key", "old <old@example.com>", "ed25519", "sign,cert", "2y")
	g.at("20200304T120000", "", "--batch", "--quick-generate-key", "other <other@example.com>", "ed25519", "sign,cert", "never")
	signature := g.at("20210304T120000", "text", "--batch", "--armor", "--detach-sign", "-u", "old@example.com")
	if got := judged(t, map[string][]byte{"a.asc": g.export("old@example.com")}, "text", signature); got != Expired {
		t.Errorf("before: %q", got)
	}
	g.at("20210301T120000", "addrevoker\nother@example.com\ny\nsave\n", "--command-fd", "0", "--edit-key", "old@example.com")
	if got := judged(t, map[string][]byte{"a.asc": g.export("old@example.com")}, "text", signature); got != Expired {
		t.Errorf("afterwards: %q", got)
	}
}

// TestCopiesAreOneKey: of a key that is listed twice, in one file or two, a revocation
// in either copy holds, and so does the newest word.
func TestCopiesAreOneKey(t *testing.T) {
	g := newGPG(t)
	g.at("20200304T120000", "", "--batch", "--quick-generate-key", "ops <ops@example.com>", "ed25519", "sign,cert", "2y")
	g.at("20200304T120000", "", "--batch", "--quick-generate-key", "other <other@example.com>", "ed25519", "sign,cert", "never")
	signature := g.at("20210304T120000", "text", "--batch", "--armor", "--detach-sign", "-u", "ops@example.com")
	short, other := g.export("ops@example.com"), g.export("other@example.com")
	fingerprint := fingerprintOf(g, "ops@example.com")
	g.at("20210401T120000", "", "--batch", "--quick-set-expire", fingerprint, "10y")
	long := g.export("ops@example.com")
	certificate, err := os.ReadFile(filepath.Join(g.dir, "openpgp-revocs.d", fingerprint+".rev"))
	if err != nil {
		t.Fatal(err)
	}
	g.at("20210501T120000", strings.ReplaceAll(string(certificate), ":-----BEGIN", "-----BEGIN"), "--batch", "--import")
	revoked := g.export("ops@example.com")
	join := func(parts ...[]byte) (all []byte) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	for name, c := range map[string]struct {
		files map[string][]byte
		want  Kind
	}{
		"first":               {map[string][]byte{"a.asc": short}, Expired},
		"longer":              {map[string][]byte{"a.asc": long}, ""},
		"longer afterwards":   {map[string][]byte{"a.asc": short, "b.asc": long}, ""},
		"longer before":       {map[string][]byte{"a.asc": long, "b.asc": short}, ""},
		"revoked afterwards":  {map[string][]byte{"a.asc": long, "b.asc": revoked}, Revoked},
		"revoked before":      {map[string][]byte{"a.asc": revoked, "b.asc": long}, Revoked},
		"in one file":         {map[string][]byte{"a.asc": join(revoked, other, long)}, Revoked},
		"in one file, turned": {map[string][]byte{"a.asc": join(long, other, revoked)}, Revoked},
	} {
		if got := judged(t, c.files, "text", signature); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
