package ocirepository_test

import (
	"context"
	"errors"
	"os"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"limpet/state"
	"limpet/sync/source/controller"
	"limpet/sync/source/kind/ocirepository"
	"limpet/sync/testenv"
	"limpet/sync/testenv/sourcetest"
)

func TestMain(m *testing.M) {
	if state.RunProbe() {
		return
	}
	os.Exit(testenv.Main(m))
}

// rig is the controller of the kind.
type rig struct {
	*sourcetest.Rig
	layouts string // directory below which layouts may be
	layers  string // directory of downloads that have not ended
}

// newRig starts the controller. Sources that name no URL are of the registry.
func newRig(t *testing.T, of *sourcetest.Registry, mirrors ...string) *rig {
	t.Helper()
	before, err := ocirepository.ParseMirrors(mirrors)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{sourcetest.New(t, sourcetest.Embedded(t), "default", "OCIRepository"), t.TempDir(), t.TempDir()}
	r.Spec = map[string]any{"url": of.Address(), "interval": "1h", "insecure": true}
	r.Start(controller.Options{SinkPrefixes: []string{r.layouts}, MaxBytes: 1 << 20}, ocirepository.New(ocirepository.Options{
		Places: r.Places,
		PullSecrets: func(_ context.Context, _, account string) ([]string, error) {
			if account != "robot" {
				return nil, errors.New("there is no such service account")
			}
			return []string{"other", "login"}, nil
		},
		Mirrors: before, AllowLocal: []string{r.layouts}, Dir: r.layers, MaxBytes: 1 << 20, MaxFiles: 1000, UserAgent: "limpet/test"}))
	return r
}

const layerType = "application/vnd.cncf.flux.content.v1.tar+gzip"

// release pushes files as flux push artifact does, and returns the digest of the manifest and the layer.
func release(h *sourcetest.Registry, files map[string]string, tags ...string) (string, []byte) {
	data := sourcetest.Tarball(files)
	return releaseLayer(h, data, tags...), data
}

func releaseLayer(h *sourcetest.Registry, data []byte, tags ...string) string {
	d := h.Push(ocispec.Manifest{Layers: []ocispec.Descriptor{h.Blob(layerType, data)},
		Annotations: map[string]string{ocispec.AnnotationSource: "https://git.example.com/site", ocispec.AnnotationRevision: "main@sha1:1234"}}, tags...)
	return string(d.Digest)
}
