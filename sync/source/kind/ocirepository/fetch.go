package ocirepository

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"limpet/sync/netx"
	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
	"limpet/sync/source/controller"
	"limpet/sync/text"
)

const (
	maxManifest = 4 << 20 // bytes. Source: the distribution specification, what registries have to take
	// keepPartial is how long a download that has not ended is kept.
	keepPartial = 24 * time.Hour
)

// Fetch brings the manifest and the layer to this host, and verifies the signatures in between.
func (u *upstream) Fetch(ctx context.Context) (received int64, err error) {
	pull := func(format string, args ...any) error {
		return controller.Failed(reasonPull, "failed to pull artifact from '%s': %w", u.spec.URL, fmt.Errorf(format, args...))
	}
	limited, cancel := context.WithTimeout(ctx, u.visit.Timeout)
	defer cancel()
	if u.found.MediaType == "" { // a digest of the spec
		if u.found, err = u.from.Resolve(limited, string(u.found.Digest)); err != nil {
			return 0, pull("%w", explain(err, string(u.spec.Ref.Digest)))
		}
	}
	if u.keys != nil {
		if err := u.verify(limited); err != nil {
			return 0, unverified(false, "failed to verify the signature using provider 'cosign': %w", err)
		}
	}
	body, err := u.read(limited, u.found)
	if err == nil && isIndex(u.found.MediaType) {
		body, err = u.platform(limited, body)
	}
	if err != nil {
		return int64(len(body)), pull("%w", err)
	}
	if err := json.Unmarshal(body, &u.manifest); err != nil {
		return int64(len(body)), controller.Failed(reasonLayer, "failed to parse artifact manifest: %w", err)
	}
	if err := u.choose(); err != nil {
		return int64(len(body)), controller.Failed(reasonLayer, "%w", err)
	}
	received, err = u.download(ctx)
	if err != nil {
		err = pull("%w", err)
	}
	return received + int64(len(body)), err
}

// read reads a manifest, or another small blob, and checks its digest.
func (u *upstream) read(ctx context.Context, d ocispec.Descriptor) ([]byte, error) {
	if err := checkDigest(d.Digest); err != nil {
		return nil, err
	}
	if d.Size > maxManifest {
		return nil, fmt.Errorf("%s has %s, and the limit is %s", d.Digest, text.Size(d.Size), text.Size(maxManifest))
	}
	body, _, err := u.from.Open(ctx, d, 0)
	if err != nil {
		return nil, err
	}
	data, err := content.ReadAll(body, d)
	_ = body.Close()
	if err != nil && u.skipMirror() {
		return u.read(ctx, d)
	}
	return data, err
}

// decode reads a manifest, or another small blob, in JSON.
func (u *upstream) decode(ctx context.Context, d ocispec.Descriptor, into any) error {
	body, err := u.read(ctx, d)
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	return err
}

const indexOfDocker = "application/vnd.docker.distribution.manifest.list.v2+json"

func isIndex(mediaType string) bool {
	return mediaType == ocispec.MediaTypeImageIndex || mediaType == indexOfDocker
}

// platform returns the manifest of an index that Flux takes: that of linux/amd64.
func (u *upstream) platform(ctx context.Context, body []byte) ([]byte, error) {
	var index ocispec.Index
	if err := json.Unmarshal(body, &index); err != nil {
		return nil, fmt.Errorf("failed to parse artifact index: %w", err)
	}
	for _, d := range index.Manifests {
		if p := d.Platform; p == nil || p.OS == "linux" && p.Architecture == "amd64" {
			return u.read(ctx, d)
		}
	}
	return nil, errors.New("the index has no manifest for linux/amd64")
}

// choose finds the layer of the spec.
func (u *upstream) choose() error {
	mediaType, layers := u.spec.LayerSelector.MediaType, u.manifest.Layers
	if len(layers) == 0 {
		return errors.New("no layers found in artifact")
	}
	for _, l := range layers {
		if mediaType != "" && l.MediaType != mediaType {
			continue
		}
		u.layer = l
		if most := u.spec.kind.o.MaxBytes; most > 0 && l.Size > most {
			return fmt.Errorf("layer of %s: %w", text.Size(l.Size), &archive.LimitError{Bytes: true, Limit: most})
		}
		return checkDigest(l.Digest)
	}
	return fmt.Errorf("failed to find layer with media type '%s' in artifact", text.Line(mediaType, 200))
}

// partial returns the file of the layer: of this source alone, so that none reads a layer only
// because another one may. Other files of the source are removed, and of other sources old ones.
func (u *upstream) partial() (string, error) {
	dir := u.spec.kind.o.Dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	prefix := u.prefix()
	name := prefix + u.layer.Digest.Encoded()
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		info, gone := e.Info()
		old := gone == nil && time.Since(info.ModTime()) > keepPartial
		if e.Name() != name && (old || strings.HasPrefix(e.Name(), prefix)) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return filepath.Join(dir, name), err
}

// prefix begins the names of the files of this source.
func (u *upstream) prefix() string {
	owner := sha256.Sum256([]byte(u.spec.namespace + "/" + u.spec.name))
	return hex.EncodeToString(owner[:16]) + "."
}

// forget removes the file whose bytes are the stored artifact: a process that is killed when the index
// has that leaves the name.
func (u *upstream) forget() error {
	stored, is := strings.CutPrefix(u.visit.Stored.Digest, "sha256:")
	if !is {
		return nil
	}
	return os.RemoveAll(filepath.Join(u.spec.kind.o.Dir, u.prefix()+stored))
}

// download brings the layer into its file, and goes on with what a download before has left. After a
// power cut that may be other bytes than those that came: then all is asked for again.
func (u *upstream) download(ctx context.Context) (received int64, err error) {
	if u.file, err = u.partial(); err != nil {
		return 0, err
	}
	algorithm := u.layer.Digest.Algorithm()
	sum := algorithm.Hash()
	d, err := netx.OpenDownload(u.file, u.layer.Size, sum)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	ctx, cancel := context.WithTimeout(ctx, artifact.TimeFor(u.layer.Size)) // what has come is kept
	defer cancel()
	open := func(ctx context.Context, at int64) (io.ReadCloser, int64, error) {
		return u.from.Open(ctx, u.layer, at)
	}
	for kept := d.Has() > 0; ; kept = false {
		n, err := d.Fill(ctx, u.visit.Timeout, open)
		received += n
		if err != nil || digest.NewDigest(algorithm, sum) == u.layer.Digest {
			return received, err
		}
		if !kept && !u.skipMirror() {
			damaged := fmt.Errorf("the layer is damaged: its bytes have not the digest %s", u.layer.Digest)
			return received, errors.Join(damaged, os.Remove(u.file))
		}
		if err := d.Clear(); err != nil {
			return received, err
		}
	}
}
