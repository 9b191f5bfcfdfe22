package signature

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/ProtonMail/go-crypto/openpgp/s2k"
	"golang.org/x/crypto/ssh"

	"limpet/sync/testenv/gittest"
	"limpet/sync/testenv/suite"
)

const canaryPassphrase = "canary passphrase\twith ümlaut" // as a person might choose one

// repo is a repository of git with a commit and a tag that nobody has signed.
type repo struct {
	t                *testing.T
	dir              string
	env              []string
	commit, tag      []byte
	allowed, gpgHome string
}

func newRepo(t *testing.T, gpgHome string) *repo {
	r := &repo{t: t, dir: t.TempDir(), gpgHome: gpgHome}
	r.allowed = filepath.Join(r.dir, "allowed")
	r.env = append(append(os.Environ(), gittest.Quick...), "GNUPGHOME="+gpgHome, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "HOME="+r.dir, "TZ=UTC",
		"LC_ALL=C.UTF-8",
		"GIT_AUTHOR_NAME=Limpet", "GIT_AUTHOR_EMAIL=limpet@example.com", "GIT_COMMITTER_NAME=Limpet", "GIT_COMMITTER_EMAIL=limpet@example.com")
	gittest.Init(t, filepath.Join(r.dir, ".git"), false, "")
	tree := strings.TrimSpace(string(r.git("", "mktree")))
	head := strings.TrimSpace(string(r.git("A message\n\nof two parts\n", "commit-tree", tree)))
	r.commit = r.git("", "cat-file", "commit", head)
	r.git("", "tag", "-m", "A release", "v1", head)
	r.tag = r.git("", "cat-file", "tag", "v1")
	return r
}

func (r *repo) git(in string, args ...string) []byte {
	r.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin = r.dir, r.env, strings.NewReader(in)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out
}

// judge has git verify what k has signed: a commit and a tag.
func (r *repo) judge(k *SigningKey) {
	r.t.Helper()
	signature, err := k.Sign(r.commit)
	if err != nil {
		r.t.Fatal(err)
	}
	at := bytes.Index(r.commit, []byte("\n\n")) + 1
	header := "gpgsig " + strings.ReplaceAll(strings.TrimRight(string(signature), "\n"), "\n", "\n ") + "\n"
	commit := strings.TrimSpace(string(r.git(string(r.commit[:at])+header+string(r.commit[at:]), "hash-object", "-t", "commit", "-w",
		"--stdin")))
	config := []string{"-c", "gpg.ssh.allowedSignersFile=" + r.allowed, "-c", "gpg.minTrustLevel=undefined"}
	r.git("", append(config, "verify-commit", "--raw", commit)...)
	if signature, err = k.Sign(r.tag); err != nil {
		r.t.Fatal(err)
	}
	tag := strings.TrimSpace(string(r.git(string(r.tag)+string(signature), "hash-object", "-t", "tag", "-w", "--stdin")))
	r.git("", append(config, "verify-tag", "--raw", tag)...)
	r.git("", "fsck", "--strict", "--no-dangling")
}

// agrees has our own verifier judge what k has signed.
func agrees(t *testing.T, k *SigningKey, text []byte, files map[string][]byte) {
	t.Helper()
	keys, err := ParseKeys(files, "test")
	if err != nil {
		t.Fatal(err)
	}
	signature, err := k.Sign(text)
	if err != nil {
		t.Fatal(err)
	}
	again, err := k.Sign(text)
	if err != nil || !bytes.Equal(signature, again) {
		t.Errorf("signed twice it differs: %v", err)
	}
	claim := Claim{Made: time.Now(), Now: time.Now()}
	signer, err := keys.Verify(text, signature, claim)
	if err != nil || signer.Key != k.Key() {
		t.Errorf("verified: %v, %v; want %s", signer, err, k.Key())
	}
	if _, err := keys.Verify(append([]byte("x"), text...), signature, claim); KindOf(err) != Bad {
		t.Errorf("another text is verified: %v", err)
	}
}

// silent fails when a secret is in what people or logs may see of k, or of err.
func silent(t *testing.T, secret, passphrase []byte, of ...any) {
	t.Helper()
	var shown strings.Builder
	for _, v := range of {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&shown, verb+"\n", v)
		}
		slog.New(slog.NewTextHandler(&shown, nil)).Info("x", "v", v)
		slog.New(slog.NewJSONHandler(&shown, nil)).Info("x", "v", v)
		json.NewEncoder(&shown).Encode(v)
	}
	if strings.Contains(shown.String(), "canary") || strings.Contains(shown.String(), fmt.Sprintf("%x", "canary")) || len(passphrase) > 3 &&
		strings.Contains(shown.String(), string(passphrase)) {
		t.Errorf("the passphrase is shown: %s", shown.String())
	}
	for l := range strings.SplitSeq(string(secret), "\n") {
		if len(l) > 20 && !strings.HasPrefix(l, "-----") && strings.Contains(shown.String(), l) {
			t.Errorf("a line of the key is shown: %s", shown.String())
		}
	}
}

// locked fails when a key opens without its passphrase, or with another.
func locked(t *testing.T, secret []byte) {
	t.Helper()
	for _, wrong := range []string{"", "canary wrong"} {
		_, err := ParseSigningKey(secret, []byte(wrong), time.Now())
		if err == nil || !strings.Contains(err.Error(), SigningPassphraseName) {
			t.Errorf("with passphrase %q: %v", wrong, err)
		}
		silent(t, secret, []byte(wrong), err)
	}
}

// TestSignedWithSSH: git and our own verifier take what keys of ssh sign, of every kind
// that ssh-keygen makes here and that can sign.
func TestSignedWithSSH(t *testing.T) {
	r := newRepo(t, t.TempDir())
	for name, args := range map[string][]string{
		"ed25519": {"-t", "ed25519"}, "ecdsa 256": {"-t", "ecdsa", "-b", "256"}, "ecdsa 384": {"-t", "ecdsa", "-b", "384"},
		"ecdsa 521": {"-t", "ecdsa", "-b", "521"},
		"rsa 2048":  {"-t", "rsa", "-b", "2048"},
		"rsa PEM":   {"-t", "rsa", "-b", "2048", "-m", "PEM"}, "rsa PKCS8": {"-t", "rsa", "-b", "2048", "-m", "PKCS8"},
		"ecdsa PEM": {"-t", "ecdsa", "-m", "PEM"},
		"cbc":       {"-t", "ed25519", "-Z", "aes256-cbc"},
	} {
		for _, passphrase := range []string{"", canaryPassphrase} {
			if passphrase != "" && !slices.Contains([]string{"ed25519", "cbc", "rsa PEM"}, name) {
				continue // a key is protected in the same way, whatever its algorithm
			}
			t.Run(name+", passphrase "+fmt.Sprint(passphrase != ""), func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "key")
				if out, err := exec.Command("ssh-keygen", append(args, "-q", "-N", passphrase, "-C", "x", "-f", file)...).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				secret, _ := os.ReadFile(file)
				public, _ := os.ReadFile(file + ".pub")
				k, err := ParseSigningKey(secret, []byte(passphrase+"\n"), time.Now())
				if err != nil {
					t.Fatal(err)
				}
				if k.Method() != SSH || !k.Expires().IsZero() {
					t.Errorf("%s until %s", k.Method(), k.Expires())
				}
				if out, err := exec.Command("ssh-keygen", "-lf", file+".pub").Output(); err != nil || !strings.Contains(string(out), " "+k.Key()+" ") {
					t.Errorf("%s: %s, %v", k, out, err)
				}
				if err := os.WriteFile(r.allowed, []byte("limpet@example.com namespaces=\"git\" "+string(public)), 0o600); err != nil {
					t.Fatal(err)
				}
				r.t = t
				r.judge(k)
				agrees(t, k, r.commit, map[string][]byte{"a.sshpub": public})
				silent(t, secret, []byte(passphrase), k, *k)
				if passphrase != "" {
					locked(t, secret)
				}
			})
		}
	}
}

// TestSignedWithGPG: git, gpg and our own verifier take what keys of OpenPGP sign, as gpg
// exports them, and it is the part of the key that gpg itself signs with.
func TestSignedWithGPG(t *testing.T) {
	validSig := regexp.MustCompile(`VALIDSIG ([0-9A-F]{40}) `)
	for name, c := range map[string]struct {
		key    []string // of gpg --quick-generate-key
		change func(g gpgHome, pass, fpr string)
		how    string // it is exported; "" = --export-secret-keys
		both   bool   // without a passphrase too, most only in the full lane
	}{
		"ed25519":  {key: []string{"ed25519", "sign,cert"}, both: true},
		"rsa 2048": {key: []string{"rsa2048", "sign,cert"}, both: true},
		"nistp256": {key: []string{"nistp256", "sign,cert"}, both: true},
		"nistp384": {key: []string{"nistp384", "sign,cert"}},
		"nistp521": {key: []string{"nistp521", "sign,cert"}},
		"as it is": {key: []string{"default", "default"}, both: true}, // with a subkey for encryption
		"ends":     {key: []string{"ed25519", "sign,cert", "30d"}},
		"a subkey": {key: []string{"ed25519", "cert"}, both: true,
			change: func(g gpgHome, pass, fpr string) { g.must(pass, "--quick-add-key", fpr, "ed25519", "sign", "20d") }},
		"newest of three": {key: []string{"ed25519", "sign,cert"}, change: func(g gpgHome, pass, fpr string) {
			g.must(pass, "--faked-system-time", "20250101T000000", "--quick-add-key", fpr, "ed25519", "sign")
			g.must(pass, "--quick-add-key", fpr, "rsa2048", "sign")
			g.must(pass, "--quick-add-key", fpr, "cv25519", "encr")
		}},
		"newest has ended": {key: []string{"ed25519", "cert"}, change: func(g gpgHome, pass, fpr string) {
			g.must(pass, "--faked-system-time", "20240101T000000", "--quick-add-key", fpr, "ed25519", "sign")
			g.must(pass, "--faked-system-time", "20250101T000000", "--quick-add-key", fpr, "ed25519", "sign", "30d")
		}},
		"newest is revoked": {key: []string{"ed25519", "cert"}, change: func(g gpgHome, pass, fpr string) {
			g.must(pass, "--faked-system-time", "20240101T000000", "--quick-add-key", fpr, "ed25519", "sign")
			g.must(pass, "--faked-system-time", "20250101T000000", "--quick-add-key", fpr, "ed25519", "sign")
			g.interact("key 2\nrevkey\ny\n0\n\ny\nsave\n", pass, fpr)
		}},
		"key itself left out": {key: []string{"ed25519", "cert"}, how: "--export-secret-subkeys",
			change: func(g gpgHome, pass, fpr string) { g.must(pass, "--quick-add-key", fpr, "ed25519", "sign") }},
	} {
		for _, passphrase := range []string{"", canaryPassphrase} {
			if passphrase == "" && (!c.both || name != "ed25519" && name != "a subkey" && !suite.HasAll()) {
				continue
			}
			t.Run(name+", passphrase "+fmt.Sprint(passphrase != ""), func(t *testing.T) {
				g := newGPG(t)
				args := append([]string{"--faked-system-time", "20230101T000000", "--quick-generate-key", "Limpet <limpet@example.com>"}, c.key...)
				if len(c.key) < 3 {
					args = append(args, "never")
				} else {
					args = append([]string{"--faked-system-time", time.Now().UTC().Format("20060102T150405")}, args[2:]...)
				}
				g.must(passphrase, args...)
				fpr := g.fingerprint("limpet@example.com")
				if c.change != nil {
					c.change(g, passphrase, fpr)
				}
				how := c.how
				if how == "" {
					how = "--export-secret-keys"
				}
				secret := g.must(passphrase, "--armor", how, fpr)
				public := g.must(passphrase, "--armor", "--export", fpr)
				k, err := ParseSigningKey(secret, []byte(passphrase), time.Now())
				if err != nil {
					t.Fatal(err)
				}
				if k.Method() != GPG || k.Key() != fpr {
					t.Errorf("%s, want %s", k, fpr)
				}
				r := newRepo(t, g.dir)
				r.judge(k)
				agrees(t, k, r.commit, map[string][]byte{"a.asc": public})
				silent(t, secret, []byte(passphrase), k, *k)
				ours, err := k.Sign(r.commit)
				if err != nil {
					t.Fatal(err)
				}
				file := filepath.Join(r.dir, "text")
				for name, data := range map[string][]byte{file: r.commit, file + ".ours": ours} {
					if err := os.WriteFile(name, data, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				g.must(passphrase, "--armor", "--detach-sign", "-u", "limpet@example.com", "-o", file+".its", file)
				by := func(ending string) string {
					return string(validSig.FindSubmatch(g.must("", "--status-fd", "1", "--verify", file+ending, file))[1])
				}
				if by(".ours") != by(".its") {
					t.Errorf("ours is signed by %s, gpg's by %s", by(".ours"), by(".its"))
				}
				if ends := name == "ends" || name == "a subkey"; ends == k.Expires().IsZero() {
					t.Errorf("it ends at %s", k.Expires())
				}
				if passphrase != "" {
					locked(t, secret)
				}
			})
		}
	}
}

// interact edits a key.
func (g gpgHome) interact(in, passphrase, fpr string) {
	g.t.Helper()
	if _, err := g.run(in, passphrase, "--command-fd", "0", "--edit-key", fpr); err != nil {
		g.t.Fatal(err)
	}
}

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
		"large":         {pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: make([]byte, maxSecret+1)}), "longer than a key of RSA"},
		"public":        {public, "public key"},
		"public PEM":    {[]byte("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"), "public key"},
		"X.509":         {[]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "smime"},
		"something":     {[]byte("-----BEGIN RECORD-----\nAAAA\n-----END RECORD-----\n"), "something else"},
		"two":           {append(bytes.Clone(plain), plain...), "something follows"},
		"half":          {plain[:len(plain)/2], "damaged"},
		"weak":          {made("-t", "rsa", "-b", "1024", "-N", ""), "1024 bits"},
		"dsa":           {made("-t", "dsa", "-N", ""), "ed25519, ecdsa and rsa are"},
		"a cipher":      {made("-t", "ed25519", "-N", "canary", "-Z", "aes256-gcm@openssh.com"), "aes256-ctr"},
		"PKCS8":         {made("-t", "rsa", "-b", "2048", "-N", "canary", "-m", "PKCS8"), "PKCS8"},
		"rounds":        {rounds, "-a 24"},
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
		return g.fingerprint(mail)
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
		"on a card":       {rearmed(t, alone, func(b []byte) { b[bytes.Index(b, []byte("GNU"))+3] = 2 }), "", "on a card"},
		"elsewhere":       {rearmed(t, alone, func(b []byte) { b[bytes.Index(b, []byte("GNU"))+3] = 9 }), "", "on a card"},
		"public":          {g.must("", "--armor", "--export", good), "", "--export-secret-keys"},
		"several":         {g.must("", "--armor", "--export-secret-keys", good, certifies), "", "several keys"},
		"twice":           {append(private(good), private(good)...), "", "something follows"},
		"half":            {private(good)[:300], "", "damaged"},
	} {
		k, err := ParseSigningKey(c.key, nil, time.Now())
		if err == nil || k != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		silent(t, c.key, nil, err)
		if c.uid != "" {
			if _, err := g.run("", "", "--batch", "--detach-sign", "-u", c.uid+"@example.com", "-o", text+".sig", text); err == nil {
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
func rearmed(t testing.TB, secret []byte, change func([]byte)) []byte {
	t.Helper()
	body, _, err := unarmor(secret, pgpPrivate)
	if err != nil {
		t.Fatal(err)
	}
	change(body)
	return armored(pgpPrivate, body)
}

// secretOf makes a private key that the gpg of today does not write.
func secretOf(t testing.TB, config *packet.Config, passphrase string) []byte {
	t.Helper()
	e, err := openpgp.NewEntity("new", "", "new@example.com", config)
	if err != nil {
		t.Fatal(err)
	}
	if passphrase != "" {
		if err := e.EncryptPrivateKeys([]byte(passphrase), config); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := e.SerializePrivateWithoutSigning(&out, config); err != nil {
		t.Fatal(err)
	}
	return armored(pgpPrivate, out.Bytes())
}

// TestSecretForms: forms of private keys that the gpg of today does not write.
func TestSecretForms(t *testing.T) {
	for name, c := range map[string]struct {
		config     packet.Config
		passphrase string
		change     func([]byte)
		want       string
	}{
		"Ed25519":           {config: packet.Config{Algorithm: packet.PubKeyAlgoEd25519}},
		"with a passphrase": {config: packet.Config{Algorithm: packet.PubKeyAlgoEd25519}, passphrase: "canary"},
		"AES-128": {config: packet.Config{Algorithm: packet.PubKeyAlgoEd25519, DefaultCipher: packet.CipherAES128},
			passphrase: "canary"},
		"version 6": {config: packet.Config{Algorithm: packet.PubKeyAlgoEd25519, V6Keys: true}},
		"wrong":     {config: packet.Config{Algorithm: packet.PubKeyAlgoEd25519}, passphrase: "other", want: SigningPassphraseName},
		"AEAD": {config: packet.Config{Algorithm: packet.PubKeyAlgoEd25519, AEADConfig: &packet.AEADConfig{}},
			passphrase: "canary", want: "AEAD"},
		"Argon2": {config: packet.Config{AEADConfig: &packet.AEADConfig{}, S2KConfig: &s2k.Config{S2KMode: s2k.Argon2S2K}},
			passphrase: "canary", want: "AEAD"},
		"Argon2, version 6": {config: packet.Config{V6Keys: true, AEADConfig: &packet.AEADConfig{},
			S2KConfig: &s2k.Config{S2KMode: s2k.Argon2S2K}}, passphrase: "canary", want: "AEAD"},
		"that of another": {config: packet.Config{Algorithm: packet.PubKeyAlgoEd25519}, change: swapSeed, want: "damaged"},
	} {
		c.config.DefaultHash = crypto.SHA256
		key := secretOf(t, &c.config, c.passphrase)
		if c.change != nil {
			key = rearmed(t, key, c.change)
		}
		k, err := ParseSigningKey(key, []byte("canary"), time.Now().Add(time.Second))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		silent(t, key, []byte(c.passphrase), k, err)
	}
}

// swapSeed damages the first byte of a seed and leaves its checksum as it is.
func swapSeed(b []byte) { b[2+6+32+1] ^= 1 }

// FuzzSigningKey: no private key that is foreign or damaged makes this room fail, shows
// its passphrase, or signs what it does not verify.
func FuzzSigningKey(f *testing.F) {
	f.Add(secretOf(f, &packet.Config{Algorithm: packet.PubKeyAlgoEd25519}, "canary"), []byte("canary"))
	f.Add(secretOf(f, &packet.Config{Algorithm: packet.PubKeyAlgoEd25519}, ""), []byte(""))
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
