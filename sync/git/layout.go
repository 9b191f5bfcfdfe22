package git

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"limpet/state/atomicfile"
	"limpet/sync/git/pack"
)

// A mirror is a bare repository that git itself can read: packs with indexes, packed-refs (one
// file, so that no two names of branches can be in each other's way), shallow, and limpet.json,
// which says what the directory is. The files are replaced whole, by rename after fsync. No remote
// is in its config, and no secret anywhere.

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

// makeBare lays out an empty bare repository in dir, which must not exist or be empty, with HEAD at
// a branch. Its files are for git alone, and are not synced.
func makeBare(dir, head string) error {
	for _, d := range []string{"objects/pack", "objects/info", "refs/heads", "refs/tags"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return err
		}
	}
	for name, content := range map[string]string{configFile: bareConfig, headFile: "ref: " + head + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func writeNote(dir string, n note) error {
	data, err := json.MarshalIndent(n, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, noteFile), 0o600, atomicfile.Data(append(data, '\n')))
}

// readNote checks that dir is a mirror that this version understands. Errors wrap
// pack.ErrDamaged, or fs.ErrNotExist when there is no directory.
func readNote(dir string) (n note, err error) {
	if _, err := os.Stat(dir); err != nil {
		return n, err
	}
	data, err := os.ReadFile(filepath.Join(dir, noteFile))
	if err == nil {
		err = json.Unmarshal(data, &n)
	}
	if err == nil && n.Format != layoutFormat {
		err = fmt.Errorf("%s is of format %d", noteFile, n.Format)
	}
	if err != nil {
		return n, fmt.Errorf("%w: %v", pack.ErrDamaged, err) // a missing file is no missing mirror
	}
	return n, nil
}

// readShallow reads the commits whose parents were left out.
func readShallow(dir string) ([]pack.ID, error) {
	data, err := os.ReadFile(filepath.Join(dir, shallowFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var ids []pack.ID
	for line := range strings.FieldsSeq(string(data)) {
		id, ok := pack.ParseID(line)
		if !ok {
			return nil, fmt.Errorf("%w: malformed line in %s", pack.ErrDamaged, shallowFile)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// writeShallow writes the ends of history, before the commits are there that have
// no parents: a server that does not hear of them leaves out what we lack.
func writeShallow(dir string, ids []pack.ID) error {
	if old, err := readShallow(dir); err == nil && slices.Equal(old, ids) {
		return nil
	}
	var out []byte
	for _, id := range ids {
		out = append(out, id.String()+"\n"...)
	}
	path := filepath.Join(dir, shallowFile)
	if len(ids) > 0 {
		return atomicfile.Write(path, 0o600, atomicfile.Data(out))
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	return atomicfile.SyncDir(dir)
}

// Names of what is being made: a process that was killed leaves them behind.
const (
	trashPrefix = "tmp_old_"
	buildPrefix = "tmp_new_"
)

// sweep removes what a killed process left below the directory of all mirrors:
// half-made mirrors, spooled packs, packs without an index and lock files.
func sweep(root string) error {
	files, mirrors := os.DirFS(root), strings.Repeat("[0-9a-f]", mirrorName)
	for _, pattern := range []string{"tmp_*", mirrors + "/tmp_*", mirrors + "/.limpet-*", mirrors + "/*.lock", mirrors + "/objects/pack/tmp_*",
		mirrors + "/objects/pack/*.lock", mirrors + "/objects/pack/*.pack"} {
		names, err := fs.Glob(files, pattern)
		if err != nil {
			return err
		}
		for _, name := range names {
			if base, isPack := strings.CutSuffix(name, ".pack"); isPack {
				if _, err := fs.Stat(files, base+".idx"); !errors.Is(err, fs.ErrNotExist) {
					continue
				}
			}
			if err := os.RemoveAll(filepath.Join(root, name)); err != nil {
				return err
			}
		}
	}
	return nil
}
