package git_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
)

// A branch is resolved, its commit is fetched into a mirror, and its files are read from there. No
// step needs a git on the host, and this one no network.
func Example() {
	dir, err := os.MkdirTemp("", "limpet-example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	origin := filepath.Join(dir, "boards.git")
	err = git.CreateRepository(origin)
	when := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	files := map[string][]byte{"README.md": []byte("boards"), "grafana/team/cpu.json": []byte("{}")}
	if err == nil {
		_, err = git.CommitFiles(origin, "main", "First dashboard", files, when)
	}
	if err != nil {
		panic(err)
	}

	mirrors, err := git.Open(filepath.Join(dir, "mirrors"), git.Options{AllowLocal: []string{dir}})
	if err != nil {
		panic(err)
	}
	defer mirrors.Close()
	ctx, remote := context.Background(), git.Remote{URL: auth.Address{Scheme: "file", Path: origin}.String()}
	ref, err := mirrors.Resolve(ctx, remote, gitref.Branch("main"))
	if err != nil {
		panic(err)
	}
	stats, err := mirrors.Fetch(ctx, remote, ref)
	if err != nil {
		panic(err)
	}
	info, cerr := mirrors.Commit(ctx, remote, ref.Hash)
	tree, terr := mirrors.Tree(ctx, remote, ref.Hash, "grafana")
	if err := errors.Join(cerr, terr); err != nil {
		panic(err)
	}
	fmt.Printf("%s at %.7s: %s, %d objects\n", ref.Branch(), ref.Hash, info.Subject, stats.Objects)
	for _, f := range tree.Files {
		fmt.Println(f.Mode, f.Path, f.Size)
	}

	// Output:
	// main at 6d55153: First dashboard, 6 objects
	// 100644 team/cpu.json 2
}
