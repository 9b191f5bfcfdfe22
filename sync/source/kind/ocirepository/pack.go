package ocirepository

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"limpet/sync/source/archive"
	"limpet/sync/source/controller"
)

// Pack returns the layer.
func (u *upstream) Pack(ctx context.Context) (controller.Content, error) {
	write := u.extract
	if u.spec.copies() {
		write = u.copyLayer
	}
	return controller.Content{
		Subject:  u.manifest.Annotations[ocispec.AnnotationTitle],
		Metadata: u.manifest.Annotations,
		Spent:    u.file,
		Write: func(w io.Writer) (archive.Digests, error) {
			f, err := os.Open(u.file)
			if err != nil {
				return archive.Digests{}, err
			}
			defer f.Close()
			return write(ctx, w, f)
		},
	}, nil
}

// extract packs the files of the layer as those of other sources.
func (u *upstream) extract(ctx context.Context, w io.Writer, f *os.File) (archive.Digests, error) {
	spool, err := os.CreateTemp(u.spec.kind.o.Dir, "files-*")
	if err != nil {
		return archive.Digests{}, err
	}
	defer spool.Close()
	if err := os.Remove(spool.Name()); err != nil { // a process that is killed leaves no name behind
		return archive.Digests{}, err
	}
	o := u.spec.kind.o
	d, err := archive.Repack(ctx, w, f, spool, archive.Options{Ignore: u.spec.Ignore, KeepSymlinks: u.visit.KeepSymlinks,
		MaxBytes: o.MaxBytes, MaxFiles: o.MaxFiles})
	if _, bad := errors.AsType[*archive.FormatError](err); bad {
		return d, failed(reasonLayer, "failed to extract layer contents from artifact: %w", err)
	}
	return d, err
}

// copyLayer copies the bytes of the layer.
func (u *upstream) copyLayer(_ context.Context, w io.Writer, f *os.File) (archive.Digests, error) {
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, sum), f)
	digest := "sha256:" + hex.EncodeToString(sum.Sum(nil))
	return archive.Digests{Digest: digest, TarDigest: digest, Size: n, Files: 1}, err
}
