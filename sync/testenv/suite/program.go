package suite

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// Checkout returns the top of the checkout: the directory above the working
// directory whose go.mod declares module limpet.
func Checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if bytes.HasPrefix(data, []byte("module limpet\n")) {
			return dir, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("find checkout: no go.mod of module limpet above the working directory")
		}
		dir = up
	}
}

// Program builds limpet of this checkout as the file path, with flags of go build. It lists the
// directories of the source: go test repeats a result as long as the test and what it has opened in
// the module are the same, and knows nothing of the programs that a test starts.
func Program(path string, flags ...string) error {
	root, err := Checkout()
	if err != nil {
		return err
	}
	for _, dir := range []string{"state", "sync", "tui"} {
		if err := filepath.WalkDir(filepath.Join(root, dir), func(_ string, _ fs.DirEntry, err error) error { return err }); err != nil {
			return err
		}
	}
	for _, name := range []string{"main.go", "go.mod", "go.sum"} {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			return err
		}
	}
	cmd := exec.Command("go", append(append([]string{"build", "-trimpath", "-ldflags", "-s -w"}, flags...), "-o", path, "limpet")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build limpet: %w\n%s", err, out)
	}
	return nil
}
