// Package archive packs the tree of a commit as Flux does: a tar.gz that has the same bytes on every host.
package archive

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/klauspost/compress/gzip"

	"limpet/sync/git"
)

// Version names the format of the bytes: another one may give the same tree another digest.
const Version = "tar.gz/1"

// level of compression. It and the version of the library in go.mod decide the bytes.
const level = 6

// Tree is a commit of a mirror, which must have been fetched.
type Tree struct {
	Mirrors *git.Mirrors
	Remote  git.Remote
	Commit  string // 40 hex digits
}

// Options of Write.
type Options struct {
	Ignore       *string   // of the spec, in the format of .gitignore; nil = none
	Sparse       []string  // directories; none = the whole tree
	Includes     []Include // other archives whose content becomes part of the tree
	Submodules   bool      // with the content of submodules
	KeepSymlinks bool      // keeps relative symbolic links that stay inside of the tree; others are left out, as by Flux
	MaxBytes     int64     // of all files; 0 = no limit
	MaxFiles     int       // files and directories; 0 = no limit
}

// Include is a tar.gz whose directory From becomes the directory To of the tree.
type Include struct {
	Open     func(context.Context) (io.ReadCloser, error)
	From, To string // "" = the root; To must not be
}

// Digests describe the bytes that were written.
type Digests struct {
	Digest    string // of the tar.gz: "sha256:" and hex digits
	TarDigest string // of the tar inside
	Size      int64  // of the tar.gz, in bytes
	Files     int    // regular files and links
}

// Write packs a tree into w. It reads the mirror, and makes no request unless submodules are asked for.
func Write(ctx context.Context, w io.Writer, t Tree, o Options) (Digests, error) {
	info, err := t.Mirrors.Commit(ctx, t.Remote, t.Commit)
	if err != nil {
		return Digests{}, err
	}
	p, err := newPacker(w)
	if err != nil {
		return Digests{}, err
	}
	if err := p.dir("."); err != nil {
		return Digests{}, err
	}
	if err := p.walk(ctx, t, info.Tree, ""); err != nil {
		return Digests{}, err
	}
	return p.close()
}

// packer writes a tar.gz and sums up both forms.
type packer struct {
	tar         *tar.Writer
	gzip        *gzip.Writer
	ofTar, ofGz *sum
	files       int
}

// sum is a digest of bytes, and their number.
type sum struct {
	hash.Hash
	n int64
}

func (s *sum) Write(p []byte) (int, error) {
	s.n += int64(len(p))
	return s.Hash.Write(p)
}

func (s *sum) String() string { return "sha256:" + hex.EncodeToString(s.Sum(nil)) }

func newPacker(w io.Writer) (*packer, error) {
	p := &packer{ofTar: &sum{Hash: sha256.New()}, ofGz: &sum{Hash: sha256.New()}}
	var err error
	if p.gzip, err = gzip.NewWriterLevel(io.MultiWriter(w, p.ofGz), level); err != nil {
		return nil, err
	}
	p.tar = tar.NewWriter(io.MultiWriter(p.gzip, p.ofTar))
	return p, nil
}

func (p *packer) close() (Digests, error) {
	if err := p.tar.Close(); err != nil {
		return Digests{}, err
	}
	if err := p.gzip.Close(); err != nil {
		return Digests{}, err
	}
	return Digests{Digest: p.ofGz.String(), TarDigest: p.ofTar.String(), Size: p.ofGz.n, Files: p.files}, nil
}

// Modes of the entries, those of Flux.
const (
	fileMode = 0o600
	execMode = 0o700
	dirMode  = 0o750
)

func (p *packer) header(h tar.Header) error {
	h.ModTime = time.Unix(0, 0)
	return p.tar.WriteHeader(&h)
}

func (p *packer) dir(name string) error {
	return p.header(tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: dirMode})
}

func (p *packer) file(name string, executable bool, data []byte) error {
	h := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: fileMode, Size: int64(len(data))}
	if executable {
		h.Mode = execMode
	}
	if err := p.header(h); err != nil {
		return err
	}
	p.files++
	_, err := p.tar.Write(data)
	return err
}

func (p *packer) walk(ctx context.Context, t Tree, tree, prefix string) error {
	entries, err := t.Mirrors.Entries(ctx, t.Remote, tree)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := prefix + e.Name
		switch {
		case e.IsDir():
			if err = p.dir(name); err == nil {
				err = p.walk(ctx, t, e.Hash, name+"/")
			}
		case e.IsFile():
			var data []byte
			if data, err = t.Mirrors.Blob(ctx, t.Remote, e.Hash, 0); err == nil {
				err = p.file(name, e.Executable(), data)
			}
		}
		if err != nil {
			return fmt.Errorf("archive %s: %w", name, err)
		}
	}
	return nil
}
