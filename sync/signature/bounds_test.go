package signature

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// packetOf is a packet of OpenPGP.
func packetOf(tag byte, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0xc0 | tag, 255}, uint32(len(body))), body...)
}

// armored puts packets into a block of public keys.
func armored(packets ...[]byte) []byte {
	text := base64.StdEncoding.EncodeToString(bytes.Join(packets, nil))
	var out strings.Builder
	out.WriteString("-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n")
	for ; len(text) > 64; text = text[64:] {
		out.WriteString(text[:64] + "\n")
	}
	return []byte(out.String() + text + "\n-----END PGP PUBLIC KEY BLOCK-----\n")
}

func mpi(bits int) []byte {
	n := make([]byte, bits/8)
	rand.Read(n)
	n[0] |= 0x80
	n[len(n)-1] |= 1
	return append(binary.BigEndian.AppendUint16(nil, uint16(bits)), n...)
}

// rsaKey is a key of OpenPGP with any modulus, and the largest exponent.
func rsaKey(bits int) []byte {
	head := append([]byte{4, 0x5e, 0, 0, 0, algoRSA}, mpi(bits)...)
	return append(head, 0, 24, 0xff, 0xff, 0xff)
}

// signedBy is a signature of a kind by a key, of SHA-256, with numbers that fit none.
func signedBy(kind byte, issuer uint64, numbers []byte) []byte {
	hashed := []byte{5, subCreated, 0x5f, 0, 0, 0}
	unhashed := append([]byte{9, subIssuer}, binary.BigEndian.AppendUint64(nil, issuer)...)
	body := append([]byte{4, kind, algoRSA, 8, 0, byte(len(hashed))}, hashed...)
	body = append(append(body, 0, byte(len(unhashed))), unhashed...)
	return append(append(body, 0, 0), numbers...)
}

// cost is how long reading files takes, and what comes of it.
func cost(files map[string][]byte) (time.Duration, error) {
	began := time.Now()
	_, err := ParseKeys(files, "test")
	return time.Since(began), err
}

// TestHostileKeys: what is dear to read is refused by its number, and none of it takes
// long. The bound is generous: other tests run at the same time.
func TestHostileKeys(t *testing.T) {
	big8 := rsaKey(largestRSA)
	key, err := readKey(big8)
	if err != nil {
		t.Fatal(err)
	}
	numbers := mpi(largestRSA - 8)
	var sigs, names, attributes, keys [][]byte
	sigs = append(sigs, packetOf(tagPublicKey, big8), packetOf(tagUserID, []byte("a <a@example.com>")))
	for range maxProofs / 4 {
		sigs = append(sigs, packetOf(tagSignature, signedBy(sigPositive, key.id(), numbers)))
	}
	four := rsaKey(4096)
	fourKey, err := readKey(four)
	if err != nil {
		t.Fatal(err)
	}
	smaller := [][]byte{packetOf(tagPublicKey, four), packetOf(tagUserID, []byte("a <a@example.com>"))}
	for range maxProofs {
		smaller = append(smaller, packetOf(tagSignature, signedBy(sigPositive, fourKey.id(), mpi(4096-8))))
	}
	many := [][]byte{packetOf(tagPublicKey, big8), packetOf(tagUserID, []byte("a <a@example.com>"))}
	for range maxProofs + 1 {
		many = append(many, packetOf(tagSignature, signedBy(sigPositive, key.id(), []byte{0, 1, 1})))
	}
	attributes = append(attributes, packetOf(tagPublicKey, big8), packetOf(tagUserAttribute, make([]byte, 400_000)))
	for range 200 {
		attributes = append(attributes, packetOf(tagSignature, signedBy(sigPositive, key.id(), numbers[:20])))
	}
	names = append(names, packetOf(tagPublicKey, big8))
	for i := range maxKeys + 1 {
		names = append(names, packetOf(tagUserID, fmt.Appendf(nil, "%d@example.com", i)))
	}
	for i := range maxKeys + 1 {
		keys = append(keys, packetOf(tagPublicKey, append([]byte{4, 0x5e, 0, 0, 0, algoECDH}, byte(i>>8), byte(i))))
	}
	line := fixture(t, "ed25519.sshpub")
	lines := bytes.Repeat(line, maxKeys+1)
	half := append(bytes.Repeat([]byte("#"), 600_000), '\n')
	crowd := map[string][]byte{}
	for i := range maxFiles + 1 {
		crowd[fmt.Sprint(i, ".sshpub")] = nil
	}
	for name, c := range map[string]struct {
		files map[string][]byte
		want  string // "" = they are read
	}{
		"signatures of RSA 8192":    {map[string][]byte{"a.asc": armored(sigs...)}, ""},
		"one more":                  {map[string][]byte{"a.asc": armored(append(sigs, sigs[2])...)}, "more than 1000 signatures"},
		"signatures of RSA 4096":    {map[string][]byte{"a.asc": armored(smaller...)}, ""},
		"too many signatures":       {map[string][]byte{"a.asc": armored(many...)}, "more than 1000 signatures"},
		"of a large picture":        {map[string][]byte{"a.asc": armored(attributes...)}, "of more than 33554432 bytes"},
		"too many names":            {map[string][]byte{"a.asc": armored(names...)}, "more than 1000 keys"},
		"too many keys":             {map[string][]byte{"a.asc": armored(keys...)}, "more than 1000 keys"},
		"too many lines":            {map[string][]byte{"a.sshpub": lines}, "more than 1000 keys"},
		"too many lines in two":     {map[string][]byte{"a.sshpub": lines[:len(line)*600], "b.sshpub": lines[:len(line)*600]}, "more than 1000 keys"},
		"too many of both":          {map[string][]byte{"a.asc": armored(names[:maxKeys/2]...), "b.sshpub": lines[:len(line)*600]}, "more than 1000 keys"},
		"too long together":         {map[string][]byte{"a.sshpub": half, "b.sshpub": half}, "longer than 1048576 bytes together"},
		"too many files":            {crowd, "more than 256 files"},
		"signatures in two files":   {map[string][]byte{"a.asc": armored(many[:180]...), "b.asc": armored(many[:180]...)}, "more than 1000 signatures"},
		"one with 16384 bits":       {map[string][]byte{"a.asc": armored(packetOf(tagPublicKey, rsaKey(16384)))}, ""},
		"a line that does not end":  {map[string][]byte{"a.sshpub": bytes.Repeat([]byte("a"), maxBytes)}, "line 1"},
		"a quote that does not end": {map[string][]byte{AllowedSigners: append([]byte(`"`), bytes.Repeat([]byte("a,"), maxBytes/2-1)...)}, "not closed"},
	} {
		took, err := cost(c.files)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if took > 3*time.Second {
			t.Errorf("%s took %s", name, took)
		}
		t.Logf("%s: %s", name, took.Round(time.Millisecond))
	}
	large, err := readKey(rsaKey(largestRSA + 8))
	if err != nil || large.public != nil || large.why.Kind != Unsupported {
		t.Errorf("a key of %d bits: %+v, %v", largestRSA+8, large, err)
	}
}

// TestLargeKeysOfSSH sign nothing: verifying by one takes long.
func TestLargeKeysOfSSH(t *testing.T) {
	for bits, want := range map[int]Kind{1024: Weak, 2048: "", largestRSA: "", largestRSA + 8: Unsupported} {
		n := new(big.Int).SetBytes(mpi(bits)[2:])
		blob := ssh.Marshal(struct {
			Name string
			E, N *big.Int
		}{"ssh-rsa", big.NewInt(65537), n})
		public, err := ssh.ParsePublicKey(blob)
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

// TestReadOnce: the same files are read once, whoever asks and how often, also those
// that cannot be read; others anew; and what is kept has bounds.
func TestReadOnce(t *testing.T) {
	var c Cache
	files := map[string][]byte{"a.asc": fixture(t, "rsa.asc")}
	first, err := c.Keys(files, "here")
	if err != nil {
		t.Fatal(err)
	}
	var g sync.WaitGroup
	for range 8 {
		g.Go(func() {
			again, err := c.Keys(map[string][]byte{"a.asc": bytes.Clone(files["a.asc"])}, "there")
			if err != nil || again.pgp[0] != first.pgp[0] || again.place != "there" || again.Digest() != first.Digest() || first.place != "here" {
				t.Errorf("read again: %v", err)
			}
		})
	}
	g.Wait()
	plain, err := ParseKeys(files, "here")
	if err != nil || plain.Digest() != first.Digest() {
		t.Errorf("another digest without a cache: %v", err)
	}
	other, err := c.Keys(map[string][]byte{"b.asc": files["a.asc"]}, "here")
	if err != nil || other.pgp[0] == first.pgp[0] || other.Digest() == first.Digest() {
		t.Errorf("the same for another name: %v", err)
	}
	bad := map[string][]byte{"a.asc": []byte("x")}
	_, err1 := c.Keys(bad, "here")
	_, err2 := c.Keys(bad, "here")
	if err1 == nil || !errors.Is(err2, err1) {
		t.Errorf("errors %v and %v", err1, err2)
	}

	for i := range 2 * maxKept {
		c.Keys(map[string][]byte{"a.sshpub": fmt.Appendf(nil, "# %d\n", i)}, "")
		c.Keys(files, "")
	}
	if again, _ := c.Keys(files, ""); again.pgp[0] != first.pgp[0] || len(c.by) != maxKept || c.order.Len() != maxKept {
		t.Errorf("%d and %d are kept", len(c.by), c.order.Len())
	}
	for i := range 8 {
		c.Keys(map[string][]byte{"a.sshpub": append(bytes.Repeat([]byte("#"), maxBytes-8), byte(i))}, "")
	}
	if c.size > maxKeptBytes || len(c.by) == 0 || len(c.by) > 4 || len(c.by) != c.order.Len() {
		t.Errorf("%d bytes of %d sets are kept", c.size, len(c.by))
	}
}

// TestRevocationsInDoubt: a revocation by another key, or one that cannot be read, or
// that is not good, is not judged; the key is not trusted any more.
func TestRevocationsInDoubt(t *testing.T) {
	body, _, err := unarmor(fixture(t, "subkey.asc"), pgpPublic)
	if err != nil {
		t.Fatal(err)
	}
	plain := keysOf(t, "subkey.asc").pgp[0]
	own, sub := plain.key.id(), plain.subkeys[0].key
	var primary, name, subkey [][]byte // the packets: key; name and its signature; subkey and its
	for rest := body; len(rest) > 0; {
		p, after, err := nextPacket(rest)
		if err != nil {
			t.Fatal(err)
		}
		whole := rest[:len(rest)-len(after)]
		switch {
		case p.tag == tagPublicKey:
			primary = append(primary, whole)
		case p.tag == tagPublicSubkey || len(subkey) > 0:
			subkey = append(subkey, whole)
		default:
			name = append(name, whole)
		}
		rest = after
	}
	sig := func(b []byte) []byte { return packetOf(tagSignature, b) }
	numbers := []byte{0, 1, 1, 0, 1, 1}
	critical := signedBy(revokesKey, own, numbers)
	critical[7] = 0xe0 // of a kind that is not known
	unnamed := signedBy(revokesKey, own, numbers)
	unnamed[15] = 0x64
	for what, c := range map[string]struct {
		afterKey, afterName, afterSub []byte
		want                          Kind
		says                          string
	}{
		"none":                         {want: ""},
		"by another key":               {afterKey: signedBy(revokesKey, 0xbeef, numbers), want: Revoked, says: "by 0x000000000000beef"},
		"by another key, at its end":   {afterSub: signedBy(revokesKey, 0xbeef, numbers), want: Revoked, says: "by 0x000000000000beef"},
		"that it has not made":         {afterKey: signedBy(revokesKey, own, numbers), want: Revoked, says: "that it has not made"},
		"of nobody":                    {afterKey: unnamed, want: Revoked, says: "that it has not made"},
		"with a condition":             {afterKey: critical, want: Revoked, says: "cannot be read"},
		"of version 3":                 {afterKey: []byte{3, 5, revokesKey, 0, 0, 0, 0}, want: Revoked, says: "cannot be read"},
		"of version 5":                 {afterKey: []byte{5, revokesKey, 0, 0}, want: Revoked, says: "cannot be read"},
		"of version 9":                 {afterKey: []byte{9, sigDirect, 0, 0}, want: Revoked, says: "cannot be read"},
		"of nothing":                   {afterKey: []byte{}, want: Revoked, says: "cannot be read"},
		"cut short":                    {afterKey: []byte{4, revokesKey, 1}, want: Revoked, says: "cannot be read"},
		"of the subkey, by another":    {afterSub: signedBy(revokesSubkey, 0xbeef, numbers), want: Revoked, says: "by 0x000000000000beef"},
		"of the subkey, not made":      {afterSub: signedBy(revokesSubkey, own, numbers), want: Revoked, says: "that it has not made"},
		"of the subkey, unread":        {afterSub: []byte{6, revokesSubkey, 0, 0}, want: Revoked, says: "cannot be read"},
		"of a subkey that is not told": {afterName: signedBy(revokesSubkey, own, numbers), want: Revoked},
		"of the name, by another":      {afterName: signedBy(revokesID, 0xbeef, numbers), want: ""},
		"of the name, not made":        {afterName: signedBy(revokesID, own, numbers), want: Unusable},
		"of the name, unread":          {afterName: []byte{5, revokesID, 0, 0}, want: Unusable},
		"a word of another":            {afterName: signedBy(sigPositive, 0xbeef, numbers), want: ""},
		"a word of version 3":          {afterName: []byte{3, 5, sigGeneric, 0, 0, 0, 0}, want: ""},
		"a word of version 6":          {afterName: []byte{6, sigGeneric, 0, 0}, want: ""},
	} {
		packets := append([][]byte{}, primary...)
		add := func(parts [][]byte, then []byte) {
			packets = append(packets, parts...)
			if then != nil {
				packets = append(packets, sig(then))
			}
		}
		add(nil, c.afterKey)
		add(name, c.afterName)
		add(subkey, c.afterSub)
		for _, files := range []map[string][]byte{{"a.asc": armored(packets...)}, {"a.asc": armored(packets...), "b.asc": fixture(t, "subkey.asc")}} {
			k, err := ParseKeys(files, "test")
			if err != nil || len(k.pgp) != 1 || len(k.pgp[0].subkeys) != 1 {
				t.Fatalf("%s: %v", what, err)
			}
			o := k.pgp[0]
			e := o.usable(o.subkeys[0].key, time.Now(), time.Now())
			var got Kind
			if e != nil {
				got = e.Kind
			}
			if got != c.want || e != nil && !strings.Contains(e.Error(), c.says) {
				t.Errorf("%s: %q %v, want %q %q", what, got, e, c.want, c.says)
			}
			h := k.Holders(time.Now())
			if len(h) != 1 || (h[0].Err == nil) != (c.want == "") {
				t.Errorf("%s: told as %+v", what, h)
			}
		}
	}
	if sub.id() == own {
		t.Error("the subkey is the key")
	}
}

// TestDesignatedRevoker: what gpg writes when another key revokes one.
func TestDesignatedRevoker(t *testing.T) {
	g := newGPG(t)
	g.at("20200304T120000", "", "--batch", "--quick-generate-key", "ops <ops@example.com>", "ed25519", "sign,cert", "never")
	g.at("20200304T120000", "", "--batch", "--quick-generate-key", "boss <boss@example.com>", "ed25519", "sign,cert", "never")
	signature := g.at("20210304T120000", "text", "--batch", "--armor", "--detach-sign", "-u", "ops@example.com")
	g.at("20210301T120000", "addrevoker\nboss@example.com\ny\nsave\n", "--command-fd", "0", "--edit-key", "ops@example.com")
	if got := judged(t, map[string][]byte{"a.asc": g.export("ops@example.com")}, "text", signature); got != "" {
		t.Errorf("before: %q", got)
	}
	certificate := g.at("20210401T120000", "y\n0\n\ny\n", "--command-fd", "0", "--armor", "--desig-revoke", "ops@example.com")
	g.at("20210402T120000", string(certificate), "--batch", "--import")
	if got := judged(t, map[string][]byte{"a.asc": g.export("ops@example.com")}, "text", signature); got != Revoked {
		t.Errorf("afterwards: %q", got)
	}
}

// TestTrailingBytes: nothing follows a signature of ssh, inside it or after it.
func TestTrailingBytes(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	k, err := ParseKeys(map[string][]byte{"a.sshpub": ssh.MarshalAuthorizedKey(signer.PublicKey())}, "test")
	if err != nil || len(public) == 0 {
		t.Fatal(err)
	}
	text := []byte("text")
	for name, c := range map[string]struct {
		inner, outer, after, space string
		want                       Kind
	}{
		"plain": {}, "inside": {inner: "x", want: Malformed}, "after the fields": {outer: "x", want: Malformed}, "after the armor": {after: "x", want: Malformed},
		"another after it": {after: "-----BEGIN SSH SIGNATURE-----\n-----END SSH SIGNATURE-----", want: Malformed}, "for a file": {space: "file", want: Bad}, "for git and more": {space: "git,file", want: Bad},
	} {
		space := c.space
		if space == "" {
			space = namespace
		}
		digest := sumOf(text)
		proof, err := signer.Sign(rand.Reader, append([]byte(sshMagic), ssh.Marshal(sshSigned{Namespace: space, Hash: "sha256", Digest: digest})...))
		if err != nil {
			t.Fatal(err)
		}
		proof.Rest = []byte(c.inner)
		blob := append([]byte(sshMagic), ssh.Marshal(sshSignature{Version: 1, PublicKey: signer.PublicKey().Marshal(), Namespace: space, Hash: "sha256", Signature: ssh.Marshal(proof)})...)
		armor := "-----BEGIN SSH SIGNATURE-----\n" + base64.StdEncoding.EncodeToString(append(blob, c.outer...)) + "\n-----END SSH SIGNATURE-----\n" + c.after
		if _, err := k.Verify(text, []byte(armor), Claim{Made: time.Now(), Now: time.Now()}); KindOf(err) != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func sumOf(text []byte) []byte {
	sum := sha256.Sum256(text)
	return sum[:]
}
