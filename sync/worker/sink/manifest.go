package sink

import (
	"cmp"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// The manifest is in a hidden directory: Grafana reads every *.json file as a dashboard, even a hidden one, but skips
// hidden directories.
const (
	manifestDir     = ".limpet"
	manifestPath    = manifestDir + "/manifest.json"
	manifestVersion = 1
	// maxManifest is the maximum size of a manifest in bytes: about 500,000 files.
	maxManifest = 128 << 20
)

// manifest records the owner of a directory and the files that limpet has written.
type manifest struct {
	Version    int               `json:"version"`
	Repository string            `json:"repository"` // namespace/name
	Commit     string            `json:"commit"`
	Files      map[string]string `json:"files"` // path -> File.Hash
	Sizes      map[string]int64  `json:"sizes"` // path -> File.Size; absent in the manifests of earlier versions
}

// Check reads the manifest and the sizes of the files, not their content, and returns the commit of the directory. The
// error says why it is not what was written for owner. It takes no lock and changes nothing.
func Check(t Target, owner string) (commit string, err error) {
	root, err := os.OpenRoot(t.prefix)
	if err != nil {
		return "", fmt.Errorf("open sink prefix: %w", err)
	}
	defer root.Close()
	if info, err := root.Lstat(t.rel); err != nil || !info.IsDir() {
		return "", cmp.Or(err, fmt.Errorf("%s is not a directory", t))
	}
	dir, err := root.OpenRoot(t.rel)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", t, err)
	}
	defer dir.Close()
	m, err := readManifest(dir)
	switch {
	case err != nil:
		return "", err
	case m == nil:
		return "", fmt.Errorf("%s has no manifest", t)
	case m.Repository != owner:
		return "", fmt.Errorf("%s belongs to repository %s", t, m.Repository)
	}
	return m.Commit, m.check(dir)
}

// check returns an error for a file of the manifest that is gone or has another size.
func (m *manifest) check(dir *os.Root) error {
	for name := range m.Files {
		info, err := dir.Lstat(name)
		size, known := m.Sizes[name]
		if err != nil {
			return err
		}
		if !known || !info.Mode().IsRegular() || info.Size() != size {
			return fmt.Errorf("%s is not the file that was written", name)
		}
	}
	return nil
}

// readManifest returns nil if there is none.
func readManifest(dir *os.Root) (*manifest, error) {
	f, err := dir.Open(manifestPath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open manifest: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	var m manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("read manifest %s: %w", manifestPath, err)
	}
	if m.Version > manifestVersion {
		return nil, fmt.Errorf("manifest %s has version %d; this limpet knows %d", manifestPath, m.Version, manifestVersion)
	}
	return &m, nil
}

func (m *manifest) encode() []byte {
	data, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		panic("sink: internal error: " + err.Error()) // text and maps of text
	}
	return append(data, '\n')
}

// contentHash returns the hash of a file on disk in the form of want.Hash, or "" if it is not a regular file of
// want.Size.
func contentHash(dir *os.Root, want File) (string, error) {
	info, err := dir.Lstat(want.Path)
	if err != nil || !info.Mode().IsRegular() || info.Size() != want.Size {
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		return "", err
	}
	f, err := dir.Open(want.Path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h, form := sha1.New(), ""
	if strings.HasPrefix(want.Hash, sha256Form) {
		h, form = sha256.New(), sha256Form
	} else {
		fmt.Fprintf(h, "blob %d\x00", want.Size)
	}
	if _, err := io.Copy(h, io.LimitReader(f, want.Size+1)); err != nil {
		return "", err
	}
	return form + hex.EncodeToString(h.Sum(nil)), nil
}
