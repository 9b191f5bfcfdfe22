package archive

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"time"

	"github.com/klauspost/compress/gzip"
)

// level of compression. It and the version of the library in go.mod decide the bytes, which a release of Go does not change.
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

// header writes one as USTAR, or as PAX where the name needs it: the time fits into both.
func (p *packer) header(h tar.Header) error {
	h.ModTime = time.Unix(0, 0)
	return p.tar.WriteHeader(&h)
}

func (p *packer) dir(name string) error {
	return p.header(tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: dirMode})
}

func (p *packer) link(name, target string) error {
	p.files++
	return p.header(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: linkMode})
}

func (p *packer) file(name string, executable bool, content io.Reader, size int64) error {
	h := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: fileMode, Size: size}
	if executable {
		h.Mode = execMode
	}
	if err := p.header(h); err != nil {
		return err
	}
	p.files++
	_, err := io.Copy(p.tar, content)
	return err
}
