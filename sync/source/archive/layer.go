package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"

	"limpet/sync/git/ignore"
	"limpet/sync/text"
)

// FormatError reports a foreign archive that cannot be packed again.
type FormatError struct{ Err error }

func (e *FormatError) Error() string { return e.Err.Error() }
func (e *FormatError) Unwrap() error { return e.Err }

// Repack packs the content of a foreign tar.gz into w, as Write packs a tree: the rules, limits and
// bytes are the same, and what is no file, directory or link is left out. The files go into spool,
// an empty file of the caller, because they are written in another order than they are read.
// Options of Git alone have no effect. An error is a *FormatError, *LimitError or
// *ignore.LimitError, or one of the files.
func Repack(ctx context.Context, w io.Writer, from io.Reader, spool Spool, o Options) (Digests, error) {
	b := &builder{ctx: ctx, o: o, rules: ignore.NewBudget(), root: &node{path: ".", loaded: true}}
	if err := b.unpack(from, spool); err != nil {
		return Digests{}, err
	}
	return b.pack(w)
}

// Whole reports whether Repack would leave nothing out of a foreign tar.gz, so that its own bytes can
// be served as they are: files and directories alone, that consumers may read, each path once, and
// no rule that excludes one. files is how many there are.
func Whole(ctx context.Context, from io.Reader, o Options) (files int, whole bool, err error) {
	b := &builder{ctx: ctx, o: o, rules: ignore.NewBudget(), root: &node{path: ".", loaded: true}}
	if err := b.unpack(from, nowhere{}); err != nil || b.altered {
		return 0, false, err
	}
	all := len(b.root.all(nil))
	nodes, err := b.list()
	return b.files, err == nil && len(nodes) == all, err
}

// nowhere is a Spool that keeps nothing.
type nowhere struct{ io.ReaderAt }

func (nowhere) Write(p []byte) (int, error) { return len(p), nil }

// all appends a node and all below, in the order of the archive.
func (n *node) all(out []*node) []*node {
	out = append(out, n)
	for _, c := range n.children {
		out = c.all(out)
	}
	return out
}

// Spool is where the files of a foreign archive are meanwhile.
type Spool interface {
	io.Writer
	io.ReaderAt
}

// unpack adds the entries of a tar.gz to the tree. Of two files of one path the last one counts.
func (b *builder) unpack(from io.Reader, spool Spool) error {
	wrong := func(format string, args ...any) error { return &FormatError{fmt.Errorf(format, args...)} }
	z, err := gzip.NewReader(from)
	if err != nil {
		return wrong("requires gzip-compressed body: %w", err)
	}
	entries, total, spooled := 0, int64(0), int64(0) // total is of all that is read
	for t := tar.NewReader(z); ; {
		if b.ctx.Err() != nil {
			return context.Cause(b.ctx)
		}
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return wrong("read tar: %w", err)
		}
		if entries++; b.o.MaxFiles > 0 && entries > b.o.MaxFiles {
			return &LimitError{false, int64(b.o.MaxFiles)}
		}
		if total += h.Size; b.o.MaxBytes > 0 && total > b.o.MaxBytes {
			return &LimitError{true, b.o.MaxBytes}
		}
		name := path.Clean(h.Name)
		b.altered = b.altered || !consumable(h)
		switch {
		case !filepath.IsLocal(name):
			return wrong("%q leaves the archive", text.Line(h.Name, 200))
		case len(name) > mostPath:
			return wrong("%s: the path is longer than %d bytes", text.Line(name, 200), mostPath)
		}
		n := &node{path: name, spool: spool, offset: spooled, size: h.Size, executable: h.Mode&0o111 != 0, loaded: true}
		var content io.Reader = t
		switch h.Typeflag {
		case tar.TypeReg:
			n.kind = fileKind
		case tar.TypeSymlink:
			if !b.o.KeepSymlinks {
				continue
			}
			n.kind, n.size, content = linkKind, int64(len(h.Linkname)), strings.NewReader(h.Linkname)
		case tar.TypeDir:
		default:
			continue
		}
		if n.kind != dirKind {
			b.files++
			written, err := io.Copy(spool, &ended{b.ctx, content})
			if spooled += written; err != nil {
				return wrong("read %s: %w", text.Line(h.Name, 200), err)
			}
		}
		if err := b.add(n); err != nil {
			return wrong("%s: %w", text.Line(h.Name, 200), err)
		}
	}
}

// consumable reports whether an entry can be served as it is. Rules in it are not: they may exclude
// other entries of the layer.
func consumable(h *tar.Header) bool {
	switch h.Typeflag {
	case tar.TypeReg:
		return h.Mode&^0o777 == 0 && h.Mode&0o600 == 0o600 && path.Base(h.Name) != ignoreFile
	case tar.TypeDir:
		return h.Mode&^0o777 == 0 && h.Mode&0o700 == 0o700
	}
	return false
}

// ended is a reader that ends with a context.
type ended struct {
	ctx context.Context // run-scope: of the one Repack
	r   io.Reader
}

func (e *ended) Read(p []byte) (int, error) {
	if e.ctx.Err() != nil {
		return 0, context.Cause(e.ctx)
	}
	return e.r.Read(p)
}
