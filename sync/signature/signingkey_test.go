package signature

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

const canaryPassphrase = "canary passphrase\twith ümlaut" // as a person might choose one

// run runs gpg now, with a passphrase for the keys.
func (g gpgHome) run(passphrase string, args ...string) ([]byte, error) {
	cmd := exec.Command("gpg", append([]string{"--batch", "--quiet", "--no-tty", "--yes", "--pinentry-mode", "loopback", "--passphrase", passphrase}, args...)...)
	cmd.Env = append(os.Environ(), "GNUPGHOME="+g.dir, "TZ=UTC", "LC_ALL=C.UTF-8")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("gpg %s: %w\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out, err
}

func (g gpgHome) must(passphrase string, args ...string) []byte {
	g.t.Helper()
	out, err := g.run(passphrase, args...)
	if err != nil {
		g.t.Fatal(err)
	}
	return out
}

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
	r.env = append(os.Environ(), "GNUPGHOME="+gpgHome, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "HOME="+r.dir, "TZ=UTC", "LC_ALL=C.UTF-8",
		"GIT_AUTHOR_NAME=Limpet", "GIT_AUTHOR_EMAIL=limpet@example.com", "GIT_COMMITTER_NAME=Limpet", "GIT_COMMITTER_EMAIL=limpet@example.com")
	r.git("", "init", "--quiet", "-b", "main", ".")
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
	commit := strings.TrimSpace(string(r.git(string(r.commit[:at])+header+string(r.commit[at:]), "hash-object", "-t", "commit", "-w", "--stdin")))
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
	if strings.Contains(shown.String(), "canary") || strings.Contains(shown.String(), fmt.Sprintf("%x", "canary")) || len(passphrase) > 3 && strings.Contains(shown.String(), string(passphrase)) {
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
		"ed25519": {"-t", "ed25519"}, "ecdsa 256": {"-t", "ecdsa", "-b", "256"}, "ecdsa 384": {"-t", "ecdsa", "-b", "384"}, "ecdsa 521": {"-t", "ecdsa", "-b", "521"},
		"rsa 2048": {"-t", "rsa", "-b", "2048"}, "rsa 3072": {"-t", "rsa", "-b", "3072"},
		"rsa PEM": {"-t", "rsa", "-b", "2048", "-m", "PEM"}, "rsa PKCS8": {"-t", "rsa", "-b", "2048", "-m", "PKCS8"}, "ecdsa PEM": {"-t", "ecdsa", "-m", "PEM"},
		"cbc": {"-t", "ed25519", "-Z", "aes256-cbc"}, "rounds": {"-t", "ed25519", "-a", "40"},
	} {
		for _, passphrase := range []string{"", canaryPassphrase} {
			if name == "rsa PKCS8" && passphrase != "" {
				continue // among those that are refused
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
		both   bool   // without a passphrase too
	}{
		"ed25519":  {key: []string{"ed25519", "sign,cert"}, both: true},
		"rsa 2048": {key: []string{"rsa2048", "sign,cert"}, both: true},
		"rsa 4096": {key: []string{"rsa4096", "sign,cert"}},
		"nistp256": {key: []string{"nistp256", "sign,cert"}, both: true},
		"nistp384": {key: []string{"nistp384", "sign,cert"}},
		"nistp521": {key: []string{"nistp521", "sign,cert"}},
		"as it is": {key: []string{"default", "default"}, both: true}, // with a subkey for encryption
		"ends":     {key: []string{"ed25519", "sign,cert", "30d"}},
		"a subkey": {key: []string{"ed25519", "cert"}, both: true, change: func(g gpgHome, pass, fpr string) { g.must(pass, "--quick-add-key", fpr, "ed25519", "sign", "20d") }},
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
		"key itself left out": {key: []string{"ed25519", "cert"}, how: "--export-secret-subkeys", change: func(g gpgHome, pass, fpr string) { g.must(pass, "--quick-add-key", fpr, "ed25519", "sign") }},
	} {
		for _, passphrase := range []string{"", canaryPassphrase} {
			if passphrase == "" && !c.both {
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
				fpr := fingerprintOf(g, "limpet@example.com")
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
	cmd := exec.Command("gpg", "--quiet", "--no-tty", "--pinentry-mode", "loopback", "--passphrase", passphrase, "--command-fd", "0", "--edit-key", fpr)
	cmd.Env = append(os.Environ(), "GNUPGHOME="+g.dir, "LC_ALL=C.UTF-8")
	cmd.Stdin = strings.NewReader(in)
	if out, err := cmd.CombinedOutput(); err != nil {
		g.t.Fatalf("gpg --edit-key: %v\n%s", err, out)
	}
}
