package resources

import (
	"limpet/sync/api/repopath"
	"strings"
)

// keepFile stands for a directory that is empty, as FolderFile stands for one
// that has a folder of its own.
const keepFile = ".keep"

// LostMarker finds, among deleted files, a marker whose directory has no other
// deleted file. Such a list does not show whether the directory is deleted too. It
// returns the first by name, "" for the root. Source: Grafana's policy for
// incremental syncs.
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
