package resources

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/api/repopath"
)

// Folders. Every directory of the tree that passes the path rule has one. Its name is the UID of
// its folder file; without such a file it is the name that the server already has for the
// directory, and only then one made from the path.

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
		dir := repopath.Parent(f.Path)
		if repopath.IsFolderFile(f.Path) && dir != "" && repopath.CheckPath(f.Path) == nil && known[dir] != f.Hash {
			out = append(out, f)
		}
	}
	return out
}

// Directories returns the directories that want a folder, from the root down.
func Directories(tree Tree) []string {
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
	return slices.SortedFunc(maps.Keys(seen), func(a, b string) int { return cmp.Or(depth(a)-depth(b), strings.Compare(a, b)) })
}

// deepestFirst sorts paths so that a directory comes after what is in it.
func deepestFirst(a, b string) int { return cmp.Or(depth(b)-depth(a), strings.Compare(a, b)) }

func depth(path string) int { return strings.Count(repopath.AsDir(path), "/") }

func (p *Plan) planFolders(tree Tree, live []Item, metas map[string]FolderMeta) {
	p.folders = map[string]string{}
	byPath, byName := map[string][]Item{}, map[string]Item{}
	slices.SortFunc(live, func(a, b Item) int { return strings.Compare(a.Name, b.Name) })
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
	for _, dir := range Directories(tree) {
		want := p.wanted(dir, folderFiles, byPath[dir], metas)
		if other, used := taken[want.ID]; used {
			err := fmt.Errorf("the uid %q is that of directory %q already", want.ID, "/"+other)
			p.skip(dir, &FolderFileError{Path: dir + repopath.FolderFile, Err: err})
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

// wanted returns the folder of dir without its parent. has are the folders that the server has for
// dir: more than one when a former sync was cut while it gave the directory another uid.
func (p *Plan) wanted(dir string, files map[string]TreeFile, has []Item, metas map[string]FolderMeta) FolderSpec {
	file, named := files[dir]
	if named {
		meta := metas[dir]
		if meta.Err == nil && meta.UID != "" {
			return FolderSpec{ID: meta.UID, Title: cmp.Or(meta.Title, repopath.Base(dir)), Hash: file.Hash}
		}
		for _, item := range has {
			if item.Hash == file.Hash {
				return FolderSpec{ID: item.Name, Title: item.Title, Hash: item.Hash}
			}
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

// MaxUID is the longest UID of a dashboard or folder, in bytes. Source: Grafana.
const MaxUID = 40

// FolderMeta is what a folder file says: the stable UID of its directory's
// folder and, where it is not empty, the title.
type FolderMeta struct {
	UID, Title string
	Hash       string // of the file
	// Err returns why the file could not be used. The folder then keeps what it
	// has, or gets the names that it would have without the file.
	Err error
}

// FolderFileError reports why a folder file could not be used. It is a warning.
type FolderFileError struct {
	Path string
	Err  error
}

func (e *FolderFileError) Error() string {
	return "invalid folder metadata: " + state.UnreadFile{Path: e.Path, Reason: e.Err.Error()}.String()
}

// Unwrap returns the cause.
func (e *FolderFileError) Unwrap() error { return e.Err }

// FolderFileText returns the folder file of a folder.
func FolderFileText(uid, title string) []byte {
	data, _ := json.MarshalIndent(map[string]any{ // plain data
		"apiVersion": api.FolderGroup + "/v1", "kind": "Folder",
		"metadata": map[string]any{"name": uid}, "spec": map[string]any{"title": title},
	}, "", "  ")
	return append(data, '\n')
}

// ParseFolderFile reads the folder file at p, whose blob is hash. A fault ends up in Err as a
// *FolderFileError.
func ParseFolderFile(p, hash string, data []byte) FolderMeta {
	m, err := parseFolderFile(data)
	if err != nil {
		m = FolderMeta{Err: &FolderFileError{Path: p, Err: err}}
	}
	m.Hash = hash
	return m
}

func parseFolderFile(data []byte) (FolderMeta, error) {
	doc, _, err := decode(File{Path: repopath.FolderFile}, data)
	if err = cmp.Or(err, checkDepth(doc)); err != nil {
		return FolderMeta{}, err
	}
	var folder struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Spec struct {
			Title string `json:"title"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(doc, &folder); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return FolderMeta{}, fmt.Errorf("%s is a %s", wrong.Field, wrong.Value)
		}
		return FolderMeta{}, err
	}
	faults := Faults{checkName("metadata.name", folder.Metadata.Name)}
	if folder.Kind != "" && folder.Kind != folderKind {
		faults = append(faults, fmt.Errorf("kind is %q, not %s", folder.Kind, folderKind))
	}
	if n := len(folder.Metadata.Name); n > MaxUID {
		faults = append(faults, fmt.Errorf("metadata.name has %d bytes, a folder UID has at most %d", n, MaxUID))
	}
	return FolderMeta{UID: folder.Metadata.Name, Title: folder.Spec.Title}, faultsOf(faults...)
}
