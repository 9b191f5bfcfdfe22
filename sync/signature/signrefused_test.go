package signature

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// TestSSHRefused: what cannot sign is refused with what to do.
func TestSSHRefused(t *testing.T) {
	dir := t.TempDir()
	made := func(args ...string) []byte {
		t.Helper()
		file := filepath.Join(dir, "k"+strings.Join(args, ""))
		if out, err := exec.Command("ssh-keygen", append(args, "-q", "-C", "x", "-f", file)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	plain := made("-t", "ed25519", "-N", "")
	public, _ := os.ReadFile(filepath.Join(dir, "k-ted25519-N.pub"))
	rounds := edited(t, made("-t", "ed25519", "-N", "canary"), func(body []byte) {
		at := bytes.Index(body, []byte("bcrypt")) + 6 + 4 + 4 + 16
		binary.BigEndian.PutUint32(body[at:], 1<<31)
	})
	other := edited(t, plain, func(body []byte) { body[len(body)-60] ^= 1 })
	for name, c := range map[string]struct {
		key  []byte
		want string
	}{
		"nothing":       {nil, "empty"},
		"words":         {[]byte("hello"), "no private key"},
		"long":          {bytes.Repeat([]byte("a"), maxBytes+1), "longer than"},
		"public":        {public, "public key"},
		"public PEM":    {[]byte("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"), "public key"},
		"X.509":         {[]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "smime"},
		"something":     {[]byte("-----BEGIN RECORD-----\nAAAA\n-----END RECORD-----\n"), "something else"},
		"two":           {append(bytes.Clone(plain), plain...), "something follows"},
		"half":          {plain[:len(plain)/2], "not whole"},
		"weak":          {made("-t", "rsa", "-b", "1024", "-N", ""), "1024 bits"},
		"dsa":           {made("-t", "dsa", "-N", ""), "ed25519, ecdsa and rsa are"},
		"a cipher":      {made("-t", "ed25519", "-N", "canary", "-Z", "aes256-gcm@openssh.com"), "aes256-ctr"},
		"PKCS8":         {made("-t", "rsa", "-b", "2048", "-N", "canary", "-m", "PKCS8"), "PKCS8"},
		"rounds":        {rounds, "ssh-keygen -p -a 24"},
		"not of itself": {other, "private part"},
	} {
		k, err := ParseSigningKey(c.key, []byte("canary"), time.Now())
		if err == nil || k != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		silent(t, c.key, nil, err)
	}
}

// edited changes what is in the armor of a key of ssh.
func edited(t *testing.T, armored []byte, change func([]byte)) []byte {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(string(armored)), "\n")
	body, err := base64.StdEncoding.DecodeString(strings.Join(lines[1:len(lines)-1], ""))
	if err != nil {
		t.Fatal(err)
	}
	change(body)
	return []byte(lines[0] + "\n" + base64.StdEncoding.EncodeToString(body) + "\n" + lines[len(lines)-1] + "\n")
}

// TestGPGRefused: a key with which gpg does not sign is refused here too, and so is what
// is no key that could be used, each with what to do.
func TestGPGRefused(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := newGPG(t)
	made := func(name string, args ...string) string {
		t.Helper()
		mail := name + "@example.com"
		g.must("", append([]string{"--faked-system-time", "20230101T000000", "--quick-generate-key", mail}, args...)...)
		return fingerprintOf(g, mail)
	}
	private := func(fpr string) []byte { return g.must("", "--armor", "--export-secret-keys", fpr) }
	ended := made("ended", "ed25519", "sign,cert", "30d")
	revoked := made("revoked", "ed25519", "sign,cert", "never")
	certificate, err := os.ReadFile(filepath.Join(g.dir, "openpgp-revocs.d", revoked+".rev"))
	if err != nil {
		t.Fatal(err)
	}
	g.at("20230501T120000", strings.ReplaceAll(string(certificate), ":-----BEGIN", "-----BEGIN"), "--batch", "--import")
	certifies := made("certifies", "ed25519", "cert", "never")
	encrypts := made("encrypts", "ed25519", "cert", "never")
	g.must("", "--quick-add-key", encrypts, "cv25519", "encr")
	lapsed := made("lapsed", "ed25519", "cert", "never")
	g.must("", "--faked-system-time", "20230101T000000", "--quick-add-key", lapsed, "ed25519", "sign", "30d")
	good := made("good", "ed25519", "sign,cert", "never")
	dummy := g.must("", "--armor", "--export-secret-subkeys", lapsed)
	alone := g.must("", "--armor", "--export-secret-subkeys", good)
	for name, c := range map[string]struct {
		key  []byte
		uid  string // with which gpg does not sign; "" = that is not asked
		want string
	}{
		"ended":           {private(ended), "ended", "expired on 2023-01-31: extend it"},
		"revoked":         {private(revoked), "revoked", "is revoked: use another key"},
		"only certifies":  {private(certifies), "certifies", "not for signing: add a subkey"},
		"only encrypts":   {private(encrypts), "encrypts", "add a subkey"},
		"a lapsed subkey": {private(lapsed), "lapsed", "expired on 2023-01-31"},
		"without itself":  {dummy, "", "expired on 2023-01-31"},
		"left out":        {alone, "", "gnu-dummy"},
		"on a card":       {rearmed(t, alone, func(b []byte) { b[bytes.Index(b, []byte("GNU"))+3] = gnuCard }), "", "on a card"},
		"elsewhere":       {rearmed(t, alone, func(b []byte) { b[bytes.Index(b, []byte("GNU"))+3] = 9 }), "", "not known here"},
		"public":          {g.must("", "--armor", "--export", good), "", "--export-secret-keys"},
		"several":         {g.must("", "--armor", "--export-secret-keys", good, certifies), "", "several keys"},
		"twice":           {append(private(good), private(good)...), "", "something follows"},
		"half":            {private(good)[:300], "", "does not end with"},
	} {
		k, err := ParseSigningKey(c.key, nil, time.Now())
		if err == nil || k != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		silent(t, c.key, nil, err)
		if c.uid != "" {
			if _, err := g.run("", "--detach-sign", "-u", c.uid+"@example.com", "-o", text+".sig", text); err == nil {
				t.Errorf("%s: gpg signs with it", name)
			}
		}
	}
	young, err := ParseSigningKey(private(good), nil, time.Date(2022, 12, 1, 0, 0, 0, 0, time.UTC))
	if err == nil || young != nil || !strings.Contains(err.Error(), "set the clock right") {
		t.Errorf("before it was made: %v", err)
	}
	k, err := ParseSigningKey(private(ended), nil, time.Date(2023, 1, 15, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	for when, want := range map[string]string{"1672000000": "later than", "1673000000": "", "1680000000": "expired on"} {
		_, err := k.Sign([]byte("tree x\ncommitter a <b> " + when + " +0000\n\ntext"))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("signed at %s: %v, want %q", when, err, want)
		}
	}
	for _, text := range []string{"", "text", "tree x\n\ncommitter a <b> 1673000000 +0000", "committer a <b> x\n", "committer <"} {
		if _, err := k.Sign([]byte(text)); err == nil || !strings.Contains(err.Error(), "does not say when") {
			t.Errorf("%q is signed: %v", text, err)
		}
	}
}

// rearmed changes what is in the armor of a private key of OpenPGP.
func rearmed(t testing.TB, armored []byte, change func([]byte)) []byte {
	t.Helper()
	body, _, err := unarmor(armored, "PGP PRIVATE KEY BLOCK")
	if err != nil {
		t.Fatal(err)
	}
	change(body)
	return rearm("PGP PRIVATE KEY BLOCK", base64.StdEncoding.EncodeToString(body), 64, "\n", "")
}

// newForm is a private key of the algorithm Ed25519, which the gpg of today does not
// make, protected by change if that is given.
func newForm(t testing.TB, change func(plain []byte) []byte) []byte {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	body := append([]byte{4, 0x65, 0, 0, 0, algoEd25519}, public...)
	key, err := readKey(body)
	if err != nil {
		t.Fatal(err)
	}
	m := &pgpMaker{key: key, private: private}
	name := []byte("Limpet <limpet@example.com>")
	hashed := []byte{5, subCreated, 0x65, 0, 0, 1, 2, subFlags, maySign, 22, subFingerprint, 4}
	hashed = append(hashed, key.fingerprint[:]...)
	signed := append(binary.BigEndian.AppendUint16([]byte{4, sigPositive, algoEd25519, 10}, uint16(len(hashed))), hashed...)
	sum := hashes[10].New()
	for _, part := range [][]byte{key.signed(), signedID(tagUserID, name), signed, {4, 0xff, 0, 0, 0, byte(len(signed))}} {
		sum.Write(part)
	}
	digest := sum.Sum(nil)
	numbers, err := m.numbers(digest, hashes[10])
	if err != nil {
		t.Fatal(err)
	}
	self := append(append(append(signed, 0, 0), digest[:2]...), numbers...)
	secret := append([]byte{secretPlain}, private.Seed()...)
	total := uint16(0)
	for _, b := range private.Seed() {
		total += uint16(b)
	}
	secret = binary.BigEndian.AppendUint16(secret, total)
	if change != nil {
		secret = change(private.Seed())
	}
	all := bytes.Join([][]byte{packetOf(tagSecretKey, append(body, secret...)), packetOf(tagUserID, name), packetOf(tagSignature, self)}, nil)
	return rearm("PGP PRIVATE KEY BLOCK", base64.StdEncoding.EncodeToString(all), 64, "\n", "")
}

// TestSecretForms: forms of secret parts that the gpg of today does not write.
func TestSecretForms(t *testing.T) {
	head := func(usage, cipher, mode, hash byte) []byte {
		return []byte{usage, cipher, mode, hash, 1, 2, 3, 4, 5, 6, 7, 8}
	}
	tail := make([]byte, 16+52)
	for name, c := range map[string]struct {
		change func(plain []byte) []byte
		want   string
	}{
		"plain":            {nil, ""},
		"a wrong sum":      {func(p []byte) []byte { return append(append([]byte{secretPlain}, p...), 0xff, 0xff) }, "damaged"},
		"something behind": {func(p []byte) []byte { return append(append([]byte{secretPlain}, make([]byte, 33)...), 0, 0) }, "private part"},
		"that of another":  {func(p []byte) []byte { return append(append([]byte{secretPlain}, make([]byte, 32)...), 0, 0) }, "private part"},
		"nothing":          {func(p []byte) []byte { return []byte{secretPlain} }, "middle of a packet"},
		"AEAD":             {func(p []byte) []byte { return append(head(secretAEAD, 9, 3, 8), tail...) }, "AEAD"},
		"a sum":            {func(p []byte) []byte { return append(head(255, 9, 3, 8), tail...) }, "old way (255)"},
		"of IDEA":          {func(p []byte) []byte { return append(head(1, 9, 3, 8), tail...) }, "old way (1)"},
		"not salted":       {func(p []byte) []byte { return append(head(secretSHA1, 9, 0, 8), tail...) }, "S2K 0"},
		"Argon2":           {func(p []byte) []byte { return append(head(secretSHA1, 9, 4, 8), tail...) }, "S2K 4"},
		"CAST5":            {func(p []byte) []byte { return append(head(secretSHA1, 3, 3, 2), tail...) }, "cipher 3"},
		"MD5":              {func(p []byte) []byte { return append(head(secretSHA1, 9, 3, 1), tail...) }, "hashed with 1"},
		"short":            {func(p []byte) []byte { return append(head(secretSHA1, 9, 3, 8), tail[:30]...) }, "middle of a packet"},
		"wrong":            {func(p []byte) []byte { return append(head(secretSHA1, 9, 3, 8), tail...) }, "does not open"},
		"salted, AES-192":  {func(p []byte) []byte { return sealed(p, 8, s2kSalted, 10) }, ""},
		"AES-256, SHA-256": {func(p []byte) []byte { return sealed(p, 9, s2kIterated, 8) }, ""},
	} {
		key := newForm(t, c.change)
		k, err := ParseSigningKey(key, []byte("canary"), time.Now())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err != nil {
			silent(t, key, nil, err)
			continue
		}
		public := rearmed(t, key, func([]byte) {})
		body, _, _ := unarmor(public, "PGP PRIVATE KEY BLOCK")
		p, rest, _ := nextPacket(body)
		open, _, err := splitSecret(p.body)
		if err != nil {
			t.Fatal(err)
		}
		agrees(t, k, []byte("committer a <b> 1700000000 +0000\n\ntext"), map[string][]byte{"a.asc": armored(packetOf(tagPublicKey, open), rest)})
	}
}

// sealed protects the secret part of a key by the passphrase "canary". It is the other
// way round than unlock, in other words: those of RFC 9580.
func sealed(plain []byte, cipher, mode, hash byte) []byte {
	salt := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	head := append([]byte{secretSHA1, cipher, mode, hash}, salt...)
	count := 14
	if mode == s2kIterated {
		head = append(head, 0x60)
		count = 65536
	}
	long := bytes.Repeat(append(salt, "canary"...), 1+count/14)[:count]
	h := s2kHashes[hash].New()
	h.Write(long)
	key := h.Sum(nil)[:aesSizes[cipher]]
	iv := bytes.Repeat([]byte{7}, 16)
	sum := sha1.Sum(plain)
	return append(append(head, iv...), encryptCFB(key, iv, append(bytes.Clone(plain), sum[:]...))...)
}

// FuzzSigningKey: no private key that is foreign or damaged makes this room fail, shows
// its passphrase, or signs what it does not verify.
func FuzzSigningKey(f *testing.F) {
	f.Add(newForm(f, nil), []byte("canary"))
	f.Add(newForm(f, func(p []byte) []byte { return sealed(p, 9, s2kIterated, 8) }), []byte("canary"))
	f.Add(newForm(f, func(p []byte) []byte { return append([]byte{secretSHA1, 7, s2kGNU, 2, 'G', 'N', 'U', 1}, p...) }), []byte(""))
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "x")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(pem.EncodeToMemory(block), []byte("canary"))
	now := time.Unix(1_700_000_100, 0)
	f.Fuzz(func(t *testing.T, key, passphrase []byte) {
		k, err := ParseSigningKey(key, passphrase, now)
		if err != nil {
			if len(passphrase) > 8 && bytes.Contains([]byte(err.Error()), passphrase) || len(err.Error()) > 400 {
				t.Fatalf("%v", err)
			}
			return
		}
		if _, err := k.Sign([]byte("committer a <b> 1700000100 +0000\n\ntext")); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzSecretPackets: the packets of private keys, without their armor.
func FuzzSecretPackets(f *testing.F) {
	for _, key := range [][]byte{newForm(f, nil), newForm(f, func(p []byte) []byte { return sealed(p, 9, s2kSalted, 8) })} {
		body, _, err := unarmor(key, "PGP PRIVATE KEY BLOCK")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		o, secrets, err := readSecrets(body)
		if err != nil {
			return
		}
		for i := range secrets {
			s := &secrets[i]
			s.away()
			if private, err := s.open([]byte("canary")); err == nil {
				m := &pgpMaker{owner: o, key: s.of, private: private}
				m.sign([]byte("text"), time.Unix(1_700_000_100, 0))
			}
		}
	})
}

// encryptCFB is CFB with whole blocks, by the standard library.
func encryptCFB(key, iv, plain []byte) []byte {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	out := make([]byte, len(plain))
	//lint:ignore SA1019 its other side, made by hand, is what is tested
	cipher.NewCFBEncrypter(block, iv).XORKeyStream(out, plain)
	return out
}
