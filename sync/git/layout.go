package git

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"limpet/sync/git/pack"
)

// A mirror is a bare repository that git itself can read: packs with indexes,
// packed-refs (one file, so that no two names of branches can be in each
// other's way), shallow, and limpet.json, which says for people and for the
// next start what the directory is. The files are replaced whole, by rename
// after fsync. There is no remote in its config, and no secret anywhere.

// layoutFormat is raised when the layout changes; other mirrors are rebuilt.
const layoutFormat = 1

const (
	headFile    = "HEAD"
	configFile  = "config"
	shallowFile = "shallow"
	noteFile    = "limpet.json"
	damageFile  = "limpet-damaged"
)

// bareConfig is the configuration of a repository without a worktree.
const bareConfig = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n[gc]\n\tauto = 0\n"

// note is the content of limpet.json.
type note struct {
	Format int    `json:"format"`
	URL    string `json:"url"`
	First  int64  `json:"firstPackBytes"`
}

// makeMirror lays out the directories of a mirror in dir, which must not exist.
// finishMirror adds the rest once there is something in it.
func makeMirror(dir string) error {
	for _, d := range []string{"", "objects", "objects/pack", "objects/info", "refs", "refs/heads"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// finishMirror writes what makes dir a repository, with HEAD at a branch.
func finishMirror(dir string, n note, head string) error {
	if err := pack.ReplaceFile(filepath.Join(dir, configFile), []byte(bareConfig)); err != nil {
		return err
	}
	if err := pack.ReplaceFile(filepath.Join(dir, headFile), []byte("ref: "+head+"\n")); err != nil {
		return err
	}
	if err := writeNote(dir, n); err != nil {
		return err
	}
	return pack.SyncDir(dir)
}

func writeNote(dir string, n note) error {
	data, err := json.MarshalIndent(n, "", "  ")
	if err != nil {
		return err
	}
	return pack.ReplaceFile(filepath.Join(dir, noteFile), append(data, '\n'))
}

// readNote checks that dir is a mirror of url that this version understands.
// Errors wrap pack.ErrDamaged, or fs.ErrNotExist when there is no directory.
func readNote(dir, url string) (note, error) {
	var n note
	if _, err := os.Stat(dir); err != nil {
		return n, err
	}
	data, err := os.ReadFile(filepath.Join(dir, noteFile))
	if err != nil {
		return n, fmt.Errorf("%w: %w", pack.ErrDamaged, err)
	}
	if err := json.Unmarshal(data, &n); err != nil || n.Format != layoutFormat || n.URL != url {
		return n, fmt.Errorf("%w: %s is not the one of this mirror", pack.ErrDamaged, noteFile)
	}
	return n, nil
}

// urlOf is the URL that a mirror's note names, "" when it cannot be read.
func urlOf(dir string) string {
	var n note
	if data, err := os.ReadFile(filepath.Join(dir, noteFile)); err == nil && json.Unmarshal(data, &n) == nil {
		return n.URL
	}
	return ""
}

// readShallow reads the commits whose parents were left out.
func readShallow(dir string) ([]pack.ID, error) {
	data, err := os.ReadFile(filepath.Join(dir, shallowFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var ids []pack.ID
	for _, line := range strings.Fields(string(data)) {
		id, ok := pack.ParseID(line)
		if !ok {
			return nil, fmt.Errorf("%w: malformed line in %s", pack.ErrDamaged, shallowFile)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func writeShallow(dir string, ids []pack.ID) error {
	if len(ids) == 0 {
		err := os.Remove(filepath.Join(dir, shallowFile))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	var out []byte
	for _, id := range ids {
		out = append(out, id.String()+"\n"...)
	}
	return pack.ReplaceFile(filepath.Join(dir, shallowFile), out)
}

// Names of what is being made: a process that was killed leaves them behind.
const (
	trashPrefix = "tmp_old_"
	buildPrefix = "tmp_new_"
)

// sweep removes what a killed process left below the directory of all mirrors:
// half-made mirrors, spooled packs, packs without an index and lock files.
func sweep(root string) error {
	dirs, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, d := range dirs {
		path := filepath.Join(root, d.Name())
		if strings.HasPrefix(d.Name(), "tmp_") {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
			continue
		}
		if !d.IsDir() || len(d.Name()) != mirrorName {
			continue
		}
		if err := sweepMirror(path); err != nil {
			return err
		}
	}
	return nil
}

func sweepMirror(dir string) error {
	for _, sub := range []string{"", "objects/pack"} {
		files, err := os.ReadDir(filepath.Join(dir, sub))
		if errors.Is(err, fs.ErrNotExist) {
			continue // not sound; it is rebuilt when it is used
		}
		if err != nil {
			return err
		}
		for _, f := range files {
			name := f.Name()
			stale := strings.HasPrefix(name, "tmp_") || strings.HasSuffix(name, ".lock")
			if pack, ok := strings.CutSuffix(name, ".pack"); ok && !stale {
				_, err := os.Stat(filepath.Join(dir, sub, pack+".idx"))
				stale = errors.Is(err, fs.ErrNotExist)
			}
			if stale && !f.IsDir() {
				if err := os.Remove(filepath.Join(dir, sub, name)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
