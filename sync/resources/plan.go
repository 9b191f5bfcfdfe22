// Package resources turns the files of a Git tree into Grafana resources: path rules,
// identities, parsing, ownership, the plan of a sync and its application.
//
// The plan is pure: it compares a tree with what the server has and returns the changes
// in order. Apply carries them out through the interfaces Server, Reader and Recorder.
//
// The rules are those of Grafana's own sync, so that an agent and a Grafana that take
// turns on one repository agree on every name, annotation and checksum.
package resources

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"limpet/sync/api/repopath"
)

// Target is where the tree of a repository goes.
type Target struct {
	Repository string
	// Root is the name of the folder that holds everything, "" for targets without one; RootTitle is
	// its title.
	Root, RootTitle string
	Kinds           Kinds
	// Directory reports that the files go to a directory, for Grafana's file provisioning.
	Directory bool
	// TakeOver lists objects without a manager that the repository takes over, each with its
	// resourceVersion; "" = any.
	TakeOver map[Identity]string
}

// checkOwner returns err, of a check of the manager, unless the repository takes the object over.
func (t Target) checkOwner(err error, id Identity, live *Live) error {
	version, listed := t.TakeOver[id]
	switch {
	case err == nil || !listed || Managed(live.Annotations):
		return err
	case version != "" && version != live.ResourceVersion:
		return &SkippedError{Reason: id.String() + " has changed since it was exported, so it was not taken over; try: the migration again"}
	}
	return nil
}

// Tree is the tree of one commit below spec.path.
type Tree struct {
	Files []TreeFile
	Dirs  []string // with or without a trailing slash; those of Files may be missing
	// Refused lists the paths of entries that are no regular files or have a hostile name.
	// They make no resource, and what was made from their path is kept.
	Refused []string
	// Near says that it has the files of the root and of Dirs alone. All others are as before.
	Near bool
}

// TreeFile is one regular file of a tree.
type TreeFile struct {
	Path, Hash string
}

// Action is what a change did or is to do. The values are those of the wire.
type Action string

// The actions of a change.
const (
	Created Action = "created"
	Updated Action = "updated"
	Deleted Action = "deleted"
	Renamed Action = "renamed"
	Ignored Action = "ignored"
)

// Change is one step of a plan.
type Change struct {
	Action Action
	Path   string // of the file; of the directory with a trailing slash
	From   string // previous path of a renamed one
	Hash   string // blob of the file to write
	// Folder is what to write for a directory.
	Folder FolderSpec
	// Existing is the object that the change is about, as far as it is known:
	// the one to delete, or the one that the path had until now.
	Existing *Item
	// Replaces are further objects of the same path. They are deleted when the
	// file has been written, unless another file has taken them over.
	Replaces []Item
	// Warning is why a change is ignored.
	Warning error
	// Drifted reports that the object is not what it was made from, although it names the same blob.
	Drifted bool
}

// FolderSpec is a folder as the tree wants it.
type FolderSpec struct{ ID, Title, Parent, Hash string }

// Plan is what makes a server equal to a tree, in the order of its fields. An empty plan means that
// they are equal.
type Plan struct {
	Skipped       []Change // only reported
	DeleteFiles   []Change // in parallel
	DeleteFolders []Change // one by one, the deepest first
	WriteFolders  []Change // from the root down, those of one depth at a time
	WriteFiles    []Change // in parallel, updates before creations
	// LateFolders are deleted one by one, the deepest first, after the writes: folders that objects
	// are moved out of.
	LateFolders []Change

	target  Target
	folders map[string]string // directory -> folder name
	// live has the managed objects by identity; with complete it has all.
	live     map[Identity]Item
	complete bool
	// held has the path of each object that stays as it is.
	held    map[Identity]string
	files   map[string]bool // paths of the tree
	listed  map[string]bool // directories whose files are known; nil = all
	refused map[string]bool // those that are not used
	gone    []Item          // folders whose directory is gone
	old     []Item          // folders whose directory has another folder now
}

// Len is the number of changes.
func (p *Plan) Len() int {
	return len(p.Skipped) + len(p.DeleteFiles) + len(p.DeleteFolders) + len(p.WriteFolders) + len(p.WriteFiles) + len(p.LateFolders)
}

// Empty reports whether there is no change and nothing to report.
func (p *Plan) Empty() bool { return p.Len() == 0 }

// Deletions is the number of objects that the plan takes away: files and directories that are gone,
// not what is moved or gets another name. What lies at, in or above one of the meant paths was
// asked for, and does not count.
func (p *Plan) Deletions(meant ...string) int {
	n := 0
	count := func(path string) {
		for _, m := range meant {
			if path == m || repopath.IsDir(m) && strings.HasPrefix(path, m) || repopath.IsDir(path) && strings.HasPrefix(m, path) {
				return
			}
		}
		n++
	}
	for _, c := range p.DeleteFiles {
		count(c.Path)
	}
	for _, item := range p.gone {
		count(item.Path)
	}
	return n
}

// Managed is the number of objects that the repository has on the server, the
// root folder left out. It is complete for a full plan only.
func (p *Plan) Managed() int {
	n := len(p.live)
	for id, item := range p.live {
		if item.IsFolder() && item.Path == "" && id.Name == p.target.Root {
			n--
		}
	}
	return n
}

// Held returns the objects of files that stay as they are.
func (p *Plan) Held() (items []Item) {
	for id, path := range p.held {
		if item, there := p.live[id]; there && path != "" {
			items = append(items, item)
		}
	}
	slices.SortFunc(items, func(a, b Item) int { return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Name, b.Name)) })
	return items
}

// Rewrite plans the write of held objects that have drifted.
func (p *Plan) Rewrite(drifted map[Identity]bool) {
	for _, item := range p.Held() {
		if id := item.Identity(); drifted[id] {
			delete(p.held, id)
			p.WriteFiles = append(p.WriteFiles, Change{Action: Updated, Path: item.Path, Hash: item.Hash, Existing: &item, Drifted: true})
		}
	}
	p.order()
}

// parent returns the name of the folder that the file at path belongs in.
func (p *Plan) parent(path string) string {
	if dir := repopath.Parent(path); dir != "" {
		return p.folders[dir]
	}
	return p.target.Root
}

// FolderOf returns the name of the folder that an object of a kind belongs in, made from the file
// at path; "" = none.
func (p *Plan) FolderOf(group, kind, path string) string {
	if p.target.Kinds.Of(group, kind).Folder {
		return p.parent(path)
	}
	return ""
}

// Full compares a tree with all that the repository has on the server. metas
// has what the folder files say that FolderFilesToRead named, by directory.
func Full(target Target, tree Tree, live []Item, metas map[string]FolderMeta) *Plan {
	p := newPlan(target, tree, live, metas)
	p.complete = true
	byPath := map[string][]Item{}
	for _, item := range live {
		switch item = item.normal(); {
		case item.IsFolder():
		case item.Path == "":
			reason := item.Identity().String() + " is managed by this repository but names no file; it is left alone"
			p.skip(item.Name, &SkippedError{Reason: reason})
			p.held[item.Identity()] = ""
		default:
			byPath[item.Path] = append(byPath[item.Path], item)
		}
	}
	for _, file := range tree.Files {
		items := byPath[file.Path]
		delete(byPath, file.Path)
		if !p.resource(file.Path) {
			p.hold(items)
			continue
		}
		if len(items) == 0 {
			p.WriteFiles = append(p.WriteFiles, Change{Action: Created, Path: file.Path, Hash: file.Hash})
			continue
		}
		// More than one object means that a former sync was cut between the write
		// of a new uid and the deletion of the old one.
		slices.SortFunc(items, func(a, b Item) int {
			return cmp.Or(b2i(b.Hash == file.Hash)-b2i(a.Hash == file.Hash), strings.Compare(a.Name, b.Name))
		})
		first := items[0]
		if len(items) == 1 && first.Hash == file.Hash && first.Folder == p.FolderOf(first.Group, first.Kind, file.Path) {
			p.hold(items)
			continue
		}
		p.WriteFiles = append(p.WriteFiles, Change{Action: Updated, Path: file.Path, Hash: file.Hash, Existing: &first, Replaces: items[1:]})
	}
	for _, path := range slices.Sorted(maps.Keys(byPath)) {
		if p.files[path] || p.shadowed(path) {
			p.hold(byPath[path])
			continue
		}
		for _, item := range byPath[path] {
			p.DeleteFiles = append(p.DeleteFiles, Change{Action: Deleted, Path: path, Existing: &item})
		}
	}
	p.order()
	return p
}

func newPlan(target Target, tree Tree, live []Item, metas map[string]FolderMeta) *Plan {
	p := &Plan{
		target: target, live: make(map[Identity]Item, len(live)), held: map[Identity]string{},
		files: make(map[string]bool, len(tree.Files)), refused: map[string]bool{},
	}
	var folders []Item
	for _, item := range live {
		item = item.normal()
		p.live[item.Identity()] = item
		if item.IsFolder() {
			folders = append(folders, item)
		}
	}
	for _, f := range tree.Files {
		p.files[f.Path] = true
	}
	for _, path := range tree.Refused {
		p.files[path], p.refused[path] = true, true
	}
	if tree.Near {
		p.listed = map[string]bool{"": true}
		for _, dir := range tree.Dirs {
			p.listed[repopath.AsDir(dir)] = true
		}
	}
	p.planFolders(tree, folders, metas)
	return p
}

// has reports whether the tree has a file from which an object was made.
func (p *Plan) has(path string) bool {
	return p.files[path] || p.listed != nil && !p.listed[repopath.Parent(path)]
}

// resource reports whether the file at path makes a resource of its own. It reports a
// file with a name that is not allowed as skipped.
func (p *Plan) resource(path string) bool {
	if !repopath.IsResourceFile(path) || repopath.IsFolderFile(path) {
		return false
	}
	err := repopath.Check(path, p.target.Directory)
	if err != nil && !repopath.IsHidden(err) {
		p.skip(path, err)
	}
	return err == nil
}

// shadowed reports whether path or a directory above it is an entry of the tree
// that is not used. What was made from there is kept until the tree is clear.
func (p *Plan) shadowed(path string) bool {
	for i := range len(path) {
		if path[i] == '/' && p.refused[path[:i]] {
			return true
		}
	}
	return p.refused[path]
}

func (p *Plan) skip(path string, why error) {
	p.Skipped = append(p.Skipped, Change{Action: Ignored, Path: path, Warning: why})
}

func (p *Plan) hold(items []Item) {
	for _, item := range items {
		p.held[item.Identity()] = item.Path
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// FileChange is one difference between two commits, with what its blobs are about: the identity of
// the object at the old path or blob, where it could be read.
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

// Increment plans the way from one commit to the next. tree is the new one, folders are those that
// the repository has on the server, metas is as for Full. What did not change between the commits
// is not looked at, except the folders and the files directly in a folder that gets another uid.
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

// KeepFile stands for a directory that is empty, as FolderFile stands for one that has a folder of
// its own.
const KeepFile = ".keep"

// LostMarker finds, among deleted files, a marker whose directory has no other deleted file. Such a
// list does not show whether the directory is deleted too. It returns the first by name, "" for the
// root. Source: Grafana's policy for incremental syncs.
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
