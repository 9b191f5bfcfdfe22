package cli_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"limpet/sync/testenv"
)

// TestLargeFiles: a dashboard and a picture that Git LFS keeps arrive with their bytes in
// a directory, from a host that wants credentials, and the agent holds none of them.
func TestLargeFiles(t *testing.T) {
	t.Parallel()
	const token = "canary-51ef-large"
	host := testenv.Git(t, testenv.GitOptions{TLS: true, User: "ann", Password: token})
	repo := testenv.EmptyRepo(t)
	picture := strings.Repeat("\x89PNG\r\n\x1a\n\x00not text\xff", 5<<20) // 90 MiB
	board := `{"uid":"large","title":"Large","panels":[]}` + "\n"
	repo.Commit(t, "large", testenv.Change{Path: "large.json", Data: []byte(host.KeepLFS(board))},
		testenv.Change{Path: "img/picture.png", Data: []byte(host.KeepLFS(picture))}, testenv.Change{Path: "plain.json", Data: []byte("{}\n")})
	ca, err := os.ReadFile(host.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	h := newHome(t)
	for name, text := range map[string]string{"username": "ann", "password": token, "ca.crt": string(ca)} {
		h.file(t, "credentials/default.site/"+name, text)
	}
	d := h.daemon(t, "--credentials-dir", filepath.Join(h.dir, "credentials"), "--sink-prefix", h.dir)
	sink := filepath.Join(h.dir, "sinks", "site")
	h.must(t, 0, "repo", "create", "site", "--url", host.Serve("site.git", repo.Dir), "--branch", testenv.Branch, "--interval", "24h", "--sink-dir", sink)
	pull := func() result {
		t.Helper()
		var r result
		until(t, "the pull has ended", func() bool { // beside the one that the agent itself begins
			r = h.run(t, "repo", "pull", "site", "--full", "--wait")
			return !strings.Contains(r.err, "already exists")
		})
		return r
	}
	if r := pull(); r.code != 0 {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	for name, want := range map[string]string{"large.json": board, "plain.json": "{}\n", "img/picture.png": picture} {
		data, err := os.ReadFile(filepath.Join(sink, name))
		if got, sum := sha256.Sum256(data), sha256.Sum256([]byte(want)); err != nil || got != sum {
			t.Errorf("%s: %d bytes with %s, want %d: %v", name, len(data), hex.EncodeToString(got[:4]), len(want), err)
		}
	}
	w := readWeight(t, d.cmd.Process.Pid)
	t.Logf("90 MiB from Git LFS: %s", w)
	if w.peak > 100<<10 {
		t.Errorf("the agent held %d MiB", w.peak>>10)
	}
	lost := host.KeepLFS(board + " ")
	host.LoseLFS()
	repo.Commit(t, "lost", testenv.Change{Path: "large.json", Data: []byte(lost)})
	r := pull()
	if r.code == 0 || !strings.Contains(r.out+r.err, "large.json") || !strings.Contains(r.out+r.err, "not on the Git LFS server") {
		t.Errorf("exit %d: %s", r.code, r.out+r.err)
	}
	if data, err := os.ReadFile(filepath.Join(sink, "large.json")); err != nil || string(data) != board {
		t.Errorf("the directory has changed: %q %v", data, err)
	}
	told := r.out + r.err + h.must(t, 0, "get", "repositories", "-o", "yaml").out + h.must(t, 0, "history", "list", "-o", "json").out
	d.stop(t)
	h.noSecret(t, d.log.String()+told, token)
}
