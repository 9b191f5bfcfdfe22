package signature

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The fixtures of package git: keys and what they have signed.
const fixtures = "../git/testdata/signatures"

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(fixtures, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func keysOf(t testing.TB, names ...string) *Keys {
	t.Helper()
	files := map[string][]byte{}
	for _, name := range names {
		files[name] = fixture(t, name)
	}
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
	at := strings.Index(string(data), "-----BEGIN")
	return data[:at], data[at:]
}

// TestOwnersAgree: a subkey that has not agreed to belong to a key is not taken for it.
func TestOwnersAgree(t *testing.T) {
	now := time.Now()
	o := keysOf(t, "subkey.asc").pgp[0]
	sub := o.subkeys[0]
	if e := o.usable(sub.key, now, now); e != nil {
		t.Fatal(e)
	}
	bound := *sub.bound
	alone := bound
	alone.embedded = nil
	for name, change := range map[string]func(){
		"no signature of the subkey": func() { sub.bound = &alone },
		"that of another": func() {
			other := bound
			other.embedded = keysOf(t, "subrevoked.asc").pgp[0].subkeys[0].bound.embedded
			sub.bound = &other
		},
		"never bound":     func() { sub.bound = nil },
		"not for signing": func() { other := bound; other.flags = 0x20; sub.bound = &other },
		"key not about itself": func() {
			sub.bound = &bound
			o.ids[0].signed = nil
		},
	} {
		first := o.ids[0]
		change()
		if e := o.usable(sub.key, now, now); e == nil || e.Kind != Unusable {
			t.Errorf("%s: %v", name, e)
		}
		sub.bound, o.ids[0] = &bound, first
	}
	if len(o.subkeys) != 1 || o.usable(sub.key, now, now) != nil {
		t.Error("the key is not as it was")
	}
	if e := o.usable(o.key, now, now); e == nil || e.Kind != Unusable {
		t.Errorf("a key that only certifies: %v", e)
	}
}

// TestKeysThatCannotBeRead tells which file and line is wrong, and reads nothing.
func TestKeysThatCannotBeRead(t *testing.T) {
	ed := strings.TrimSpace(string(fixture(t, "ed25519.sshpub")))
	asc := string(fixture(t, "ed25519.asc"))
	for _, c := range []struct{ name, text, want string }{
		{"a.sshpub", "ssh-ed25519 AAAA", "keys in a.sshpub: line 1: it is no public key"},
		{"a.sshpub", "\n# x\n" + `command="x" ` + ed, "line 3: options have no meaning"},
		{"a.sshpub", "-----BEGIN OPENSSH PRIVATE KEY-----\n", "private key"},
		{"a.asc", "-----BEGIN PGP PRIVATE KEY BLOCK-----\n", "private key"},
		{"a.asc", "hello", "does not begin with"},
		{"a.asc", asc[:len(asc)-60], "does not end with"},
		{"a.asc", asc + "x", "does not begin with"},
		{"allowed_signers", "ops@example.com cert-authority " + ed, "cert-authority is not supported"},
		{"allowed_signers", "ops@example.com no-touch-required " + ed, `option "no-touch-required" is not known`},
		{"allowed_signers", "ops@example.com valid-after=20210101,valid-after=20220101 " + ed, "given twice"},
		{"allowed_signers", `ops@example.com valid-after="20220101Z",valid-before="20210101Z" ` + ed, "not after"},
		{"allowed_signers", "ops@example.com valid-after=2021-01-01 " + ed, "not of the form"},
		{"allowed_signers", "ops@example.com,, " + ed, "principals: one of them is empty"},
		{"allowed_signers", `"ops@example.com ` + ed, "a quote is not closed"},
		{"allowed_signers", ed, "no public key"},
		{"allowed_signers", "ops@example.com", "no public key"},
	} {
		k, err := ParseKeys(map[string][]byte{c.name: []byte(c.text)}, "")
		if k != nil || err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "AAAA") {
			t.Errorf("%s %q: %v, want %q", c.name, c.text, err, c.want)
		}
	}
}

// TestNoTime: a text that does not say when it was made is in no span of time.
func TestNoTime(t *testing.T) {
	text, signature := tagged(t, "ssh-ed25519.tag")
	for list, want := range map[string]Kind{"allowed_signers": "", "allowed_signers.before": Expired, "allowed_signers.after": TooEarly} {
		k, err := ParseKeys(map[string][]byte{AllowedSigners: fixture(t, list)}, "testdata")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Verify(text, signature, Claim{Now: time.Now()}); KindOf(err) != want {
			t.Errorf("%s: %v, want %q", list, err, want)
		}
	}
}

// TestDigest changes with the keys and their names, and with nothing else.
func TestDigest(t *testing.T) {
	seen := map[string]string{}
	ed, rsa := fixture(t, "ed25519.sshpub"), fixture(t, "rsa.sshpub")
	for name, files := range map[string]map[string][]byte{
		"one": {"a.sshpub": ed}, "other name": {"b.sshpub": ed}, "other key": {"a.sshpub": rsa}, "both": {"a.sshpub": ed, "b.sshpub": rsa},
		"in one file": {"a.sshpub": append(append([]byte{}, ed...), rsa...)}, "none": {},
	} {
		k, err := ParseKeys(files, name)
		if err != nil {
			t.Fatal(err)
		}
		if other, twice := seen[k.Digest()]; twice {
			t.Errorf("%s and %s have one digest", name, other)
		}
		seen[k.Digest()] = name
		if again, _ := ParseKeys(files, "elsewhere"); again.Digest() != k.Digest() {
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

// FuzzSignature: no other text and no other signature is good.
func FuzzSignature(f *testing.F) {
	k := keysOf(f, "ed25519.asc", "rsa.asc", "ed25519.sshpub")
	good := map[string]string{}
	for _, name := range []string{"pgp-ed25519.tag", "pgp-rsa.tag", "ssh-ed25519.tag", "pgp-tampered.tag", "ssh-tampered.tag", "unsigned.tag"} {
		text, signature := tagged2(f, name)
		f.Add(text, signature)
		if _, err := k.Verify(text, signature, Claim{}); err == nil {
			good[string(text)] = name
		}
	}
	if len(good) != 3 {
		f.Fatalf("%d signatures are good", len(good))
	}
	f.Fuzz(func(t *testing.T, text, signature []byte) {
		_, err := k.Verify(text, signature, Claim{Now: time.Now()})
		if err == nil && good[string(text)] == "" {
			t.Fatalf("%q is signed by %q", text, signature)
		}
		if err != nil && KindOf(err) == "" {
			t.Fatalf("an error without a kind: %v", err)
		}
	})
}

// tagged2 is tagged for tags without a signature too.
func tagged2(t testing.TB, name string) (text, signature []byte) {
	if name == "unsigned.tag" {
		return fixture(t, name), nil
	}
	return tagged(t, name)
}

// FuzzPackets: the inner form of signatures of OpenPGP.
func FuzzPackets(f *testing.F) {
	k := keysOf(f, "ed25519.asc", "subkey.asc")
	for _, name := range []string{"ed25519.asc", "subkey.asc", "rsa.asc", "dsa.asc", "revoked.asc"} {
		body, _, err := unarmor(fixture(f, name), pgpPublic)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	_, signature := tagged(f, "pgp-ed25519.tag")
	body, _, err := unarmor(signature, "PGP SIGNATURE")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Fuzz(func(t *testing.T, body []byte) {
		new(ringReader).block(body)
		if p, _, err := nextPacket(body); err == nil {
			if s, err := readSignature(p.body); err == nil {
				for _, key := range k.pgp[0].keys() {
					if s.madeBy(key, false, []byte("never signed")) == nil {
						t.Fatalf("%x signs everything", body)
					}
				}
			}
		}
	})
}

// FuzzAllowed: what is read of a line of allowed signers can be written again, and
// restricts as before.
func FuzzAllowed(f *testing.F) {
	ed := string(fixture(f, "ed25519.sshpub"))
	for _, name := range []string{"allowed_signers", "allowed_signers.between", "allowed_signers.wild", "allowed_signers.not", "allowed_signers.rotated"} {
		f.Add(string(fixture(f, name)))
	}
	f.Add(`a namespaces="git",valid-after=20200101 ` + ed)
	f.Add("a,!b\tcert-authority\t" + ed)
	f.Fuzz(func(t *testing.T, line string) {
		e, err := readSigner(strings.TrimSpace(line))
		if err != nil {
			return
		}
		if len(e.key) == 0 || len(e.principals) == 0 {
			t.Fatalf("%q has no key or no principals: %+v", line, e)
		}
		lower := strings.ToLower(line)
		for option, kept := range map[string]bool{`namespaces="git"`: len(e.namespaces) > 0, `valid-after="20210101z"`: !e.after.IsZero(), `valid-before="20210101z"`: !e.before.IsZero(), " cert-authority ": false} {
			at := strings.Index(lower, " "+strings.TrimSpace(option)+" ")
			if at > 0 && at < strings.Index(lower, " ssh-ed25519 ") && !strings.Contains(line[:at], " ") && !strings.Contains(line[:at], "\t") && !strings.Contains(line[:at], `"`) && !kept {
				t.Fatalf("%q lost %s", line, option)
			}
		}
	})
}

// FuzzArmor: what is taken out of its armor is what was put into it.
func FuzzArmor(f *testing.F) {
	_, signature := tagged(f, "pgp-ed25519.tag")
	f.Add(signature)
	_, signature = tagged(f, "ssh-ed25519.tag")
	f.Add(signature)
	f.Add([]byte("-----BEGIN PGP SIGNATURE-----\r\nVersion: x\r\n\r\nAAAA\r\n=AAAA\r\n-----END PGP SIGNATURE-----\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, what := range []string{"PGP SIGNATURE", "SSH SIGNATURE"} {
			body, rest, err := unarmor(data, what)
			if err == nil && len(body)+len(rest) > len(data) {
				t.Fatalf("%q became %q and %q", data, body, rest)
			}
		}
	})
}
