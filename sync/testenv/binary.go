package testenv

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	slashed "path"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"limpet/sync/testenv/suite"
)

// envBinaries names the directory that keeps built API servers; the default is
// testdata/apiserver/.bin in the checkout.
const envBinaries = "LIMPET_APISERVER_CACHE"

// keepBinaries is how long the servers of older sources stay on disk. Another
// checkout may share the directory.
const keepBinaries = 24 * time.Hour

// apiserver returns the path of the API server, built from the sources of this
// checkout. One source is built once: its hash is the name of the file. With a
// cold Go build cache that takes minutes, so "make full" does it beforehand.
func apiserver(t testing.TB) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatalf("build API server: %v", err)
	}
	return path
}

var built = sync.OnceValues(func() (string, error) {
	root, err := suite.Checkout()
	if err != nil {
		return "", err
	}
	return build(filepath.Join(root, "testdata", "apiserver"), ".")
})

// FluxClient returns the path of a program that takes artifacts with the code of Flux's
// controllers, built like the API server.
func FluxClient(t testing.TB) string {
	t.Helper()
	root, err := suite.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	path, err := build(filepath.Join(root, "testdata", "fluxclient"), ".")
	if err != nil {
		t.Fatalf("build client of Flux: %v", err)
	}
	return path
}

// Tool returns the path of a program of others that the go.mod of a module below testdata names as
// its tool, built like the API server.
func Tool(t testing.TB, module, pkg string) string {
	t.Helper()
	root, err := suite.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	path, err := build(filepath.Join(root, "testdata", module), pkg)
	if err != nil {
		t.Fatalf("build %s: %v", pkg, err)
	}
	return path
}

// build builds a package of the module in source.
func build(source, pkg string) (string, error) {
	bin := os.Getenv(envBinaries)
	if bin == "" {
		bin = filepath.Join(source, ".bin")
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	sum, err := sourceHash(source)
	if err != nil {
		return "", err
	}
	name := filepath.Base(source)
	if pkg != "." {
		name = slashed.Base(pkg)
	}
	path := filepath.Join(bin, name+"-"+sum)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	unlock, err := lock(filepath.Join(bin, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil // another process built it while this one waited
	}
	// A half-written file never has the final name.
	part := fmt.Sprintf("%s.%d", path, os.Getpid())
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", part, pkg)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build in %s: %w\n%s", source, err, out)
	}
	if err := os.Rename(part, path); err != nil {
		return "", err
	}
	return path, forget(bin, name, path)
}

// sourceHash names what a binary is made from: the sources, the locked
// dependencies and the compiler.
func sourceHash(source string) (string, error) {
	files, err := filepath.Glob(filepath.Join(source, "*.go"))
	if err != nil {
		return "", err
	}
	files = append(files, filepath.Join(source, "go.mod"), filepath.Join(source, "go.sum"))
	slices.Sort(files)
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, filepath.Base(f), len(data))
		h.Write(data)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// forget removes programs of older sources.
func forget(bin, name, keep string) error {
	old, err := filepath.Glob(filepath.Join(bin, name+"-*"))
	if err != nil {
		return err
	}
	for _, path := range old {
		info, err := os.Stat(path)
		if err != nil || path == keep || time.Since(info.ModTime()) < keepBinaries {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
