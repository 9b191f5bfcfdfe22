package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"limpet/state/atomicfile"
	"limpet/sync/fileid"
	"limpet/sync/git/giterr"
	"limpet/sync/git/pack"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
)

// A directory of plain files is served in process as a repository of one branch. Its commit has no
// parent, and an author and a time that never change: the same files give the same commit. Links
// are listed as links, which no reader of a tree follows; what is neither file, directory nor link,
// the directories .git and empty ones are left out, as Git does.

// DirBranch is the branch of a directory.
const DirBranch = "refs/heads/main"

// Dir is a directory of files at one moment.
type Dir struct {
	Commit  pack.ID
	Strays  []string // temporary files of writers that were killed
	objects map[pack.ID]dirObject
	known   map[string]dirFile // files and links
}

// dirObject is an object of a directory: a file by a path of it, others with their data.
type dirObject struct {
	kind pack.Kind
	data []byte
	path string // "" for others
}

// Contents returns the contents of files and links by path.
func (d *Dir) Contents() map[string]pack.ID {
	all := map[string]pack.ID{}
	for path, file := range d.known {
		all[path] = file.id
	}
	return all
}

// Content returns the content of a file or link; zero for none.
func (d *Dir) Content(path string) pack.ID { return d.known[path].id }

// Same reports whether a path still has the content that was read there; with a zero ID, whether it
// is absent. A directory is not compared: it is never replaced, and deleted only when empty.
func (d *Dir) Same(root *os.Root, path string, id pack.ID) bool {
	info, err := root.Lstat(path)
	switch {
	case err != nil:
		return id.IsZero() && errors.Is(err, fs.ErrNotExist)
	case info.IsDir():
		return true
	case info.Mode()&fs.ModeSymlink != 0:
		text, err := root.Readlink(path)
		return err == nil && id == pack.IDOf(pack.BlobKind, []byte(text))
	case d.known[path].is(info):
		return id == d.known[path].id
	}
	data, _, err := readFile(root, path, info.Size())
	return err == nil && id == pack.IDOf(pack.BlobKind, data)
}

// DirCommit returns the commit of a directory with this tree.
func DirCommit(tree pack.ID) pack.Object {
	const who = "limpet <limpet@localhost> 0 +0000"
	data := fmt.Appendf(nil, "tree %s\nauthor %s\ncommitter %s\n\nFiles of the directory\n", tree, who, who)
	return pack.Object{ID: pack.IDOf(pack.CommitKind, data), Kind: pack.CommitKind, Data: data}
}

// dirMemory holds the result of the last read of a directory. It is immutable.
type dirMemory struct {
	files map[string]dirFile
	sent  *Dir // what the mirror got last; nil = unknown
}

// dirFile is a file as it was read. It is read again when anything of it changes, or when it was so
// new that a write within the granularity of the clock of its file system would not show.
type dirFile struct {
	stamp fileid.Stamp
	read  time.Time
	id    pack.ID
}

func (f dirFile) is(info fs.FileInfo) bool {
	return f.stamp == fileid.Of(info) && f.stamp.Shows(f.read)
}

// errChanging means that a file changed while it was read.
var errChanging = errors.New("a file changed while it was read")

// OpenDir opens the directory of a call.
func (c *Call) OpenDir() (*os.Root, error) { return OpenDir(c.client.Options.AllowDirs, c.Addr.Path) }

// OpenDir opens a directory that lies below one of others, with all links resolved. Of what lies
// elsewhere it does not tell whether it exists.
func OpenDir(below []string, path string) (*os.Root, error) {
	dir, missing := filepath.EvalSymlinks(path)
	if missing != nil {
		dir = filepath.Clean(path)
	}
	for _, prefix := range below {
		base, err := filepath.EvalSymlinks(prefix)
		if missing != nil {
			base = filepath.Clean(prefix)
		}
		if rel, rerr := filepath.Rel(base, dir); err == nil && rerr == nil && filepath.IsLocal(rel) {
			if missing != nil {
				return nil, dirError(missing)
			}
			return openBelow(base, rel)
		}
	}
	return nil, errNotPermitted
}

var errNotPermitted = giterr.Wrap(giterr.Refused, errors.New("the directory is not below a permitted prefix"),
	"start the agent with --local-prefix and a directory above it")

// openBelow opens a directory below another one, and none that a link which was put there meanwhile
// leads to.
func openBelow(base, rel string) (*os.Root, error) {
	root, err := os.OpenRoot(base)
	if err != nil {
		return nil, dirError(err)
	}
	defer root.Close()
	if info, err := root.Stat(rel); err == nil && !info.IsDir() {
		return nil, dirError(syscall.ENOTDIR)
	}
	sub, err := root.OpenRoot(rel)
	return sub, dirError(err)
}

// dirError names the kind of an error of a directory.
func dirError(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return giterr.Wrap(giterr.NotFound, errors.New("the directory does not exist"), "mount or make it")
	case errors.Is(err, syscall.ENOTDIR):
		return giterr.Wrap(giterr.NotFound, errors.New("the path is not a directory"), "")
	}
	return err
}

// readTries bounds how often a directory is read that changes meanwhile.
const readTries = 3

// ReadDir reads a directory. Files that seem unchanged since the last time are not opened. With an
// error of kind Empty it returns the directory too.
func (c *Call) ReadDir(root *os.Root) (d *Dir, err error) {
	for range readTries {
		r := dirReader{call: c, root: root, old: c.memory().files, now: map[string]dirFile{},
			dir: &Dir{objects: map[pack.ID]dirObject{}}}
		if d, err = r.read(); !errors.Is(err, errChanging) {
			return d, err
		}
	}
	return nil, giterr.Wrap(giterr.Moved, err, "it is read again")
}

func (c *Call) memory() dirMemory {
	c.client.mu.Lock()
	defer c.client.mu.Unlock()
	return c.client.dirs[c.Addr.Path]
}

// dirReader reads a directory.
type dirReader struct {
	call     *Call
	dir      *Dir
	root     *os.Root
	old, now map[string]dirFile
	entries  int
}

func (r *dirReader) read() (*Dir, error) {
	tree, err := r.walk(".", 0)
	if err != nil {
		return nil, err
	}
	if tree.IsZero() {
		return r.dir, giterr.Wrap(giterr.Empty, errors.New("the directory has no files"), "a disk that is not mounted looks like this")
	}
	commit := DirCommit(tree)
	r.dir.Commit = commit.ID
	r.dir.objects[commit.ID] = dirObject{kind: pack.CommitKind, data: commit.Data}
	r.dir.known = r.now
	r.call.client.mu.Lock()
	defer r.call.client.mu.Unlock()
	r.call.client.dirs[r.call.Addr.Path] = dirMemory{r.now, r.call.client.dirs[r.call.Addr.Path].sent}
	return r.dir, nil
}

// put adds an object.
func (r *dirReader) put(kind pack.Kind, data []byte) pack.ID {
	id := pack.IDOf(kind, data)
	r.dir.objects[id] = dirObject{kind: kind, data: data}
	return id
}

// walk returns the tree of a directory; zero for an empty one.
func (r *dirReader) walk(dir string, depth int) (pack.ID, error) {
	f, err := r.root.Open(dir)
	if err != nil {
		return pack.ID{}, changing(err)
	}
	names, err := f.ReadDir(-1)
	f.Close()
	if err != nil {
		return pack.ID{}, err
	}
	var tree []pack.TreeEntry
	for _, name := range names {
		e, err := r.entry(filepath.Join(dir, name.Name()), name, depth)
		if err != nil {
			return pack.ID{}, err
		}
		if !e.ID.IsZero() {
			tree = append(tree, e)
		}
	}
	if len(tree) == 0 {
		return pack.ID{}, nil
	}
	slices.SortFunc(tree, func(a, b pack.TreeEntry) int { return strings.Compare(a.SortKey(), b.SortKey()) })
	return r.put(pack.TreeKind, pack.TreeText(tree)), nil
}

// entry returns an entry of a directory; one without ID is left out.
func (r *dirReader) entry(path string, d fs.DirEntry, depth int) (e pack.TreeEntry, err error) {
	if err := r.call.Ctx.Err(); err != nil {
		return e, err
	}
	if r.entries++; r.entries > r.call.Limits.TreeEntries {
		return e, &giterr.TooLargeError{Count: true, What: "number of files and directories", Size: int64(r.entries),
			Limit: int64(r.call.Limits.TreeEntries)}
	}
	r.call.progress(leastProgress)
	e.Name = d.Name()
	switch kind := d.Type(); {
	case e.Name == ".git":
	case kind.IsRegular() && atomicfile.IsTemporary(e.Name):
		r.dir.Strays = append(r.dir.Strays, path)
	case kind.IsRegular():
		var info fs.FileInfo
		if info, err = d.Info(); err != nil {
			return e, changing(err)
		}
		e.Mode = pack.ModeFile
		if info.Mode()&0o111 != 0 {
			e.Mode = pack.ModeExec
		}
		e.ID, err = r.file(path, info)
	case kind.IsDir() && depth > r.call.Limits.TreeDepth: // it is refused by its depth, whatever it has
		e.Mode, e.ID = pack.ModeTree, r.put(pack.TreeKind, nil)
	case kind.IsDir():
		e.Mode = pack.ModeTree
		e.ID, err = r.walk(path, depth+1)
	case kind&fs.ModeSymlink != 0:
		text, lerr := r.root.Readlink(path)
		e.Mode = pack.ModeLink
		e.ID = r.put(pack.BlobKind, []byte(text))
		err = changing(lerr)
		r.now[path] = dirFile{id: e.ID}
	}
	return e, err
}

// file returns the blob of a file.
func (r *dirReader) file(path string, info fs.FileInfo) (pack.ID, error) {
	known, ok := r.old[path]
	if !ok || !known.is(info) {
		at := time.Now()
		data, info, err := readFile(r.root, path, r.call.Limits.ObjectBytes)
		if err != nil {
			return pack.ID{}, err
		}
		known = dirFile{fileid.Of(info), at, pack.IDOf(pack.BlobKind, data)}
	}
	r.now[path] = known
	r.dir.objects[known.id] = dirObject{kind: pack.BlobKind, path: path}
	return known.id, nil
}

// readFile reads a file that does not change meanwhile.
func readFile(root *os.Root, path string, limit int64) ([]byte, fs.FileInfo, error) {
	f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a named pipe may be in its place by now
	if err != nil {
		return nil, nil, changing(err)
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil || !before.Mode().IsRegular() {
		return nil, nil, cmp.Or(err, errChanging)
	}
	if before.Size() > limit {
		return nil, nil, &giterr.TooLargeError{What: "file " + path, Size: before.Size(), Limit: limit}
	}
	data, err := io.ReadAll(io.LimitReader(f, before.Size()+1))
	after, serr := f.Stat()
	switch {
	case err != nil || serr != nil:
		return nil, nil, cmp.Or(err, serr)
	case int64(len(data)) != before.Size() || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()):
		return nil, nil, errChanging
	}
	return data, after, nil
}

// changing is the error of something that was listed a moment ago.
func changing(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return errChanging
	}
	return err
}

// dirSession serves a directory.
type dirSession struct {
	call *Call
	root *os.Root
	dir  *Dir
	pipe *io.PipeReader
	done chan struct{} // closed when the encoder has ended; nil when it never began
}

func (c *Call) dirSession() (*dirSession, error) {
	root, err := c.OpenDir()
	if err != nil {
		return nil, err
	}
	return &dirSession{call: c, root: root}, nil
}

// AdvertisedReferencesContext reads the directory.
func (s *dirSession) AdvertisedReferencesContext(context.Context) (adv *packp.AdvRefs, err error) {
	if s.dir, err = s.call.ReadDir(s.root); err != nil {
		return nil, err
	}
	adv = packp.NewAdvRefs()
	adv.References[DirBranch] = s.dir.Commit
	return adv, nil
}

// UploadPack sends the objects of the commit, without those of the one that the mirror got last.
func (s *dirSession) UploadPack(_ context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	if req.Wants[0] != s.dir.Commit {
		return nil, s.call.moved()
	}
	last := s.call.memory().sent
	if last != nil && !slices.Contains(req.Haves, last.Commit) {
		last = nil
	}
	objects := maps.Clone(s.dir.objects)
	if last != nil {
		maps.DeleteFunc(objects, func(id pack.ID, _ dirObject) bool { _, sent := last.objects[id]; return sent })
	}
	r, w := io.Pipe()
	s.pipe = r
	s.done = make(chan struct{})
	go func() { // Close waits for it
		defer close(s.done)
		w.CloseWithError(pack.EncodeTo(w, len(objects), func(yield func(pack.Packed, error) bool) {
			for id, o := range objects {
				if o, err := s.read(id, o); !yield(o.Pack(), err) {
					return
				}
			}
			s.call.client.mu.Lock()
			defer s.call.client.mu.Unlock()
			s.call.client.dirs[s.call.Addr.Path] = dirMemory{s.call.client.dirs[s.call.Addr.Path].files, s.dir}
		}))
	}()
	return packp.NewUploadPackResponseWithPackfile(req, counted{r, s.call}), nil
}

// read reads an object of the directory.
func (s *dirSession) read(id pack.ID, o dirObject) (whole pack.Object, err error) {
	if o.path != "" {
		o.data, _, err = readFile(s.root, o.path, s.call.Limits.ObjectBytes)
		if err == nil && pack.IDOf(pack.BlobKind, o.data) != id || errors.Is(err, errChanging) {
			err = s.call.moved()
		}
	}
	return pack.Object{ID: id, Kind: o.kind, Data: o.data}, err
}

// moved returns the error for files that have changed since they were announced.
func (c *Call) moved() error {
	return c.refused(giterr.Wrap(giterr.Moved, errChanging, "it is read again"))
}

// Close ends the session and waits for its encoder.
func (s *dirSession) Close() error {
	if s.done != nil {
		s.pipe.Close()
		<-s.done
	}
	return s.root.Close()
}
