package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"

	"limpet/sync/text"
)

var (
	errTaken = errors.New("the target is not empty")
	errTwice = errors.New("the included artifact has the path twice")
)

// included is the tar of an Include. It is read twice: for its names, and for the content of what is packed, in order.
type included struct {
	Include
	ignores map[int][]byte // content of the files with rules

	file io.ReadCloser // while content is read
	tar  *tar.Reader
	next int // entry
}

// include copies the content of one into the tree.
func (b *builder) include(in Include) error {
	inc := &included{Include: in, ignores: map[int][]byte{}}
	b.includes = append(b.includes, inc)
	top, err := b.index(inc)
	if err != nil {
		return err
	}
	to := clean(in.To)
	n, err := b.directory(path.Dir(to))
	if err != nil {
		return err
	}
	old, at := n.child(path.Base(to))
	if to == "." {
		return errTaken
	}
	if old != nil {
		if err := b.load(old); err != nil {
			return err
		}
		if old.kind != top.kind || len(old.children) > 0 {
			return fmt.Errorf("%w: %s", errTaken, text.Line(to, 200))
		}
		n.children = slices.Delete(n.children, at, at+1)
	}
	n.children = slices.Insert(n.children, at, top)
	return nil
}

// directory finds or makes a directory of the tree.
func (b *builder) directory(at string) (*node, error) {
	n := b.root
	if at == "." {
		return n, b.load(n)
	}
	for part := range strings.SplitSeq(at, "/") {
		if err := b.load(n); err != nil {
			return nil, err
		}
		c, i := n.child(part)
		if c == nil {
			c = &node{path: path.Join(n.path, part), loaded: true}
			n.children = slices.Insert(n.children, i, c)
		}
		if n = c; n.kind != dirKind {
			return nil, fmt.Errorf("%s is a file", text.Line(n.path, 200))
		}
	}
	return n, b.load(n)
}

// index reads the names of a tar and returns the node that From is, with the paths that it gets.
func (b *builder) index(inc *included) (*node, error) {
	defer inc.close()
	from, to := clean(inc.From), clean(inc.To)
	dirs := map[string]*node{} // and a file at ".", by path below From
	entries, bytes := 0, int64(0)
	for at := 0; ; at++ {
		h, err := inc.advance(b.ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		name := path.Clean(h.Name)
		if !filepath.IsLocal(name) {
			return nil, fmt.Errorf("%q leaves the archive", text.Line(h.Name, 200))
		}
		below, inside := name, from == "."
		if !inside {
			if below, inside = strings.CutPrefix(name+"/", from+"/"); inside {
				below = clean(below)
			}
		}
		if !inside {
			continue
		}
		n := &node{path: path.Join(to, below), included: inc, at: at, size: h.Size, executable: h.Mode&0o111 != 0, loaded: true}
		switch h.Typeflag {
		case tar.TypeReg:
			n.kind = fileKind
		case tar.TypeSymlink:
			if !b.o.KeepSymlinks {
				continue
			}
			n.kind, n.size = linkKind, 0
		case tar.TypeDir:
		default:
			continue
		}
		if bytes += h.Size; b.o.MaxBytes > 0 && bytes > b.o.MaxBytes {
			return nil, &LimitError{true, b.o.MaxBytes}
		}
		if entries++; b.o.MaxFiles > 0 && entries > b.o.MaxFiles {
			return nil, &LimitError{false, int64(b.o.MaxFiles)}
		}
		if n.kind == fileKind && n.name() == ignoreFile {
			if inc.ignores[at], err = io.ReadAll(io.LimitReader(inc.tar, maxIgnore)); err != nil {
				return nil, err
			}
		}
		if err := add(dirs, n, below, to); err != nil {
			return nil, fmt.Errorf("%w: %s", err, text.Line(h.Name, 200))
		}
	}
	top := dirs["."]
	if top == nil {
		return nil, fmt.Errorf("the included artifact has no %q", text.Line(inc.From, 200))
	}
	return top, nil
}

// add puts a node into its directory. Of two files of a name the last one stays, as when they are unpacked.
func add(dirs map[string]*node, n *node, below, to string) error {
	if below == "." {
		if old := dirs["."]; old != nil && old.kind != n.kind {
			return errTwice
		} else if old == nil || n.kind != dirKind {
			dirs["."] = n
		}
		return nil
	}
	parent := dirs[path.Dir(below)]
	if parent == nil { // the tar does not name it
		parent = &node{path: path.Join(to, path.Dir(below)), loaded: true}
		if err := add(dirs, parent, path.Dir(below), to); err != nil {
			return err
		}
	}
	if parent.kind != dirKind {
		return errTwice
	}
	old, i := parent.child(n.name())
	switch {
	case old == nil:
		parent.children = slices.Insert(parent.children, i, n)
	case old.kind != n.kind:
		return errTwice
	case n.kind == dirKind:
		return nil
	default:
		parent.children[i] = n
	}
	if n.kind == dirKind {
		dirs[below] = n
	}
	return nil
}

// advance returns the next entry, opening the file before the first.
func (inc *included) advance(ctx context.Context) (*tar.Header, error) {
	if inc.file == nil {
		f, err := inc.Open(ctx)
		if err != nil {
			return nil, err
		}
		inc.file, inc.next = f, 0
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, fmt.Errorf("the included artifact is no tar.gz: %w", err)
		}
		inc.tar = tar.NewReader(z)
	}
	inc.next++
	return inc.tar.Next()
}

// open returns the content of an entry: a file's bytes, a link's target.
func (inc *included) open(ctx context.Context, at int) (io.Reader, error) {
	if inc.next > at {
		inc.close()
	}
	for {
		h, err := inc.advance(ctx)
		switch {
		case err != nil:
			return nil, err
		case inc.next <= at:
		case h.Typeflag == tar.TypeSymlink:
			return strings.NewReader(h.Linkname), nil
		default:
			return inc.tar, nil
		}
	}
}

func (inc *included) close() {
	if inc.file != nil {
		_ = inc.file.Close()
	}
	inc.file, inc.tar, inc.next = nil, nil, 0
}

func (b *builder) close() {
	for _, inc := range b.includes {
		inc.close()
	}
}
