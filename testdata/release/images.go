package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the user of the images, which has no name there.
const user = 65532

// writeImages writes an image of each architecture as 'docker load' reads it, and all of them as
// one index in the OCI layout.
func (r *release) writeImages(built []arch) error {
	tag, err := name.NewTag("limpet:" + imageTag(r.packageVersion()))
	if err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, a := range built {
		image, err := r.image(a)
		if err != nil {
			return err
		}
		if err := tarball.WriteToFile(r.binary(a)+".image.tar", tag, image); err != nil {
			return err
		}
		platform := v1.Platform{OS: "linux", Architecture: a.oci, Variant: a.variant} // by which a host chooses
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &platform}})
	}
	dir := filepath.Join(r.dist, "limpet-oci")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	_, err = layout.Write(dir, index)
	return err
}

// imageTag returns a version in the letters of a tag.
func imageTag(version string) string {
	return strings.Map(func(r rune) rune {
		if r == '+' || r == '~' {
			return '-'
		}
		return r
	}, version)
}

// image returns limpet alone, with the certificates of the public authorities, a directory for its
// state and one for its temporary files.
func (r *release) image(a arch) (v1.Image, error) {
	data, err := r.layer(a)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Created = v1.Time{Time: r.date}
	config.OS = "linux"
	config.Architecture = a.oci
	config.Variant = a.variant
	config.Config = v1.Config{
		User:       "65532:65532",
		Entrypoint: []string{"/limpet"},
		Cmd:        []string{"--daemon"},
		Env:        []string{"PATH=/", "LIMPET_STATE=/var/lib/limpet/limpet.db"},
		Volumes:    map[string]struct{}{"/var/lib/limpet": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "limpet",
			"org.opencontainers.image.version":  r.version,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(image, config)
}

// layer returns the files of an image as a tar archive.
func (r *release) layer(a arch) ([]byte, error) {
	program, err := os.ReadFile(r.binary(a))
	if err != nil {
		return nil, err
	}
	licences, err := os.ReadFile(filepath.Join(r.dist, "THIRD_PARTY_LICENSES"))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range []struct {
		tar.Header
		data []byte
	}{
		{tar.Header{Name: "limpet", Mode: 0o755}, program},
		{tar.Header{Name: "THIRD_PARTY_LICENSES", Mode: 0o644}, licences},
		{tar.Header{Name: "etc/ssl/certs/ca-certificates.crt", Mode: 0o644}, roots()},
		{tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil},
		{tar.Header{Name: "var/lib/limpet/", Typeflag: tar.TypeDir, Mode: 0o700, Uid: user, Gid: user}, nil},
	} {
		f.Size = int64(len(f.data))
		f.ModTime = r.date.Truncate(time.Second)
		if err := w.WriteHeader(&f.Header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err = w.Close()
	return out.Bytes(), err
}

// roots returns the certificates that Mozilla trusts, without those that it trusts under a
// condition, which a file of certificates cannot express.
func roots() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return out.Bytes()
}
