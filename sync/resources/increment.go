package resources

import (
	"maps"
	"slices"
	"strings"

	"limpet/sync/api/repopath"
)

// FileChange is one difference between two commits, with what its blobs are about: the identity of the object
// at the old path or blob, where it could be read.
type FileChange struct {
	Action   Action // Created, Updated, Deleted or Renamed
	Path     string
	From     string // previous path of a renamed file
	Hash     string // blob in the new commit
	FromHash string // blob in the old commit
	Previous *Identity
}

// OldFile returns the path that the object of the change had in the old commit,
// or "" when the file is new or was no resource.
func (c FileChange) OldFile() string {
	p := c.Path
	switch c.Action {
	case Created:
		return ""
	case Renamed:
		p = c.From
	}
	if !isResource(p) {
		return ""
	}
	return p
}

// isResource reports whether the file at path may make a resource of its own.
func isResource(path string) bool {
	return repopath.IsResourceFile(path) && !repopath.IsFolderFile(path) && repopath.CheckPath(path) == nil
}

// Increment plans the way from one commit to the next. tree is the new one, folders are those that the
// repository has on the server, metas is as for Full. What did not change between the commits is not looked
// at, except the folders and the files directly in a folder that gets another uid.
func Increment(target Target, tree Tree, folders []Item, metas map[string]FolderMeta, changes []FileChange) *Plan {
	p := newPlan(target, tree, folders, metas)
	touched := map[string]bool{}
	for _, c := range changes {
		touched[c.Path] = true
		var old *Item
		if c.Previous != nil && c.OldFile() != "" {
			k := p.target.Kinds.Of(c.Previous.Group, c.Previous.Kind)
			old = &Item{Group: k.Group, Kind: k.Kind, Resource: k.Resource, Name: c.Previous.Name, Path: c.OldFile(), Hash: c.FromHash}
		}
		writes := c.Action != Deleted && p.resource(c.Path)
		switch {
		case writes && c.Action == Renamed && old == nil:
			p.WriteFiles = append(p.WriteFiles, Change{Action: Created, Path: c.Path, Hash: c.Hash})
		case writes:
			p.WriteFiles = append(p.WriteFiles, Change{Action: c.Action, Path: c.Path, From: c.From, Hash: c.Hash, Existing: old})
		case old != nil && !p.files[old.Path] && !p.shadowed(old.Path):
			p.DeleteFiles = append(p.DeleteFiles, Change{Action: Deleted, Path: old.Path, Existing: old})
		}
	}
	renamed := map[string]bool{}
	for _, item := range p.live {
		if name, there := p.folders[item.Path]; there && item.IsFolder() && name != item.Name {
			renamed[item.Path] = true
		}
	}
	for _, f := range tree.Files {
		if renamed[repopath.Parent(f.Path)] && !touched[f.Path] && isResource(f.Path) {
			p.WriteFiles = append(p.WriteFiles, Change{Action: Updated, Path: f.Path, Hash: f.Hash})
		}
	}
	p.order()
	return p
}

// KeepFile stands for a directory that is empty, as FolderFile stands for one that has a folder of its own.
const KeepFile = ".keep"

// LostMarker finds, among deleted files, a marker whose directory has no other deleted file. Such a list does
// not show whether the directory is deleted too. It returns the first by name, "" for the root. Source:
// Grafana's policy for incremental syncs.
func LostMarker(gone []string) (dir string, is bool) {
	marked, others := map[string]bool{}, map[string]bool{}
	for _, path := range gone {
		slash := strings.LastIndexByte(path, '/')
		dir, base := path[:slash+1], path[slash+1:]
		if base == KeepFile || base == repopath.FolderFile {
			marked[dir] = true
		} else {
			others[dir] = true
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(marked)) {
		if !others[dir] {
			return dir, true
		}
	}
	return "", false
}
