package ocirepository

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
	"limpet/sync/text"
)

const (
	maxManifest = 4 << 20 // bytes. Source: the distribution specification, what registries have to take
	// keepPartial is how long a download that has not ended is kept.
	keepPartial = 24 * time.Hour
	// A download that is cut and has brought something goes on at once, so often.
	mostCuts = 10
)

// errSilent ends a download in which nothing comes.
var errSilent = errors.New("nothing has come")

// Fetch brings the manifest and the layer to this host, and verifies the signatures in between.
func (u *upstream) Fetch(ctx context.Context) (received int64, err error) {
	pull := func(format string, args ...any) error {
		return failed(reasonPull, "failed to pull artifact from '%s': %w", u.spec.URL, fmt.Errorf(format, args...))
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
		return int64(len(body)), failed(reasonLayer, "failed to parse artifact manifest: %w", err)
	}
	if err := u.choose(); err != nil {
		return int64(len(body)), failed(reasonLayer, "%w", err)
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
	mediaType, layers := "", u.manifest.Layers
	if u.spec.LayerSelector != nil {
		mediaType = u.spec.LayerSelector.MediaType
	}
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
	owner := sha256.Sum256([]byte(u.spec.namespace + "/" + u.spec.name))
	prefix := hex.EncodeToString(owner[:16]) + "."
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

// download brings the layer into its file, and goes on with what a download before has left. After a
// power cut that may be other bytes than those that came: then all is asked for again.
func (u *upstream) download(ctx context.Context) (received int64, err error) {
	if u.file, err = u.partial(); err != nil {
		return 0, err
	}
	f, err := os.OpenFile(u.file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return 0, err
	}
	part := &part{file: f, sum: u.layer.Digest.Algorithm().Hash()}
	defer func() { _ = part.file.Close() }()
	ctx, cancel := context.WithTimeout(ctx, artifact.TimeFor(u.layer.Size)) // what has come is kept
	defer cancel()
	kept, err := part.load()
	if err != nil {
		return 0, err
	}
	for cuts := 0; ; cuts++ {
		n, err := u.resume(ctx, part)
		received += n
		switch {
		case err == nil && u.matches(part):
			return received, nil
		case err == nil && (kept > 0 || u.skipMirror()):
			kept = 0
			if err := part.clear(); err != nil {
				return received, err
			}
		case err == nil:
			damaged := fmt.Errorf("the layer is damaged: its bytes have not the digest %s", u.layer.Digest)
			return received, errors.Join(damaged, os.Remove(u.file))
		case n == 0 || cuts == mostCuts || ctx.Err() != nil || errors.Is(err, errSilent):
			return received, err
		}
	}
}

// part is what a file has of a layer, and its sum, which is made while the bytes come.
type part struct {
	file *os.File
	sum  hash.Hash
	size int64
}

func (p *part) Write(data []byte) (int, error) {
	n, err := p.file.Write(data)
	p.sum.Write(data[:n])
	p.size += int64(n)
	return n, err
}

// load reads what the file has.
func (p *part) load() (size int64, err error) {
	p.size, err = io.Copy(p.sum, p.file)
	return p.size, err
}

// clear begins anew, in another file: the old one may be that of an artifact, too.
func (p *part) clear() (err error) {
	name := p.file.Name()
	if err := errors.Join(p.file.Close(), os.Remove(name)); err != nil {
		return err
	}
	p.sum.Reset()
	p.size = 0
	p.file, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	return err
}

// matches reports whether a part is the whole layer.
func (u *upstream) matches(p *part) bool {
	return p.size == u.layer.Size && digest.NewDigest(u.layer.Digest.Algorithm(), p.sum) == u.layer.Digest
}

// resume asks for what a part lacks. It ends when nothing comes for the timeout of the spec.
func (u *upstream) resume(ctx context.Context, p *part) (received int64, err error) {
	if p.size > u.layer.Size { // a server has sent too much, and has nothing behind it
		err = p.clear()
	}
	if err != nil || p.size == u.layer.Size {
		return 0, err
	}
	ctx, silent := context.WithCancelCause(ctx)
	defer silent(nil)
	timeout := u.visit.Timeout
	timer := time.AfterFunc(timeout, func() { silent(fmt.Errorf("%w for %s", errSilent, timeout)) })
	defer timer.Stop()
	body, from, err := u.from.Open(ctx, u.layer, p.size)
	if err != nil {
		return 0, cause(ctx, err)
	}
	defer body.Close()
	if from != p.size {
		err = p.clear()
	}
	if err != nil {
		return 0, err
	}
	received, err = io.Copy(p, io.LimitReader(&watched{body, timer, timeout}, u.layer.Size-p.size+1))
	switch {
	case err == nil && p.size < u.layer.Size:
		err = io.ErrUnexpectedEOF
	case err == nil && p.size > u.layer.Size:
		err = fmt.Errorf("the layer has more than the %d bytes of its manifest", u.layer.Size)
	}
	return received, cause(ctx, err)
}

// cause returns why a context has ended in place of an error of that.
func cause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// watched is a reader that sets a timer back with all that comes.
type watched struct {
	io.Reader
	timer   *time.Timer
	timeout time.Duration
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if n > 0 {
		w.timer.Reset(w.timeout)
	}
	return n, err
}
