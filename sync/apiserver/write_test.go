package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"limpet/state"
)

func TestGeneratedNames(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	seen := map[string]bool{}
	for _, prefix := range []string{"job-", strings.Repeat("x", 100)} {
		for range 20 {
			made := s.must("POST", folderPath, fmt.Sprintf(`{"apiVersion":"folder.grafana.app/v1","kind":"Folder","metadata":{"generateName":%q}}`, prefix))
			name, _ := at(made, "metadata", "name").(string)
			if seen[name] || len(name) > generatedLength || !strings.HasPrefix(prefix+strings.Repeat("?", 5), name[:len(name)-randomLength]) {
				t.Errorf("name %q from %q", name, prefix)
			}
			seen[name] = true
		}
	}
}

// Names follow the rule of the real server, but for kinds whose names Grafana
// gives.
func TestNames(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	repository := func(name string) (string, string) {
		return base + "repositories?dryRun=All", strings.Replace(repositoryJSON(`{}`), `"dashboards"`, fmt.Sprintf("%q", name), 1)
	}
	anyFolder := func(name string) (string, string) { return folderPath + "?dryRun=All", folder(name, "x", "") }
	for _, c := range []struct {
		path func(string) (string, string)
		name string
		want int
	}{
		{repository, "a-b.c", 201}, {repository, "A", 422}, {repository, "a_b", 422}, {repository, strings.Repeat("a", 254), 422}, {repository, "a/b", 422},
		{anyFolder, "cIBgcSjkk", 201}, {anyFolder, "a_b:c", 201}, {anyFolder, "a b", 422}, {anyFolder, "a/b", 422}, {anyFolder, "..", 422}, {anyFolder, strings.Repeat("a", 254), 422},
	} {
		path, body := c.path(c.name)
		if code, answer := s.call("POST", path, body); code != c.want {
			t.Errorf("%q: %d %v, want %d", c.name, code, answer["message"], c.want)
		}
	}
}

func TestGenerations(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	job := base + "jobs"
	s.must("POST", folderPath, folder("a", "one", ""))
	s.must("POST", base+"repositories", repositoryJSON(`{"token":{"create":"x"}}`))
	s.must("POST", job, `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Job","metadata":{"name":"j"},"spec":{"action":"pull","repository":"dashboards","pull":{}}}`)
	s.must("POST", "/api/v1/namespaces/default/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}`)
	for _, c := range []struct {
		path, patch string
		want        any
	}{
		{folderPath + "/a", `{"metadata":{"labels":{"a":"b"}}}`, 1.0},
		{folderPath + "/a", `{"spec":{"title":"two"}}`, 2.0},
		{folderPath + "/a", `{"status":{"x":1}}`, 3.0}, // a folder has no status of its own
		{folderPath + "/a", `{"metadata":{"generation":9}}`, 3.0},
		{base + "repositories/dashboards", `{"spec":{"title":"two"}}`, 2.0},
		{base + "repositories/dashboards/status", `{"status":{"health":{"healthy":true}},"spec":{"title":"three"}}`, 2.0},
		{base + "repositories/dashboards", `{"status":{"health":{"healthy":false}}}`, 2.0},
		{job + "/j", `{"status":{"state":"working"}}`, 1.0},
		{"/api/v1/namespaces/default/secrets/s", `{"data":{"a":"eA=="}}`, nil},
	} {
		if got := at(s.must("PATCH", c.path, c.patch), "metadata", "generation"); got != c.want {
			t.Errorf("%s %s: generation %v, want %v", c.path, c.patch, got, c.want)
		}
	}
	repo := s.must("GET", base+"repositories/dashboards", "")
	if at(repo, "status", "health", "healthy") != true || at(repo, "spec", "title") != "two" {
		t.Errorf("status and spec are not apart: %v", repo)
	}
}

func TestFinalizers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const path = folderPath + "/a"
	s.must("POST", folderPath, folder("a", "one", `,"finalizers":["limpet/a","limpet/b"]`))
	w := s.follow("resourceVersion=" + revisionOf(s.must("GET", path, "")))
	marked := s.must("DELETE", path, "")
	if at(marked, "metadata", "deletionTimestamp") == nil || at(marked, "metadata", "deletionGracePeriodSeconds") != 0.0 || at(marked, "metadata", "generation") != 2.0 {
		t.Errorf("deleted: %v", marked["metadata"])
	}
	if again := s.must("DELETE", path, ""); revisionOf(again) != revisionOf(marked) {
		t.Error("a second delete changes the object")
	}
	if code, _ := s.call("PATCH", path, `{"metadata":{"finalizers":["limpet/a","limpet/c"]}}`); code != 422 {
		t.Errorf("a new finalizer is answered with %d", code)
	}
	if code, answer := s.call("POST", folderPath, folder("a", "two", "")); code != 409 || !strings.HasPrefix(answer["message"].(string), "object is being deleted") {
		t.Errorf("create in its place: %d %v", code, answer["message"])
	}
	s.must("PATCH", path, `{"metadata":{"finalizers":["limpet/b"],"deletionTimestamp":null}}`)
	last := s.must("PATCH", path, `{"metadata":{"finalizers":null}}`)
	if at(last, "metadata", "deletionTimestamp") == nil {
		t.Error("an update took the deletion back")
	}
	if code, _ := s.call("GET", path, ""); code != 404 {
		t.Errorf("after the last finalizer: %d", code)
	}
	w.sees("MODIFIED a", "MODIFIED a", "DELETED a")
}

// Writers of one object never lose a change of each other.
func TestContention(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.must("POST", folderPath, folder("a", "one", ""))
	var wg sync.WaitGroup
	const writers, each = 8, 10
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				s.must("PATCH", folderPath+"/a", fmt.Sprintf(`{"metadata":{"labels":{"w%d-%d":"x"}}}`, w, i))
			}
		})
	}
	wg.Wait()
	if got, _ := at(s.must("GET", folderPath+"/a", ""), "metadata", "labels").(map[string]any); len(got) != writers*each {
		t.Errorf("%d labels, want %d", len(got), writers*each)
	}
}

func TestDeleteCollection(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range 6 {
		s.must("POST", folderPath, folder(fmt.Sprintf("f%d", i), "", fmt.Sprintf(`,"labels":{"odd":"%d"}`, i%2)))
	}
	if got := names(s.must("DELETE", folderPath+"?labelSelector=odd%3D1&dryRun=All", "")); got != "f1 f3 f5" {
		t.Errorf("dry run: %s", got)
	}
	s.must("DELETE", folderPath+"?labelSelector=odd%3D1", "")
	if got := names(s.must("GET", folderPath, "")); got != "f0 f2 f4" {
		t.Errorf("left: %s", got)
	}
}

func TestDryRunChangesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.must("POST", folderPath, folder("a", "one", ""))
	before := revisionOf(s.must("GET", folderPath, ""))
	if code, _ := s.call("POST", folderPath+"?dryRun=All", folder("a", "one", "")); code != 409 {
		t.Errorf("a name that is taken: %d", code)
	}
	if made := s.must("POST", folderPath+"?dryRun=All", folder("b", "one", "")); at(made, "metadata", "uid") == nil || at(made, "metadata", "resourceVersion") != nil {
		t.Errorf("created: %v", made["metadata"])
	}
	if changed := s.must("PATCH", folderPath+"/a?dryRun=All", `{"spec":{"title":"two"}}`); at(changed, "spec", "title") != "two" || at(changed, "metadata", "generation") != 2.0 {
		t.Errorf("patched: %v", changed)
	}
	s.must("DELETE", folderPath+"/a?dryRun=All", "")
	s.must("DELETE", folderPath+"/a", `{"dryRun":["All"]}`)
	if after := revisionOf(s.must("GET", folderPath, "")); after != before {
		t.Errorf("revision %s after %s", after, before)
	}
}

// Inside the process the same rules hold, and errors are status errors.
func TestObjectsInProcess(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ctx, k := t.Context(), folderKind(t)
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "folder.grafana.app/v1", "kind": "Folder",
		"metadata": map[string]any{"name": "a", "namespace": "default", "labels": map[string]any{"x": "y"}}, "spec": map[string]any{"title": "one"}}}
	made, err := s.createObject(ctx, k, obj, writeOptions{})
	if err != nil || made.GetUID() == "" || made.GetManagedFields()[0].Manager != defaultManager || obj.GetUID() != "" {
		t.Fatalf("%v %v", made, err)
	}
	if _, err := s.createObject(ctx, k, obj, writeOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("again: %v", err)
	}
	patched, err := s.patchObject(ctx, k, "default", "a", types.MergePatchType, []byte(`{"spec":{"title":"three"}}`), writeOptions{Version: "v1beta1"})
	if err != nil || patched.GetAPIVersion() != "folder.grafana.app/v1beta1" || patched.GetGeneration() != 2 {
		t.Errorf("%v %v", patched, err)
	}
	for selector, want := range map[string]int{"x=y": 1, "x!=y": 0} {
		sel, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		if list, err := s.listObjects(ctx, k, "", sel); err != nil || len(list) != want {
			t.Errorf("%s: %v %v", selector, list, err)
		}
	}
	uid := types.UID("x")
	if err := s.deleteObject(ctx, k, "default", "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); !apierrors.IsConflict(err) {
		t.Errorf("delete of another: %v", err)
	}
	if err := s.deleteObject(ctx, k, "default", "a", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := s.getObject(ctx, k, "default", "a"); !apierrors.IsNotFound(err) {
		t.Errorf("after the delete: %v", err)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.getObject(over, k, "default", "a"); !apierrors.IsTimeout(err) {
		t.Errorf("with a context that is over: %v", err)
	}
}

// A write that lost a race reads the object again; what goes wrong then is told,
// and not taken for an object that is not there.
func TestContentionWithAFault(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.must("POST", folderPath, folder("a", "one", ""))
	k := folderKind(t)
	key := objectKey(k, "default", "a")
	_, err := s.change(t.Context(), target{kind: k, version: "v1", namespace: "default", name: "a"}, false, func(cur found) (plan, error) {
		if cur.object == nil {
			t.Error("an object that cannot be read is taken for an absent one")
			return plan{}, notFound(k, "a")
		}
		_, err := s.store.Mutate(t.Context(), key, func(*state.Object, uint64) (state.Mutation, error) {
			return state.Mutation{Data: []byte(`{"metadata":`)}, nil
		})
		cur.object.SetLabels(map[string]string{"x": "y"})
		return plan{object: cur.object}, err
	})
	if err == nil || !strings.Contains(err.Error(), "read stored object") {
		t.Errorf("%v, want the fault of the second read", err)
	}
}

// What the store cannot do is told in terms of the API.
func TestStoreFaults(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for err, want := range map[error]int32{
		fmt.Errorf("write: %w", state.ErrFull):     http.StatusInsufficientStorage,
		fmt.Errorf("write: %w", syscall.ENOSPC):    http.StatusInsufficientStorage,
		fmt.Errorf("write: %w", state.ErrReadOnly): http.StatusInsufficientStorage,
		state.ErrClosed:          http.StatusServiceUnavailable,
		context.DeadlineExceeded: http.StatusGatewayTimeout,
		errors.New("other"):      http.StatusInternalServerError,
	} {
		if got := s.statusOf(t.Context(), err); got.Code != want || got.Kind != "Status" || got.Status != metav1.StatusFailure {
			t.Errorf("%v: %+v, want %d", err, got, want)
		}
	}
	ended, end := context.WithCancelCause(t.Context())
	why := errors.New("agent is shutting down")
	end(why)
	if got := s.statusOf(ended, fmt.Errorf("write: %w", why)); got.Code != http.StatusGatewayTimeout {
		t.Errorf("the end of a request: %+v", got)
	}
	s.close()
	if code, _ := s.call("POST", folderPath, folder("a", "one", "")); code != http.StatusServiceUnavailable {
		t.Errorf("after the end: %d", code)
	}
	if rec := s.send("GET", "/readyz", "", nil); rec.Code != http.StatusServiceUnavailable {
		t.Errorf("readyz after the end: %d", rec.Code)
	}
}

func TestStrategicMerge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, before, patch, want string }{
		{"members merge", `{"data":{"a":"1","b":"2"}}`, `{"data":{"b":"3","c":"4"}}`, `{"data":{"a":"1","b":"3","c":"4"}}`},
		{"null removes", `{"data":{"a":"1"},"type":"T"}`, `{"data":{"a":null}}`, `{"data":{},"type":"T"}`},
		{"replace", `{"data":{"a":"1"}}`, `{"data":{"$patch":"replace","b":"2"}}`, `{"data":{"b":"2"}}`},
		{"delete", `{"data":{"a":"1"},"type":"T"}`, `{"data":{"$patch":"delete"}}`, `{"type":"T"}`},
		{"retain keys", `{"data":{"a":"1","b":"2"}}`, `{"data":{"$retainKeys":["b"],"b":"3"}}`, `{"data":{"b":"3"}}`},
		{"other lists are replaced", `{"x":{"l":[1,2]}}`, `{"x":{"l":[3]}}`, `{"x":{"l":[3]}}`},
		{"finalizers are added", `{"metadata":{"finalizers":["a"]}}`, `{"metadata":{"finalizers":["b","a"],"$setElementOrder/finalizers":["a","b"]}}`, `{"metadata":{"finalizers":["a","b"]}}`},
		{"finalizers are taken", `{"metadata":{"finalizers":["a","b"]}}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"]}}`, `{"metadata":{"finalizers":["b"]}}`},
		{"owners merge by uid", `{"metadata":{"ownerReferences":[{"uid":"1","name":"x"}]}}`,
			`{"metadata":{"ownerReferences":[{"uid":"1","name":"y"},{"uid":"2","name":"z"}]}}`,
			`{"metadata":{"ownerReferences":[{"name":"y","uid":"1"},{"name":"z","uid":"2"}]}}`},
		{"owners go by uid", `{"metadata":{"ownerReferences":[{"uid":"1"},{"uid":"2"}]}}`,
			`{"metadata":{"ownerReferences":[{"$patch":"delete","uid":"1"},{"$patch":"delete","uid":"3"}]}}`,
			`{"metadata":{"ownerReferences":[{"uid":"2"}]}}`},
		{"a text becomes an object", `{"a":"x"}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, _, err := strategicPatched([]byte(c.before), []byte(c.patch), "Ignore")
			if err != nil || string(got) != c.want {
				t.Errorf("%s (%v), want %s", got, err, c.want)
			}
		})
	}
	if _, _, err := strategicPatched([]byte(`{}`), []byte(`[]`), "Ignore"); err == nil {
		t.Error("a list is taken for a patch")
	}
}

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
