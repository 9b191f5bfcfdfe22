package pack

import (
	"path"
	"strings"
)

// A pack brings a commit before its trees, and a tree before its files, so that a file can be used
// when it has come: the time of a first fetch is not spent on waiting alone.

// Receiver gets files while they come. Content is the receiver's then, to be recycled. Nothing is
// promised of a file that does not come so: a pack may have another order, or the content of a large
// file is known later.
type Receiver interface {
	Receive(path, hash string, exec bool, content []byte)
}

// Arrivals hands the files below a directory of a commit to a Receiver. Only one of files with the
// same content is handed over. That the pack is sound is not known yet.
type Arrivals struct {
	Commit ID
	Dir    string
	To     Receiver

	dirs  map[ID]string // trees to come, and their paths
	files map[ID]arriving
	met   int // bytes of entries and their paths
}

// arriving is a file that is to come.
type arriving struct {
	path string
	exec bool
}

// Bounds of the trees that are remembered; files beyond them are left out.
const (
	maxArriving      = 32 << 20 // bytes of entries and their paths
	arrivingBytes    = 96       // of an entry beside its path
	maxArrivingDepth = 32
)

// add takes an object that has got its name. A nil Arrivals takes nothing.
func (a *Arrivals) add(kind Kind, id ID, data []byte) {
	switch {
	case a == nil:
	case kind == CommitKind && id == a.Commit:
		c, _ := ParseCommit(data) // a malformed one has no files
		a.dirs = map[ID]string{c.Tree: ""}
		a.files = map[ID]arriving{}
	case kind == TreeKind:
		if dir, named := a.dirs[id]; named {
			delete(a.dirs, id)
			a.open(dir, data)
		}
	case kind == BlobKind:
		if f, wanted := a.files[id]; wanted {
			delete(a.files, id)
			content := buffer(int64(len(data)))
			copy(content, data)
			a.To.Receive(f.path, id.String(), f.exec, content)
		}
	}
}

// open takes the entries of a tree.
func (a *Arrivals) open(dir string, tree []byte) {
	entries, _ := ParseTree(tree) // the tree of a sound pack is read again
	if strings.Count(dir, "/") >= maxArrivingDepth {
		return
	}
	base := strings.Trim(a.Dir, "/")
	for _, e := range entries {
		if a.met += arrivingBytes + len(dir) + len(e.Name); a.met > maxArriving {
			return
		}
		name := path.Join(dir, e.Name)
		below, inside := strings.CutPrefix(name, base+"/")
		if base == "" {
			below, inside = name, true
		}
		switch {
		case e.Name == "" || e.Name == "." || e.Name == ".." || strings.ContainsAny(e.Name, "/\\\x00"):
		case e.Mode == ModeTree && (inside || strings.HasPrefix(base+"/", name+"/")):
			a.dirs[e.ID] = name
		case inside && (e.Mode == ModeFile || e.Mode == ModeExec):
			a.files[e.ID] = arriving{below, e.Mode == ModeExec}
		}
	}
}
