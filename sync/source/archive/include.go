package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"

	"limpet/sync/git/ignore"
	"limpet/sync/text"
)

var (
	errTaken = errors.New("the target is not empty")
	errTwice = errors.New("the included artifact has the path twice")
)

// included is the tar of an Include. It is read twice: for its names, and for the content of what
// is packed, in order.
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
	to := clean(in.To)
	n, err := b.directory(path.Dir(to))
	if err != nil {
		return err
	}
	if to == "." {
		return errTaken
	}
	old, at := n.child(path.Base(to))
	if old != nil {
		if err := b.load(old); err != nil {
			return err
		}
		n.children = slices.Delete(n.children, at, at+1)
	}
	if err := b.index(inc); err != nil {
		return err
	}
	switch top, _ := n.child(path.Base(to)); {
	case top == nil:
		return fmt.Errorf("the included artifact has no %q", text.Line(in.From, 200))
	case old != nil && (old.kind != top.kind || len(old.children) > 0):
		return fmt.Errorf("%w: %s", errTaken, text.Line(to, 200))
	}
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

// index reads the names of a tar, and adds what is below From to the tree.
func (b *builder) index(inc *included) error {
	defer inc.close()
	from, to := clean(inc.From), clean(inc.To)
	entries, bytes := 0, int64(0)
	for at := 0; ; at++ {
		h, err := inc.advance(b.ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := path.Clean(h.Name)
		if !filepath.IsLocal(name) {
			return fmt.Errorf("%q leaves the archive", text.Line(h.Name, 200))
		}
		below, err := filepath.Rel(from, name)
		if err != nil || !filepath.IsLocal(below) {
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
			return &LimitError{true, b.o.MaxBytes}
		}
		if entries++; b.o.MaxFiles > 0 && entries > b.o.MaxFiles {
			return &LimitError{false, int64(b.o.MaxFiles)}
		}
		if n.kind == fileKind && n.name() == ignoreFile {
			if b.ignoreBytes += h.Size; b.ignoreBytes > ignore.MaxBytes {
				return &ignore.LimitError{What: "bytes", Limit: ignore.MaxBytes}
			}
			if inc.ignores[at], err = io.ReadAll(inc.tar); err != nil {
				return err
			}
		}
		if err := b.add(n); err != nil {
			return fmt.Errorf("%w: %s", err, text.Line(h.Name, 200))
		}
	}
}

// add puts a node into its directory. Of two files of a name the last one stays, as when they are
// unpacked.
func (b *builder) add(n *node) error {
	if n.kind == dirKind {
		_, err := b.directory(n.path)
		return err
	}
	parent, err := b.directory(path.Dir(n.path))
	if err != nil {
		return err
	}
	old, i := parent.child(n.name())
	switch {
	case old == nil:
		parent.children = slices.Insert(parent.children, i, n)
	case old.kind != n.kind:
		return errTwice
	default:
		parent.children[i] = n
		b.altered = true
	}
	return nil
}

// advance returns the next entry, opening the file before the first.
func (inc *included) advance(ctx context.Context) (*tar.Header, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
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

// File is a regular file of a tar.gz. Its content is read before the next file is.
type File struct {
	io.Reader
	Path string // clean, relative
	Size int64
	Exec bool
}

// Files returns the regular files of a tar.gz in their order. After an error there are no more.
func Files(r io.Reader) iter.Seq2[File, error] {
	return func(yield func(File, error) bool) {
		z, err := gzip.NewReader(r)
		if err != nil {
			yield(File{}, err)
			return
		}
		for t := tar.NewReader(z); ; {
			h, err := t.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err == nil && !filepath.IsLocal(h.Name) {
				err = errors.New("a path leaves the archive")
			}
			if err != nil {
				yield(File{}, err)
				return
			}
			if h.Typeflag == tar.TypeReg && !yield(File{t, path.Clean(h.Name), h.Size, h.Mode&0o111 != 0}, nil) {
				return
			}
		}
	}
}
