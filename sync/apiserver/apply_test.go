package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// owners writes managedFields as one line for each manager: name, operation,
// subresource, fields.
func owners(t testing.TB, object map[string]any) string {
	t.Helper()
	entries, _ := at(object, "metadata", "managedFields").([]any)
	var lines []string
	for _, entry := range entries {
		e := entry.(map[string]any)
		fields, err := json.Marshal(e["fieldsV1"])
		if err != nil {
			t.Fatal(err)
		}
		// An apply without effect has no time.
		if e["time"] == nil && e["operation"] != "Apply" || e["fieldsType"] != "FieldsV1" {
			t.Errorf("entry %v", e)
		}
		line := fmt.Sprintf("%v %v %v %s", e["manager"], e["operation"], e["apiVersion"], fields)
		if e["subresource"] != nil {
			line += fmt.Sprintf(" (%v)", e["subresource"])
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func (s *site) apply(path, manager, config string) (int, map[string]any) {
	s.t.Helper()
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	return s.call("PATCH", path+separator+"fieldManager="+manager, "application/apply-patch+yaml "+config)
}

// One object goes through the hands of several clients. The expectations were
// read from a real server.
func TestOwnership(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const path = folderPath + "/a"
	steps := []struct {
		name string
		do   func() (int, map[string]any)
		code int
		want string
	}{
		{"created by a plain client", func() (int, map[string]any) {
			return s.call("POST", folderPath+"?fieldManager=maker", folder("a", "one", `,"labels":{"x":"y"},"finalizers":["a.io/b"]`))
		}, 201, `maker Update folder.grafana.app/v1 {"f:metadata":{"f:finalizers":{".":{},"v:\"a.io/b\"":{}},"f:labels":{".":{},"f:x":{}}},"f:spec":{".":{},"f:title":{}}}`},
		{"applied with the same value", func() (int, map[string]any) { return s.apply(path, "site", folder("a", "one", "")) },
			200, `site Apply folder.grafana.app/v1 {"f:spec":{"f:title":{}}}
maker Update folder.grafana.app/v1 {"f:metadata":{"f:finalizers":{".":{},"v:\"a.io/b\"":{}},"f:labels":{".":{},"f:x":{}}},"f:spec":{".":{},"f:title":{}}}`},
		{"patched by a third", func() (int, map[string]any) {
			return s.call("PATCH", path+"?fieldManager=hand", `{"spec":{"title":"two"},"metadata":{"labels":{"x":null,"z":"1"}}}`)
		}, 200, `maker Update folder.grafana.app/v1 {"f:metadata":{"f:finalizers":{".":{},"v:\"a.io/b\"":{}},"f:labels":{}},"f:spec":{}}
hand Update folder.grafana.app/v1 {"f:metadata":{"f:labels":{"f:z":{}}},"f:spec":{"f:title":{}}}`},
	}
	for _, step := range steps {
		code, answer := step.do()
		if code != step.code {
			t.Fatalf("%s: %d %v", step.name, code, answer["message"])
		}
		if got := sortedLines(owners(t, answer)); got != sortedLines(step.want) {
			t.Errorf("%s:\n%s\nwant\n%s", step.name, got, step.want)
		}
	}
}

func sortedLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		for j := i + 1; j < len(lines); j++ {
			if lines[j] < lines[i] {
				lines[i], lines[j] = lines[j], lines[i]
			}
		}
	}
	return strings.Join(lines, "\n")
}

func TestApply(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const path = folderPath + "/a"
	code, made := s.apply(path, "site", "apiVersion: folder.grafana.app/v1\nkind: Folder\nmetadata: {name: a, labels: {keep: me}}\nspec: {title: one, list: [1, 2], map: {x: 1, y: 2}}\n")
	if code != http.StatusCreated || at(made, "metadata", "generation") != 1.0 {
		t.Fatalf("%d %v", code, made)
	}
	code, again := s.apply(path, "site", "apiVersion: folder.grafana.app/v1\nkind: Folder\nmetadata: {name: a, labels: {keep: me}}\nspec: {title: one, list: [1, 2], map: {x: 1, y: 2}}\n")
	if code != http.StatusOK || revisionOf(again) != revisionOf(made) {
		t.Errorf("the same file again: %d, revision %s after %s", code, revisionOf(again), revisionOf(made))
	}
	// What is left out goes, what another owns stays.
	s.must("PATCH", path, `{"spec":{"map":{"z":3}}}`)
	_, less := s.apply(path, "site", "apiVersion: folder.grafana.app/v1\nkind: Folder\nmetadata: {name: a}\nspec: {title: one, map: {x: 1}}\n")
	if got := compact(t, less["spec"]); got != `{"map":{"x":1,"z":3},"title":"one"}` || at(less, "metadata", "labels") != nil {
		t.Errorf("spec %s, labels %v", got, at(less, "metadata", "labels"))
	}
	// Lists are replaced whole; one field of two managers is a conflict.
	code, conflict := s.apply(path, "other", folder("a", "three", ""))
	if code != http.StatusConflict || conflict["reason"] != "Conflict" || compact(t, at(conflict, "details", "causes")) !=
		`[{"field":".spec.title","message":"conflict with \"site\"","reason":"FieldManagerConflict"}]` {
		t.Errorf("%d %v", code, conflict)
	}
	code, forced := s.apply(path+"?force=true", "other", folder("a", "three", ""))
	if code != http.StatusOK || at(forced, "spec", "title") != "three" || strings.Contains(owners(t, forced), `site Apply folder.grafana.app/v1 {"f:spec":{"f:map":{".":{},"f:x":{}},"f:title"`) {
		t.Errorf("%d %s", code, owners(t, forced))
	}
}

func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.must("POST", folderPath, folder("a", "one", ""))
	const path = folderPath + "/a"
	for _, c := range []struct {
		name, path, config string
		want               int
	}{
		{"no manager", path, folder("a", "x", ""), 422},
		{"no yaml", path + "?fieldManager=m", "a: [", 400},
		{"no object", path + "?fieldManager=m", "[]", 400},
		{"other kind", path + "?fieldManager=m", strings.Replace(folder("a", "x", ""), "Folder", "Chair", 1), 400},
		{"other version", path + "?fieldManager=m", strings.Replace(folder("a", "x", ""), "/v1", "/v1beta1", 1), 400},
		{"other name", path + "?fieldManager=m", folder("b", "one", ""), 400},
		{"other namespace", path + "?fieldManager=m", folder("a", "one", `,"namespace":"other"`), 400},
		{"other uid", path + "?fieldManager=m", folder("a", "one", `,"uid":"x"`), 422},
		{"uid of nothing", folderPath + "/new?fieldManager=m", folder("new", "one", `,"uid":"x"`), 409},
		{"old version", path + "?fieldManager=m", folder("a", "one", `,"resourceVersion":"1"`), 409},
		{"managed fields", path + "?fieldManager=m", folder("a", "one", `,"managedFields":[]`), 400},
		{"unknown member", path + "?fieldManager=m", strings.Replace(folder("a", "x", ""), `"spec"`, `"x":1,"spec"`, 1), 500},
		{"member given twice", path + "?fieldManager=m&fieldValidation=Strict", "apiVersion: folder.grafana.app/v1\nkind: Folder\nmetadata: {name: a}\nspec:\n  a: 1\n  a: 1\n", 400},
		{"status of what has none", path + "/status?fieldManager=m", folder("a", "x", ""), 404},
		{"status of nothing", base + "repositories/none/status?fieldManager=m", `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository","metadata":{"name":"none"},"status":{}}`, 404},
	} {
		if code, answer := s.call("PATCH", c.path, "application/apply-patch+yaml "+c.config); code != c.want {
			t.Errorf("%s: %d %v, want %d", c.name, code, answer["message"], c.want)
		}
	}
}

// Server-side apply by kubectl takes over what its client-side apply wrote, as
// long as nobody else changed it.
func TestApplyAfterClientSideApply(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for name, changed := range map[string]bool{"a": false, "b": true} {
		config := folder(name, "one", "")
		quoted, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		s.must("POST", folderPath+"?fieldManager=kubectl-client-side-apply", folder(name, "one", `,"annotations":{"`+lastApplied+`":`+string(quoted)+`}`))
		if changed {
			s.must("PATCH", folderPath+"/"+name, `{"spec":{"title":"other"}}`)
		}
		if code, _ := s.apply(folderPath+"/"+name, "site", folder(name, "two", "")); code != http.StatusConflict {
			t.Errorf("%s: another manager is answered with %d", name, code)
		}
		code, answer := s.apply(folderPath+"/"+name, "kubectl", folder(name, "two", ""))
		if want := map[bool]int{false: 200, true: 409}[changed]; code != want {
			t.Errorf("%s: kubectl is answered with %d, want %d", name, code, want)
		}
		if note, _ := at(answer, "metadata", "annotations", lastApplied).(string); !changed && !strings.Contains(note, `"title":"two"`) {
			t.Errorf("the annotation is not renewed: %q", note)
		}
	}
}

// However many clients write an object, its managed fields stay small.
func TestManyOwners(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	object := s.must("POST", folderPath, folder("a", "one", ""))
	for n := range 2 * 10 {
		object = s.must("PATCH", fmt.Sprintf("%s/a?fieldManager=m%02d", folderPath, n), fmt.Sprintf(`{"spec":{"k%02d":1}}`, n))
	}
	lines := strings.Split(owners(t, object), "\n")
	if len(lines) != 10 || strings.Count(owners(t, object), "ancient-changes"+" Update") != 1 {
		t.Errorf("%d managers:\n%s", len(lines), owners(t, object))
	}
	for n := range 2 * 10 {
		if strings.Count(owners(t, object), fmt.Sprintf(`"f:k%02d"`, n)) != 1 {
			t.Errorf("field %d has not one owner", n)
		}
	}
}

// A client may clear the managed fields; then nobody is tracked until somebody
// applies.
func TestResetOwners(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.must("POST", folderPath, folder("a", "one", ""))
	if got := owners(t, s.must("PATCH", folderPath+"/a", `{"metadata":{"managedFields":[{}]}}`)); got != "" {
		t.Errorf("after the reset:\n%s", got)
	}
	if got := owners(t, s.must("PATCH", folderPath+"/a", `{"spec":{"x":1}}`)); got != "" {
		t.Errorf("after the next patch:\n%s", got)
	}
	_, applied := s.apply(folderPath+"/a?force=true", "site", folder("a", "two", ""))
	if got := owners(t, applied); !strings.Contains(got, "before-first-apply") || !strings.Contains(got, "site Apply") {
		t.Errorf("after an apply:\n%s", got)
	}
}

// The stored bytes of an object do not hold what only answers have.
func TestStoredForm(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	older := strings.Replace(folderPath, "/v1/", "/v1beta1/", 1)
	answer := s.send("POST", older, strings.Replace(folder("a", "one", ""), "/v1", "/v1beta1", 1), nil).Body.Bytes()
	k := folderKind(t)
	o, err := s.store.Object(t.Context(), objectKey(k, "default", "a"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(answer, []byte(`"apiVersion":"folder.grafana.app/v1beta1"`)) || !bytes.HasPrefix(o.Data, []byte(`{"apiVersion":"folder.grafana.app/v1",`)) {
		t.Errorf("answered %s\nstored %s", answer, o.Data)
	}
	if text(o.Data, find(o.Data, "metadata", "resourceVersion")) != formatRevision(o.Revision) {
		t.Errorf("revision %d is stored as %s", o.Revision, o.Data)
	}
}
