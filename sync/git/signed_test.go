package git

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"limpet/sync/git/gitref"
	"limpet/sync/git/gittest"
	"limpet/sync/signature"
)

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
	for _, s := range []string{"", "\n", " ", "gpgsig", "gpgsig \n x\n\ny", "gpgsig a\r\n b\r\n\r\n", "tree x\n x\ngpgsig a", "gpgsig-sha256 a\n b\n\nm", "gpgsigx a\n\n",
		"committer A <a@b> <c@d> 1 +0000\n\n", "object x\ntype commit\ntag v1\n"} {
		f.Add([]byte(s))
	}
}

// FuzzSplitCommit: what is not the signature is in the text, byte by byte, and putting
// another signature into it gives the same text again.
func FuzzSplitCommit(f *testing.F) {
	splitSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := splitCommit(data)
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
		again, err := splitCommit(signed)
		if err != nil || !bytes.Equal(again.text, s.text) || string(again.signature) != "one\ntwo\n" || again.by.mail != s.by.mail || !again.by.when.Equal(s.by.when) {
			t.Fatalf("%q, signed, is %q and %q, %v", s.text, again.text, again.signature, err)
		}
	})
}

// FuzzSplitTag: text and signature are all that there is.
func FuzzSplitTag(f *testing.F) {
	splitSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		tag, err := splitTag(data)
		if err != nil {
			return
		}
		if !bytes.Equal(append(bytes.Clone(tag.text), tag.signature...), data) {
			t.Fatalf("%q became %q and %q", data, tag.text, tag.signature)
		}
		if !bytes.HasPrefix(data, []byte("object "+tag.object.String()+"\ntype "+tag.kind+"\ntag "+tag.name)) && !strings.ContainsAny(string(data[7:47]), "ABCDEF") {
			t.Fatalf("%q is said to be %s %s %s", data, tag.object, tag.kind, tag.name)
		}
	})
}

// TestMaker: a line that names two addresses names none.
func TestMaker(t *testing.T) {
	for line, want := range map[string]string{
		"Ada <ada@example.com> 1614859200 +0000": "ada@example.com", "<ada@example.com> 1 +0000": "ada@example.com", "Ada <> 1 +0000": "",
		"Ada <eve@example.com> <ada@example.com> 1 +0000": "", "Ada <ada@example.com <eve@example.com> 1 +0000": "", "Ada > <ada@example.com> 1 +0000": "",
		"Ada <ada@example.com": "", "": "", "Ada <ada@example.com> 1 +0000>": "",
	} {
		if got := maker(line).mail; got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// TestVerify fetches signed commits and tags from a real server and verifies them.
func TestVerify(t *testing.T) {
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
		{"main", signature.TagOnly, signature.WrongMode, "refs/heads/main is no tag"},
		{"main", signature.TagAndHEAD, signature.WrongMode, "refs/heads/main is no tag"},
		{"v1", signature.HEAD, "", "commit " + signed[:7]},
		{"v1", signature.TagOnly, "", "tag v1"},
		{"v1", signature.TagAndHEAD, "", "tag v1 commit " + signed[:7]},
		{"v2", signature.TagOnly, signature.Bad, "tag v2 was signed as tag v1"},
		{"unsigned", signature.HEAD, signature.Unsigned, "is not signed"},
		{"unsigned", signature.TagOnly, signature.WrongMode, "tag unsigned is only a name"},
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
	for text, want := range map[string]string{
		"tree x\ngpgsig a\n b\ngpgsig c\n\nm": "has several signatures", "tree x\ngpgsig a\nx y\ngpgsig c\n\nm": "has several signatures",
		"tree x\ngpgsig-sha256 a\n b\n\nm": "another form of repository", "tree x\ngpgsigned a\n\nm": "another form of repository",
		"tree x\ngpgsig\n b\n\nm": "another form of repository",
	} {
		if _, err := splitCommit([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{"tree x\n\ngpgsig a\ngpgsig b\n", "tree x\nmergetag object\n gpgsig a\n gpgsig b\n\nm"} {
		if s, err := splitCommit([]byte(text)); err != nil || string(s.text) != text || s.signature != nil {
			t.Errorf("%q: %q %q, %v", text, s.text, s.signature, err)
		}
	}
}
