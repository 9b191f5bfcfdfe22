package resources

import (
	"cmp"
	"slices"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
)

// Order. What is deleted goes first, so that names are free for what is written, except where
// something moves: a file that names an object of a file that is gone takes the object over, with
// its history and its links, and the folder that it leaves is deleted after the move, because a
// server may refuse to delete a folder with content, or delete the content with it.

// Unread returns the files whose identity Settle wants: none when nothing is deleted.
func (p *Plan) Unread() []Change {
	if len(p.DeleteFiles) == 0 {
		return nil
	}
	return p.WriteFiles
}

// Settle turns deletions of objects that another file of the tree holds now into moves. found has
// the identities of the files of Unread by path; those of files that cannot be read are missing.
func (p *Plan) Settle(found map[string]Identity) {
	gone := map[Identity]int{}
	for i, c := range p.DeleteFiles {
		gone[c.Existing.Identity()] = i
	}
	moved := map[int]bool{}
	for i := range p.WriteFiles {
		c := &p.WriteFiles[i]
		id, known := found[c.Path]
		at, there := gone[id]
		if !known || !there || moved[at] {
			continue
		}
		moved[at] = true
		if c.Existing != nil && c.Existing.Identity() != id {
			c.Replaces = append(c.Replaces, *c.Existing)
		}
		from := p.DeleteFiles[at]
		c.Action, c.From, c.Existing = Renamed, from.Path, from.Existing
	}
	kept := p.DeleteFiles[:0]
	for i, c := range p.DeleteFiles {
		if !moved[i] {
			kept = append(kept, c)
		}
	}
	p.DeleteFiles = kept
	p.order()
}

// order sorts the changes and decides which folders are deleted late.
func (p *Plan) order() {
	late := p.left()
	p.DeleteFolders, p.LateFolders = nil, nil
	for _, item := range p.gone {
		c := Change{Action: Deleted, Path: item.Path, Existing: &item}
		if late[item.Path] {
			p.LateFolders = append(p.LateFolders, c)
		} else {
			p.DeleteFolders = append(p.DeleteFolders, c)
		}
	}
	for _, item := range p.old {
		p.LateFolders = append(p.LateFolders, Change{Action: Deleted, Path: item.Path, Existing: &item})
	}
	byDepth := func(a, b Change) int { return deepestFirst(a.Path, b.Path) }
	slices.SortStableFunc(p.Skipped, byDepth)
	slices.SortStableFunc(p.DeleteFiles, byDepth)
	for _, list := range [][]Change{p.DeleteFolders, p.LateFolders} {
		slices.SortStableFunc(list, func(a, b Change) int {
			return cmp.Or(p.depth(b.Existing.Name)-p.depth(a.Existing.Name), byDepth(a, b))
		})
	}
	slices.SortStableFunc(p.WriteFiles, func(a, b Change) int {
		return cmp.Or(b2i(a.Action == Created)-b2i(b.Action == Created), byDepth(a, b))
	})
}

// depth is how many folders of the server are above one. That is the depth of
// its directory, except where a former sync was cut.
func (p *Plan) depth(folder string) int {
	n := 0
	for folder != "" && n <= len(p.live) {
		folder = p.live[Identity{Group: api.FolderGroup, Kind: folderKind, Name: folder}].Folder
		n++
	}
	return n
}

// left returns the directories that objects are moved out of, and those above.
func (p *Plan) left() map[string]bool {
	names := map[string]string{} // folder -> directory
	for id, item := range p.live {
		if item.IsFolder() {
			names[id.Name] = item.Path
		}
	}
	late := map[string]bool{}
	mark := func(path string) {
		for _, dir := range repopath.Ancestors(path) {
			late[dir] = true
		}
	}
	for _, c := range p.WriteFiles {
		mark(c.From)
		if c.Existing != nil {
			mark(names[c.Existing.Folder])
		}
	}
	for _, c := range p.WriteFolders {
		if c.Existing != nil {
			mark(repopath.Parent(c.From))
			mark(names[c.Existing.Folder])
		}
	}
	return late
}
