package ocirepository

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"

	"github.com/opencontainers/go-digest"
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

// extract packs the files of the layer as those of other sources. A layer that has nothing else is
// the artifact itself.
func (u *upstream) extract(ctx context.Context, w io.Writer, f *os.File) (d archive.Digests, err error) {
	o := archive.Options{Ignore: u.spec.Ignore, KeepSymlinks: u.visit.KeepSymlinks, MaxBytes: u.spec.kind.o.MaxBytes, MaxFiles: u.spec.kind.o.MaxFiles}
	files, whole, err := archive.Whole(ctx, f, o)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	switch {
	case err != nil:
	case whole:
		d, err = u.copyLayer(ctx, w, f)
		d.Files = files
	default:
		d, err = u.repack(ctx, w, f, o)
	}
	if _, bad := errors.AsType[*archive.FormatError](err); bad {
		return d, failed(reasonLayer, "failed to extract layer contents from artifact: %w", err)
	}
	return d, err
}

// repack packs the files that the rules leave.
func (u *upstream) repack(ctx context.Context, w io.Writer, f *os.File, o archive.Options) (archive.Digests, error) {
	spool, err := os.CreateTemp(u.spec.kind.o.Dir, "files-*")
	if err != nil {
		return archive.Digests{}, err
	}
	defer spool.Close()
	if err := os.Remove(spool.Name()); err != nil { // a process that is killed leaves no name behind
		return archive.Digests{}, err
	}
	return archive.Repack(ctx, w, f, spool, o)
}

// copyLayer copies the bytes of the layer, whose digest was made while they came.
func (u *upstream) copyLayer(_ context.Context, w io.Writer, f *os.File) (d archive.Digests, err error) {
	d = archive.Digests{Digest: string(u.layer.Digest), Size: u.layer.Size, Files: 1}
	if u.layer.Digest.Algorithm() == digest.SHA256 {
		_, err = io.Copy(w, f)
	} else {
		sum := sha256.New()
		_, err = io.Copy(io.MultiWriter(w, sum), f)
		d.Digest = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	}
	d.TarDigest = d.Digest
	return d, err
}
