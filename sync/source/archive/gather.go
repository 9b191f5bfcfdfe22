package archive

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"path"

	"limpet/sync/text"
)

// Member is a file of Gather.
type Member struct {
	Path string // in the archive: clean, relative
	File string // on this host; "" = the file of the same path in the older archive
	Size int64
}

// Gather packs files that are elsewhere, with the limits and the bytes of Write and without its
// rules. older opens an older tar.gz, which is read where a member is in it. An error is a
// *FormatError or *LimitError, or one of the files.
func Gather(ctx context.Context, w io.Writer, members []Member, older func(context.Context) (io.ReadCloser, error), o Options,
) (Digests, error) {
	b := &builder{ctx: ctx, o: o, root: &node{path: ".", loaded: true}}
	defer b.close()
	kept := map[string]*node{}
	for _, m := range members {
		n := &node{path: m.Path, kind: fileKind, file: m.File, size: m.Size, loaded: true}
		if m.File == "" {
			kept[m.Path] = n
		}
		if err := b.add(n); err != nil || b.altered {
			return Digests{}, &FormatError{fmt.Errorf("%q: there are two files of this path, or a directory", text.Line(m.Path, 200))}
		}
	}
	in := &included{Include: Include{Open: older}}
	b.includes = append(b.includes, in)
	for at := 0; len(kept) > 0; at++ {
		h, err := in.advance(ctx)
		if err != nil {
			return Digests{}, fmt.Errorf("read the older archive: %w", err)
		}
		if n := kept[path.Clean(h.Name)]; n != nil && h.Typeflag == tar.TypeReg {
			n.included, n.at = in, at
			delete(kept, n.path)
		}
	}
	nodes := b.root.all(nil)
	if o.MaxFiles > 0 && len(nodes) > o.MaxFiles {
		return Digests{}, &LimitError{false, int64(o.MaxFiles)}
	}
	return b.packNodes(w, nodes)
}
