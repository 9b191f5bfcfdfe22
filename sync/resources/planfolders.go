package resources

import (
	"fmt"
	"limpet/sync/api/repopath"
	"maps"
	"slices"
	"sort"
	"strings"
)

// Folders. Every directory of the tree that passes the path rule has one. Its
// name is the UID of its folder file; without such a file it is the name that
// the server already has for the directory, and only then one made from the
// path.

// FolderFilesToRead returns the folder files whose content a plan needs: those
// that are not the ones which the folders of the server were made from.
func FolderFilesToRead(tree Tree, live []Item) []TreeFile {
	known := map[string]string{}
	for _, item := range live {
		if item = item.normal(); item.IsFolder() && item.Hash != "" {
			known[item.Path] = item.Hash
		}
	}
	var out []TreeFile
	for _, f := range tree.Files {
		if dir := repopath.Parent(f.Path); repopath.IsFolderFile(f.Path) && dir != "" && repopath.CheckPath(f.Path) == nil && known[dir] != f.Hash {
			out = append(out, f)
		}
	}
	return out
}

// directories returns the directories that want a folder, from the root down.
func directories(tree Tree) []string {
	seen := map[string]bool{}
	add := func(p string) {
		for dir := repopath.SafeDir(p); dir != "" && !seen[dir]; dir = repopath.Parent(dir) {
			seen[dir] = true
		}
	}
	for _, dir := range tree.Dirs {
		add(repopath.AsDir(dir))
	}
	for _, f := range tree.Files {
		add(f.Path)
	}
	dirs := slices.Collect(maps.Keys(seen))
	sort.Slice(dirs, func(i, j int) bool { return topDown(dirs[i], dirs[j]) < 0 })
	return dirs
}

// topDown sorts paths so that a directory comes before what is in it.
func topDown(a, b string) int {
	if d := strings.Count(repopath.AsDir(a), "/") - strings.Count(repopath.AsDir(b), "/"); d != 0 {
		return d
	}
	return strings.Compare(a, b)
}

// deepestFirst sorts paths so that a directory comes after what is in it.
func deepestFirst(a, b string) int {
	if d := strings.Count(repopath.AsDir(b), "/") - strings.Count(repopath.AsDir(a), "/"); d != 0 {
		return d
	}
	return strings.Compare(a, b)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func (p *Plan) planFolders(tree Tree, live []Item, metas map[string]FolderMeta) {
	p.folders = map[string]string{}
	byPath, byName := map[string][]Item{}, map[string]Item{}
	sort.Slice(live, func(i, j int) bool { return live[i].Name < live[j].Name })
	for _, item := range live {
		byName[item.Name] = item
		byPath[item.Path] = append(byPath[item.Path], item)
	}
	folderFiles := map[string]TreeFile{}
	for _, f := range tree.Files {
		if repopath.IsFolderFile(f.Path) && repopath.CheckPath(f.Path) == nil {
			folderFiles[repopath.Parent(f.Path)] = f
		}
	}

	taken := map[string]string{} // folder name -> directory
	if root := p.target.Root; root != "" {
		taken[root] = ""
		p.writeFolder("", FolderSpec{ID: root, Title: p.target.RootTitle}, byName)
	}
	for _, dir := range directories(tree) {
		want := p.wanted(dir, folderFiles, byPath[dir], metas)
		if other, used := taken[want.ID]; used {
			p.skip(dir, &FolderFileError{Path: dir + repopath.FolderFile, Err: fmt.Errorf("the uid %q is that of directory %q already", want.ID, "/"+other)})
			want = FolderSpec{ID: FolderID(p.target.Repository, dir), Title: repopath.Base(dir)}
		}
		want.Parent = p.parent(strings.TrimSuffix(dir, "/"))
		taken[want.ID], p.folders[dir] = dir, want.ID
		p.writeFolder(dir, want, byName)
	}
	for _, item := range live {
		if _, kept := taken[item.Name]; kept || item.Path == "" || p.shadowed(item.Path) {
			continue
		}
		if _, there := p.folders[item.Path]; there {
			p.old = append(p.old, item)
		} else {
			p.gone = append(p.gone, item)
		}
	}
}

// wanted returns the folder of dir without its parent. has are the folders that
// the server has for dir: more than one when a former sync was cut while it gave
// the directory another uid.
func (p *Plan) wanted(dir string, files map[string]TreeFile, has []Item, metas map[string]FolderMeta) FolderSpec {
	file, named := files[dir]
	if named {
		for _, item := range has {
			if item.Hash == file.Hash {
				return FolderSpec{ID: item.Name, Title: item.Title, Hash: item.Hash}
			}
		}
		meta := metas[dir]
		if meta.Err == nil && meta.UID != "" {
			spec := FolderSpec{ID: meta.UID, Title: meta.Title, Hash: file.Hash}
			if spec.Title == "" {
				spec.Title = repopath.Base(dir)
			}
			return spec
		}
		if meta.Err != nil {
			p.skip(file.Path, meta.Err)
		}
		if len(has) > 0 {
			return FolderSpec{ID: has[0].Name, Title: has[0].Title, Hash: has[0].Hash}
		}
	}
	for _, item := range has {
		if item.Hash == "" {
			return FolderSpec{ID: item.Name, Title: repopath.Base(dir)}
		}
	}
	return FolderSpec{ID: FolderID(p.target.Repository, dir), Title: repopath.Base(dir)}
}

// writeFolder plans the write of a folder that is missing or differs.
func (p *Plan) writeFolder(dir string, want FolderSpec, byName map[string]Item) {
	c := Change{Action: Created, Path: dir, Folder: want}
	if item, there := byName[want.ID]; there {
		// A list without versions may leave titles out as well.
		titled := item.Title == want.Title || item.Title == "" && item.UID == ""
		if titled && item.Path == dir && item.Hash == want.Hash && item.Folder == want.Parent {
			return
		}
		c.Action, c.Existing = Updated, &item
		if item.Path != dir {
			c.Action, c.From = Renamed, item.Path
		}
	}
	p.WriteFolders = append(p.WriteFolders, c)
}
