package signature

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"math/big"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// blob is the wire form of a signature. Source: PROTOCOL.sshsig of OpenSSH.
type blob struct {
	Magic                     [6]byte
	Version                   uint32
	PublicKey                 []byte
	Namespace, Reserved, Hash string
	Signature                 []byte
}

// signed is what is signed of a text.
func signed(text []byte, space string) []byte {
	sum := sha256.Sum256(text)
	return append([]byte("SSHSIG"), ssh.Marshal(struct {
		Namespace, Reserved, Hash string
		Digest                    []byte
	}{space, "", "sha256", sum[:]})...)
}

// TestForgedSSH: nothing follows a signature, inside it or after it, and it is one for git
// with a strong hash.
func TestForgedSSH(t *testing.T) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, _, _, _, err := ssh.ParseAuthorizedKey(fixture(t, "rsa.sshpub"))
	if err != nil {
		t.Fatal(err)
	}
	k := parsed(t, map[string][]byte{"a.sshpub": append(ssh.MarshalAuthorizedKey(signer.PublicKey()), ssh.MarshalAuthorizedKey(rsaKey)...)})
	text := []byte("text")
	for name, c := range map[string]struct {
		space, inner, outer, after string
		change                     func(b *blob)
		want                       Kind
	}{
		"plain":             {},
		"inside":            {inner: "x", want: Malformed},
		"after the fields":  {outer: "x", want: Malformed},
		"after the armor":   {after: "x", want: Malformed},
		"another after it":  {after: "-----BEGIN SSH SIGNATURE-----\n-----END SSH SIGNATURE-----", want: Malformed},
		"for a file":        {space: "file", want: Bad},
		"for git and more":  {space: "git,file", want: Bad},
		"version 2":         {change: func(b *blob) { b.Version = 2 }, want: Unsupported},
		"MD5":               {change: func(b *blob) { b.Hash = "md5" }, want: Unsupported},
		"another hash":      {change: func(b *blob) { b.Hash = "sha512" }, want: Bad},
		"no magic":          {change: func(b *blob) { b.Magic = [6]byte{} }, want: Malformed},
		"unknown algorithm": {change: func(b *blob) { b.PublicKey = ssh.Marshal(struct{ Name string }{"ssh-x"}) }, want: Unsupported},
		"no key":            {change: func(b *blob) { b.PublicKey = nil }, want: Malformed},
		"RSA with SHA-1": {change: func(b *blob) {
			b.PublicKey, b.Signature = rsaKey.Marshal(), ssh.Marshal(ssh.Signature{Format: "ssh-rsa", Blob: []byte("x")})
		}, want: Weak},
		"RSA of another format": {change: func(b *blob) {
			b.PublicKey, b.Signature = rsaKey.Marshal(), ssh.Marshal(ssh.Signature{Format: "rsa-sha2-512", Blob: []byte("x")})
		}, want: Bad},
	} {
		if c.space == "" {
			c.space = namespace
		}
		proof, err := signer.Sign(rand.Reader, signed(text, c.space))
		if err != nil {
			t.Fatal(err)
		}
		proof.Rest = []byte(c.inner)
		b := blob{[6]byte([]byte("SSHSIG")), 1, signer.PublicKey().Marshal(), c.space, "", "sha256", ssh.Marshal(proof)}
		if c.change != nil {
			c.change(&b)
		}
		armor := "-----BEGIN SSH SIGNATURE-----\n" + base64.StdEncoding.EncodeToString(append(ssh.Marshal(b), c.outer...)) +
			"\n-----END SSH SIGNATURE-----\n" + c.after
		if _, err := k.Verify(text, []byte(armor), Claim{Made: time.Now(), Now: time.Now()}); KindOf(err) != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestSecurityToken: a signature of a token, which holds its flags and a counter.
func TestSecurityToken(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	point, err := private.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	public := ssh.Marshal(struct {
		Name, Curve string
		Point       []byte
		Application string
	}{ssh.KeyAlgoSKECDSA256, "nistp256", point, "ssh:"})
	key, err := ssh.ParsePublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	text := []byte("text")
	application, message := sha256.Sum256([]byte("ssh:")), sha256.Sum256(signed(text, namespace))
	counter := append([]byte{1}, binary.BigEndian.AppendUint32(nil, 7)...) // touched
	sum := sha256.Sum256(append(append(application[:], counter...), message[:]...))
	r, s, err := ecdsa.Sign(rand.Reader, private, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	proof := ssh.Marshal(ssh.Signature{Format: ssh.KeyAlgoSKECDSA256, Blob: ssh.Marshal(struct{ R, S *big.Int }{r, s}), Rest: counter})
	b := blob{[6]byte([]byte("SSHSIG")), 1, public, namespace, "", "sha256", proof}
	armor := []byte("-----BEGIN SSH SIGNATURE-----\n" + base64.StdEncoding.EncodeToString(ssh.Marshal(b)) + "\n-----END SSH SIGNATURE-----\n")
	k := parsed(t, map[string][]byte{"a.sshpub": ssh.MarshalAuthorizedKey(key)})
	if signer, err := k.Verify(text, armor, Claim{Now: time.Now()}); err != nil || !strings.HasPrefix(signer.Key, "SHA256:") {
		t.Errorf("%v, %v", signer, err)
	}
	if _, err := k.Verify([]byte("other"), armor, Claim{Now: time.Now()}); KindOf(err) != Bad {
		t.Errorf("another text: %v", err)
	}
}

// TestSizesOfRSA: short keys are weak, and verifying by long ones takes long.
func TestSizesOfRSA(t *testing.T) {
	for bits, want := range map[int]Kind{1024: Weak, smallestRSA: "", largestRSA: "", largestRSA + 8: Unsupported} {
		n := new(big.Int).SetBit(big.NewInt(1), bits-1, 1)
		public, err := ssh.ParsePublicKey(ssh.Marshal(struct {
			Name string
			E, N *big.Int
		}{"ssh-rsa", big.NewInt(65537), n}))
		if err != nil {
			t.Fatal(err)
		}
		var got Kind
		if e := weakSSH(public, "x"); e != nil {
			got = e.Kind
		}
		if got != want {
			t.Errorf("%d bits: %q, want %q", bits, got, want)
		}
	}
}

// TestNoTime: a text that does not say when it was made is in no span of time.
func TestNoTime(t *testing.T) {
	text, signature := tagged(t, "ssh-ed25519.tag")
	for list, want := range map[string]Kind{"allowed_signers": "", "allowed_signers.before": Expired, "allowed_signers.after": TooEarly} {
		if _, err := keysOf(t, list).Verify(text, signature, Claim{Now: time.Now()}); KindOf(err) != want {
			t.Errorf("%s: %v, want %q", list, err, want)
		}
	}
	ahead := Claim{Made: time.Now().AddDate(1000, 0, 0), Now: time.Now()}
	if _, err := keysOf(t, "allowed_signers.after").Verify(text, signature, ahead); KindOf(err) != TooEarly {
		t.Errorf("of the future: %v", err)
	}
}

// FuzzSignature: no other text and no other signature is good.
func FuzzSignature(f *testing.F) {
	k := keysOf(f, "ed25519.asc", "rsa.asc", "ed25519.sshpub")
	good := map[string]string{}
	for _, name := range []string{"pgp-ed25519.tag", "pgp-rsa.tag", "ssh-ed25519.tag", "pgp-tampered.tag", "ssh-tampered.tag",
		"unsigned.tag"} {
		text, signature := tagged(f, name)
		f.Add(text, signature)
		if _, err := k.Verify(text, signature, Claim{Now: date("2026-01-01")}); err == nil {
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
