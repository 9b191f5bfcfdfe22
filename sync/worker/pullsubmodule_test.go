package worker

import (
	"os/exec"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/sync/api"
	"limpet/sync/testenv"
)

// linked commits a gitlink and its .gitmodules into the bare repository in dir.
func linked(t *testing.T, dir, at, commit, url string) {
	t.Helper()
	run := func(in string, args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		cmd.Stdin = strings.NewReader(in)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	blob := run("[submodule \"lib\"]\n\tpath = "+at+"\n\turl = "+url+"\n", "hash-object", "-w", "--stdin")
	var tree strings.Builder
	for line := range strings.Lines(run("", "ls-tree", testenv.Branch) + "\n") {
		if name := strings.TrimSpace(line[strings.Index(line, "\t"):]); name != at && name != ".gitmodules" {
			tree.WriteString(line)
		}
	}
	tree.WriteString("100644 blob " + blob + "\t.gitmodules\n160000 commit " + commit + "\t" + at + "\n")
	id := run("", "commit-tree", "-p", testenv.Branch, "-m", "submodule", run(tree.String(), "mktree", "--missing"))
	run("", "update-ref", "refs/heads/"+testenv.Branch, id)
}

func TestPullSubmodule(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	lib := testenv.EmptyRepo(t)
	r.git.Serve("ops/lib.git", lib.Dir)
	first := lib.Commit(t, "lib", change("one.json", "", board("one", "1")), change("large.json", "", r.git.KeepLFS(board("large", "L"))))
	r.repository(nil, nil)
	r.commit("own.json", board("own", "O"))
	linked(t, r.repo.Dir, "lib", first, "../lib.git")
	r.expect("off", true, "success", "", "POST folders/repo", "POST dashboards/own")

	_, u := r.sync()
	u.SetAnnotations(map[string]string{api.AnnoGitSubmodules: "true"})
	if _, err := r.client.Resource(api.Repositories).Namespace(r.namespace).Update(t.Context(), u, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.expect("on", false, "success", "", "POST folders/"+folderID("lib"), "POST dashboards/large", "POST dashboards/one")
	second := lib.Commit(t, "lib", change("one.json", "", board("one", "2")))
	linked(t, r.repo.Dir, "lib", second, "../lib.git")
	r.expect("moved on", true, "success", "", "PUT dashboards/one")
	linked(t, r.repo.Dir, "lib", second, "../nothing.git")
	status := r.expect("gone", true, "error", "")
	has(t, status.Errors, `submodule "lib"`, "no repository there")
}
