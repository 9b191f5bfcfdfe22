package repos

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/kube"
)

// TestCensus: those are counted that stay, once for each change, also for one that
// comes while others are counted.
func TestCensus(t *testing.T) {
	made := func(namespace, name string, goes bool) kube.Object {
		meta := map[string]any{"namespace": namespace, "name": name}
		if goes {
			meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
		}
		return kube.ObjectOf(&unstructured.Unstructured{Object: map[string]any{"metadata": meta}})
	}
	all, asked := []kube.Object{made("a", "1", false), made("a", "2", true), made("b", "1", false)}, 0
	var c quotaCount
	meanwhile := func() {}
	sights := func() []kube.Object {
		asked++
		seen := all
		meanwhile()
		return seen
	}
	want := func(what, namespace string, n int64, times int) {
		t.Helper()
		if got := c.count(namespace, sights); got != n || asked != times {
			t.Errorf("%s: %d, counted %d times, want %d and %d", what, got, asked, n, times)
		}
	}
	want("one goes", "a", 1, 1)
	want("another namespace", "b", 1, 1)
	want("nobody there", "c", 0, 1)
	all = append(all, made("a", "3", false))
	c.invalidate()
	want("one has come", "a", 2, 2)
	c.invalidate()
	meanwhile = func() {
		meanwhile = func() {}
		all = append(all, made("a", "4", false))
		c.invalidate()
	}
	want("one comes meanwhile", "a", 2, 3)
	want("and is counted next", "a", 3, 4)
	want("and then known", "a", 3, 4)
}
