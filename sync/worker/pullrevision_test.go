package worker

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/testenv"
)

// selects changes the annotation of the Repository. An API that does not know it
// takes anything.
func (r *rig) selects(text string) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, api.AnnoGitRef, text)
	_, err := r.client.Resource(api.Repositories).Namespace(r.namespace).Patch(r.t.Context(), "repo", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// TestPullOfRevisions pulls what an annotation names in place of the branch, and
// counts what the remote is asked.
func TestPullOfRevisions(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := newRig(t, server, nil)
		one := r.commit("cpu.json", board("cpu", "CPU 1"))
		r.repo.Git(t, "-c", "user.name=u", "-c", "user.email=u@x", "tag", "-a", "-m", "release", "v1.0.0")
		two := r.commit("cpu.json", board("cpu", "CPU 2"))
		r.repo.Git(t, "tag", "v1.1.0-rc.1")
		r.repo.Git(t, "update-ref", "refs/pull/420/head", two)
		three := r.commit("cpu.json", board("cpu", "CPU 3"), "mem.json", board("mem", "Mem"))
		r.repository(nil, map[string]string{api.AnnoGitRef: "tag:v1.0.0"})
		r.expect("a tag", true, "success", "", "POST folders/repo", "POST dashboards/cpu")
		for _, c := range []struct {
			revision, commit string
			looks, fetches   int
			writes           []string
		}{
			{"tag:v1.0.0", one, 1, 0, nil},
			{"semver:1.x", one, 1, 0, nil}, // pre-releases are not asked for
			{"semver:>=1.0.0-0", two, 1, 1, []string{"PUT dashboards/cpu"}},
			{"ref:refs/pull/420/head", two, 1, 0, nil},
			{"commit:" + one, one, 0, 0, []string{"PUT dashboards/cpu"}},
			{"commit:" + one, one, 0, 0, nil},
			{"ref:refs/heads/" + testenv.Branch, three, 1, 1, []string{"PUT dashboards/cpu", "POST dashboards/mem"}},
			{"commit:" + two + " branch:" + testenv.Branch, two, 1, 1, []string{"PUT dashboards/cpu", "DELETE dashboards/mem"}},
			{"commit:" + two + " branch:" + testenv.Branch, two, 0, 0, nil},
		} {
			if err := r.selects(c.revision); err != nil {
				t.Fatal(err)
			}
			r.git.Reset()
			r.expect(c.revision, true, "success", "", c.writes...)
			if n := r.git.Reset(); n.InfoRefs != c.looks || n.UploadPack != c.fetches {
				t.Errorf("%s: %+v", c.revision, n)
			}
			if sync, _ := r.sync(); sync.LastRef != c.commit {
				t.Errorf("%s: last ref %s, want %s", c.revision, sync.LastRef, c.commit)
			}
		}
		for text, says := range map[string]string{
			"tag:v9":     `there is no tag "v9"`,
			"semver:9.x": "the highest of 2 versions is v1.1.0-rc.1",
			"commit:" + strings.Repeat("ab", 20) + " branch:" + testenv.Branch: "it is not among the 3 commits of refs/heads/" + testenv.Branch,
		} {
			if err := r.selects(text); err != nil {
				t.Fatal(err)
			}
			r.expect(text, true, "error", says)
			if sync, _ := r.sync(); sync.LastRef != two {
				t.Errorf("%s: last ref %s", text, sync.LastRef)
			}
		}
		r.git.Reset()
		if err := r.selects("v1.0.0"); server == "embedded" {
			if err == nil {
				t.Error("a wrong annotation is taken")
			}
			return
		}
		r.expect("a wrong annotation", true, "error", "annotation limpet/git-ref: \"v1.0.0\" is not understood; write tag:NAME")
		if n := r.git.Reset(); n.InfoRefs+n.UploadPack > 0 {
			t.Errorf("a wrong annotation is asked for: %+v", n)
		}
	})
}
