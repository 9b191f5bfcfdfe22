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
	"path"
	"strings"

	"limpet/sync/api/repopath"
)

// The manifest is in a hidden directory: Grafana reads every *.json file as a dashboard, even a
// hidden one, but skips hidden directories.
const (
	manifestDir     = ".limpet"
	manifestPath    = manifestDir + "/manifest.json"
	manifestVersion = 1
	// maxManifest is the maximum size of a manifest in bytes: about 400,000 files.
	maxManifest = 128 << 20
)

// manifest records the owner of a directory and the files that limpet has written.
type manifest struct {
	Version    int               `json:"version"`
	Repository string            `json:"repository"` // namespace/name
	Commit     string            `json:"commit"`
	Source     string            `json:"source,omitempty"` // what the files depend on beside the commit; "" = unknown
	Files      map[string]string `json:"files"`            // path -> File.Hash
	Sizes      map[string]int64  `json:"sizes"`            // path -> File.Size; absent in the manifests of earlier versions
	Times      map[string]int64  `json:"times"`            // path -> time of the last change in ns; absent in those as well
	Exec       map[string]bool   `json:"exec"`             // paths of executable files; absent in those as well
	// UIDs are those of dashboards, path -> File.UID; absent in those as well.
	UIDs map[string]string `json:"uids"`
}

// renamed returns m with the keys that of returns.
func renamed[V any](m map[string]V, of func(string) string) map[string]V {
	if m == nil {
		return nil
	}
	out := make(map[string]V, len(m))
	for name, v := range m {
		out[of(name)] = v
	}
	return out
}

// withPaths returns m with the paths that of returns.
func (m *manifest) withPaths(of func(string) string) *manifest {
	out := *m
	out.Files, out.Sizes = renamed(m.Files, of), renamed(m.Sizes, of)
	out.Times, out.Exec = renamed(m.Times, of), renamed(m.Exec, of)
	out.UIDs = renamed(m.UIDs, of)
	return &out
}

// Check reads the manifest, the sizes and the times of the files, and the content of those with
// another time. It returns the commit of the directory and its source as it was given to Plan. The
// error says why it is not what was written for owner: a *ForeignError where it has another one. It
// takes no lock and changes nothing.
func Check(t Target, owner string) (commit, source string, err error) {
	root, err := openPrefix(t.prefix)
	if err != nil {
		return "", "", err
	}
	defer root.Close()
	if info, err := root.Lstat(t.rel); err != nil || !info.IsDir() {
		return "", "", cmp.Or(err, fmt.Errorf("%s is not a directory", t))
	}
	dir, err := root.OpenRoot(t.rel)
	if err != nil {
		return "", "", fmt.Errorf("open %s: %w", t, err)
	}
	defer dir.Close()
	m, err := readManifest(dir)
	switch {
	case err != nil:
		return "", "", err
	case m == nil:
		return "", "", fmt.Errorf("%s has no manifest", t)
	case m.Repository != owner:
		return "", "", foreign(t, m.Repository)
	}
	return m.Commit, m.Source, m.check(dir)
}

// check returns an error for a file of the manifest that is gone or another one.
func (m *manifest) check(dir *os.Root) error {
	if m.Exec == nil {
		return errors.New("the manifest says nothing of executable files")
	}
	for name, hash := range m.Files {
		info, err := dir.Lstat(name)
		size, known := m.Sizes[name]
		if err != nil {
			return err
		}
		f := File{Path: name, Hash: hash, Size: size, Exec: m.Exec[name]}
		same := known && looksLike(info, f)
		if written := m.Times[name]; same && written != 0 && written != info.ModTime().UnixNano() {
			if same, err = holds(dir, f); err != nil {
				return err
			}
		}
		if !same {
			return fmt.Errorf("%s is not the file that was written", repopath.Quote(name))
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
	return m.withPaths(repopath.Unquote), nil
}

// stamp notes the times of the files below a directory.
func (m *manifest) stamp(root *os.Root, dir string) error {
	m.Times = make(map[string]int64, len(m.Files))
	for name := range m.Files {
		info, err := root.Lstat(path.Join(dir, name))
		if err != nil {
			return err
		}
		m.Times[name] = info.ModTime().UnixNano()
	}
	return nil
}

func (m *manifest) encode() []byte {
	data, err := json.MarshalIndent(m.withPaths(repopath.Quote), "", " ")
	if err != nil {
		panic("sink: internal error: " + err.Error()) // text and maps of text
	}
	return append(data, '\n')
}

// looksLike reports whether a file on disk has the type, the size and the mode of one of the tree.
func looksLike(info fs.FileInfo, want File) bool {
	return info.Mode().IsRegular() && info.Size() == want.Size && (info.Mode()&0o100 != 0) == want.Exec
}

// holds reports whether the file on disk is all that the one of the tree promises: type, mode and
// content.
func holds(dir *os.Root, want File) (bool, error) {
	info, err := dir.Lstat(want.Path)
	if err != nil || !looksLike(info, want) {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return false, err
	}
	f, err := dir.Open(want.Path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	h, form := sha1.New(), ""
	if strings.HasPrefix(want.Hash, SHA256) {
		h, form = sha256.New(), SHA256
	} else {
		fmt.Fprintf(h, "blob %d\x00", want.Size)
	}
	if _, err := io.Copy(h, io.LimitReader(f, want.Size+1)); err != nil {
		return false, err
	}
	return form+hex.EncodeToString(h.Sum(nil)) == want.Hash, nil
}
