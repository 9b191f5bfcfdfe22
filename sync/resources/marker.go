package resources

import (
	"limpet/sync/api/repopath"
	"strings"
)

// keepFile stands for a directory that is empty, as FolderFile stands for one
// that has a folder of its own.
const keepFile = ".keep"

// LostMarker finds a directory that lost a file which stands for it and nothing
// else, among files that are gone. Whether the directory is gone as well, such a
// list does not tell. The first by name is returned, "" for the root. Source:
// Grafana's policy for incremental syncs.
func LostMarker(gone []string) (dir string, is bool) {
	marked, others := map[string]bool{}, map[string]bool{}
	for _, path := range gone {
		slash := strings.LastIndexByte(path, '/')
		dir, base := path[:slash+1], path[slash+1:]
		if base == keepFile || base == repopath.FolderFile {
			marked[dir] = true
		} else {
			others[dir] = true
		}
	}
	for _, dir := range sortedKeys(marked) {
		if !others[dir] {
			return dir, true
		}
	}
	return "", false
}
