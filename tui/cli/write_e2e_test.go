package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"limpet/sync/testenv"
)

// TestWritesOfASite: files are deleted and moved from the command line, at the remote and
// in the API, on a site where every commit has to be signed.
func TestWritesOfASite(t *testing.T) {
	t.Parallel()
	repo := testenv.EmptyRepo(t)
	repo.Git(t, "config", "http.receivepack", "true")
	board := func(name string) []byte {
		return []byte(`{"uid":"` + name + `","title":"` + name + `","tags":[],"panels":[],"schemaVersion":41}`)
	}
	repo.Commit(t, "first", testenv.Change{Path: "x.json", Data: board("x")}, testenv.Change{Path: "y.json", Data: board("y")}, testenv.Change{Path: "a/z.json", Data: board("z")})
	signer, public := sshSigner(t)
	signHead(t, repo, signer)
	host := testenv.Git(t, testenv.GitOptions{User: "git", Password: gitToken})
	url := host.Serve("boards.git", repo.Dir)
	h := newHome(t)
	key, err := os.ReadFile(strings.TrimPrefix(signer[3], "user.signingKey="))
	if err != nil {
		t.Fatal(err)
	}
	h.file(t, "credentials/default.site/commitSigningKey", string(key))
	h.file(t, "credentials/default.site/a.sshpub", public)
	d := h.daemon(t, "--allow-insecure-git", "--credentials-dir", filepath.Join(h.dir, "credentials"))
	site := h.feed(t, `apiVersion: provisioning.grafana.app/v0alpha1
kind: Repository
metadata: {name: site, namespace: default, annotations: {limpet/git-verify: HEAD}}
spec:
  title: Site
  type: git
  workflows: [write, branch]
  git: {url: "`+url+`", branch: main}
  sync: {enabled: true, target: folder, intervalSeconds: 3600}
secure: {token: {create: "`+gitToken+`"}}
`, "apply", "-f", "-")
	if site.code != 0 {
		t.Fatalf("%+v", site)
	}
	objects := func() string {
		return strings.Join(strings.Fields(h.must(t, 0, "get", "dashboards", "-o", "name").out), " ")
	}
	until(t, "the first pull", func() bool { return len(strings.Fields(objects())) == 3 })

	h.must(t, 2, "job", "create", "site", "--action", "delete")
	h.must(t, 2, "job", "create", "site", "--action", "move", "--path", "y.json", "--target-path", "b")
	h.must(t, 2, "job", "create", "site", "--path", "y.json")
	h.must(t, 1, "job", "create", "site", "--action", "delete", "--path", "../y.json")

	h.must(t, 0, "job", "create", "site", "--action", "delete", "--path", "x.json", "--message", "Away with x", "--wait")
	if got := repo.Git(t, "ls-tree", "-r", "--name-only", "main"); got != "a/z.json\ny.json" {
		t.Errorf("files\n%s", got)
	}
	if got := objects(); strings.Contains(got, "/x") || len(strings.Fields(got)) != 2 {
		t.Errorf("objects %s", got)
	}
	if got := repo.Git(t, "log", "-1", "--format=%s|%an <%ae>", "main"); got != "Away with x|Grafana <noreply@grafana.com>" {
		t.Errorf("commit %s", got)
	}
	allowed := h.file(t, "allowed_signers", "noreply@grafana.com "+public)
	repo.Git(t, "-c", "gpg.ssh.allowedSignersFile="+allowed, "verify-commit", "main")
	h.must(t, 0, "job", "create", "site", "--action", "move", "--path", "y.json", "--target-path", "b/c/", "--wait")
	h.must(t, 0, "job", "create", "site", "--action", "delete", "--path", "a/", "--ref", "edit/a", "--wait")
	if got := repo.Git(t, "ls-tree", "-r", "--name-only", "main") + "|" + repo.Git(t, "ls-tree", "-r", "--name-only", "edit/a"); got != "a/z.json\nb/c/y.json|b/c/y.json" {
		t.Errorf("files\n%s", got)
	}
	if got := objects(); len(strings.Fields(got)) != 2 {
		t.Errorf("objects %s", got)
	}
	h.must(t, 4, "job", "create", "site", "--action", "delete", "--path", "x.json", "--wait") // it is gone
	repo.Git(t, "-c", "gpg.ssh.allowedSignersFile="+allowed, "verify-commit", "main", "edit/a")
	repo.Git(t, "fsck", "--full", "--strict")
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	h.noSecret(t, d.log.String(), gitToken, strings.Split(string(key), "\n")[1])
}
