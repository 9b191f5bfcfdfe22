package worker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

// onBoth runs a test against the embedded API and the real API machinery.
func onBoth(t *testing.T, test func(t *testing.T, server string)) {
	t.Parallel()
	for _, server := range []string{"embedded", "real"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			test(t, server)
		})
	}
}

// TestPullStory asserts the exact writes of a repository's life.
func TestPullStory(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := newRig(t, server, nil)
		r.repository(nil, nil)
		first := r.commit("a/cpu.json", board("cpu", "CPU"), "a/b/mem.json", board("mem", "Mem"), "README.md", "hello",
			"v1.yaml", "apiVersion: dashboard.grafana.app/v1\nkind: Dashboard\nmetadata: {name: v1}\nspec: {title: One}\n")
		status := r.expect("first", true, "success", "completed successfully",
			"POST folders/repo", "POST folders/"+folderID("a"), "POST folders/"+folderID("a/b"),
			"POST dashboards/cpu", "POST dashboards/mem", "POST dashboards/v1")
		if got := counts(status); got != "Dashboard create 3, Folder create 3" {
			t.Errorf("summary %q", got)
		}
		if c := r.git.Reset(); c.InfoRefs == 0 || c.UploadPack == 0 {
			t.Errorf("git requests of the first pull: %+v", c)
		}
		r.checkObjects(first)
		r.checkSync("success", first, false, 3, 3)

		r.expect("nothing new, incremental", true, "success", "same commit as last sync")
		if c := r.git.Reset(); c.InfoRefs != 1 || c.UploadPack != 0 {
			t.Errorf("git requests of a pull with nothing new: %+v", c)
		}
		r.expect("nothing new, full", false, "success", "no changes to sync")
		if c := r.git.Reset(); c.InfoRefs != 1 || c.UploadPack != 0 {
			t.Errorf("git requests of a full pull with nothing new: %+v", c)
		}

		changed := r.commit("a/cpu.json", board("cpu", "CPU 2"))
		r.expect("content", true, "success", "", "PUT dashboards/cpu")
		r.checkSync("success", changed, true, 3, 3)

		r.repo.Commit(t, "rename", change("c/cpu.json", "a/cpu.json"))
		r.expect("renamed into a new folder", true, "success", "", "POST folders/"+folderID("c"), "PUT dashboards/cpu")
		r.checkSync("success", r.repo.Head(t), true, 3, 4)

		r.commit("c/new.json", board("new", "New"), "a/b/mem.json", "")
		r.expect("one added, one deleted", true, "success", "", "POST dashboards/new", "DELETE dashboards/mem",
			"DELETE folders/"+folderID("a"), "DELETE folders/"+folderID("a/b"))
		r.checkSync("success", r.repo.Head(t), true, 3, 2)

		r.commit("c/new.json", board("newer", "New"))
		r.expect("another uid", true, "success", "", "POST dashboards/newer", "DELETE dashboards/new")

		r.commit("README.md", "bye")
		r.expect("no resource changed", true, "success", "")

		r.repo.ForcePush(t, 3, change("z/zoo.json", "", board("zoo", "Zoo")))
		head := r.repo.Head(t)
		r.expect("force push", true, "success", "",
			"POST folders/"+folderID("z"), "POST folders/"+folderID("a"), "POST folders/"+folderID("a/b"), "POST dashboards/zoo",
			"POST dashboards/mem", "DELETE dashboards/newer")
		r.checkSync("success", head, true, 4, 5)
		r.expect("full after all that", false, "success", "no changes to sync")
		r.checkSync("success", head, false, 4, 5)
	})
}

// counts writes a summary on one line.
func counts(s api.JobStatus) string {
	var out []string
	for _, k := range s.Summary {
		for name, n := range map[string]int64{"create": k.Create, "update": k.Update, "delete": k.Delete, "noop": k.Noop, "error": k.Error, "warning": k.Warning} {
			if n > 0 {
				out = append(out, fmt.Sprintf("%s %s %d", k.Kind, name, n))
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// checkObjects checks what the first pull of the story wrote, member by member.
func (r *rig) checkObjects(ref string) {
	r.t.Helper()
	blob := func(path string) string { return r.repo.Git(r.t, "rev-parse", ref+":"+path) }
	for _, c := range []struct {
		object      *unstructured.Unstructured
		spec        map[string]any
		annotations map[string]string
	}{
		{r.object(folders, "repo"), map[string]any{"title": "Dashboards"}, map[string]string{"grafana.app/grant-permissions": "default"}},
		{r.object(folders, folderID("a")), map[string]any{"title": "a"}, map[string]string{"grafana.app/folder": "repo", "grafana.app/sourcePath": "a/"}},
		{r.object(folders, folderID("a/b")), map[string]any{"title": "b"}, map[string]string{"grafana.app/folder": folderID("a"), "grafana.app/sourcePath": "a/b/"}},
		{r.object(dashboards, "cpu"), map[string]any{"title": "CPU", "panels": []any{}, "schemaVersion": int64(39), "tags": []any{}}, map[string]string{
			"grafana.app/folder": folderID("a"), "grafana.app/sourcePath": "a/cpu.json", "grafana.app/sourceChecksum": blob("a/cpu.json")}},
		{r.object(dashboards, "v1"), map[string]any{"title": "One"}, map[string]string{
			"grafana.app/folder": "repo", "grafana.app/sourcePath": "v1.yaml", "grafana.app/sourceChecksum": blob("v1.yaml")}},
	} {
		if c.object == nil {
			r.t.Fatalf("an object with %v is missing", c.annotations)
		}
		want := maps.Clone(c.annotations)
		want["grafana.app/managedBy"], want["grafana.app/managerId"] = "repo", "repo"
		if got := c.object.GetAnnotations(); !maps.Equal(got, want) {
			r.t.Errorf("%s %s: annotations\n got %v\nwant %v", c.object.GetKind(), c.object.GetName(), got, want)
		}
		if spec, _, _ := unstructured.NestedMap(c.object.Object, "spec"); fmt.Sprint(spec) != fmt.Sprint(c.spec) {
			r.t.Errorf("%s %s: spec %v, want %v", c.object.GetKind(), c.object.GetName(), spec, c.spec)
		}
	}
}

// checkSync checks the status of the Repository.
func (r *rig) checkSync(state, ref string, incremental bool, boards, dirs int64) {
	r.t.Helper()
	sync, u := r.sync()
	if sync.State != state || sync.LastRef != ref || sync.Incremental != incremental || sync.Started == 0 || sync.Finished < sync.Started ||
		sync.Job != fmt.Sprintf("repo-pull-%d", r.number) {
		r.t.Errorf("sync status %+v, want %s %s", sync, state, ref)
	}
	if message, there, _ := unstructured.NestedSlice(u.Object, "status", "sync", "message"); !there || state == "success" && len(message) > 0 {
		r.t.Errorf("status.sync.message is %v", message)
	}
	stats := map[string]int64{}
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "stats")
	for _, s := range list {
		s := s.(map[string]any)
		stats[s["group"].(string)+"/"+s["resource"].(string)] = s["count"].(int64)
	}
	if want := map[string]int64{"dashboard.grafana.app/dashboards": boards, "folder.grafana.app/folders": dirs}; !maps.Equal(stats, want) {
		r.t.Errorf("stats %v, want %v", stats, want)
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	found := map[string]string{}
	for _, c := range conditions {
		c := c.(map[string]any)
		found[c["type"].(string)] = fmt.Sprint(c["status"], " ", c["reason"])
	}
	want := map[string]string{"SyncStatus": "True SyncSuccessful", "ResourceQuota": "True QuotaUnlimited"}
	if state == "error" {
		want["SyncStatus"] = "False SyncFailed"
	}
	if !maps.Equal(found, want) {
		r.t.Errorf("conditions %v, want %v", found, want)
	}
}
