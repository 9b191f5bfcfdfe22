package signature

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"golang.org/x/sys/unix"
)

// TestRefusedSignatures: signatures that gpg makes or the format allows, and that do not
// count. The fixtures of package git hold those of DSA, of expired and of revoked keys.
func TestRefusedSignatures(t *testing.T) {
	g := newGPG(t)
	g.generate("rsa", "rsa2048", "sign,cert", "never")
	g.generate("short", "rsa1024", "sign,cert", "never")
	g.generate("curve", "secp256k1", "sign,cert", "never")
	keys := bytes.Join([][]byte{g.export("rsa"), g.export("short"), g.export("curve")}, nil)
	ahead := func(args ...string) []byte {
		return g.at("20300101T000000!", "text", append([]string{"--batch"}, args...)...)
	}
	ahead("--quick-generate-key", "ahead <ahead@example.com>", "ed25519", "sign,cert", "never")
	keys = append(keys, ahead("--armor", "--export", "ahead@example.com")...)
	good := g.sign("rsa")
	body, _, err := unarmor(good, pgpSignature)
	if err != nil {
		t.Fatal(err)
	}
	edited := func(change func(b []byte) []byte) []byte { return armored(pgpSignature, change(bytes.Clone(body))) }
	for name, c := range map[string]struct {
		signature []byte
		want      Kind
	}{
		"good":              {good, ""},
		"CRLF":              {bytes.ReplaceAll(good, []byte("\n"), []byte("\r\n")), ""},
		"made in 2030":      {ahead("--armor", "--detach-sign", "-u", "rsa@example.com"), TooEarly},
		"a key of 2030":     {ahead("--armor", "--detach-sign", "-u", "ahead@example.com"), TooEarly},
		"SHA-1":             {g.sign("rsa", "--digest-algo", "SHA1"), Weak},
		"MD5":               {edited(func(b []byte) []byte { b[6] = 1; return b }), Weak},
		"RIPEMD-160":        {edited(func(b []byte) []byte { b[6] = 3; return b }), Weak},
		"unknown hash":      {edited(func(b []byte) []byte { b[6] = 99; return b }), Unsupported},
		"RSA 1024":          {g.sign("short"), Weak},
		"secp256k1":         {g.sign("curve"), Unsupported},
		"two armors":        {append(bytes.Clone(good), good...), Malformed},
		"two packets":       {armored(pgpSignature, append(bytes.Clone(body), body...)), Malformed},
		"text mode":         {g.sign("rsa", "--textmode"), Unsupported},
		"critical notation": {g.sign("rsa", "--sig-notation", "!x@example.com=1"), Unsupported},
		"other notation":    {g.sign("rsa", "--sig-notation", "x@example.com=1"), ""},
		"version 3":         {edited(func(b []byte) []byte { b[3] = 3; return b }), Unsupported},
		"another algorithm": {edited(func(b []byte) []byte { b[5] = byte(packet.PubKeyAlgoDSA); return b }), Malformed},
		"no signature":      {armored(pgpSignature, []byte{0xc0 | tagUserID, 4, 'a', 'b', 'c', 'd'}), Malformed},
		"half":              {armored(pgpSignature, body[:len(body)/2]), Malformed},
		"no end":            {good[:len(good)-30], Malformed},
		"long":              {append([]byte("-----BEGIN PGP SIGNATURE-----\n"), make([]byte, maxSignature)...), Malformed},
		"message":           {[]byte("-----BEGIN PGP MESSAGE-----\n"), Unsupported},
		"a comment":         {bytes.Replace(good, []byte("\n\n"), []byte("\nComment: x\n\n"), 1), ""},
	} {
		if got := kindOf(t, c.signature, keys); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestKeysNotForSigning: a key that says by its flags that it only certifies has not
// signed, and a subkey needs both flags and its own agreement.
func TestKeysNotForSigning(t *testing.T) {
	now := date("2026-01-01")
	k := keysOf(t, "subkey.asc").pgp[0]
	primary, sub := k.parts()[0], k.parts()[1]
	if e := k.check(primary, now, now); e == nil || e.Kind != Unusable {
		t.Errorf("a key that only certifies: %v", e)
	}
	if e := k.check(sub, now, now); e != nil {
		t.Errorf("its subkey: %v", e)
	}
	plain := *sub.SelfSignature
	for name, change := range map[string]func(*packet.Signature){
		"for encryption": func(s *packet.Signature) { s.FlagSign = false },
		"without flags":  func(s *packet.Signature) { s.FlagsValid = false },
		"ended binding":  func(s *packet.Signature) { s.SigLifetimeSecs = new(uint32); *s.SigLifetimeSecs = 1 },
		"condition":      func(s *packet.Signature) { s.Notations = []*packet.Notation{{IsCritical: true}} },
	} {
		changed := plain
		change(&changed)
		sub.SelfSignature = &changed
		if e := k.check(sub, now, now); e == nil || e.Kind != Unusable {
			t.Errorf("%s: %v", name, e)
		}
	}
	changed := *primary.SelfSignature
	changed.FlagsValid = false // as old keys have it
	primary.SelfSignature = &changed
	if e := k.check(primary, now, now); e != nil {
		t.Errorf("a key without flags: %v", e)
	}
}

// TestSubkeyOfAnother: a subkey that has not agreed to belong to a key is not one of it.
func TestSubkeyOfAnother(t *testing.T) {
	thief, err := openpgp.NewEntity("thief", "", "thief@example.com", &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA})
	if err != nil {
		t.Fatal(err)
	}
	victim := keysOf(t, "subkey.asc").pgp[0].Subkeys[0]
	victim.Sig = &packet.Signature{Version: 4, SigType: packet.SigTypeSubkeyBinding, PubKeyAlgo: thief.PrimaryKey.PubKeyAlgo,
		Hash:         crypto.SHA256,
		CreationTime: time.Now(), IssuerKeyId: &thief.PrimaryKey.KeyId, FlagsValid: true, FlagSign: true}
	if err := victim.Sig.SignKey(victim.PublicKey, thief.PrivateKey, nil); err != nil {
		t.Fatal(err)
	}
	thief.Subkeys = []openpgp.Subkey{victim}
	text, signature := fixture(t, "pgp-subkey.commit"), []byte(nil)
	for l := range strings.SplitAfterSeq(string(text), "\n") {
		if l = strings.TrimPrefix(l, "gpgsig"); strings.HasPrefix(l, " ") {
			signature = append(signature, l[1:]...)
		}
	}
	stolen := parsed(t, map[string][]byte{"a.asc": exported(t, thief)})
	if _, err := stolen.Verify(text, signature, Claim{Now: time.Now()}); err == nil || stolen.pgp[0].refused == nil {
		t.Errorf("the subkey of another: %v", err)
	}
}

func exported(t *testing.T, e *openpgp.Entity) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := armor.Encode(&out, pgpPublic, nil)
	if err == nil {
		err = e.Serialize(w)
	}
	if err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return append(out.Bytes(), '\n')
}

// TestNewForms: keys of the algorithms and of the version that gpg 2.2 does not make.
func TestNewForms(t *testing.T) {
	for name, config := range map[string]*packet.Config{
		"Ed25519":    {Algorithm: packet.PubKeyAlgoEd25519},
		"Ed448":      {Algorithm: packet.PubKeyAlgoEd448},
		"version 6":  {Algorithm: packet.PubKeyAlgoEd25519, V6Keys: true},
		"version 6R": {Algorithm: packet.PubKeyAlgoRSA, V6Keys: true, RSABits: 2048},
	} {
		e, err := openpgp.NewEntity("new", "", "new@example.com", config)
		if err != nil {
			t.Fatal(err)
		}
		var signature bytes.Buffer
		if err := openpgp.ArmoredDetachSign(&signature, e, strings.NewReader("text"), config); err != nil {
			t.Fatal(err)
		}
		k := parsed(t, map[string][]byte{"a.asc": exported(t, e)})
		claim := Claim{Now: time.Now(), Principals: []string{"NEW@example.com"}}
		if signer, err := k.Verify([]byte("text"), signature.Bytes(), claim); err != nil ||
			signer.Key != fmt.Sprintf("%X", e.PrimaryKey.Fingerprint) {
			t.Errorf("%s: %v, %v", name, signer, err)
		}
		if _, err := k.Verify([]byte("texts"), signature.Bytes(), claim); KindOf(err) != Bad {
			t.Errorf("%s: another text: %v", name, err)
		}
	}
}

// TestCopiesAreOneKey: of a key that is listed twice, in one file or two, a revocation
// in either copy counts, and so does the newest expiry.
func TestCopiesAreOneKey(t *testing.T) {
	g := newGPG(t)
	fingerprint := g.generate("ops", "ed25519", "sign,cert", "2y")
	g.generate("other", "ed25519", "sign,cert", "never")
	signature := g.sign("ops")
	short, other := g.export("ops"), g.export("other")
	// What the key says later, without a word of its end, does not make it last longer.
	g.at("20210301T120000", "addrevoker\nother@example.com\ny\nsave\n", "--command-fd", "0", "--edit-key", "ops@example.com")
	named := g.export("ops")
	g.at("20210401T120000", "", "--batch", "--quick-set-expire", fingerprint, "10y")
	long := g.export("ops")
	certificate, err := os.ReadFile(filepath.Join(g.dir, "openpgp-revocs.d", fingerprint+".rev"))
	if err != nil {
		t.Fatal(err)
	}
	g.at("20210501T120000", strings.ReplaceAll(string(certificate), ":-----BEGIN", "-----BEGIN"), "--batch", "--import")
	revoked := g.export("ops")
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for name, c := range map[string]struct {
		files [][]byte
		want  Kind
	}{
		"first":               {[][]byte{short}, Expired},
		"with a later word":   {[][]byte{named}, Expired},
		"longer":              {[][]byte{long}, ""},
		"longer afterwards":   {[][]byte{short, long}, ""},
		"longer before":       {[][]byte{long, short}, ""},
		"revoked afterwards":  {[][]byte{long, revoked}, Revoked},
		"revoked before":      {[][]byte{revoked, long}, Revoked},
		"in one file":         {[][]byte{join(revoked, other, long)}, Revoked},
		"in one file, turned": {[][]byte{join(long, other, revoked)}, Revoked},
	} {
		if got := kindOf(t, signature, c.files...); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestDesignatedRevoker: a key that another one has revoked is not trusted any more.
func TestDesignatedRevoker(t *testing.T) {
	g := newGPG(t)
	g.generate("ops", "ed25519", "sign,cert", "never")
	g.generate("boss", "ed25519", "sign,cert", "never")
	signature := g.sign("ops")
	g.at("20210301T120000", "addrevoker\nboss@example.com\ny\nsave\n", "--command-fd", "0", "--edit-key", "ops@example.com")
	before := g.export("ops")
	certificate := g.at("20210401T120000", "y\n0\n\ny\n", "--command-fd", "0", "--armor", "--desig-revoke", "ops@example.com")
	g.at("20210402T120000", string(certificate), "--batch", "--import")
	if got := kindOf(t, signature, before); got != "" {
		t.Errorf("before: %q", got)
	}
	if got := kindOf(t, signature, g.export("ops")); got != Revoked {
		t.Errorf("afterwards: %q", got)
	}
}

// TestRevocationsInDoubt: a key with a revocation that cannot be verified is not
// trusted, and other keys of the file are.
func TestRevocationsInDoubt(t *testing.T) {
	body, _, err := unarmor(fixture(t, "subkey.asc"), pgpPublic)
	if err != nil {
		t.Fatal(err)
	}
	keys, _, err := splitKeys(body)
	if err != nil {
		t.Fatal(err)
	}
	own := keysOf(t, "subkey.asc").pgp[0].primary.KeyId
	const revokesKey, revokesSubkey = byte(packet.SigTypeKeyRevocation), byte(packet.SigTypeSubkeyRevocation)
	const afterKey, afterName, afterSub = 0, 2, 4
	unnamed := signatureOf(revokesKey, own)
	unnamed[15] = 0x64
	critical := signatureOf(revokesKey, own)
	critical[7] = 0xe0
	for name, c := range map[string]struct {
		at   int
		body []byte
		want Kind
	}{
		"by another key":             {afterKey, signatureOf(revokesKey, 0xbeef), Revoked},
		"by another key, at its end": {afterSub, signatureOf(revokesKey, 0xbeef), Revoked},
		"not made by it":             {afterKey, signatureOf(revokesKey, own), Revoked},
		"without an issuer":          {afterKey, unnamed, Revoked},
		"with a condition":           {afterKey, critical, Revoked},
		"of version 3":               {afterKey, []byte{3, 5, revokesKey, 0, 0, 0, 0}, Revoked},
		"of version 5":               {afterKey, []byte{5, revokesKey, 0, 0}, Revoked},
		"of version 9":               {afterKey, []byte{9, 0x1f, 0, 0}, Revoked},
		"of nothing":                 {afterKey, []byte{}, Revoked},
		"cut short":                  {afterKey, []byte{4, revokesKey, 1}, Revoked},
		"of the subkey, by another":  {afterSub, signatureOf(revokesSubkey, 0xbeef), Revoked},
		"of the subkey, not made":    {afterSub, signatureOf(revokesSubkey, own), Revoked},
		"of the subkey, unread":      {afterSub, []byte{6, revokesSubkey, 0, 0}, Revoked},
		"of a subkey, misplaced":     {afterName, signatureOf(revokesSubkey, own), Revoked},
		"of the name, by another":    {afterName, signatureOf(0x30, 0xbeef), ""},
		"of the name, not made":      {afterName, signatureOf(0x30, own), Unusable},
		"a word of another":          {afterName, signatureOf(0x13, 0xbeef), ""},
		"a word of version 3":        {afterName, []byte{3, 5, 0x10, 0, 0, 0, 0}, ""},
	} {
		var packets []byte
		for i, p := range keys[0] {
			packets = append(packets, packetOf(p.Tag, p.Contents)...)
			if i == c.at {
				packets = append(packets, packetOf(tagSignature, c.body)...)
			}
		}
		files := map[string][]byte{"a.asc": append(armored(pgpPublic, packets), fixture(t, "ed25519.asc")...)}
		if h := parsed(t, files).Holders(time.Now()); len(h) != 2 || KindOf(h[0].Err) != c.want || h[1].Err != nil {
			t.Errorf("%s: %+v, want %q", name, h, c.want)
		}
		files["b.asc"] = fixture(t, "subkey.asc")
		if h := parsed(t, files).Holders(time.Now())[0]; (c.want == Revoked) != (KindOf(h.Err) == Revoked) {
			t.Errorf("%s, beside a plain copy: %+v", name, h)
		}
	}
}

// packetOf is a packet of OpenPGP.
func packetOf(tag byte, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0xc0 | tag, 255}, uint32(len(body))), body...)
}

// armored puts packets into an armor without a checksum.
func armored(kind string, packets []byte) []byte {
	var out strings.Builder
	out.WriteString("-----BEGIN " + kind + "-----\n\n")
	text := base64.StdEncoding.EncodeToString(packets)
	for ; len(text) > 64; text = text[64:] {
		out.WriteString(text[:64] + "\n")
	}
	return []byte(out.String() + text + "\n-----END " + kind + "-----\n")
}

// signatureOf is a signature of a kind by a key of RSA that verifies nothing.
func signatureOf(kind byte, issuer uint64) []byte {
	unhashed := append([]byte{9, 16}, binary.BigEndian.AppendUint64(nil, issuer)...)
	body := []byte{4, kind, byte(packet.PubKeyAlgoEdDSA), 8, 0, 6, 5, 2, 0x5f, 0, 0, 0, 0, byte(len(unhashed))}
	return append(append(body, unhashed...), 0, 0, 0, 1, 1, 0, 1, 1)
}

// rsaKey is a key packet of RSA with any modulus and a large exponent.
func rsaKey(bits int) []byte {
	n := make([]byte, bits/8)
	rand.Read(n)
	n[0], n[len(n)-1] = n[0]|0x80, n[len(n)-1]|1
	head := binary.BigEndian.AppendUint16([]byte{4, 0x5e, 0, 0, 0, byte(packet.PubKeyAlgoRSA)}, uint16(bits))
	return packetOf(tagPublicKey, append(append(head, n...), 0, 24, 0xff, 0xff, 0xff))
}

// processorTime returns the processor time of this process so far.
func processorTime(t *testing.T) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestHostileKeys: files that are costly to parse are refused, and none of them costs much time of
// the processor.
func TestHostileKeys(t *testing.T) {
	name := packetOf(tagUserID, []byte("a <a@example.com>"))
	big := append(rsaKey(largestRSA), name...)
	line := fixture(t, "ed25519.sshpub")
	lines := bytes.Repeat(line, maxKeys+1)
	half := append(bytes.Repeat([]byte("#"), 600_000), '\n')
	crowd := map[string][]byte{}
	for i := range maxFiles + 1 {
		crowd[fmt.Sprint(i, ".sshpub")] = nil
	}
	for what, c := range map[string]struct {
		files map[string][]byte
		want  string // "" = they are read
	}{
		"signatures": {map[string][]byte{"a.asc": armored(pgpPublic,
			append(big, bytes.Repeat(packetOf(tagSignature, signatureOf(0x13, 0xbeef)), 8000)...))}, ""},
		"a long name": {map[string][]byte{"a.asc": armored(pgpPublic,
			append(big, packetOf(tagUserID, make([]byte, maxUserID+1))...))}, "longer than 4096"},
		"too many names": {map[string][]byte{"a.asc": armored(pgpPublic, append(big, bytes.Repeat(name, maxKeys)...))},
			"more than 1000 keys"},
		"too many keys": {map[string][]byte{"a.asc": armored(pgpPublic,
			bytes.Repeat(packetOf(tagPublicKey, []byte{4, 0, 0, 0, 0, 18}), maxKeys+1))}, "more than 1000 keys"},
		"too many lines": {map[string][]byte{"a.sshpub": lines}, "more than 1000 keys"},
		"too many lines in two": {map[string][]byte{"a.sshpub": lines[:len(line)*600], "b.sshpub": lines[:len(line)*600]},
			"more than 1000 keys"},
		"too long together":        {map[string][]byte{"a.sshpub": half, "b.sshpub": half}, "longer than 1048576 bytes together"},
		"too many files":           {crowd, "more than 256 files"},
		"one with 16384 bits":      {map[string][]byte{"a.asc": armored(pgpPublic, append(rsaKey(16384), name...))}, ""},
		"a line that does not end": {map[string][]byte{"a.sshpub": bytes.Repeat([]byte("a"), maxBytes)}, "line 1"},
	} {
		began := processorTime(t)
		k, err := ParseKeys(c.files, "test")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
		if took := processorTime(t) - began; took > 3*time.Second {
			t.Errorf("%s took %s", what, took)
		}
		if h := k.Holders(time.Now()); err == nil && (len(h) != 1 || h[0].Err == nil) {
			t.Errorf("%s: %+v", what, h)
		}
	}
}

// TestLongestSubkey: of several keys that may sign the one that lasts longest counts.
func TestLongestSubkey(t *testing.T) {
	g := newGPG(t)
	fingerprint := g.generate("ops", "ed25519", "cert", "never")
	add := func(expires string) {
		g.at("20200304T120000", "", "--batch", "--quick-add-key", fingerprint, "ed25519", "sign", expires)
	}
	for _, c := range []struct {
		change func()
		want   string
	}{
		{func() { add("2y"); add("4y"); add("3y") }, "2024-03-03"},
		{func() { add("never") }, "0001-01-01"},
		{func() { g.at("20200304T120000", "", "--batch", "--quick-set-expire", fingerprint, "2y") }, "2022-03-04"},
	} {
		c.change()
		h := parsed(t, map[string][]byte{"a.asc": g.export("ops")}).Holders(date("2021-01-01"))[0]
		if h.Err != nil || day(h.Expires) != c.want {
			t.Errorf("%+v, want %s", h, c.want)
		}
	}
}

// FuzzPackets: no packets make the parser fail, or sign what was never signed.
func FuzzPackets(f *testing.F) {
	for _, name := range []string{"ed25519.asc", "subkey.asc", "rsa.asc", "dsa.asc", "revoked.asc"} {
		body, _, err := unarmor(fixture(f, name), pgpPublic)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	_, signature := tagged(f, "pgp-ed25519.tag")
	f.Fuzz(func(t *testing.T, body []byte) {
		k, err := ParseKeys(map[string][]byte{"a.asc": armored(pgpPublic, body)}, "")
		if err != nil {
			return
		}
		k.Holders(time.Now())
		for _, s := range [][]byte{signature, armored(pgpSignature, body)} {
			if _, err := k.Verify([]byte("never signed"), s, Claim{Now: time.Now()}); err == nil {
				t.Fatalf("%x signs everything", body)
			}
		}
	})
}
