package git

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"limpet/sync/git/gitref"
	"limpet/sync/signature"
	"limpet/sync/testenv/gittest"
)

// signatureDir holds what gpg, ssh-keygen and git have made; the objects say that they are of
// 2021-03-04.
const signatureDir = "testdata/signatures"

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
	{name: "pgp-ed25519.commit", keys: []string{"ed25519.asc"}, want: signature.Principal, stricter: "git does not ask for principals",
		claim: Verification{Principals: []string{"bob@example.com"}}},
	{name: "pgp-ed25519.commit", keys: []string{"ed25519.asc"}, want: signature.Principal, stricter: "git does not ask for principals",
		claim: Verification{OfMaker: true}},
	{name: "pgp-ed25519.commit", keys: []string{"ed25519.asc"}, claim: Verification{OfMaker: true, Principals: []string{"ed25519@example.com"}}},
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
	{name: "ssh-ed25519.commit", keys: []string{"allowed_signers"},
		claim: Verification{Principals: []string{"bob@example.com", "ops@example.com"}}},
	{name: "ssh-ed25519.commit", keys: []string{"allowed_signers.not"}, want: signature.Principal,
		stricter: "git does not ask for principals", claim: Verification{OfMaker: true}},

	{name: "unsigned.commit", keys: []string{"ed25519.asc", "ed25519.sshpub"}, want: signature.Unsigned},
	{name: "unsigned.tag", keys: []string{"ed25519.asc", "ed25519.sshpub"}, want: signature.Unsigned},
	{name: "x509.commit", keys: []string{"ed25519.asc"}, want: signature.Unsupported},
	{name: "other.commit", keys: []string{"ed25519.asc"}, want: signature.Malformed},
}

func (c signedCase) String() string {
	return strings.Join(append([]string{c.name, string(c.want)}, c.keys...), " ") + strings.Join(c.claim.Principals, ",") +
		fmt.Sprint(c.claim.OfMaker)
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
		tag, err := splitSignedTag(data)
		if err != nil {
			return Verified{}, &signature.Error{Kind: signature.Malformed, Err: err}
		}
		return tag.signed.check("tag v1", v)
	}
	s, err := splitSignedCommit(data)
	if err != nil {
		return Verified{}, &signature.Error{Kind: signature.Malformed, Err: err}
	}
	return s.check("commit abc1234", v)
}

// TestSignatures judges what gpg, ssh-keygen and git have signed.
func TestSignatures(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	home := t.TempDir()
	for i, c := range signedCases {
		t.Run(c.String(), func(t *testing.T) {
			dir := filepath.Join(home, fmt.Sprint(i))
			gittest.Init(t, dir, true, "")
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

// splitSeeds are raw objects of the fixtures, and hostile ones.
func splitSeeds(f *testing.F) {
	entries, err := os.ReadDir(signatureDir)
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".commit") || strings.HasSuffix(e.Name(), ".tag") {
			f.Add(fixture(f, e.Name()))
		}
	}
	for _, s := range []string{"", "\n", " ", "gpgsig", "gpgsig \n x\n\ny", "gpgsig a\r\n b\r\n\r\n", "tree x\n x\ngpgsig a",
		"gpgsig-sha256 a\n b\n\nm", "gpgsigx a\n\n",
		"committer A <a@b> <c@d> 1 +0000\n\n", "object x\ntype commit\ntag v1\n"} {
		f.Add([]byte(s))
	}
}

// FuzzSplitCommit: what is not the signature is in the text, byte by byte, and putting
// another signature into it gives the same text again.
func FuzzSplitCommit(f *testing.F) {
	splitSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := splitSignedCommit(data)
		if err != nil {
			return
		}
		if !bytes.Contains(data, []byte(signatureHeader)) && !bytes.Equal(s.text, data) {
			t.Fatalf("the text of %q became %q", data, s.text)
		}
		if len(s.text)+len(s.signature) > len(data)+1 {
			t.Fatalf("%q grew to %q and %q", data, s.text, s.signature)
		}
		signed := append([]byte("gpgsig one\n two\n"), s.text...)
		if bytes.HasPrefix(s.text, []byte(" ")) {
			return // it would go on with the signature, as in git
		}
		again, err := splitSignedCommit(signed)
		if err != nil || !bytes.Equal(again.text, s.text) || string(again.signature) != "one\ntwo\n" || again.by.mail != s.by.mail ||
			!again.by.when.Equal(s.by.when) {
			t.Fatalf("%q, signed, is %q and %q, %v", s.text, again.text, again.signature, err)
		}
	})
}

// FuzzSplitTag: text and signature are all that there is.
func FuzzSplitTag(f *testing.F) {
	splitSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		tag, err := splitSignedTag(data)
		if err != nil {
			return
		}
		if !bytes.Equal(append(bytes.Clone(tag.signed.text), tag.signed.signature...), data) {
			t.Fatalf("%q became %q and %q", data, tag.signed.text, tag.signed.signature)
		}
		if !bytes.HasPrefix(data, []byte("object "+tag.object.String()+"\ntype "+tag.kind+"\ntag "+tag.name)) &&
			!strings.ContainsAny(string(data[7:47]), "ABCDEF") {
			t.Fatalf("%q is said to be %s %s %s", data, tag.object, tag.kind, tag.name)
		}
	})
}

// TestMaker: a line that names two addresses names none.
func TestMaker(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"Ada <ada@example.com> 1614859200 +0000": "ada@example.com", "<ada@example.com> 1 +0000": "ada@example.com", "Ada <> 1 +0000": "",
		"Ada <eve@example.com> <ada@example.com> 1 +0000": "", "Ada <ada@example.com <eve@example.com> 1 +0000": "",
		"Ada > <ada@example.com> 1 +0000": "",
		"Ada <ada@example.com":            "", "": "", "Ada <ada@example.com> 1 +0000>": "",
	} {
		if got := parseMaker(line).mail; got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// TestVerify fetches signed commits and tags from a real server and verifies them.
func TestVerify(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "signed.git")
	key := o.Work + ".key"
	tool(t, t.TempDir(), nil, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key)
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := signature.ParseKeys(map[string][]byte{"ops.sshpub": public}, "the test")
	if err != nil {
		t.Fatal(err)
	}
	sign := []string{"-c", "gpg.format=ssh", "-c", "user.signingKey=" + key}
	o.Commit("unsigned", map[string]string{"a": "1"})
	o.Git(append(sign, "commit", "-q", "--allow-empty", "-S", "-m", "signed")...)
	signed := o.Git("rev-parse", "HEAD")
	o.Git("tag", "unsigned", "HEAD~1")
	o.Git("tag", "-a", "-m", "x", "annotated")
	o.Git(append(sign, "tag", "-s", "-m", "x", "v1")...)
	o.Git(append(sign, "tag", "-s", "-m", "x", "of-unsigned", "HEAD~1")...)
	o.Git(append(sign, "tag", "-s", "-m", "x", "of-tag", "v1")...)
	o.Git("push", "-q", "origin", "HEAD:refs/heads/main", "--tags")
	gittest.Git(t, o.Bare, nil, "update-ref", "refs/tags/v2", gittest.Git(t, o.Bare, nil, "rev-parse", "v1"))

	m := openMirrors(t, Options{})
	r := remoteAt(s, "signed.git")
	for _, c := range []struct {
		ref  string
		mode signature.Mode
		want signature.Kind
		says string
	}{
		{"main", signature.HEAD, "", "commit " + signed[:7]},
		{"main", signature.TagOnly, signature.WrongMode, "refs/heads/main is not a tag"},
		{"main", signature.TagAndHEAD, signature.WrongMode, "refs/heads/main is not a tag"},
		{"v1", signature.HEAD, "", "commit " + signed[:7]},
		{"v1", signature.TagOnly, "", "tag v1"},
		{"v1", signature.TagAndHEAD, "", "tag v1 commit " + signed[:7]},
		{"v2", signature.TagOnly, signature.Bad, "tag v2 was signed as tag v1"},
		{"unsigned", signature.HEAD, signature.Unsigned, "is not signed"},
		{"unsigned", signature.TagOnly, signature.WrongMode, "tag unsigned is a lightweight tag"},
		{"annotated", signature.TagOnly, signature.Unsigned, "tag annotated is not signed"},
		{"annotated", signature.TagAndHEAD, signature.Unsigned, "tag annotated is not signed"},
		{"annotated", signature.HEAD, "", "commit " + signed[:7]},
		{"of-unsigned", signature.TagOnly, "", "tag of-unsigned"},
		{"of-unsigned", signature.TagAndHEAD, signature.Unsigned, "is not signed"},
		{"of-tag", signature.TagOnly, signature.Malformed, "tag of-tag is not one of commit"},
	} {
		sel := gitref.Selector{Tag: c.ref}
		if c.ref == "main" {
			sel = gitref.Branch(c.ref)
		}
		ref, err := m.Resolve(t.Context(), r, sel)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Fetch(t.Context(), r, ref); err != nil {
			t.Fatal(err)
		}
		found, err := m.Verify(t.Context(), r, ref, Verification{Mode: c.mode, Keys: keys})
		if kind := signature.KindOf(err); kind != c.want {
			t.Errorf("%s %s: %q: %v, want %q", c.ref, c.mode, kind, err, c.want)
		}
		if err != nil {
			gittest.ErrorIs(t, err, Unverified, c.says)
			continue
		}
		var objects []string
		for _, one := range found {
			objects = append(objects, one.Object)
		}
		if got := strings.Join(objects, " "); got != c.says {
			t.Errorf("%s %s: verified %q, want %q", c.ref, c.mode, got, c.says)
		}
		before := s.Requests.Load()
		if _, err := m.Verify(t.Context(), r, ref, Verification{Mode: c.mode, Keys: keys}); err != nil || s.Requests.Load() != before {
			t.Errorf("%s %s: the second time took %d requests: %v", c.ref, c.mode, s.Requests.Load()-before, err)
		}
		if _, err := m.Verify(t.Context(), r, ref, Verification{Mode: c.mode}); signature.KindOf(err) != signature.NoKeys {
			t.Errorf("%s %s: without keys: %v", c.ref, c.mode, err)
		}
	}
	fsck(t, m, r)
}

// TestSplitRefuses: bytes that git would leave out of what is signed, or put together,
// are not looked over.
func TestSplitRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"tree x\ngpgsig a\n b\ngpgsig c\n\nm": "has several signatures", "tree x\ngpgsig a\nx y\ngpgsig c\n\nm": "has several signatures",
		"tree x\ngpgsig-sha256 a\n b\n\nm": "another form of repository", "tree x\ngpgsigned a\n\nm": "another form of repository",
		"tree x\ngpgsig\n b\n\nm": "another form of repository",
	} {
		if _, err := splitSignedCommit([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{"tree x\n\ngpgsig a\ngpgsig b\n", "tree x\nmergetag object\n gpgsig a\n gpgsig b\n\nm"} {
		if s, err := splitSignedCommit([]byte(text)); err != nil || string(s.text) != text || s.signature != nil {
			t.Errorf("%q: %q %q, %v", text, s.text, s.signature, err)
		}
	}
}
