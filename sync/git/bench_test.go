package git

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"limpet/sync/git/gitref"
)

// many fills a repository with n files in directories of 50.
func (o *origin) many(n int) {
	o.t.Helper()
	var in strings.Builder
	in.WriteString("commit refs/heads/main\ncommitter Carl <carl@example.com> 1800000000 +0000\ndata 4\nmany\n")
	for i := range n {
		data := dashboard(fmt.Sprint(i), i, 3)
		fmt.Fprintf(&in, "M 100644 inline team-%d/folder-%d/board-%d.json\ndata %d\n%s\n", i/2500, i/50, i, len(data), data)
	}
	gitIn(o.t, o.bare, []byte(in.String()), "fast-import", "--quiet", "--force")
	gitIn(o.t, o.bare, nil, "repack", "-adq", "--depth=20", "--window=10")
}

// BenchmarkSite measures what a job does: LIMPET_BENCH_FILES, default 1000.
func BenchmarkSite(b *testing.B) {
	n := 1000
	fmt.Sscan(os.Getenv("LIMPET_BENCH_FILES"), &n)
	s := newServer(b)
	o := newOrigin(b, s.root, "site.git")
	o.many(n)
	m := openMirrors(b, Options{})
	r := s.remote("site.git")
	ref, err := m.Resolve(b.Context(), r, gitref.Branch(""))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("clone", func(b *testing.B) {
		for b.Loop() {
			if _, err := m.Prune(nil, 0); err != nil {
				b.Fatal(err)
			}
			if _, err := m.Fetch(b.Context(), r, ref); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("tree", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tree, err := m.Tree(b.Context(), r, ref.Hash, "")
			if err != nil || len(tree.Files) != n {
				b.Fatal(err, len(tree.Files))
			}
		}
	})
	b.Run("blobs", func(b *testing.B) {
		b.ReportAllocs()
		tree, err := m.Tree(b.Context(), r, ref.Hash, "")
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			for _, f := range tree.Files {
				if _, err := m.Blob(b.Context(), r, f.Hash, 0); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}
