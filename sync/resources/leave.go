package resources

import (
	"cmp"
	"limpet/sync/api/repopath"
	"sort"
	"strings"
)

// Leaving splits what a repository manages into objects and folders, with the
// folders deepest first: in that order everything can be deleted. The other way
// round, folders from the top and then objects, is the order in which they are
// released. Source: Grafana's orphan clean-up.
func Leaving(items []Item) (objects, folders []Item) {
	for _, item := range items {
		if item.IsFolder() {
			folders = append(folders, item)
		} else {
			objects = append(objects, item)
		}
	}
	sort.Slice(folders, func(i, j int) bool {
		a, b := folders[i], folders[j]
		return cmp.Or(depth(b)-depth(a), strings.Compare(a.Path, b.Path), strings.Compare(a.Name, b.Name)) < 0
	})
	return objects, folders
}

// depth counts the directories above a folder; the root has the empty path.
func depth(folder Item) int { return strings.Count(repopath.AsDir(folder.Path), "/") }
