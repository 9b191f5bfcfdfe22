package worker

import (
	"encoding/json"
	"strings"
	"testing"

	"limpet/sync/api"
	"limpet/sync/testenv"
)

// TestFixFolders: each directory gets a folder file with the name that its folder has, once, in one
// commit; a pull after it creates and deletes nothing.
func TestFixFolders(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := newRig(t, server, nil)
		r.writable(nil)
		own := `{"apiVersion":"folder.grafana.app/v1","kind":"Folder","metadata":{"name":"stable"},"spec":{"title":"Own"}}`
		r.commit("grafana/d/_folder.json", own, "grafana/d/.keep", "x", "grafana/e/_folder.json", strings.Replace(own, "stable", "e-id", 1),
			"grafana/f/g/.keep", "x")
		if record, _ := r.pull(false, nil); record.State != "success" {
			t.Fatal(record.Message)
		}
		r.commit("grafana/e/_folder.json", "", "grafana/e/net2.json", board("net2", "Net")) // its folder is named e-id
		spec := func(options map[string]any) map[string]any {
			return map[string]any{"action": "fixFolderMetadata", "fixFolderMetadata": options}
		}
		before := r.repo.Head(t)
		r.expectRun("on another branch", spec(map[string]any{"ref": "fix/folders"}), "success", "")
		if r.repo.Head(t) != before || !strings.Contains(r.files("fix/folders"), "grafana/a/_folder.json") {
			t.Errorf("files %s", r.files("fix/folders"))
		}
		status := r.expectRun("on the own branch", spec(map[string]any{}), "success", "")
		if got := counts(status); got != " delete 2, Folder create 5" {
			t.Errorf("counts %q", got)
		}
		if got := r.last("%P|%s|%b"); !strings.HasPrefix(got, before+"|Add folder metadata files|Triggered by job repo-fixfoldermetadata-") {
			t.Errorf("commit %q", got)
		}
		if got := r.files(testenv.Branch); strings.Contains(got, ".keep") || strings.Count(got, "_folder.json") != 6 {
			t.Errorf("files %s", got)
		}
		for dir, want := range map[string]string{"a": folderID("a"), "b": folderID("b"), "d": "stable", "e": "e-id", "f/g": folderID("f/g")} {
			var folder struct {
				APIVersion, Kind string
				Metadata         struct{ Name string }
				Spec             struct{ Title string }
			}
			data := r.repo.Git(t, "show", testenv.Branch+":grafana/"+dir+"/_folder.json")
			if err := json.Unmarshal([]byte(data), &folder); err != nil || folder.Metadata.Name != want || folder.Kind != "Folder" ||
				!strings.HasPrefix(folder.APIVersion, api.FolderGroup) {
				t.Errorf("%s: %s, %v; want %s", dir, data, err, want)
			}
		}
		r.wire.take()
		if record, _ := r.pull(false, nil); record.State != "success" {
			t.Errorf("pull: %s %s", record.State, record.Message)
		}
		_, writes, _ := r.wire.take()
		for _, w := range writes {
			if !strings.HasPrefix(w, "PUT folders/") && w != "POST dashboards/net2" {
				t.Errorf("the pull after it: %s", w)
			}
		}
		after := r.repo.Head(t)
		r.expectRun("again", spec(nil), "success", "nothing to commit")
		if r.repo.Head(t) != after {
			t.Error("a second commit was made")
		}
	})
}

// TestFixFoldersBesideOthers: a directory that has the name of a folder file in other letters is
// left out, and no other is.
func TestFixFoldersBesideOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.writableEmpty("folder")
	r.commit("a/_Folder.json", "{}", "b/x.json", board("x", "X"), "c/_folder.json/x.json", board("y", "Y"))
	status := r.expectRun("beside others", map[string]any{"action": "fixFolderMetadata"}, "warning", "a/_Folder.json")
	if got := r.files(testenv.Branch); len(status.Warnings) != 2 || got != "a/_Folder.json b/_folder.json b/x.json c/_folder.json/_folder.json "+
		"c/_folder.json/x.json" {
		t.Errorf("files %s, warnings %q", got, status.Warnings)
	}
}
