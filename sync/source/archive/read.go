package archive

import (
	"archive/tar"
	"errors"
	"io"
	"iter"
	"path"
	"path/filepath"

	"github.com/klauspost/compress/gzip"
)

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
			if err == nil && h.Typeflag != tar.TypeReg {
				continue
			}
			if !yield(File{t, path.Clean(h.Name), h.Size, h.Mode&0o111 != 0}, err) || err != nil {
				return
			}
		}
	}
}
