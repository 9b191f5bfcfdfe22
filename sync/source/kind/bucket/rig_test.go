package bucket_test

import (
	"os"
	"path/filepath"
	"testing"

	"limpet/state"
	"limpet/sync/identity"
	"limpet/sync/netx"
	"limpet/sync/source/controller"
	"limpet/sync/source/kind/bucket"
	"limpet/sync/testenv"
	"limpet/sync/testenv/sourcetest"
)

func TestMain(m *testing.M) {
	if state.RunProbe() {
		return
	}
	os.Exit(testenv.Main(m))
}

// rig is the controller of the kind, with a bucket that it reads.
type rig struct {
	*sourcetest.Rig
	*host
	dir string // of downloads
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{sourcetest.New(t, sourcetest.Embedded(t), "default", "Bucket"), newHost(t), filepath.Join(t.TempDir(), "objects")}
	r.Spec = map[string]any{"endpoint": r.Listener.Addr().String(), "bucketName": "site", "interval": "1h", "insecure": true,
		"secretRef": map[string]any{"name": "keys"}}
	r.Start(controller.Options{}, bucket.New(bucket.Options{Places: r.Places,
		Identities: identity.New(identity.Options{AllowInsecure: true, Getenv: r.getenv}),
		Client:     &netx.Client{UserAgent: "limpet/test", Transport: r.host},
		Artifacts:  r.Artifacts, Dir: r.dir, MaxBytes: 1 << 20, MaxFiles: 2000}))
	r.Secret("keys", map[string]any{"accesskey": access, "secretkey": secret})
	return r
}

// ask requests a reconcile, waits until it is handled, and returns the requests that it has sent.
func (r *rig) ask(name string) []string {
	r.T.Helper()
	r.take()
	r.Ask(name)
	return r.take()
}

// ready waits until a source is ready at what the bucket holds below a prefix, and returns its files.
func (r *rig) ready(name, prefix string, without ...string) map[string]string {
	r.T.Helper()
	r.Ready(name, r.revision(prefix, without...))
	_, files := r.Files(name)
	return files
}
