// Package export lays out the folders and dashboards of a server as files of a Git tree, as
// Grafana's export does. It is pure: the caller reads the objects and the tree, and writes the
// files.
package export

import (
	"cmp"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
	"unicode"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
	"limpet/sync/git"
	"limpet/sync/resources"
)

// Options are what a layout depends on, beside the objects.
type Options struct {
	Repository string // name of the Repository
	Namespace  string
	Salt       string // of new UIDs
	Kinds      resources.Kinds
	Path       string // directory that everything goes to, with a slash at its end; "" = that of the Repository
	// KeepUIDs leaves dashboards their UIDs, and KeepFolderUIDs folders: the next pull takes them
	// over. Otherwise it creates copies.
	KeepUIDs, KeepFolderUIDs bool
	// Tree lists the paths of the branch, those of directories with a slash at their end. Object
	// returns the object of the file at one of them, without a name for none.
	Tree   []string
	Object func(path string) resources.Identity
	// Find returns the file of the tree with an object, "" for none; nil = not known.
	Find func(resources.Identity) string
}

// File is a file for an object of the server.
type File struct {
	Path    string // "" = none is needed
	Data    []byte
	From    string // former path in the tree, of a file that is moved
	Object  resources.Identity
	Version string // resourceVersion of the object
	Warning error  // why the object has no file
}

// Layout gives objects their places in a tree. Each has the place that it had in an earlier export
// to the same branch, so an export that is repeated changes nothing.
type Layout struct {
	o       Options
	folders map[string]*resources.Live
	dirs    map[string]place // by folder
	tree    map[string]string
	used    map[string]bool
	markers []File
}

type place struct {
	path string
	err  error
}

// New returns the layout for the folders of a server.
func New(o Options, folders []*resources.Live) *Layout {
	l := &Layout{o: o, folders: map[string]*resources.Live{}, dirs: map[string]place{"": {path: o.Path}, "general": {path: o.Path}},
		tree: map[string]string{}, used: map[string]bool{}}
	for _, f := range folders {
		l.folders[f.Name] = f
	}
	for _, path := range o.Tree {
		l.tree[key(path)] = path
	}
	return l
}

// key is the same for paths that some file systems take for one.
func key(path string) string { return strings.ToLower(strings.TrimSuffix(path, "/")) }

// Folder gives a folder and those above it their directories.
func (l *Layout) Folder(name string) error {
	_, err := l.dir(name)
	return err
}

// Within reports whether a folder is another one or inside it; everything is within "".
func (l *Layout) Within(name, root string) bool {
	for left := len(l.folders); left > 0 && root != "" && name != root && l.folders[name] != nil; left-- {
		name = l.folders[name].Annotations[api.AnnoFolder]
	}
	return root == "" || name == root
}

// Markers returns the files of the directories that are new since the last call.
func (l *Layout) Markers() []File {
	out := l.markers
	l.markers = nil
	return out
}

// Dashboard returns the file of a dashboard; live and raw are the same object.
func (l *Layout) Dashboard(live *resources.Live, raw []byte) File {
	out := File{Object: resources.Identity{Group: api.DashboardGroup, Kind: "Dashboard", Name: live.Name}, Version: live.ResourceVersion}
	dir, err := l.dir(live.Annotations[api.AnnoFolder])
	if err != nil {
		out.Warning = &resources.SkippedError{Reason: fmt.Sprintf("dashboard %s: %v", live.Name, err)}
		return out
	}
	base := Slug(title(live))
	uid := live.Name
	if !l.o.KeepUIDs {
		uid = newUID(l.o.Salt, dir+base, live.Name)
	}
	id := resources.Identity{Group: api.DashboardGroup, Kind: "Dashboard", Name: uid}
	if l.o.Find != nil {
		out.From = l.o.Find(id)
	}
	if out.From != "" && repopath.Parent(out.From) == dir && strings.HasSuffix(out.From, ".json") { // it may have another title now
		out.Path, out.From = out.From, ""
		l.used[key(out.Path)] = true
	} else {
		out.Path, out.Warning = l.claim(dir, base, ".json", live.Name, func(path string) bool { return l.o.Object(path) == id })
	}
	if out.Warning != nil {
		return out
	}
	file := resources.File{Repository: l.o.Repository, Namespace: l.o.Namespace, Path: out.Path, Kinds: l.o.Kinds}
	o, err := resources.Parse(file, raw)
	if err == nil {
		out.Data = o.Source(uid)
		_, err = resources.Parse(file, out.Data) // a file that no pull takes must not be the only copy
	}
	out.Warning = err
	return out
}

// title returns the title of an object, or its name without one.
func title(live *resources.Live) string {
	if title, ok := live.Spec.Title.(string); ok && strings.TrimSpace(title) != "" {
		return title
	}
	return live.Name
}

// newUID returns the UID of a copy. It depends on the place of the copy, so that a second export of
// the object to the same place changes the copy.
func newUID(salt, path, name string) string {
	sum := sha256.Sum256([]byte(salt + "\x00" + path + "\x00" + name))
	return strings.ToLower(base32.HexEncoding.EncodeToString(sum[:10]))
}

// dir returns the directory of a folder, with a slash at its end, and creates it and those above
// it.
func (l *Layout) dir(name string) (string, error) {
	p, done := l.dirs[name]
	if !done {
		l.dirs[name] = place{err: fmt.Errorf("folder %s is inside itself", name)}
		p.path, p.err = l.newDir(name)
		l.dirs[name] = p
	}
	return p.path, p.err
}

func (l *Layout) newDir(name string) (string, error) {
	f := l.folders[name]
	if f == nil {
		return "", fmt.Errorf("folder %s does not exist", name)
	}
	id := resources.Identity{Group: api.FolderGroup, Kind: "Folder", Name: name}
	if resources.Manages(l.o.Repository, f.Annotations) {
		return l.o.Path + repopath.AsDir(f.Annotations[api.AnnoSourcePath]), nil
	}
	if l.o.KeepUIDs {
		if err := resources.CheckUnmanaged(l.o.Repository, id, f.Annotations); err != nil {
			return "", err
		}
	}
	parent, err := l.dir(f.Annotations[api.AnnoFolder])
	if err != nil {
		return "", err
	}
	path, err := l.claim(parent, dirName(title(f), name), "/", name, func(path string) bool {
		return !l.o.KeepFolderUIDs || l.o.Object(path+repopath.FolderFile) == id
	})
	if err != nil {
		return "", err
	}
	l.markers = append(l.markers, l.marker(f, path, id))
	return path, nil
}

// marker returns the file that stands for the directory of a folder: with the UID and the title,
// where the next pull would find others without it.
func (l *Layout) marker(f *resources.Live, path string, id resources.Identity) File {
	uid := f.Name
	if !l.o.KeepFolderUIDs {
		uid = resources.FolderID(l.o.Repository, path)
	}
	switch there := l.tree[key(path)] != ""; {
	case l.o.KeepFolderUIDs, !there && title(f) != repopath.Base(path):
		data := resources.FolderFileText(uid, title(f))
		return File{Path: path + repopath.FolderFile, Data: data, Object: id, Version: f.ResourceVersion}
	case there:
		return File{Object: id, Version: f.ResourceVersion}
	}
	return File{Path: path + resources.KeepFile, Object: id, Version: f.ResourceVersion}
}

// dirName returns the name of the directory of a folder: its title, as far as paths may have it.
func dirName(title, name string) string {
	var out strings.Builder
	for _, c := range title {
		latin, known := letters[unicode.ToLower(c)]
		switch {
		case c < 0x80 && c != '/' && repopath.AllowedByte(byte(c)):
			out.WriteRune(c)
		case known:
			out.WriteString(latin)
		default:
			out.WriteByte('-')
		}
	}
	return cmp.Or(strings.Trim(out.String(), " .-"), name)
}

// claim returns the first free path of an object in a directory: its base name, with the name of
// the object behind it where that is taken, or is that of the folder file. A path of the tree is
// free if ours says so.
func (l *Layout) claim(dir, base, ext, name string, ours func(path string) bool) (string, error) {
	for {
		path := dir + base + ext
		if err := repopath.CheckPath(path); err != nil {
			return "", err
		}
		there, taken := l.tree[key(path)], l.used[key(path)] || repopath.IsFolderFile(key(path)) || git.CheckPath(path) != nil
		if !taken && (there == "" || there == path && ours(path)) {
			l.used[key(path)] = true
			return path, nil
		}
		if git.CheckPath(path) != nil { // Windows takes com1.x for the device com1
			base = strings.Replace(base, ".", "-", 1)
		}
		base += "-" + name
	}
}

// maxSlug is the length from which on a slug is a hash. Source: Grafana. Unit: bytes.
const maxSlug = 50

// separators become one hyphen, and none at the ends.
const separators = " -_,.?!/\\%'\"()[]{}\n\r\x00"

// Slug returns the name that Grafana gives the file of an object with this title, without
// extension.
func Slug(title string) string {
	var out strings.Builder
	apart := false
	for _, c := range strings.TrimSpace(title) {
		c = unicode.ToLower(c)
		if strings.ContainsRune(separators, c) {
			apart = true
			continue
		}
		if apart && out.Len() > 0 {
			out.WriteByte('-')
		}
		latin, known := letters[c]
		switch apart = false; {
		case known:
			out.WriteString(latin)
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			out.WriteRune(c)
		default:
			fmt.Fprintf(&out, "%x", string(c))
			apart = true
		}
	}
	slug := strings.TrimRight(out.String(), "-")
	if slug == "" || len(slug) > maxSlug {
		return fmt.Sprintf("%x", sha1.Sum([]byte(slug)))[:7]
	}
	return slug
}

// spelling has the characters that Grafana's slugs spell in another way: all of a word are spelled
// as its beginning, up to the equals sign. Some letters, such as ñ, are missing in Grafana too, and
// are spelled in hex.
var spelling = strings.Fields(`
a=àáâäåāăąǎǻảãạắằẳẵặấầẩẫậаא and=& at=@ ae=æǽ b=бב c=çćĉċčцצ© ch=ч d=ďđдד
e=èéêëēĕėęěəẻẽẹếềểễệеєע f=ƒф g=ĝğġģгґג h=ĥħхהח i=ìíîïĩīĭįıǐỉịиіїי ij=ĳ j=ĵй ja=я je=э jo=ё ju=ю
k=ķĸкךכ l=ĺļľŀłлל m=мםמ n=ńņňŉŋнןנ o=òóôõöøōŏőơǒǿỏọốồổỗộớờởỡợо oe=œ p=þпףפ q=ק
r=ŕŗřрר® s=śŝşšсס sch=щ sh=ш ss=ß t=ţťŧтטת tm=™ u=ùúûũūŭůűųưǔǖǘǚǜủụứừửữựу ue=ü v=вו w=ŵש
y=ýÿŷỳỷỹỵы z=źżžſзז zh=ж C=ץ -=ъь`)

var letters = func() map[rune]string {
	out := map[rune]string{}
	for _, group := range spelling {
		latin, all, _ := strings.Cut(group, "=")
		for _, c := range all {
			out[c] = latin
		}
	}
	return out
}()
