package apiserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func testExpander(t testing.TB, env map[string]string) *expander {
	t.Helper()
	return &expander{dir: t.TempDir(), lookup: func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}}
}

func TestManifestFileReference(t *testing.T) {
	t.Parallel()
	x := testExpander(t, nil)
	if err := os.WriteFile(filepath.Join(x.dir, "token"), []byte("  s3cr3t ${X}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"token", filepath.Join(x.dir, "token")} {
		if got, err := x.text("<$__file{" + path + "}>"); err != nil || got != "<s3cr3t ${X}>" {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	if len(x.files) != 2 {
		t.Errorf("files to watch: %q", x.files)
	}
	if _, err := x.text("$__file{.}"); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory gives %v", err)
	}
	if err := os.WriteFile(filepath.Join(x.dir, "large"), make([]byte, maxManifest+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := x.text("$__file{large}"); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a large file gives %v", err)
	}
}

// FuzzExpand: text without a dollar sign is left alone, an escaped text comes
// out as it was, and what a variable holds is never looked at again.
func FuzzExpand(f *testing.F) {
	for _, seed := range []string{"", "$", "$$", "${A}", "$${A}", "$__env{A}", "$__file{", "${", "${A}${A}", "a${A}b$${A}c", "$__file{/dev/null}", "${${A}}", "$$$${A}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const value = "${A}$__env{A}"
		x := &expander{dir: t.TempDir(), lookup: func(name string) (string, bool) { return value, name == "A" }}
		if strings.Contains(text, "__file{") {
			return // the disk of the test is not part of it
		}
		out, err := x.text(text)
		if !strings.Contains(text, "$") && (err != nil || out != text) {
			t.Errorf("%q became %q, %v", text, out, err)
		}
		if err == nil && len(out) > len(text)*len(value)+len(value) {
			t.Errorf("%q grew to %q", text, out)
		}
		escaped := strings.NewReplacer("${", "$${", "$__env{", "$$__env{").Replace(strings.ReplaceAll(text, "$$", "$"))
		if !strings.Contains(escaped, "$$$") {
			want := strings.ReplaceAll(text, "$$", "$")
			if out, err := x.text(escaped); err != nil || out != want {
				t.Errorf("%q escaped as %q became %q, %v", want, escaped, out, err)
			}
		}
	})
}
