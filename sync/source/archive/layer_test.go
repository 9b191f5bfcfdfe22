package archive_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"testing"

	"limpet/sync/source/archive"
)

// TestWhole: a foreign archive is served as it is where the archive that is made of it has the same
// files, and nowhere else.
func TestWhole(t *testing.T) {
	t.Parallel()
	regular := func(name string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: 1}
	}
	for name, c := range map[string]struct {
		entries []tar.Header
		ignore  string
		whole   bool
	}{
		"files":      {entries: []tar.Header{regular("b"), regular("a/c"), {Name: "a/", Typeflag: tar.TypeDir, Mode: 0o755}}, whole: true},
		"dotted":     {entries: []tar.Header{{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755}, regular("./a")}, whole: true},
		"nothing":    {whole: true},
		"own rule":   {entries: []tar.Header{regular("a"), regular("b")}, ignore: "b", whole: false},
		"kept":       {entries: []tar.Header{regular("a.png")}, ignore: "b", whole: true},
		"default":    {entries: []tar.Header{regular("a.png")}},
		"rules":      {entries: []tar.Header{regular("a"), regular("x/.sourceignore")}},
		"empty dir":  {entries: []tar.Header{{Name: ".git/", Typeflag: tar.TypeDir, Mode: 0o755}}},
		"link":       {entries: []tar.Header{{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "b", Mode: 0o777}}},
		"hard link":  {entries: []tar.Header{regular("a"), {Name: "b", Typeflag: tar.TypeLink, Linkname: "a", Mode: 0o644}}},
		"twice":      {entries: []tar.Header{regular("a"), regular("a")}},
		"unreadable": {entries: []tar.Header{{Name: "a", Typeflag: tar.TypeReg, Mode: 0o200}}},
		"set id":     {entries: []tar.Header{{Name: "a", Typeflag: tar.TypeReg, Mode: 0o4755}}},
	} {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		w := tar.NewWriter(z)
		for _, h := range c.entries {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			_, _ = w.Write(make([]byte, h.Size))
		}
		if err := errors.Join(w.Close(), z.Close()); err != nil {
			t.Fatal(err)
		}
		o := archive.Options{}
		if c.ignore != "" {
			o.Ignore = &c.ignore
		}
		files, whole, err := archive.Whole(t.Context(), bytes.NewReader(out.Bytes()), o)
		if err != nil || whole != c.whole {
			t.Errorf("%s: %v, %v", name, whole, err)
		}
		spool, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		packed, err := archive.Repack(t.Context(), io.Discard, &out, spool, o)
		if _ = spool.Close(); err != nil || whole && packed.Files != files {
			t.Errorf("%s: %d files as they are, %d packed: %v", name, files, packed.Files, err)
		}
	}
}
