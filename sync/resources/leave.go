package resources

import (
	"cmp"
	"slices"
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
	slices.SortFunc(folders, func(a, b Item) int {
		return cmp.Or(depth(b)-depth(a), strings.Compare(a.Path, b.Path), strings.Compare(a.Name, b.Name))
	})
	return objects, folders
}

// depth counts the directories above a folder; the root has the empty path.
func depth(folder Item) int { return strings.Count(AsDir(folder.Path), "/") }
