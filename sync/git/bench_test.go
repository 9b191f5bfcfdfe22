package git

import (
	"fmt"
	"os"
	"testing"

	"limpet/sync/git/gitref"
	"limpet/sync/git/gittest"
)

// BenchmarkSite measures what a job does: LIMPET_BENCH_FILES, default 1000.
func BenchmarkSite(b *testing.B) {
	n := 1000
	fmt.Sscan(os.Getenv("LIMPET_BENCH_FILES"), &n)
	s := gittest.NewServer(b)
	o := gittest.NewOrigin(b, s.Root, "site.git")
	o.Many(n)
	m := openMirrors(b, Options{})
	r := remoteAt(s, "site.git")
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
