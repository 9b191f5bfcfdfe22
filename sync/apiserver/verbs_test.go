package apiserver

import (
	"context"
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
