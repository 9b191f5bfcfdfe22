package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestInvalidManifestIsShown checks that the snapshot names an invalid manifest until
// it is fixed, and that the log does not report it as a fault of the API.
func TestInvalidManifestIsShown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "site.yaml")
	write := func(text string) {
		t.Helper()
		must(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write("kind: [")
	a, log := newAgent(t, func(c *Config) { c.Manifests.Dir = dir })
	start(t, a.Run)
	var seq uint64
	told := func(what string, want func(string) bool) {
		t.Helper()
		eventually(t, what, func() bool {
			snap, err := a.Next(t.Context(), seq)
			must(t, err)
			seq = snap.Seq
			return want(snap.Problem)
		})
	}
	told("the fault", func(p string) bool { return strings.HasPrefix(p, "manifest not applied: site.yaml") })
	write("apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: default}\nstringData: {a: b}\n")
	told("the end of it", func(p string) bool { return p == "" })
	if n := log.count("API unavailable"); n != 0 {
		t.Errorf("%d lines of the API in\n%s", n, log)
	}
}
