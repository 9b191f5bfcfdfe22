package dependency

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// files finds the version of files: of single ones, and of the credentials in a directory, as they are for each
// object: <namespace>.<name>/<key> or <namespace>.<name>_<key>. The version follows from names, times, sizes
// and modes; nothing is read. A file that is written again with the same content is a change.
type files struct{ dir string } // "" = no directory

// versions returns the version of the files of each ref, "" for none.
func (f files) versions(refs ...Ref) map[Ref]string {
	flat := map[string][]string{} // names in the directory itself, by what is before the first "_"
	for _, name := range names(f.dir) {
		if of, key, ok := strings.Cut(name, "_"); ok && key != webhookSecret {
			flat[of] = append(flat[of], name)
		}
	}
	versions := map[Ref]string{}
	for _, ref := range refs {
		if ref.Kind == Path {
			versions[ref] = stat(ref.Name)
		} else {
			versions[ref] = f.version(ref.Namespace+"."+ref.Name, flat)
		}
	}
	return versions
}

// version returns the version of the files of one object.
func (f files) version(base string, flat map[string][]string) string {
	if f.dir == "" || strings.ContainsAny(base, "/\\\x00") || strings.HasPrefix(base, ".") {
		return ""
	}
	found := flat[base]
	for _, name := range names(filepath.Join(f.dir, base)) {
		if name != webhookSecret {
			found = append(found, filepath.Join(base, name))
		}
	}
	var version strings.Builder
	for _, name := range found {
		if v := stat(filepath.Join(f.dir, name)); v != "" {
			fmt.Fprintf(&version, "%s %s\n", name, v)
		}
	}
	return version.String()
}

// names returns the names in a directory, in order. Names that begin with a dot are editors' and Kubernetes' own.
func names(dir string) (out []string) {
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			out = append(out, e.Name())
		}
	}
	return out
}

// stat returns a text that changes with a file, or with what a link leads to; "" when it does not exist.
func stat(path string) string {
	info, err := os.Stat(path)
	if err != nil || info.IsDir() {
		return ""
	}
	return fmt.Sprintf("%d %d %s", info.ModTime().UnixNano(), info.Size(), info.Mode())
}
