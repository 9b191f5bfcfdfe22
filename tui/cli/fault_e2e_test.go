package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"limpet/sync/testenv"
)

// What goes wrong around a running agent: it goes on by itself.

// TestDamageIsMendedWhileTheAgentRuns: a large state file that was closed in
// order is opened at once, so that damage shows later, when a record is read.
func TestDamageIsMendedWhileTheAgentRuns(t *testing.T) {
	repo := testenv.Repo(t, 2, 320)
	url := testenv.Git(t, testenv.GitOptions{}).Serve("boards.git", repo.Dir)
	h := newHome(t)
	site := h.file(t, "site/boards.yaml", fmt.Sprintf(`
apiVersion: provisioning.grafana.app/v0alpha1
kind: Repository
metadata: {name: boards, namespace: default}
spec:
  title: Boards
  type: git
  git: {url: %q, branch: %s, path: %s}
  sync: {enabled: true, target: folder, intervalSeconds: 3600}
`, url, testenv.Branch, testenv.Directory))
	pulled := func() bool { return h.run(t, "repo", "pull", "boards", "--full", "--wait").code == 0 }
	d := h.daemon(t, "--manifests", filepath.Dir(site))
	until(t, "the first pull is done", pulled) // until then there is one already
	if code := d.stop(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	data, err := os.ReadFile(h.state())
	if err != nil {
		t.Fatal(err)
	}
	if len(data) <= 4<<20 {
		t.Fatalf("the state file has %d bytes only, so it is looked through before it is opened", len(data))
	}
	for _, record := range []string{url, `"board-0100"`} {
		hits := 0
		for at := bytes.Index(data, []byte(record)); at >= 0; at = bytes.Index(data, []byte(record)) {
			data[at]++
			hits++
		}
		if hits == 0 {
			t.Fatalf("no %s in the state file", record)
		}
	}
	if err := os.WriteFile(h.state(), data, 0o600); err != nil {
		t.Fatal(err)
	}
	h.daemon(t, "--manifests", filepath.Dir(site))
	until(t, "the lost dashboard is back", func() bool { return h.run(t, "get", "dashboard", "board-0100", "-n", "default").code == 0 })
	until(t, "the repository can be pulled", pulled)
	h.must(t, 0, "store", "check")
	aside, err := filepath.Glob(h.state() + ".corrupt-*")
	if err != nil || len(aside) != 1 {
		t.Errorf("put aside: %q %v", aside, err)
	}
}
