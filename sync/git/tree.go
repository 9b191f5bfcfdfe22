package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"limpet/sync/git/attributes"
	"limpet/sync/git/pack"
)

// Tree lists dir at a commit of the mirror, recursively; "" is the root. Links, submodules and
// entries that break the path rule are in Refused and nowhere else. It makes no request. Errors:
// ErrUnknownCommit, PathNotFound, TooLarge, Corrupt.
func (m *Mirrors) Tree(ctx context.Context, r Remote, commit, dir string) (Tree, error) {
	return m.list(ctx, r, commit, dir, walker{sizes: true})
}

// Names is Tree without the sizes of files, each of which costs a look at the file: it is 0 where no
// rule of .gitattributes can hold.
func (m *Mirrors) Names(ctx context.Context, r Remote, commit, dir string) (Tree, error) {
	return m.list(ctx, r, commit, dir, walker{})
}

// Near is Names of the directories that some paths are in, and of those above them. What is in other
// directories is not read, and these are missing in Dirs.
func (m *Mirrors) Near(ctx context.Context, r Remote, commit, dir string, paths []string) (Tree, error) {
	near := map[string]bool{}
	for _, p := range paths {
		for above := path.Dir(p); above != "." && !near[above]; above = path.Dir(above) {
			near[above] = true
		}
	}
	return m.list(ctx, r, commit, dir, walker{near: near})
}

func (m *Mirrors) list(ctx context.Context, r Remote, commit, dir string, w walker) (Tree, error) {
	var t Tree
	err := m.read(ctx, "read tree", r, func(v *reading) error {
		id, c, err := v.commit(commit)
		if err != nil {
			return err
		}
		t = Tree{Commit: id.String()}
		root, err := v.subtree(c.Tree, dir)
		if err != nil {
			return err
		}
		w.reading, w.tree, w.rules = v, &t, attributes.New()
		if dir = strings.Trim(dir, "/"); dir != "" {
			w.base = dir + "/"
		}
		for at := 0; at < len(w.base); at += strings.Index(w.base[at:], "/") + 1 { // the directories above
			above, err := v.subtree(c.Tree, w.base[:at])
			if err != nil {
				return err
			}
			entries, _, err := v.directory(above, "")
			if err == nil {
				err = w.addRules(entries, w.base[:at])
			}
			if err != nil {
				return err
			}
		}
		if err := w.walk(root, "", 1); err != nil {
			return err
		}
		slices.SortFunc(t.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
		slices.Sort(t.Dirs)
		return nil
	})
	if err != nil {
		return Tree{}, err
	}
	return t, nil
}

// walker lists a tree object and all below it.
type walker struct {
	reading *reading
	tree    *Tree
	base    string          // directory that is listed, below the root, with a slash at the end
	sizes   bool            // of all files
	near    map[string]bool // directories that are listed; nil = all
	entries int
	rules   *attributes.Rules // those that hold in the present directory
	read    int64             // bytes of .gitattributes
}

// addRules adds the rules of a directory, by its path below the root.
func (w *walker) addRules(entries []pack.TreeEntry, dir string) error {
	at := slices.IndexFunc(entries, func(e pack.TreeEntry) bool { return e.Name == attributes.File && e.Mode != pack.ModeTree })
	if at < 0 {
		return nil
	}
	size, err := w.reading.store.Size(entries[at].ID)
	if err != nil {
		return asDamage(err)
	}
	path := dir + attributes.File
	if w.read += size; w.read > attributes.MaxBytes {
		return tooLargeAt(path, &TooLargeError{What: "size of all " + attributes.File, Size: w.read, Limit: attributes.MaxBytes})
	}
	data, err := w.reading.object(entries[at].ID, pack.BlobKind)
	if err != nil {
		return asDamage(err)
	}
	w.rules, err = w.rules.Below(w.reading.ctx, dir, data)
	return tooLargeAt(path, err)
}

// tooLargeAt names the file that exceeds a limit.
func tooLargeAt(path string, err error) error {
	if large, ok := errors.AsType[*TooLargeError](err); ok {
		large.What += ", at " + showPath(path) + ","
	}
	return err
}

func (w *walker) walk(id pack.ID, prefix string, depth int) error {
	if err := w.reading.ctx.Err(); err != nil {
		return err
	}
	entries, refused, err := w.reading.directory(id, prefix)
	if err != nil {
		return err
	}
	w.tree.refuse(refused...)
	defer func(above *attributes.Rules) { w.rules = above }(w.rules)
	if err := w.addRules(entries, w.base+prefix); err != nil {
		return err
	}
	w.entries += len(refused) // they take time too
	for _, e := range entries {
		if w.reading.ctx.Err() != nil {
			return context.Cause(w.reading.ctx)
		}
		if w.entries++; w.entries > w.reading.limits.TreeEntries {
			return &TooLargeError{Count: true, What: "number of files and directories", Size: int64(w.entries), Limit: int64(w.reading.limits.TreeEntries)}
		}
		path := prefix + e.Name
		if e.Mode == pack.ModeTree && w.near != nil && !w.near[path] {
			continue
		}
		if e.Mode == pack.ModeTree {
			if depth >= w.reading.limits.TreeDepth {
				w.tree.refuse(Refusal{Path: showPath(path), Kind: deepPath, Reason: fmt.Sprintf("deeper than %d directories", w.reading.limits.TreeDepth)})
				continue
			}
			w.tree.Dirs = append(w.tree.Dirs, path)
			if err := w.walk(e.ID, path+"/", depth+1); err != nil {
				return err
			}
			continue
		}
		file := File{Path: path, Hash: e.ID.String(), Mode: modeText(e.Mode)}
		if w.sizes || !w.rules.Empty() {
			if file.Size, err = w.reading.store.Size(e.ID); err != nil {
				return asDamage(err)
			}
			filter := ""
			if file.Size <= MaxPointer {
				if filter, err = w.rules.Filter(w.reading.ctx, w.base+path); err != nil {
					return tooLargeAt(w.base+path, err)
				}
			}
			file.LFS = filter == "lfs"
		}
		w.tree.Files = append(w.tree.Files, file)
	}
	return nil
}

// maxRefusals are listed one by one.
const maxRefusals = 1000

func (t *Tree) refuse(refused ...Refusal) {
	listed := min(len(refused), maxRefusals-len(t.Refused))
	t.Refused, t.More = append(t.Refused, refused[:listed]...), t.More+len(refused)-listed
}

// directory reads one tree object and sorts its entries into those that pass
// and those that do not. A tree whose form is wrong is refused as a whole.
func (v *reading) directory(id pack.ID, prefix string) ([]pack.TreeEntry, []Refusal, error) {
	data, err := v.object(id, pack.TreeKind)
	if err != nil {
		return nil, nil, asDamage(err)
	}
	entries, err := pack.ParseTree(data)
	if err != nil {
		return nil, []Refusal{{Path: showPath(strings.TrimSuffix(prefix, "/")), Kind: "unreadable tree",
			Reason: "the directory cannot be read: " + err.Error()}}, nil
	}
	pass, refused := filterEntries(entries, prefix, v.limits)
	return pass, refused, nil
}

// asDamage makes damage of what is missing inside a commit that is there: every commit was whole
// when it came.
func asDamage(err error) error {
	if errors.Is(err, pack.ErrMissing) {
		return fmt.Errorf("%w: %w", pack.ErrDamaged, err)
	}
	return err
}

func modeText(mode uint32) string {
	if regular(mode) && mode&0o100 != 0 {
		return "100755"
	}
	return "100644"
}

func (v *reading) subtree(root pack.ID, dir string) (pack.ID, error) {
	dir = strings.Trim(dir, "/")
	if dir == "" {
		return root, nil
	}
	id, parts := root, strings.Split(dir, "/")
	for _, part := range parts {
		if why := badName(part); why != allowed {
			return id, &Error{Kind: Refused, Err: fmt.Errorf("%q cannot be a directory of a repository: %s", showPath(dir), why.text)}
		}
	}
	for _, part := range parts {
		entries, _, err := v.directory(id, "")
		if err != nil {
			return id, err
		}
		at := slices.IndexFunc(entries, func(e pack.TreeEntry) bool { return e.Name == part && e.Mode == pack.ModeTree })
		if at < 0 {
			return id, noSuchPath(entries, dir, part)
		}
		id = entries[at].ID
	}
	return id, nil
}

func noSuchPath(entries []pack.TreeEntry, dir, part string) error {
	var dirs []string
	for _, e := range entries {
		switch {
		case e.Name == part:
			return &Error{Kind: PathNotFound, Err: fmt.Errorf("the path %q is a file, not a directory", showPath(dir))}
		case e.Mode == pack.ModeTree && len(dirs) < 5:
			dirs = append(dirs, showPath(e.Name))
		}
	}
	hint := "it holds no directories there"
	if len(dirs) > 0 {
		hint = "there is " + strings.Join(dirs, ", ")
	}
	return &Error{Kind: PathNotFound, Err: fmt.Errorf("there is no directory %q", showPath(dir)), Hint: hint}
}

// Blob reads a file by its hash. max bounds it further than the limits do; 0 is no further bound. A
// larger one gives TooLarge before it is inflated. The content is checked against the hash, and is
// the caller's. It makes no request.
func (m *Mirrors) Blob(ctx context.Context, r Remote, hash string, max int64) ([]byte, error) {
	var data []byte
	err := m.read(ctx, "read file", r, func(v *reading) error {
		id, err := parseHash("file", hash)
		if err != nil {
			return err
		}
		data, err = v.store.ReadKind(id, pack.BlobKind, min(cmp.Or(max, v.limits.ObjectBytes), v.limits.ObjectBytes))
		return err
	})
	return data, err
}

// Recycle takes the content of a Blob back that is not used any more.
func Recycle(content []byte) { pack.Recycle(content) }

// Entry is an entry of one directory, as Git has it.
type Entry struct {
	Name string
	Hash string // of the blob or tree; the commit of a submodule
	Mode uint32 // one of those of package pack
}

// The kinds of an Entry.
func (e Entry) IsDir() bool       { return e.Mode == pack.ModeTree }
func (e Entry) IsFile() bool      { return regular(e.Mode) }
func (e Entry) IsLink() bool      { return e.Mode == pack.ModeLink }
func (e Entry) IsSubmodule() bool { return e.Mode == pack.ModeSubmodule }
func (e Entry) Executable() bool  { return regular(e.Mode) && e.Mode&0o111 != 0 }

// Entries lists one directory by the hash of its tree, sorted by name in bytes. It has everything
// that Git would check out; a name that Git refuses makes the error Refused. It makes no request.
func (m *Mirrors) Entries(ctx context.Context, r Remote, tree string) (out []Entry, err error) {
	err = m.read(ctx, "read tree", r, func(v *reading) error {
		_, data, err := v.named("directory", tree, pack.TreeKind)
		if err != nil {
			return asDamage(err)
		}
		entries, err := pack.ParseTree(data)
		if err != nil {
			return &Error{Kind: Refused, Err: fmt.Errorf("the directory cannot be read: %w", err)}
		}
		out = make([]Entry, 0, len(entries))
		for _, e := range entries {
			if why := badName(e.Name); why.kind == gitName || e.Name == "" || e.Name == "." || e.Name == ".." || strings.Contains(e.Name, "/") {
				return &Error{Kind: Refused, Err: fmt.Errorf("%q cannot be checked out: %s", showPath(e.Name), why.text)}
			}
			out = append(out, Entry{Name: e.Name, Hash: e.ID.String(), Mode: e.Mode})
		}
		slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
		return nil
	})
	return out, err
}
