package signature

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The fixtures of package git: keys and what they have signed, made by gpg and ssh-keygen.
const fixtures = "../git/testdata/signatures"

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(fixtures, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// keysOf parses fixtures; a name after a colon is the one that the file gets.
func keysOf(t testing.TB, names ...string) *Keys {
	t.Helper()
	files := map[string][]byte{}
	for _, name := range names {
		as := name
		if strings.HasPrefix(name, AllowedSigners) {
			as = AllowedSigners
		}
		files[as] = fixture(t, name)
	}
	return parsed(t, files)
}

func parsed(t testing.TB, files map[string][]byte) *Keys {
	t.Helper()
	k, err := ParseKeys(files, "testdata")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// tagged is the text and the signature of a tag of the fixtures.
func tagged(t testing.TB, name string) (text, signature []byte) {
	t.Helper()
	data := fixture(t, name)
	if at := strings.Index(string(data), "-----BEGIN"); at >= 0 {
		return data[:at], data[at:]
	}
	return data, nil
}

func date(text string) time.Time {
	at, err := time.Parse(time.DateOnly, text)
	if err != nil {
		panic(err)
	}
	return at
}

// gpgHome is a home of gpg.
type gpgHome struct {
	t   *testing.T
	dir string
}

func newGPG(t *testing.T) gpgHome {
	dir, err := os.MkdirTemp("", "gpg") // short: a socket is in it
	if err != nil {
		t.Fatal(err)
	}
	// How often its own files hash a passphrase: exported keys do so as often as always.
	if err := os.WriteFile(filepath.Join(dir, "gpg-agent.conf"), []byte("s2k-count 65536\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop := exec.Command("gpgconf", "--kill", "all")
		stop.Env = append(os.Environ(), "GNUPGHOME="+dir)
		stop.Run()
		os.RemoveAll(dir)
	})
	return gpgHome{t, dir}
}

// run runs gpg with an input and a passphrase for the keys.
func (g gpgHome) run(in, passphrase string, args ...string) ([]byte, error) {
	cmd := exec.Command("gpg", append([]string{"--quiet", "--no-tty", "--yes", "--pinentry-mode", "loopback", "--passphrase", passphrase},
		args...)...)
	cmd.Env = append(os.Environ(), "GNUPGHOME="+g.dir, "TZ=UTC", "LC_ALL=C.UTF-8")
	var errs strings.Builder
	cmd.Stdin, cmd.Stderr = strings.NewReader(in), &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("gpg %s: %w\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out, err
}

func (g gpgHome) must(passphrase string, args ...string) []byte {
	g.t.Helper()
	out, err := g.run("", passphrase, append([]string{"--batch"}, args...)...)
	if err != nil {
		g.t.Fatal(err)
	}
	return out
}

// at runs gpg at a time of 2020 or later.
func (g gpgHome) at(when, in string, args ...string) []byte {
	g.t.Helper()
	out, err := g.run(in, "", append([]string{"--faked-system-time", when}, args...)...)
	if err != nil {
		g.t.Fatal(err)
	}
	return out
}

// generate makes a key without a passphrase.
func (g gpgHome) generate(name, algorithm, usage, expires string) (fingerprint string) {
	g.t.Helper()
	g.at("20200304T120000", "", "--batch", "--quick-generate-key", name+" <"+name+"@example.com>", algorithm, usage, expires)
	return g.fingerprint(name)
}

func (g gpgHome) export(name string) []byte {
	return g.at("20210601T000000", "", "--batch", "--armor", "--export", name+"@example.com")
}

func (g gpgHome) fingerprint(name string) string {
	g.t.Helper()
	return strings.Split(string(g.must("", "--with-colons", "--list-keys", name)), "fpr:::::::::")[1][:40]
}

// sign signs "text" in 2021.
func (g gpgHome) sign(name string, args ...string) []byte {
	g.t.Helper()
	return g.at("20210304T120000", "text", append(args, "--batch", "--armor", "--detach-sign", "-u", name+"@example.com")...)
}

// kindOf is what a list of keys says of a signature of "text" in 2026.
func kindOf(t *testing.T, signature []byte, files ...[]byte) Kind {
	t.Helper()
	all := map[string][]byte{}
	for i, data := range files {
		all[fmt.Sprint(i, ".asc")] = data
	}
	_, err := parsed(t, all).Verify([]byte("text"), signature, Claim{Now: date("2026-01-01")})
	return KindOf(err)
}
