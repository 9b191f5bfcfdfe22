package e2e

import (
	"encoding/json"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// servedArtifact is that of the status of a source.
type servedArtifact struct{ URL, Revision, Digest, Path string }

func (h *home) artifact(t *testing.T, name string) (a servedArtifact) {
	t.Helper()
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct{ Artifact servedArtifact }
		}
	}
	if err := json.Unmarshal([]byte(h.must(t, 0, "get", "gitrepositories", "-n", "default", "-o", "json").out), &list); err != nil {
		t.Fatal(err)
	}
	for _, item := range list.Items {
		if item.Metadata.Name == name {
			a = item.Status.Artifact
		}
	}
	return a
}

// TestArtifactsForFlux: the built program makes the artifact of a repository and serves it; the
// code of Flux's controllers takes it, verifies its digest and unpacks the tree. One that is
// damaged on disk is not served, and made anew.
func TestArtifactsForFlux(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	client, repo, h := testenv.FluxClient(t), testenv.Repo(t, 3, 40), newHome(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	ln.Close()
	d := h.daemon(t, "--artifact-listen", address)
	url := testenv.Git(t, testenv.GitOptions{}).Serve("x.git", repo.Dir)
	if r := h.runWithInput(t, sourceYAML("site", url, "ref: {branch: main}"), "apply", "-f", "-"); r.code != 0 {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	until(t, "the artifact is there", func() bool { return h.artifact(t, "site").Digest != "" })
	a, head := h.artifact(t, "site"), repo.Head(t)
	if a.Revision != "main@sha1:"+head || a.URL != "http://"+address+"/gitrepository/default/site/"+head+".tar.gz" {
		t.Errorf("%+v", a)
	}
	take := func(url, digest string) (string, string, error) {
		dir := t.TempDir()
		out, err := exec.CommandContext(t.Context(), client, url, digest, dir).CombinedOutput()
		return dir, string(out), err
	}
	base := strings.TrimSuffix(a.URL, head+".tar.gz")
	for _, key := range []string{head, "main", "latest", a.Digest} {
		dir, out, err := take(base+key+".tar.gz", a.Digest)
		if err != nil {
			t.Errorf("%s: %v\n%s", key, err, out)
		}
		want := strings.Split(repo.Git(t, "ls-tree", "-r", "--name-only", "main"), "\n")
		want = slices.DeleteFunc(want, func(name string) bool { return strings.HasPrefix(name, ".github/") })
		var got []string
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				name, _ := filepath.Rel(dir, path)
				got = append(got, name)
				data, _ := os.ReadFile(path)
				if text := repo.Git(t, "show", "main:"+name); strings.TrimSpace(string(data)) != text {
					t.Errorf("%s has another content", name)
				}
			}
			return err
		})
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	if _, out, err := take(a.URL, "sha256:"+strings.Repeat("0", 64)); err == nil || !strings.Contains(out, "digest") {
		t.Errorf("another digest: %v\n%s", err, out)
	}
	file := filepath.Join(filepath.Dir(h.state()), "artifacts", "gitrepository", "default", "site", a.Digest[7:]+".tar.gz")
	if err := os.WriteFile(file, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(a.URL)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a damaged artifact: %s", resp.Status)
	}
	until(t, "it is made anew", func() bool { _, _, err := take(a.URL, a.Digest); return err == nil })
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}
