package repopath

import (
	"path"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCheckPath(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path   string
		reason string // part of the refusal; "" = allowed
	}{
		{"", ""},
		{"a.json", ""},
		{"Team A/under_score/x-1.y.json", ""},
		{"a/", ""},
		{"a/b/c/d/e/f/g/h.json", ""},
		{"a/b/c/d/e/f/g/h/i.json", "deeper than 8"},
		{"/etc/passwd", "absolute"},
		{"a/../b.json", "leaves"},
		{"..", "leaves"},
		{"./a.json", "leaves"},
		{"a//b.json", "empty segment"},
		{".github/workflows/ci.yml", "hidden"},
		{"a/.hidden.json", "hidden"},
		{"a%2e%2e/b.json", "'%'"},
		{"größe.json", "not one of"},
		{"a\x00b.json", "not one of"},
		{"a\nb.json", "not one of"},
		{`a\b.json`, "not one of"},
		{strings.Repeat("a", MaxPathLength+1), "longer than"},
	} {
		err := CheckPath(c.path)
		if (err == nil) != (c.reason == "") || err != nil && !strings.Contains(err.Error(), c.reason) {
			t.Errorf("CheckPath(%.40q) = %v, want %q", c.path, err, c.reason)
		}
	}
	if !IsHidden(CheckPath(".github/ümlaut.json")) {
		t.Error("a hidden path with other faults is not known as hidden")
	}
}

func TestPathParts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, parent, base, safe string
		ancestors                []string
	}{
		{"", "", "", "", nil},
		{"a.json", "", "a.json", "", nil},
		{"a/", "", "a", "a/", []string{"a/"}},
		{"a/b/c.json", "a/b/", "c.json", "a/b/", []string{"a/", "a/b/"}},
		{"a/b/", "a/", "b", "a/b/", []string{"a/", "a/b/"}},
		{"a/.git/c.json", "a/.git/", "c.json", "a/", []string{"a/", "a/.git/"}},
	} {
		if got := Parent(c.path); got != c.parent {
			t.Errorf("Parent(%q) = %q, want %q", c.path, got, c.parent)
		}
		if got := Base(c.path); got != c.base {
			t.Errorf("Base(%q) = %q, want %q", c.path, got, c.base)
		}
		if got := SafeDir(c.path); got != c.safe {
			t.Errorf("SafeDir(%q) = %q, want %q", c.path, got, c.safe)
		}
		if got := Ancestors(c.path); !reflect.DeepEqual(got, c.ancestors) {
			t.Errorf("Ancestors(%q) = %q, want %q", c.path, got, c.ancestors)
		}
	}
}

func TestKindsOfFiles(t *testing.T) {
	t.Parallel()
	for p, want := range map[string]bool{
		"a.json": true, "a.YAML": true, "a/b.yml": true, "a.md": false, "a.json/": false, "json": false, "": false,
	} {
		if got := IsResourceFile(p); got != want {
			t.Errorf("IsResourceFile(%q) = %v", p, got)
		}
	}
	if !IsFolderFile("a/_folder.json") || IsFolderFile("a/x_folder.json") || IsFolderFile("_folder.json/") {
		t.Error("folder files are not distinguished")
	}
}

func FuzzPath(f *testing.F) {
	for _, s := range []string{"", "a/b.json", "/", "..", "a/../../b", ".git/config", "a//b", "a/\x00", strings.Repeat("a/", 600), "aux", "\xff/\"\n", `"a"`, `"\xff"`, `"\"`,
		"a/ .json"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if text := Quote(p); Unquote(text) != p || !utf8.ValidString(text) {
			t.Fatalf("Quote(%q) = %q", p, text)
		}
		safe := SafeDir(p)
		if CheckPath(safe) != nil || !strings.HasPrefix(p, safe) {
			t.Fatalf("SafeDir(%q) = %q", p, safe)
		}
		if CheckPath(p) != nil {
			return
		}
		clean := path.Clean("/root/" + p)
		if !strings.HasPrefix(clean, "/root") || strings.Contains(clean, "/.") {
			t.Fatalf("allowed path %q leaves its root or is hidden: %q", p, clean)
		}
		if joined := Parent(p) + Base(p); joined != strings.TrimSuffix(p, "/") {
			t.Fatalf("Parent and Base of %q give %q", p, joined)
		}
		for _, dir := range Ancestors(p) {
			if CheckPath(dir) != nil {
				t.Fatalf("directory %q of allowed path %q is refused", dir, p)
			}
		}
	})
}
