package worker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/testenv/suite"
	"limpet/sync/worker/commit"
	"limpet/sync/worker/drift"
)

// edit changes a dashboard as a person does.
func (r *rig) edit(name, patch string) {
	r.t.Helper()
	_, err := r.client.Resource(dashboards).Namespace(r.namespace).Patch(r.t.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
}

// preview returns the plan of a pull, one line a change, and fails the test when a request was made
// that writes.
func (r *rig) preview(full bool) (lines []string, p *Preview) {
	r.t.Helper()
	return r.previewOf(PreviewQuery{Incremental: !full})
}

func (r *rig) previewOf(q PreviewQuery) (lines []string, p *Preview) {
	r.t.Helper()
	r.wire.take()
	q.Namespace, q.Repository = r.namespace, "repo"
	p, err := NewPull(r.options).Preview(r.t.Context(), q)
	if err != nil {
		r.t.Fatal(err)
	}
	_, _, all := r.wire.take()
	for _, q := range all {
		if q.method != http.MethodGet && !strings.Contains(q.query, "dryRun=All") {
			r.t.Errorf("a dry run has sent %s %s", q.method, q.path)
		}
	}
	for _, c := range p.Changes {
		line := strings.TrimSpace(c.Action + " " + c.Path)
		if c.From != "" {
			line += " from " + c.From
		}
		lines = append(lines, line)
	}
	return lines, p
}

func (r *rig) planned(what string, full bool, want ...string) *Preview {
	r.t.Helper()
	got, p := r.preview(full)
	if !slices.Equal(got, want) {
		r.t.Errorf("%s:\n got %q\nwant %q\n%+v", what, got, want, p)
	}
	return p
}

// TestPreviewWrites plans each action that writes to Git: no ref moves, nothing is written to the
// API or into the state.
func TestPreviewWrites(t *testing.T) {
	r := newRig(t, "embedded", nil)
	r.writable(nil)
	r.put(dashboards, "mine", "Mine", "")
	before := r.repo.Git(t, "for-each-ref")
	for _, c := range []struct {
		job     map[string]any
		changes []string
		missing []string
		message string
	}{
		{job: deletes(paths("a/", "top.json")), changes: []string{"delete a/", "delete top.json"}},
		{job: deletes(paths("none/", "none.json")), changes: []string{"ignored none.json", "ignored none/"},
			missing: []string{"none/", "none.json"}, message: "nothing to commit"},
		{job: movesTo("c/", paths("a/", "top.json")), changes: []string{"rename c/a/ from a/", "rename c/top.json from top.json"}},
		{job: map[string]any{"action": "push", "push": map[string]any{"path": "out"}}, changes: []string{"create out/mine.json"}},
		{job: map[string]any{"action": "migrate", "migrate": map[string]any{}}, changes: []string{"create mine.json"}},
		{job: map[string]any{"action": "fixFolderMetadata"}, changes: []string{"create a/_folder.json", "create b/_folder.json"}},
	} {
		got, p := r.previewOf(PreviewQuery{Job: c.job})
		if !slices.Equal(got, c.changes) || !slices.Equal(p.Missing, c.missing) || p.Message != c.message || p.Action != c.job["action"] || p.Branch != "main" || p.To != r.repo.Head(t) {
			t.Errorf("%v: %q %+v", c.job, got, p)
		}
	}
	if after := r.repo.Git(t, "for-each-ref"); after != before {
		t.Errorf("refs\n%s\nwere\n%s", after, before)
	}
	uid := string(r.object(api.Repositories, "repo").GetUID())
	if known, err := r.options.Store.Versions(t.Context(), r.namespace, "repo"+commit.WroteBy, uid); err != nil || len(known) > 0 {
		t.Errorf("known files %v %v", known, err)
	}
	for _, job := range []map[string]any{{"action": "test"}, {"action": "releaseResources"}, {"action": "delete"},
		movesTo("a/", paths("a/cpu.json"))} {
		if _, err := NewPull(r.options).Preview(t.Context(), PreviewQuery{Namespace: r.namespace, Repository: "repo", Job: job}); err == nil {
			t.Errorf("%v has a plan", job)
		}
	}
}

func TestPreview(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := newRig(t, server, nil)
		r.repository(nil, nil)
		r.commit("a/cpu.json", board("cpu", "CPU"), "b.json", board("b", "B"), "bad.json", "{", "README.md", "hello")
		p := r.planned("first", false, "create", "create a/", "create a/cpu.json", "create b.json", "ignored bad.json")
		if p.Incremental || p.From != "" || p.To != r.repo.Head(t) {
			t.Errorf("%+v", p)
		}
		r.pull(true, nil)
		r.planned("nothing new, full", true, "ignored bad.json", "no-op a/cpu.json", "no-op b.json")
		r.commit("bad.json", "") // a later change of a file that could not be used makes a pull full
		r.pull(true, nil)
		foreign := r.object(dashboards, "b")
		foreign.SetName("foreign")
		foreign.SetResourceVersion("")
		foreign.SetUID("")
		foreign.SetAnnotations(map[string]string{api.AnnoManagedBy: "repo", api.AnnoManagerID: "other"})
		if _, err := r.client.Resource(dashboards).Namespace(r.namespace).Create(t.Context(), foreign, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.commit("b.json", board("b", "B 2"), "a/cpu.json", "", "c/cpu.json", board("cpu", "CPU"), "f.json", board("foreign", "F"),
			"n.json", board("n", "N"))
		for _, full := range []bool{false, true} {
			p = r.planned(fmt.Sprint("changes, full ", full), full, "delete a/", "create c/", "create n.json", "update b.json",
				"rename c/cpu.json from a/cpu.json", "guarded f.json")
			if p.Incremental == full {
				t.Errorf("%+v", p)
			}
		}
		var files []string
		for i := range 20 {
			files = append(files, fmt.Sprintf("x/%02d.json", i), board(fmt.Sprintf("x%d", i), "X"))
		}
		r.commit(files...)
		r.pull(true, nil)
		for i := range files {
			if i%2 == 1 {
				files[i] = ""
			}
		}
		r.commit(files...)
		if got, p := r.preview(true); p.Guarded == "" || !slices.Contains(got, "guarded x/00.json") || slices.Contains(got, "delete x/00.json") {
			t.Errorf("%q %+v", got, p)
		}
	})
}

// differences returns the lines of a report, and the number of requests.
func (r *rig) differences(q DriftQuery) (lines []string, report *drift.Report, requests int) {
	r.t.Helper()
	r.wire.take()
	q.Namespace, q.Repository = r.namespace, "repo"
	report, err := NewPull(r.options).Drift(r.t.Context(), q)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, item := range report.Items {
		lines = append(lines, strings.TrimSpace(strings.Join([]string{item.State, item.Kind, item.Name, strings.Join(item.Pointers, " ")}, " ")))
	}
	_, _, all := r.wire.take()
	return lines, report, len(all)
}

func (r *rig) differ(what string, compared int, want ...string) {
	r.t.Helper()
	if got, report, _ := r.differences(DriftQuery{}); !slices.Equal(got, want) || report.Compared != compared {
		r.t.Errorf("%s: compared %d, want %d:\n got %q\nwant %q", what, report.Compared, compared, got, want)
	}
}

func TestDriftOfObjects(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := newRig(t, server, nil)
		r.repository(nil, nil)
		n := suite.Count(60, 2000)
		var files []string
		for i := range n {
			files = append(files, fmt.Sprintf("d%d/%04d.json", i%10, i), board(fmt.Sprintf("b%d", i), "Board"))
		}
		r.commit(append(files, "bad.json", "{")...)
		r.pull(true, nil)
		if got, report, requests := r.differences(DriftQuery{}); len(got) > 0 || report.Compared > 0 || requests > 5 {
			t.Fatalf("%q, compared %d, %d requests", got, report.Compared, requests)
		}
		r.edit("b1", `{"spec":{"title":"By hand","refresh":"5s"}}`)
		r.edit("b2", `{"metadata":{"labels":{"seen":"yes"}}}`)
		r.remove(dashboards, "b3")
		extra := r.object(dashboards, "b4")
		extra.SetName("extra")
		extra.SetResourceVersion("")
		extra.SetUID("")
		extra.SetAnnotations(map[string]string{api.AnnoManagedBy: "repo", api.AnnoManagerID: "repo", api.AnnoSourcePath: "gone.json"})
		if _, err := r.client.Resource(dashboards).Namespace(r.namespace).Create(t.Context(), extra, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		found := []string{"modified Dashboard b1 /spec/refresh /spec/title", "missing Dashboard b3", "extra Dashboard extra"}
		r.differ("by hand", 2, found...)
		r.differ("again", 1, found...)
		_, report, _ := r.differences(DriftQuery{Paths: []string{"d1/0001.json", "d3/0003.json", "gone.json"}})
		for _, item := range report.Items {
			if (item.Git == nil) != (item.State == drift.Extra) || (item.Live == nil) != (item.State == drift.Missing) {
				t.Errorf("%+v", item)
			}
		}
		r.annotate(api.AnnoDriftIgnore, "/spec/refresh,/spec/title")
		r.differ("ignored", n-1, found[1:]...)
		r.differ("ignored, again", 0, found[1:]...)
		r.annotate(api.AnnoDriftIgnore, "")
		missing, gone := "POST dashboards/b3", "DELETE dashboards/extra"
		for _, mode := range []string{api.DriftReport, api.DriftOff, api.DriftCorrect} {
			r.annotate(api.AnnoDrift, mode)
			r.edit("b1", `{"spec":{"title":"By hand","refresh":"5s"}}`)
			r.commit("other.json", board("other", mode))
			r.wire.take()
			r.pull(true, nil)
			if _, writes, _ := r.wire.take(); len(writes) != 1 || !strings.HasSuffix(writes[0], "/other") {
				t.Errorf("%s, incremental: %q", mode, writes)
			}
			if got, _ := r.preview(true); !slices.Contains(got, "update d1/0001.json") {
				t.Errorf("%s, plan of a full pull: %q", mode, got[:3])
			}
			want := strings.Fields(gone + " " + missing + " PUT dashboards/b1")
			r.pull(false, nil)
			if _, writes, _ := r.wire.take(); strings.Join(writes, " ") != strings.Join(want, " ") {
				t.Errorf("%s, full: %q", mode, writes)
			}
			missing, gone = "", ""
		}
		r.differ("corrected", 0)
		if o := r.object(dashboards, "b1"); fmt.Sprint(o.Object["spec"]) != fmt.Sprint(r.object(dashboards, "b5").Object["spec"]) {
			t.Errorf("%v", o.Object["spec"])
		}
	})
}

// TestDirectoryDrift: what was edited in a directory is reported, and stays where the Repository
// says so.
func TestDirectoryDrift(t *testing.T) {
	t.Parallel()
	prefix := t.TempDir()
	dir := filepath.Join(prefix, "site")
	r := newRig(t, "embedded", func(o *PullOptions) { o.SinkPrefixes = []string{prefix} })
	r.repository(nil, map[string]string{api.AnnoSinkDir: dir, api.AnnoDrift: api.DriftReport})
	r.commit("a.json", board("a", "A"), "b/b.json", board("b", "B"), "c.json", board("c", "C"))
	r.planned("before the first", false, "create a.json", "create b/b.json", "create c.json")
	if left, err := os.ReadDir(prefix); err != nil || len(left) > 0 {
		t.Errorf("a dry run has made %v %v", left, err)
	}
	r.pull(true, nil)
	r.differ("pulled", 3)
	if err := os.WriteFile(filepath.Join(dir, "a.json"), []byte(board("a", "By hand")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "b/b.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "c.json"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.differ("by hand", 3, "modified File a.json /title", "missing File b.json", "modified File c.json mode")
	before := files(t, dir)
	r.planned("edited", false, "create b/b.json", "no-op a.json", "no-op c.json")
	r.planned("edited, full", true, "create b/b.json", "update a.json", "update c.json")
	_, err := NewPull(r.options).KeepSink(t.Context(), r.object(api.Repositories, "repo"))
	if err != nil || !maps.Equal(before, files(t, dir)) {
		t.Errorf("%v %v", err, files(t, dir))
	}
	r.commit("c.json", board("c", "C 2"))
	r.pull(true, nil)
	if now := files(t, dir); now["a.json"] != before["a.json"] || now["c.json"] != board("c", "C 2") {
		t.Errorf("a pull of another file: %v", now)
	}
	r.pull(false, nil)
	if now := files(t, dir); now["a.json"] != board("a", "A") || now["b/b.json"] == "" {
		t.Errorf("corrected: %v", now)
	}
	r.differ("corrected", 3)
	r.annotate(api.AnnoDrift, api.DriftCorrect)
	if err := os.Chmod(filepath.Join(dir, "a.json"), 0o755); err != nil {
		t.Fatal(err)
	}
	if n, err := NewPull(r.options).KeepSink(t.Context(), r.object(api.Repositories, "repo")); err != nil || n != 3 {
		t.Errorf("%d %v", n, err)
	}
	r.differ("the executable bit is taken back", 3)
}

// migrate has the server change the dashboards that it stores, as Grafana does. A dry run is
// answered with code, 0 = by the server.
func (r *rig) migrate(code int) {
	r.wire.answer(func(q *http.Request) *http.Response {
		if q.Method != http.MethodPost && q.Method != http.MethodPut || !strings.Contains(q.URL.Path, "/dashboards") {
			return nil
		}
		if code != 0 && q.URL.Query().Has("dryRun") {
			return &http.Response{StatusCode: code, Body: http.NoBody, Request: q}
		}
		var o map[string]any
		if err := json.NewDecoder(q.Body).Decode(&o); err != nil {
			r.t.Error(err)
		}
		o["spec"].(map[string]any)["schemaVersion"] = 42
		data, _ := json.Marshal(o)
		q = q.Clone(q.Context())
		q.Body, q.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
		resp, err := r.wire.next.RoundTrip(q)
		if err != nil {
			r.t.Error(err)
		}
		return resp
	})
}

// TestDriftWithoutRecord: what the server makes of a file is no drift for another agent. An edit
// is, in the least of members.
func TestDriftWithoutRecord(t *testing.T) {
	for code, want := range map[int][]string{0: {"modified Dashboard a /spec/title"}, 405: nil, 403: nil} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			r := newRig(t, "embedded", nil)
			r.migrate(code)
			r.repository(nil, map[string]string{api.AnnoDrift: api.DriftCorrect})
			r.commit("a.json", board("a", "A"), "b.json", board("b", "B"))
			r.pull(false, nil)
			r.differ("by the agent that has written", 0)
			r.halt()
			if err := r.store.PutVersions(t.Context(), r.namespace, "repo", "", nil); err != nil {
				t.Fatal(err)
			}
			r.edit("a", `{"spec":{"title":"By hand"}}`)
			r.differ("by another", 2, want...)
			r.differ("again", len(want), want...)
			r.edit("b", `{"spec":{"title":"By hand"}}`)
			if got, report, _ := r.differences(DriftQuery{}); len(got) != len(want)+1 || report.NotCompared > 0 {
				t.Errorf("later edits: %q", got)
			}
			r.start()
			r.wire.take()
			r.pull(false, nil)
			if _, writes, _ := r.wire.take(); !slices.Contains(writes, "PUT dashboards/b") {
				t.Errorf("%q", writes)
			}
			r.differ("corrected", 0)
		})
	}
}

// TestDriftUnreadable: an object that cannot be read is a warning. The rest is pulled and compared.
func TestDriftUnreadable(t *testing.T) {
	t.Parallel()
	for _, code := range []int{400, 403, 500} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel() // a server's 500 is tried again
			r := newRig(t, "embedded", nil)
			r.repository(nil, map[string]string{api.AnnoDrift: api.DriftCorrect})
			r.commit("a.json", board("a", "A"), "b.json", board("b", "B"))
			r.pull(false, nil)
			r.edit("a", `{"spec":{"title":"By hand"}}`)
			r.edit("b", `{"spec":{"title":"By hand"}}`)
			r.wire.answer(func(q *http.Request) *http.Response {
				if q.Method != http.MethodGet || !strings.HasSuffix(q.URL.Path, "/dashboards/a") {
					return nil
				}
				return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: http.NoBody, Request: q}
			})
			if got, report, _ := r.differences(DriftQuery{}); len(got) != 1 || report.Compared != 1 || report.NotCompared != 1 {
				t.Errorf("%q %+v", got, report)
			}
			r.commit("c.json", board("c", "C"))
			rec, status := r.pull(false, nil)
			if rec.State != api.StateWarning || len(status.Warnings) != 1 || r.owner(dashboards, "c") == "gone" {
				t.Errorf("%s %q, c: %s", rec.State, status.Warnings, r.owner(dashboards, "c"))
			}
		})
	}
}
