package signature

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestHolders: the states of keys agree with what is refused.
func TestHolders(t *testing.T) {
	for _, c := range []struct {
		file, now, expires string // expires "" = never
		want               Kind
		principal          string
	}{
		{"ed25519.asc", "2026-01-01", "", "", "ed25519@example.com"},
		{"rsa.asc", "2026-01-01", "", "", "rsa@example.com"},
		{"expired.asc", "2021-06-01", "2022-03-04", "", "expired@example.com"},
		{"expired.asc", "2026-01-01", "", Expired, ""},
		{"subexpired.asc", "2021-06-01", "2022-03-04", "", ""},
		{"subexpired.asc", "2026-01-01", "", Expired, ""},
		{"subkey.asc", "2026-01-01", "", "", ""},
		{"revoked.asc", "2026-01-01", "", Revoked, ""},
		{"subrevoked.asc", "2026-01-01", "", Revoked, ""},
		{"rsa1024.asc", "2026-01-01", "", Weak, ""},
		{"dsa.asc", "2026-01-01", "", Weak, ""},
		{"brainpool.asc", "2026-01-01", "", Unsupported, ""},
		{"ed25519.sshpub", "2026-01-01", "", "", ""},
		{"rsa1024.sshpub", "2026-01-01", "", Weak, ""},
		{"allowed_signers.before", "2021-02-01", "2021-03-01", "", "ops@example.com"},
		{"allowed_signers.before", "2021-04-01", "2021-03-01", Expired, "ops@example.com"},
		{"allowed_signers.after", "2021-05-01", "", "", ""},
		{"allowed_signers.after", "2021-03-01", "", TooEarly, ""},
		{"allowed_signers.file", "2026-01-01", "", Unusable, ""},
	} {
		all := keysOf(t, c.file).Holders(date(c.now))
		if len(all) != 1 {
			t.Fatalf("%s: %d holders", c.file, len(all))
		}
		h, expires := all[0], ""
		if !h.Expires.IsZero() {
			expires = day(h.Expires)
		}
		if KindOf(h.Err) != c.want || h.Key == "" || c.principal != "" && strings.Join(h.Principals, ",") != c.principal || expires != c.expires {
			t.Errorf("%s on %s: %+v, want %q of %s until %q", c.file, c.now, h, c.want, c.principal, c.expires)
		}
	}
	if all := keysOf(t, "expired.asc", "ed25519.sshpub", "rsa.asc").Holders(date("2026-01-01")); len(all) != 3 ||
		(*Keys)(nil).Holders(time.Now()) != nil {
		t.Errorf("holders of three: %+v", all)
	}
}

// TestUnreadableKeys: the error says which file and line is wrong, and no key is used.
func TestUnreadableKeys(t *testing.T) {
	ed := strings.TrimSpace(string(fixture(t, "ed25519.sshpub")))
	asc := string(fixture(t, "ed25519.asc"))
	for _, c := range []struct{ name, text, want string }{
		{"a.sshpub", "ssh-ed25519 AAAA", "keys in a.sshpub: line 1: there is no public key"},
		{"a.sshpub", "\n# x\n" + `command="x" ` + ed, "line 3: options have no meaning"},
		{"a.sshpub", "-----BEGIN OPENSSH PRIVATE KEY-----\n", "private key"},
		{"a.asc", "-----BEGIN PGP PRIVATE KEY BLOCK-----\n", "private key"},
		{"a.asc", "hello", "does not begin with"},
		{"a.asc", asc[:len(asc)-60], "does not end with"},
		{"a.asc", strings.Replace(asc, "\n\n", "\n\n!", 1) + asc, "damaged"},
		{"a.asc", asc + "x", "does not begin with"},
		{"a.asc", string(armored(pgpPublic, []byte("hello"))), "no data of OpenPGP"},
		{"a.asc", string(armored(pgpPublic, packetOf(tagSignature, signatureOf(0x20, 1)))), "before its key"},
		{"a.asc", string(armored(pgpPublic, packetOf(tagPublicKey, []byte{3, 0, 0, 0, 0, 1, 0, 8}))), "not supported"},
		{AllowedSigners, "ops@example.com cert-authority " + ed, "cert-authority is not supported"},
		{AllowedSigners, "ops@example.com no-touch-required " + ed, `option "no-touch-required" is not known`},
		{AllowedSigners, "ops@example.com valid-after=20210101,valid-after=20220101 " + ed, "given twice"},
		{AllowedSigners, `ops@example.com valid-after="20220101Z",valid-before="20210101Z" ` + ed, "not after"},
		{AllowedSigners, "ops@example.com valid-after=2021-01-01 " + ed, "not of the form"},
		{AllowedSigners, "ops@example.com,, " + ed, "principals: one of them is empty"},
		{AllowedSigners, `"ops@example.com ` + ed, "a quote is not closed"},
		{AllowedSigners, ed, "no public key"},
		{AllowedSigners, "ops@example.com", "no public key"},
	} {
		k, err := ParseKeys(map[string][]byte{c.name: []byte(c.text)}, "")
		if k != nil || err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "AAAA") {
			t.Errorf("%s %q: %v, want %q", c.name, c.text, err, c.want)
		}
	}
}

// TestDigest changes with the keys and their names, and with nothing else.
func TestDigest(t *testing.T) {
	seen := map[string]string{}
	ed, rsa := fixture(t, "ed25519.sshpub"), fixture(t, "rsa.sshpub")
	for name, files := range map[string]map[string][]byte{
		"one":         {"a.sshpub": ed},
		"other name":  {"b.sshpub": ed},
		"other key":   {"a.sshpub": rsa},
		"both":        {"a.sshpub": ed, "b.sshpub": rsa},
		"in one file": {"a.sshpub": append(bytes.Clone(ed), rsa...)},
		"none":        {},
	} {
		k := parsed(t, files)
		if other, twice := seen[k.Digest()]; twice {
			t.Errorf("%s and %s have one digest", name, other)
		}
		seen[k.Digest()] = name
		if again, _ := ParseKeys(files, "other place"); again.Digest() != k.Digest() {
			t.Errorf("%s has two digests", name)
		}
	}
}

// TestWildcards are those of ssh-keygen.
func TestWildcards(t *testing.T) {
	for _, c := range []struct {
		list, name string
		want       bool
	}{
		{"ops@example.com", "ops@example.com", true}, {"ops@example.com", "OPS@example.com", false}, {"*@example.com", "a/b@example.com", true},
		{"*", "", true}, {"o?s", "ops", true}, {"o?s", "os", false}, {"[a-z]", "a", false}, {"[a-z]", "[a-z]", true}, {`a\b`, `a\b`, true},
		{"*,!ops", "ops", false}, {"!ops,*", "ops", false}, {"!ops", "other", false}, {"a,b", "b", true},
	} {
		all, err := patterns(c.list, "x")
		if err != nil || matches(all, c.name) != c.want {
			t.Errorf("%q matches %q: %v, %v", c.list, c.name, !c.want, err)
		}
	}
}

// FuzzAllowed: no restriction of a line is lost.
func FuzzAllowed(f *testing.F) {
	ed := string(fixture(f, "ed25519.sshpub"))
	for _, name := range []string{"allowed_signers", "allowed_signers.between", "allowed_signers.wild", "allowed_signers.not",
		"allowed_signers.rotated"} {
		f.Add(string(fixture(f, name)))
	}
	f.Add(`a namespaces="git",valid-after=20200101 ` + ed)
	f.Add("a,!b\tcert-authority\t" + ed)
	f.Fuzz(func(t *testing.T, line string) {
		e, err := parseAllowedSigner(strings.TrimSpace(line))
		if err != nil {
			return
		}
		if e.key == nil || len(e.principals) == 0 {
			t.Fatalf("%q has no key or no principals: %+v", line, e)
		}
		words := strings.Fields(strings.ToLower(line))
		if len(words) < 3 || strings.Contains(words[0], `"`) {
			return
		}
		for option, kept := range map[string]bool{
			`namespaces="git"`:         len(e.namespaces) > 0,
			`valid-after="20210101z"`:  !e.after.IsZero(),
			`valid-before="20210101z"`: !e.before.IsZero(),
			"cert-authority":           false,
		} {
			if words[1] == option && !kept {
				t.Fatalf("%q lost %s", line, option)
			}
		}
	})
}
