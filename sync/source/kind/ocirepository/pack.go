package ocirepository

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"limpet/sync/source/archive"
	"limpet/sync/source/controller"
)

// Pack returns the layer: as it is to copy it, or where it has nothing but what is to be extracted.
func (u *upstream) Pack(ctx context.Context) (controller.Content, error) {
	content := controller.Content{Subject: u.manifest.Annotations[ocispec.AnnotationTitle], Metadata: u.manifest.Annotations}
	files, whole, err := u.whole(ctx)
	if err != nil {
		return content, err
	}
	if whole && u.layer.Digest.Algorithm() == digest.SHA256 {
		d := string(u.layer.Digest) // made while the layer came
		content.File, content.Digests = u.file, archive.Digests{Digest: d, TarDigest: d, Size: u.layer.Size, Files: files}
		return content, nil
	}
	content.Spent = u.file
	content.Write = func(w io.Writer) (archive.Digests, error) {
		if whole { // it is named by a digest of another kind
			return archive.Copy(w, u.file)
		}
		return u.repack(ctx, w)
	}
	return content, nil
}

func (u *upstream) options() archive.Options {
	return archive.Options{Ignore: u.spec.Ignore, KeepSymlinks: u.visit.KeepSymlinks, MaxBytes: u.spec.kind.o.MaxBytes, MaxFiles: u.spec.kind.o.MaxFiles}
}

// whole reports whether the layer is the artifact, and how many files that has. What cannot be read is
// not whole: repack says why. The layer goes to the disk meanwhile.
func (u *upstream) whole(ctx context.Context) (files int, whole bool, err error) {
	if u.spec.copies() {
		return 1, true, nil
	}
	f, err := os.Open(u.file)
	if err != nil {
		return 0, false, err
	}
	defer f.Close()
	synced := make(chan error, 1)
	go func() { synced <- f.Sync() }()
	files, whole, bad := archive.Whole(ctx, f, u.options())
	return files, whole && bad == nil, <-synced
}

// repack packs the files that the rules leave.
func (u *upstream) repack(ctx context.Context, w io.Writer) (d archive.Digests, err error) {
	f, err := os.Open(u.file)
	if err != nil {
		return d, err
	}
	defer f.Close()
	spool, err := os.CreateTemp(u.spec.kind.o.Dir, "files-*")
	if err != nil {
		return d, err
	}
	defer spool.Close()
	if err := os.Remove(spool.Name()); err != nil { // a process that is killed leaves no name behind
		return d, err
	}
	d, err = archive.Repack(ctx, w, f, spool, u.options())
	if errors.As(err, new(*archive.FormatError)) {
		err = controller.Failed(reasonLayer, "failed to extract layer contents from artifact: %w", err)
	}
	return d, err
}
