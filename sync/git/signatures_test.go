package git

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"limpet/sync/git/gittest"
	"limpet/sync/signature"
)

// make new fixtures with: go test ./sync/git -run TestSignatures -signatures
var newSignatures = flag.Bool("signatures", false, "make the keys and signatures in testdata anew, with gpg, ssh-keygen and git")

const signatureDir = "testdata/signatures"

// signedAt is when the commits and tags of the fixtures say that they were made.
var signedAt = time.Date(2021, 3, 4, 12, 0, 0, 0, time.UTC)

// signedCase is an object of testdata, the keys that may sign it, and what is wrong.
type signedCase struct {
	name string
	keys []string // files in testdata; as allowed_signers when they begin so
	want signature.Kind
	// git says the opposite, for a reason: we are the stricter ones.
	stricter string
	claim    Verification
}

var signedCases = []signedCase{
	{name: "pgp-ed25519.commit", keys: []string{"ed25519.asc"}},
	{name: "pgp-ed25519.tag", keys: []string{"ed25519.asc"}},
	{name: "pgp-rsa.commit", keys: []string{"ed25519.asc", "rsa.asc"}},
	{name: "pgp-rsa.tag", keys: []string{"rsa.asc"}},
	{name: "pgp-nistp256.commit", keys: []string{"nistp256.asc"}},
	{name: "pgp-nistp384.commit", keys: []string{"nistp384.asc"}},
	{name: "pgp-nistp521.commit", keys: []string{"nistp521.asc"}},
	{name: "pgp-subkey.commit", keys: []string{"subkey.asc"}},
	{name: "pgp-ed25519.commit", keys: []string{"rsa.asc"}, want: signature.UnknownKey},
	{name: "pgp-ed25519.tag", keys: []string{"rsa.asc", "subkey.asc"}, want: signature.UnknownKey},
	{name: "pgp-tampered.commit", keys: []string{"ed25519.asc"}, want: signature.Bad},
	{name: "pgp-tampered.tag", keys: []string{"ed25519.asc"}, want: signature.Bad},
	{name: "pgp-expired.commit", keys: []string{"expired.asc"}, want: signature.Expired},
	{name: "pgp-subexpired.commit", keys: []string{"subexpired.asc"}, want: signature.Expired},
	{name: "pgp-sigexpired.commit", keys: []string{"ed25519.asc"}, want: signature.Expired},
	{name: "pgp-revoked.commit", keys: []string{"revoked.asc"}, want: signature.Revoked},
	{name: "pgp-subrevoked.commit", keys: []string{"subrevoked.asc"}, want: signature.Revoked},
	{name: "pgp-early.commit", keys: []string{"ed25519.asc"}, want: signature.TooEarly},
	{name: "pgp-sha1.commit", keys: []string{"rsa.asc"}, want: signature.Weak, stricter: "GnuPG 2.2 takes SHA-1"},
	{name: "pgp-rsa1024.commit", keys: []string{"rsa1024.asc"}, want: signature.Weak, stricter: "GnuPG takes 1024 bits"},
	{name: "pgp-dsa.commit", keys: []string{"dsa.asc"}, want: signature.Weak, stricter: "GnuPG takes DSA"},
	{name: "pgp-brainpool.commit", keys: []string{"brainpool.asc"}, want: signature.Unsupported, stricter: "not supported here"},
	{name: "pgp-ed25519.commit", keys: []string{"ed25519.asc"}, claim: Verification{Principals: []string{"ed25519@example.com"}}},
	{name: "pgp-ed25519.commit", keys: []string{"ed25519.asc"}, want: signature.Principal, stricter: "git does not ask for principals", claim: Verification{Principals: []string{"bob@example.com"}}},
	{name: "pgp-ed25519.commit", keys: []string{"ed25519.asc"}, want: signature.Principal, stricter: "git does not ask for principals", claim: Verification{OfMaker: true}},
	{name: "pgp-twice.commit", keys: []string{"ed25519.asc"}, want: signature.Malformed},

	{name: "ssh-ed25519.commit", keys: []string{"ed25519.sshpub"}},
	{name: "ssh-ed25519.tag", keys: []string{"ed25519.sshpub"}},
	{name: "ssh-rsa.commit", keys: []string{"rsa.sshpub"}},
	{name: "ssh-ecdsa.commit", keys: []string{"ecdsa.sshpub"}},
	{name: "ssh-ecdsa521.commit", keys: []string{"ecdsa521.sshpub"}},
	{name: "ssh-ed25519.commit", keys: []string{"rsa.sshpub", "ecdsa.sshpub"}, want: signature.UnknownKey},
	{name: "ssh-tampered.commit", keys: []string{"ed25519.sshpub"}, want: signature.Bad},
	{name: "ssh-tampered.tag", keys: []string{"ed25519.sshpub"}, want: signature.Bad},
	{name: "ssh-file.commit", keys: []string{"ed25519.sshpub"}, want: signature.Bad},
	{name: "ssh-rsa1024.commit", keys: []string{"rsa1024.sshpub"}, want: signature.Weak, stricter: "OpenSSH takes 1024 bits"},
	{name: "ssh-cert.commit", keys: []string{"ed25519.sshpub"}, want: signature.Unsupported},

	{name: "ssh-ed25519.commit", keys: []string{"allowed_signers"}},
	{name: "ssh-ed25519.commit", keys: []string{"allowed_signers.after"}, want: signature.TooEarly},
	{name: "ssh-ed25519.commit", keys: []string{"allowed_signers.before"}, want: signature.Expired},
	{name: "ssh-ed25519.commit", keys: []string{"allowed_signers.between"}},
	{name: "ssh-ed25519.commit", keys: []string{"allowed_signers.rotated"}},
	{name: "ssh-ed25519.commit", keys: []string{"allowed_signers.file"}, want: signature.Unusable},
	{name: "ssh-ed25519.commit", keys: []string{"allowed_signers.wild"}},
	{name: "ssh-ed25519.commit", keys: []string{"allowed_signers.other"}, want: signature.UnknownKey},
	{name: "ssh-ed25519.commit", keys: []string{"allowed_signers"}, claim: Verification{OfMaker: true}},
	{name: "ssh-ed25519.commit", keys: []string{"allowed_signers"}, claim: Verification{Principals: []string{"bob@example.com", "ops@example.com"}}},
	{name: "ssh-ed25519.commit", keys: []string{"allowed_signers.not"}, want: signature.Principal, stricter: "git does not ask for principals", claim: Verification{OfMaker: true}},

	{name: "unsigned.commit", keys: []string{"ed25519.asc", "ed25519.sshpub"}, want: signature.Unsigned},
	{name: "unsigned.tag", keys: []string{"ed25519.asc", "ed25519.sshpub"}, want: signature.Unsigned},
	{name: "x509.commit", keys: []string{"ed25519.asc"}, want: signature.Unsupported},
	{name: "other.commit", keys: []string{"ed25519.asc"}, want: signature.Malformed},
}

func (c signedCase) String() string {
	return strings.Join(append([]string{c.name, string(c.want)}, c.keys...), " ") + strings.Join(c.claim.Principals, ",") + fmt.Sprint(c.claim.OfMaker)
}

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(signatureDir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// ring reads the keys of a case.
func (c signedCase) ring(t testing.TB) *signature.Keys {
	t.Helper()
	files := map[string][]byte{}
	for _, k := range c.keys {
		name := k
		if strings.HasPrefix(k, signature.AllowedSigners) {
			name = signature.AllowedSigners
		}
		files[name] = fixture(t, k)
	}
	keys, err := signature.ParseKeys(files, "testdata")
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// judge is what the code says of a case.
func (c signedCase) judge(t testing.TB) (Verified, error) {
	t.Helper()
	v := c.claim
	v.Keys, v.Now = c.ring(t), time.Now()
	data := fixture(t, c.name)
	if strings.HasSuffix(c.name, ".tag") {
		tag, err := splitTag(data)
		if err != nil {
			return Verified{}, &signature.Error{Kind: signature.Malformed, Err: err}
		}
		return tag.check("tag v1", v)
	}
	s, err := splitCommit(data)
	if err != nil {
		return Verified{}, &signature.Error{Kind: signature.Malformed, Err: err}
	}
	return s.check("commit abc1234", v)
}

// TestSignatures judges what gpg, ssh-keygen and git have signed.
func TestSignatures(t *testing.T) {
	if *newSignatures {
		makeSignatures(t)
	}
	for _, c := range signedCases {
		t.Run(c.String(), func(t *testing.T) {
			got, err := c.judge(t)
			if kind := signature.KindOf(err); kind != c.want {
				t.Fatalf("%q: %v, want %q", kind, err, c.want)
			}
			if err == nil && (got.Signer.Key == "" || got.Object == "") {
				t.Errorf("nothing is said of the signer: %+v", got)
			}
			t.Log(got, err)
		})
	}
}

// TestGitAgrees asks git of all fixtures. Where it says the opposite, a reason stands
// in the table.
func TestGitAgrees(t *testing.T) {
	home := t.TempDir()
	for i, c := range signedCases {
		t.Run(c.String(), func(t *testing.T) {
			dir := filepath.Join(home, fmt.Sprint(i))
			gittest.Git(t, home, nil, "init", "-q", "--bare", dir)
			gnupg := filepath.Join(dir, "gnupg")
			if err := os.Mkdir(gnupg, 0o700); err != nil {
				t.Fatal(err)
			}
			var allowed []byte
			for _, k := range c.keys {
				data := fixture(t, k)
				switch {
				case strings.HasSuffix(k, ".asc"):
					tool(t, gnupg, data, "gpg", "--batch", "--quiet", "--no-autostart", "--import")
				case strings.HasSuffix(k, ".sshpub"):
					allowed = append(append(allowed, "* "...), data...)
				default:
					allowed = append(allowed, data...)
				}
			}
			list := filepath.Join(dir, "allowed")
			if err := os.WriteFile(list, allowed, 0o600); err != nil {
				t.Fatal(err)
			}
			kind := strings.TrimPrefix(filepath.Ext(c.name), ".")
			id := gittest.Git(t, dir, fixture(t, c.name), "hash-object", "-w", "--stdin", "--literally", "-t", kind)
			cmd := exec.Command("git", "-c", "gpg.ssh.allowedSignersFile="+list, "verify-"+kind, id)
			cmd.Dir, cmd.Env = dir, append(gittest.GitEnv(dir), "GNUPGHOME="+gnupg)
			out, err := cmd.CombinedOutput()
			want := c.want == "" || c.stricter != ""
			if (err == nil) != want {
				t.Errorf("git says %v, we say %q:\n%s", err, c.want, out)
			}
		})
	}
}

// tool runs a program, with gnupg for what it keeps.
func tool(t testing.TB, gnupg string, in []byte, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(name, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &errs
	cmd.Env = append(os.Environ(), "GNUPGHOME="+gnupg, "TZ=UTC")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, errs.Bytes())
	}
	return out.Bytes()
}
