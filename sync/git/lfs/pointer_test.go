package lfs

import (
	"strings"
	"testing"
)

const pointerOID = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393"

func TestParsePointer(t *testing.T) {
	t.Parallel()
	good := "version https://git-lfs.github.com/spec/v1\noid sha256:" + pointerOID + "\nsize 12345\n" // of docs/spec.md
	for _, c := range []struct {
		text string
		is   bool
		err  string
	}{
		{good, true, ""},
		{strings.Replace(good, "git-lfs.", "hawser.", 1), true, ""},
		{strings.Replace(good, "https://git-lfs.github.com/spec/v1", "http://git-media.io/v/2", 1), true, ""},
		{"", false, ""},
		{`{"title": "x"}`, false, ""},
		{"version: https://git-lfs.github.com/spec/v1\n", false, ""},
		{good + strings.Repeat("x", MaxPointer), false, ""},
		{strings.TrimSuffix(good, "\n"), true, ""}, // as git-lfs reads it, which the specification does not allow
		{strings.ReplaceAll(good, "\n", "\r\n"), true, ""},
		{"\n " + good + "\n\n", true, ""},
		{strings.ReplaceAll(good, "\n", "\n\n"), true, ""},
		{strings.Replace(good, "12345", "012345", 1), true, ""},
		{strings.Replace(good, "\noid", "\nfoo bar\noid", 1), false, ""},
		{strings.Replace(good, "/v1", "/v2", 1), false, ""},
		{strings.Replace(good, "sha256", "md5", 1), false, ""},
		{strings.Replace(good, "4d7a", "4D7A", 1), false, ""},
		{strings.Replace(good, "4d7a", "", 1), false, ""},
		{strings.Replace(good, "12345", "-1", 1), false, ""},
		{strings.Replace(good, "12345", "99999999999999999999", 1), false, ""},
		{good + "size 12345\n", false, ""},
		{strings.Replace(good, "\noid", "\next-0-x sha256:"+pointerOID+"\noid", 1), true, "extension"},
		{"version https://git-lfs.github.com/spec/v1\n", false, ""},
	} {
		p, is, err := ParsePointer([]byte(c.text))
		if is != c.is || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: %v %v, want %v %q", c.text, is, err, c.is, c.err)
		}
		if is && err == nil && p != (Pointer{pointerOID, 12345}) {
			t.Errorf("%q: %+v", c.text, p)
		}
	}
}

func FuzzParsePointer(f *testing.F) {
	f.Add([]byte("version https://git-lfs.github.com/spec/v1\noid sha256:" + pointerOID + "\nsize 12345\n"))
	f.Add([]byte("version https://hawser.github.com/spec/v1\next-0-x y\noid sha256:\nsize -1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, is, err := ParsePointer(data)
		if is && err == nil && (len(p.OID) != 64 || p.Size < 0 || strings.Trim(p.OID, "0123456789abcdef") != "") {
			t.Errorf("%+v", p)
		}
		if !is && (err != nil || p != Pointer{}) {
			t.Errorf("no pointer, but %+v %v", p, err)
		}
	})
}
