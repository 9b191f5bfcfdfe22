package signature

import (
	"testing"
	"time"
)

// TestHolders: what is told of keys is what is judged by.
func TestHolders(t *testing.T) {
	at := func(text string) time.Time {
		when, err := time.Parse(time.DateOnly, text)
		if err != nil {
			t.Fatal(err)
		}
		return when
	}
	for _, c := range []struct {
		file, now, expires string // expires "" = never
		want               Kind
		principal          string
	}{
		{"ed25519.asc", "2026-01-01", "", "", "ed25519@example.com"}, {"rsa.asc", "2026-01-01", "", "", "rsa@example.com"},
		{"expired.asc", "2021-06-01", "2022-03-04", "", "expired@example.com"}, {"expired.asc", "2026-01-01", "", Expired, ""},
		{"subexpired.asc", "2021-06-01", "2022-03-04", "", ""}, {"subexpired.asc", "2026-01-01", "", Expired, ""},
		{"subkey.asc", "2026-01-01", "", "", ""}, {"revoked.asc", "2026-01-01", "", Revoked, ""}, {"subrevoked.asc", "2026-01-01", "", Revoked, ""},
		{"rsa1024.asc", "2026-01-01", "", Weak, ""}, {"dsa.asc", "2026-01-01", "", Weak, ""}, {"brainpool.asc", "2026-01-01", "", Unsupported, ""},
		{"ed25519.sshpub", "2026-01-01", "", "", ""}, {"rsa1024.sshpub", "2026-01-01", "", Weak, ""},
		{"allowed_signers.before", "2021-02-01", "2021-03-01", "", "ops@example.com"}, {"allowed_signers.before", "2021-04-01", "2021-03-01", Expired, "ops@example.com"},
		{"allowed_signers.after", "2021-05-01", "", "", ""}, {"allowed_signers.after", "2021-03-01", "", TooEarly, ""},
		{"allowed_signers.file", "2026-01-01", "", Unusable, ""},
	} {
		name := c.file
		if name[0] == 'a' {
			name = AllowedSigners
		}
		k, err := ParseKeys(map[string][]byte{name: fixture(t, c.file)}, "test")
		if err != nil {
			t.Fatal(err)
		}
		all := k.Holders(at(c.now))
		if len(all) != 1 {
			t.Fatalf("%s: %d holders", c.file, len(all))
		}
		h := all[0]
		if KindOf(h.Err) != c.want || h.Key == "" || c.principal != "" && (len(h.Principals) != 1 || h.Principals[0] != c.principal) {
			t.Errorf("%s on %s: %+v, want %q of %s", c.file, c.now, h, c.want, c.principal)
		}
		if expires := ""; !h.Expires.IsZero() {
			expires = h.Expires.UTC().Format(time.DateOnly)
			if expires != c.expires {
				t.Errorf("%s on %s ends %s, want %q", c.file, c.now, expires, c.expires)
			}
		} else if c.expires != "" {
			t.Errorf("%s on %s has no end, want %s", c.file, c.now, c.expires)
		}
	}
	both := keysOf(t, "expired.asc", "ed25519.sshpub", "rsa.asc").Holders(at("2026-01-01"))
	if len(both) != 3 || (*Keys)(nil).Holders(time.Now()) != nil {
		t.Errorf("holders of three: %+v", both)
	}
}

// TestLongestSubkey: of several keys that may sign the one that lasts longest counts.
func TestLongestSubkey(t *testing.T) {
	g := newGPG(t)
	g.at("20200304T120000", "", "--batch", "--quick-generate-key", "ops <ops@example.com>", "ed25519", "cert", "never")
	fingerprint := fingerprintOf(g, "ops@example.com")
	for _, expires := range []string{"2y", "4y", "3y"} {
		g.at("20200304T120000", "", "--batch", "--quick-add-key", fingerprint, "ed25519", "sign", expires)
	}
	k, err := ParseKeys(map[string][]byte{"a.asc": g.export("ops@example.com")}, "test")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC)
	if h := k.Holders(now)[0]; h.Err != nil || h.Expires.UTC().Format(time.DateOnly) != "2024-03-03" {
		t.Errorf("%+v", h)
	}
	g.at("20200304T120000", "", "--batch", "--quick-add-key", fingerprint, "ed25519", "sign", "never")
	if k, err = ParseKeys(map[string][]byte{"a.asc": g.export("ops@example.com")}, "test"); err != nil {
		t.Fatal(err)
	}
	if h := k.Holders(now)[0]; h.Err != nil || !h.Expires.IsZero() {
		t.Errorf("with one that never ends: %+v", h)
	}
	g.at("20200304T120000", "", "--batch", "--quick-set-expire", fingerprint, "2y")
	if k, err = ParseKeys(map[string][]byte{"a.asc": g.export("ops@example.com")}, "test"); err != nil {
		t.Fatal(err)
	}
	if h := k.Holders(now)[0]; h.Err != nil || h.Expires.UTC().Format(time.DateOnly) != "2022-03-04" {
		t.Errorf("of a key that ends before: %+v", h)
	}
}
