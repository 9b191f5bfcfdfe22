// Package archive packs the tree of a commit as Flux does: a tar.gz that has the same bytes on
// every host.
//
// What is left out by rules is never read. A directory that is excluded is not walked where no
// later rule can take in again something below it; then a .sourceignore below it is not read, as
// Git does not read a .gitignore there.
//
// # Bounds
//
// Files and their bytes by Options.MaxFiles and MaxBytes, entries of trees by git's
// Limits.TreeEntries, a path by mostPath, rules by the one ignore.Budget of a tree. Each loop ends
// with the context.
package archive

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"limpet/sync/git"
	"limpet/sync/text"
)

// Version names the format of the bytes: another one may give the same tree another digest.
const Version = "tar.gz/2"

// Tree is a commit of a mirror, which must have been fetched.
type Tree struct {
	Mirrors *git.Mirrors
	Remote  git.Remote
	Commit  string // 40 hex digits
}

// Options of Write. A few kB of Git can describe a tree without end, so there should be limits.
type Options struct {
	Ignore       *string   // of the spec, in the format of .gitignore; nil = none
	Sparse       []string  // directories; none = the whole tree
	Includes     []Include // other archives whose content becomes part of the tree, in this order
	Submodules   bool      // with the content of submodules
	KeepSymlinks bool      // keeps relative symbolic links that stay inside of the tree; others are left out, as by Flux
	MaxBytes     int64     // of all files; 0 = no limit
	MaxFiles     int       // files and directories; 0 = no limit
	// Pieces are those of an older archive, which need not be compressed again; nil = none. They become
	// those of the new one. They do not change its bytes.
	Pieces *Pieces
}

// Include is a tar.gz whose directory or file From becomes To of the tree.
type Include struct {
	Open     func(context.Context) (io.ReadCloser, error)
	From, To string // slash-separated; From "" = the root
}

// Digests describe the bytes that were written.
type Digests struct {
	Digest    string // of the tar.gz: "sha256:" and hex digits
	TarDigest string // of the tar inside
	Size      int64  // of the tar.gz, in bytes
	Files     int    // regular files and links
}

// SparseError reports a directory of Options.Sparse that the tree does not have.
type SparseError struct{ Dir string }

func (e *SparseError) Error() string {
	return fmt.Sprintf("sparse checkout: there is no directory %q", text.Line(e.Dir, 200))
}

// IncludeError reports an Include that cannot be copied into the tree.
type IncludeError struct {
	Index int // in Options.Includes
	Err   error
}

func (e *IncludeError) Error() string { return "copy include: " + e.Err.Error() }
func (e *IncludeError) Unwrap() error { return e.Err }

// LimitError reports a tree beyond Options.MaxBytes or Options.MaxFiles.
type LimitError struct {
	Bytes bool // else files and directories
	Limit int64
}

func (e *LimitError) Error() string {
	if e.Bytes {
		return "the archive would have more than " + text.Size(e.Limit) + ", the limit (--artifact-max-size)"
	}
	return fmt.Sprintf("the archive would have more than %d files and directories, the limit (--artifact-max-files)", e.Limit)
}

// Write packs a tree into w. It reads the mirror, and makes no request unless submodules are asked
// for. It ends with ctx. An error is a *SparseError, *IncludeError, *LimitError or
// *ignore.LimitError, one of git, or of w.
func Write(ctx context.Context, w io.Writer, t Tree, o Options) (Digests, error) {
	b, err := newBuilder(ctx, t, o)
	if err != nil {
		return Digests{}, err
	}
	defer b.close()
	return b.pack(w)
}

// pack writes the tree of a builder.
func (b *builder) pack(w io.Writer) (Digests, error) {
	nodes, err := b.list()
	if err != nil {
		return Digests{}, err
	}
	return b.packNodes(w, nodes)
}

// packNodes writes nodes in their order.
func (b *builder) packNodes(w io.Writer, nodes []*node) (Digests, error) {
	p := newPacker(b.ctx, w, b.o.Pieces)
	ctx, end := context.WithCancel(b.ctx)
	var g errgroup.Group
	defer func() { _ = g.Wait() }() // errors are in what was read
	defer end()
	blobs := b.readAhead(ctx, &g, nodes)
	left := b.o.MaxBytes
	var err error
	for _, n := range nodes {
		if err = b.write(p, n, blobs, &left); err != nil {
			break
		}
	}
	return p.end(err)
}

// write packs one node, with the next of blobs where it is one. left is what the files may still have where there is a limit.
func (b *builder) write(p *packer, n *node, blobs <-chan chan blob, left *int64) error {
	if err := b.ctx.Err(); err != nil {
		return context.Cause(b.ctx)
	}
	if n.kind == dirKind {
		return p.add(tar.Header{Typeflag: tar.TypeDir, Name: n.path, Mode: dirMode}, nil)
	}
	content, size, err := b.content(n, blobs)
	if c, ok := content.(io.Closer); ok {
		defer c.Close()
	}
	if err != nil {
		return fmt.Errorf("archive %s: %w", text.Line(n.path, 200), err)
	}
	if *left -= size; b.o.MaxBytes > 0 && *left < 0 {
		return &LimitError{true, b.o.MaxBytes}
	}
	if n.kind == linkKind {
		target, err := io.ReadAll(content)
		if err != nil || !staysInside(n.path, string(target)) {
			return err
		}
		return p.add(tar.Header{Typeflag: tar.TypeSymlink, Name: n.path, Linkname: string(target), Mode: linkMode}, nil)
	}
	h := tar.Header{Typeflag: tar.TypeReg, Name: n.path, Mode: fileMode, Size: size}
	if n.executable {
		h.Mode = execMode
	}
	return p.add(h, content)
}

// Pack packs files into w, in the order in which fill adds them.
func Pack(ctx context.Context, w io.Writer, fill func(add func(name string, size int64, content io.Reader) error) error) (Digests, error) {
	p := newPacker(ctx, w, nil)
	return p.end(fill(func(name string, size int64, content io.Reader) error {
		return p.add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: fileMode, Size: size}, content)
	}))
}

// Copy copies a file that is an artifact as it is.
func Copy(w io.Writer, path string) (Digests, error) {
	f, err := os.Open(path)
	if err != nil {
		return Digests{}, err
	}
	defer f.Close()
	return copyTo(w, f)
}

// Receive writes what comes into a new file, as an artifact as it is. It reads at most one byte more
// than a limit: that the size is beyond it says that there is more.
func Receive(path string, from io.Reader, most int64) (Digests, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return Digests{}, err
	}
	if err := os.RemoveAll(path); err != nil { // an old one may be that of an artifact, too
		return Digests{}, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Digests{}, err
	}
	d, err := copyTo(f, io.LimitReader(from, most+1))
	return d, errors.Join(err, f.Close())
}

func copyTo(w io.Writer, from io.Reader) (Digests, error) {
	all := &sum{Hash: sha256.New()}
	_, err := io.Copy(io.MultiWriter(w, all), from)
	return Digests{Digest: all.String(), TarDigest: all.String(), Size: all.n, Files: 1}, err
}

// level of compression. It and the version of the library in go.mod decide the bytes, which a
// release of Go does not change.
const level = 6

// Modes of the entries, those of Flux.
const (
	fileMode = 0o600
	execMode = 0o700
	dirMode  = 0o750
	linkMode = 0o777
)

// packer writes a tar.gz and sums up both forms in one pass.
type packer struct {
	tar         *tar.Writer
	gz          *compressor
	pieces      *Pieces
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

// newPacker returns a packer, whose end must follow.
func newPacker(ctx context.Context, w io.Writer, pieces *Pieces) *packer {
	p := &packer{ofTar: &sum{Hash: sha256.New()}, ofGz: &sum{Hash: sha256.New()}, pieces: pieces}
	p.gz = newCompressor(ctx, io.MultiWriter(w, p.ofGz), pieces)
	p.tar = tar.NewWriter(io.MultiWriter(p.gz, p.ofTar))
	return p
}

// end ends the archive, or with an error its making, which it returns.
func (p *packer) end(err error) (Digests, error) {
	if err == nil {
		err = p.tar.Close()
	}
	if err = p.gz.end(err); err != nil {
		return Digests{}, err
	}
	if p.pieces != nil {
		*p.pieces = Pieces{Version: Version, List: p.gz.made}
	}
	return Digests{Digest: p.ofGz.String(), TarDigest: p.ofTar.String(), Size: p.ofGz.n, Files: p.files}, nil
}

// add writes an entry as USTAR, or as PAX where the name needs it: the time fits into both.
func (p *packer) add(h tar.Header, content io.Reader) error {
	h.ModTime = time.Unix(0, 0)
	if h.Typeflag != tar.TypeDir {
		p.files++
	}
	if err := p.tar.Flush(); err != nil { // the padding is of the entry before
		return err
	}
	if err := p.gz.begin(h.Name); err != nil {
		return err
	}
	if err := p.tar.WriteHeader(&h); err != nil || content == nil {
		return err
	}
	_, err := io.Copy(p.tar, content)
	return err
}
