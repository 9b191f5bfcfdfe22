package artifact_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"limpet/state"
	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
)

// A revision is stored under its digest, and is the latest one once it is whole on disk.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "limpet-example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	index, _, err := state.Open(ctx, state.Options{Path: filepath.Join(dir, "limpet.db")})
	if err != nil {
		panic(err)
	}
	defer index.Close()
	store, err := artifact.Open(ctx, artifact.Options{Dir: filepath.Join(dir, "artifacts"), Store: index})
	if err != nil {
		panic(err)
	}

	revision := "main@sha1:2f6dcfb3b1c6fc8a3bcb2b8ba7c1ee2dd9f1a0d4"
	packed := []byte("the bytes of a tar.gz")
	_, err = store.Put(ctx, artifact.Artifact{Kind: "gitrepository", Namespace: "default", Name: "site", Revision: revision},
		func(w io.Writer) (archive.Digests, error) {
			_, err := w.Write(packed)
			digest := fmt.Sprintf("sha256:%x", sha256.Sum256(packed))
			return archive.Digests{Digest: digest, TarDigest: digest, Size: int64(len(packed)), Files: 1}, err
		})
	if err != nil {
		panic(err)
	}
	latest, err := store.Latest(ctx, artifact.Key{Kind: "gitrepository", Namespace: "default", Name: "site"})
	if err != nil {
		panic(err)
	}
	fmt.Println(artifact.Version(latest.Revision), latest.Size, "bytes")
	fmt.Println(store.Verify(ctx, latest))

	// Output:
	// main 21 bytes
	// <nil>
}
