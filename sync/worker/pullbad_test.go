package worker

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/jobs"
)

// has checks that some text holds all the parts.
func has(t *testing.T, texts []string, parts ...string) {
	t.Helper()
	for _, text := range texts {
		all := true
		for _, p := range parts {
			all = all && strings.Contains(text, p)
		}
		if all {
			return
		}
	}
	t.Errorf("nothing says %q in\n%s", parts, strings.Join(texts, "\n"))
}

// TestBadFiles: each one is told about with its path and the cause, the others go on, and the ref
// moves on.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repository(nil, nil)
	k8s := func(meta string) string {
		return `{"apiVersion":"dashboard.grafana.app/v1","kind":"Dashboard","metadata":` + meta + `,"spec":{}}`
	}
	bad := map[string][]string{ // path -> content, parts of the warning
		"broken.json":    {"{\n \"a\": 1,,\n}", "broken.json:2:9: not JSON"},
		"broken.yaml":    {"a: [1\nb: 2", "line 1"},
		"blank.json":     {"\n  \n", "the file is empty"},
		"bom.json":       {"\xef\xbb\xbf", "the file is empty"},
		"deep.json":      {strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000), "nested deeper"},
		"bomb.yaml":      {"a: &a " + strings.Repeat("x", 50_000) + "\nb: [" + strings.Repeat("*a,", 1000) + "]\n", "too large"},
		"big.json":       {`{"uid":"big","panels":["` + strings.Repeat("x", 2<<20) + `"],"schemaVersion":1,"tags":[]}`, "too large"},
		"huge.json":      {strings.Repeat(" ", 5<<20) + "{}", "too large"},
		"package.json":   {`{"name":"x"}`, "nor a dashboard"},
		"elsewhere.json": {k8s(`{"name":"e","namespace":"other"}`), `metadata.namespace is "other"`},
		"nameless.json":  {k8s(`{}`), "metadata.name is missing"},
		"deploy.yaml":    {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n", "kind Deployment"},
		"folder.json": {`{"apiVersion":"folder.grafana.app/v1","kind":"Folder","metadata":{"name":"x"}}`,
			"a folder is a directory"},
		"second.json":               {board("twin", "Second"), "good/first.json"},
		"größe.json":                {board("umlaut", "Umlaut"), "not allowed"},
		"d/_folder.json":            {`{"metadata":{}}`, "metadata.name is missing"},
		"1/2/3/4/5/6/7/8/deep.json": {board("deep", "Deep"), "deeper than 8"},
	}
	files := []string{"good/first.json", board("twin", "First"), "good/other.json", board("other", "Other"), "d/in.json", board("in", "In"),
		".github/workflows/ci.yml", "on: push", "notes ü.txt", "x"}
	for _, p := range slices.Sorted(maps.Keys(bad)) {
		files = append(files, p, bad[p][0])
	}
	head := r.commit(files...)
	writes := []string{"POST folders/repo", "POST folders/" + folderID("good"), "POST folders/" + folderID("d"),
		"POST dashboards/twin", "POST dashboards/other", "POST dashboards/in"}
	dir := ""
	for i := 1; i <= 8; i++ {
		dir += fmt.Sprintf("%d/", i)
		writes = append(writes, "POST folders/"+folderID(dir))
	}
	status := r.expect("first", true, "warning", "completed with warnings", writes...)
	var texts []string
	for _, s := range status.Summary {
		texts = append(texts, s.Warnings...)
		if s.Error > 0 {
			t.Errorf("errors: %v", s.Errors)
		}
	}
	for p, c := range bad {
		has(t, texts, p, c[1])
	}
	if n := len(texts); n != len(bad) {
		t.Errorf("%d warnings, want %d", n, len(bad))
	}
	if sync, _ := r.sync(); sync.State != "warning" || sync.LastRef != head || len(sync.Message) == 0 {
		t.Errorf("sync status %+v", sync)
	}
	if r.object(dashboards, "twin").GetAnnotations()[api.AnnoSourcePath] != "good/first.json" {
		t.Error("the first file of the plan does not have the uid")
	}
	// A repaired file is written; a file that breaks keeps what it had.
	r.commit("broken.json", board("repaired", "Repaired"), "good/other.json", "{")
	r.expect("repaired and broken", true, "warning", "", "POST dashboards/repaired")
	if r.object(dashboards, "other") == nil {
		t.Error("a broken file has deleted its dashboard")
	}
}

// foreign puts an object on the server that no repository has made.
func (r *rig) foreign(gvr schema.GroupVersionResource, kind, name string, annotations map[string]string) {
	r.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"title": "Foreign"}}}
	u.SetAPIVersion(gvr.GroupVersion().String())
	u.SetKind(kind)
	u.SetName(name)
	u.SetAnnotations(annotations)
	if _, err := r.client.Resource(gvr).Namespace(r.namespace).Create(r.t.Context(), u, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// TestOwnership: what belongs to others is left alone, in both kinds of pull, and when its file
// goes away as well.
func TestOwnership(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := newRig(t, server, nil)
		r.repository(map[string]any{"sync": map[string]any{"target": "folderless"}}, nil)
		r.foreign(dashboards, "Dashboard", "free", nil)
		r.foreign(dashboards, "Dashboard", "theirs", map[string]string{api.AnnoManagedBy: "repo", api.AnnoManagerID: "another"})
		r.foreign(dashboards, "Dashboard", "terra", map[string]string{api.AnnoManagedBy: "terraform", api.AnnoManagerID: "repo"})
		r.foreign(dashboards, "Dashboard", "open", map[string]string{api.AnnoManagedBy: "plugin", api.AnnoManagerID: "p",
			api.AnnoManagerAllowsEdits: "true"})
		r.foreign(folders, "Folder", folderID("taken"), map[string]string{"note": "mine"})
		r.commit("free.json", board("free", "F"), "theirs.json", board("theirs", "T"), "terra.json", board("terra", "T"),
			"open.json", board("open", "O"), "taken/a.json", board("a", "A"), "taken/sub/b.json", board("b", "B"), "ok.json", board("ok", "OK"))
		taken := "POST folders/" + folderID("taken") + " 409"
		status := r.expect("full", false, "warning", "", "POST dashboards/free 409", "POST dashboards/theirs 409", "POST dashboards/terra 409",
			"POST dashboards/open 409", "POST dashboards/ok", taken)
		has(t, status.Warnings, "Dashboard free exists and is not managed", "free.json")
		has(t, status.Warnings, `managed by repo "another"`)
		has(t, status.Warnings, `managed by terraform "repo"`)
		has(t, status.Warnings, "open.json", `managed by plugin "p"`)
		has(t, status.Warnings, "taken/", "exists and is not managed")
		has(t, status.Warnings, "taken/a.json", "could not be made")
		has(t, status.Warnings, "taken/sub/", "could not be made")
		if got := r.object(folders, folderID("taken")).GetAnnotations(); got["note"] != "mine" || len(got) != 1 {
			t.Errorf("a folder of others has changed: %v", got)
		}
		r.commit("free.json", board("free", "F2"), "theirs.json", "", "ok.json", board("ok", "OK 2"), "taken/a.json", "")
		// A file that could not be used has gone, so everything is compared.
		r.expect("incremental", true, "warning", "", "PUT dashboards/ok", "POST dashboards/free 409", "POST dashboards/terra 409",
			"POST dashboards/open 409", taken)
		for _, name := range []string{"free", "theirs", "terra", "open"} {
			if o := r.object(dashboards, name); o == nil || o.GetGeneration() != 1 {
				t.Errorf("dashboard %s of others has changed: %v", name, o)
			}
		}
	})
}

// TestErrorClasses: what a repetition may cure is repeated, the rest is an error that keeps the old
// ref, and twenty of them stop the pull.
func TestErrorClasses(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repository(nil, nil)
	first := r.commit("keep.json", board("keep", "Keep"))
	r.expect("first", true, "success", "", "POST folders/repo", "POST dashboards/keep")

	answer := func(code int, body string) *http.Response {
		return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader(body))}
	}
	deny := map[string]int{}
	r.wire.answer(func(req *http.Request) *http.Response {
		if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/dashboards") {
			body, _ := io.ReadAll(req.Body)
			req.Body = io.NopCloser(strings.NewReader(string(body)))
			for name, code := range deny {
				if strings.Contains(string(body), `"name":"`+name+`"`) {
					if code == http.StatusServiceUnavailable {
						delete(deny, name)
					}
					return answer(code, "no")
				}
			}
		}
		return nil
	})
	deny["large"], deny["odd"], deny["busy"] = http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusServiceUnavailable
	r.commit("large.json", board("large", "L"), "odd.json", board("odd", "O"), "busy.json", board("busy", "B"))
	status := r.expect("warnings", true, "warning", "", "POST dashboards/large 413", "POST dashboards/odd 422", "POST dashboards/busy 503",
		"POST dashboards/busy")
	has(t, status.Warnings, "large.json")

	second := r.repo.Head(t)
	deny = map[string]int{"secret": http.StatusForbidden}
	r.commit("secret.json", board("secret", "S"), "fine.json", board("fine", "F"))
	status = r.expect("an error", true, "error", "completed with errors", "POST dashboards/secret 403", "POST dashboards/fine",
		"POST dashboards/large", "POST dashboards/odd")
	has(t, status.Errors, "create dashboards secret")
	if sync, _ := r.sync(); sync.State != "error" || sync.LastRef != second || first == second {
		t.Errorf("sync status %+v, want the ref %s", sync, second)
	}
	deny = nil
	r.expect("once more", true, "success", "", "POST dashboards/secret")

	deny = map[string]int{}
	var files []string
	for i := range 60 {
		name := fmt.Sprintf("n%02d", i)
		files = append(files, name+".json", board(name, name))
		deny[name] = http.StatusForbidden
	}
	r.commit(files...)
	record, status := r.pull(true, nil)
	if record.State != "error" || !strings.Contains(record.Message, "too many errors") || len(status.Errors) < 20 ||
		status.Summary[0].Error > 20+10 {
		t.Errorf("ended as %s %q with %d errors", record.State, record.Message, status.Summary[0].Error)
	}
}

// TestDeletedMeanwhile: a pull makes nothing for a Repository that is being deleted, also where the
// watch still shows it as living.
func TestDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.commit("a.json", board("a", "A"))
	r.repository(nil, nil)
	living := r.object(api.Repositories, "repo").DeepCopy()
	living.SetFinalizers([]string{api.FinalizerRemove})
	r.update(living)
	living = r.object(api.Repositories, "repo")
	view, err := api.RepositoryView(living)
	if err != nil {
		t.Fatal(err)
	}
	r.remove(api.Repositories, "repo")
	r.writes()
	err = NewPull(r.options).Run(t.Context(), &jobs.Task{Object: new(unstructured.Unstructured),
		Job: api.Job{Spec: api.JobSpec{Action: "pull", Repository: "repo"}}, Repo: living, Repository: view, Namespace: r.namespace,
		Name: "by-hand", Progress: jobs.NewProgress()})
	if writes := r.writes(); err == nil || jobs.Transient(err) || len(writes) > 0 {
		t.Errorf("%v, writes %q", err, writes)
	}
}

// TestWrongSources: a Git side that cannot be pulled is an error that names the cause, and changes
// nothing on the server.
func TestWrongSources(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		spec    map[string]any
		message string
	}{
		{"path", map[string]any{"git": map[string]any{"path": "/grafana/dashbords/"}},
			`spec.git.path: there is no directory "grafana/dashbords" in main`},
		{"path hint", map[string]any{"git": map[string]any{"path": "grafana/dashbords"}}, `did you mean "grafana/dashboards"?`},
		{"path elsewhere", map[string]any{"git": map[string]any{"path": "dashboards"}}, `did you mean "grafana/dashboards"?`},
		{"path is a file", map[string]any{"git": map[string]any{"path": "grafana/dashboards/a.json"}}, "is a file"},
		{"branch", map[string]any{"git": map[string]any{"branch": "mian"}}, "main"},
		{"disabled", map[string]any{"sync": map[string]any{"enabled": false}}, "sync is not enabled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "embedded", nil)
			r.commit("grafana/dashboards/a.json", board("a", "A"), "grafana/other/b.json", board("b", "B"))
			r.repository(c.spec, nil)
			r.foreign(dashboards, "Dashboard", "held", map[string]string{api.AnnoManagedBy: "repo", api.AnnoManagerID: "repo",
				api.AnnoSourcePath: "held.json"})
			r.expect(c.name, false, "error", c.message)
			if sync, _ := r.sync(); c.name != "disabled" && (sync.State != "error" || sync.LastRef != "") {
				t.Errorf("sync status %+v", sync)
			}
		})
	}
	t.Run("empty repository", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, "embedded", nil)
		r.repository(nil, nil)
		r.expect("empty", false, "error", "the repository is empty")
	})
	t.Run("server gone", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, "embedded", nil)
		r.repository(map[string]any{"git": map[string]any{"url": r.git.URL + "/nobody/none.git"}}, nil)
		r.expect("gone", false, "error", "none.git")
	})
}

// TestLeftAlone: jobs that another agent may be able to run are not claimed.
func TestLeftAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		spec        map[string]any
		annotations map[string]string
		text        string
	}{
		{"local", map[string]any{"type": "local", "git": nil, "local": map[string]any{"path": "/etc/dashboards"}}, nil, "--local-prefix"},
		{"sink without prefix", nil, map[string]string{api.AnnoSinkDir: "/srv/dashboards/a"}, "--sink-prefix"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "embedded", nil)
			r.repository(c.spec, c.annotations)
			r.submit(false, nil)
			if e := r.ended(); e.Type != jobs.EventSkipped || !strings.Contains(e.Text, c.text) {
				t.Errorf("the job was %s: %s", e.Type, e.Text)
			}
		})
	}
}

// TestMassDeletion: a pull that takes most objects away needs consent.
func TestMassDeletion(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repository(map[string]any{"sync": map[string]any{"target": "instance"}}, nil)
	var files, gone []string
	for i := range 120 {
		name := fmt.Sprintf("b%03d", i)
		files = append(files, name+".json", board(name, name))
		if i < 60 {
			gone = append(gone, name+".json", "")
		}
	}
	r.commit(files...)
	if record, _ := r.pull(false, nil); record.State != "success" {
		t.Fatalf("first pull: %+v", record)
	}
	before := r.repo.Head(t)
	r.commit(gone...)
	const want = "would delete 60 of the 120 objects"
	for _, incremental := range []bool{true, false} {
		status := r.expect("without consent", incremental, "error", want)
		has(t, status.Errors, "limpet repo pull repo --full --allow-mass-delete --namespace "+r.namespace)
	}
	if sync, _ := r.sync(); sync.LastRef != before {
		t.Errorf("the ref has moved on: %+v", sync)
	}
	r.wire.take()
	if record, _ := r.pull(true, map[string]string{api.AnnoAllowMassDelete: "true"}); record.State != "success" {
		t.Errorf("with consent: %+v", record)
	}
	if _, writes, _ := r.wire.take(); len(writes) != 60 {
		t.Errorf("%d writes", len(writes))
	}
}

// TestDeletionOfAll: of a few objects all need consent, whatever the depth of the pull.
func TestDeletionOfAll(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"instance", "folder", "sink"} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			prefix, notes := t.TempDir(), map[string]string{}
			r := newRig(t, "embedded", func(o *PullOptions) { o.SinkPrefixes = []string{prefix} })
			if target == "sink" {
				notes, target = map[string]string{api.AnnoSinkDir: prefix + "/x"}, "folder"
			}
			r.repository(map[string]any{"sync": map[string]any{"target": target}}, notes)
			r.commit("a.json", board("a", "A"), "b.json", board("b", "B"), "d/c.json", board("c", "C"), "x.md", "x")
			if record, _ := r.pull(false, nil); record.State != "success" {
				t.Fatalf("first pull: %+v", record)
			}
			r.commit("a.json", "", "b.json", "", "d/c.json", "", "x.md", "")
			for _, incremental := range []bool{true, false} {
				r.expect("without consent", incremental, "error", "would delete 4 of the 4 objects")
			}
			if record, _ := r.pull(false, map[string]string{api.AnnoAllowMassDelete: "true"}); record.State != "success" {
				t.Errorf("with consent: %+v", record)
			}
		})
	}
}

// TestDuplicateNamesTheOwner: the warning of a duplicate names the file that has the object, and
// not one that is refused too.
func TestDuplicateNamesTheOwner(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repository(nil, nil)
	r.commit("m.json", board("x", "X"), "y.json", board("y", "Y"))
	r.pull(false, nil)
	for _, change := range [][]string{{"a.json", board("x", "X2"), "b.json", board("x", "X3")}, {"y.json", board("y", "Y2")}} {
		r.commit(change...)
		_, status := r.pull(true, nil)
		has(t, status.Warnings, "x is in a.json and in m.json")
		has(t, status.Warnings, "x is in b.json and in m.json")
	}
}

// TestTwinIsGone: a file that took the name of another one's object, and may have it when that file
// is gone, leaves the object that it had before to no one.
func TestTwinIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repository(nil, nil)
	r.commit("a.json", board("a", "A"), "b.json", board("b", "B"), "c.json", board("c", "C"))
	r.pull(false, nil)
	r.commit("a.json", board("b", "A2"))
	if _, status := r.pull(true, nil); status.State != "warning" {
		t.Fatalf("%+v", status)
	}
	r.commit("b.json", "")
	if _, status := r.pull(true, nil); status.State != "success" {
		t.Errorf("%+v", status)
	}
	if r.object(dashboards, "a") != nil {
		t.Error("the object that no file has is still there")
	}
	if title, _, _ := unstructured.NestedString(r.object(dashboards, "b").Object, "spec", "title"); title != "A2" {
		t.Errorf("title %q", title)
	}
}
