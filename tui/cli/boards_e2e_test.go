package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"limpet/sync/testenv"
)

// boardsMatch fails unless the API holds exactly the dashboards of the branch
// for a Repository, each with the checksum of its file.
func boardsMatch(t *testing.T, h *home, namespace, repository string, repo *testenv.Repository) {
	t.Helper()
	var list struct{ Items []object }
	r := h.must(t, 0, "get", "dashboards", "-n", namespace, "-o", "json")
	if err := json.Unmarshal([]byte(r.out), &list); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, o := range list.Items {
		a := o.Metadata.Annotations
		if a["grafana.app/managerId"] != repository {
			t.Errorf("%s/%s is managed by %q", namespace, o.Metadata.Name, a["grafana.app/managerId"])
		}
		got[a["grafana.app/sourcePath"]] = a["grafana.app/sourceChecksum"]
	}
	blobs := map[string]string{}
	for _, line := range strings.Split(repo.Git(t, "ls-tree", "-r", "--format=%(objectname) %(path)", testenv.Branch, testenv.Directory), "\n") {
		hash, file, _ := strings.Cut(line, " ")
		blobs[file] = hash
	}
	for _, d := range repo.Dashboards() {
		rel := strings.TrimPrefix(d.Path, testenv.Directory+"/")
		if got[rel] != blobs[d.Path] {
			t.Errorf("%s %s: checksum %q, want %q", namespace, rel, got[rel], blobs[d.Path])
		}
		delete(got, rel)
	}
	for rel := range got {
		t.Errorf("%s %s is in the API but not in the branch", namespace, rel)
	}
}
