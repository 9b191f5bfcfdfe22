package workers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
)

// TestStatusHasOtherWriters: conditions and health of others stay, whatever
// comes between the look and the patch.
func TestStatusHasOtherWriters(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := newRig(t, server, nil)
		r.repository(nil, nil)
		r.commit("a.json", board("a", "A"))
		other := func(patch string) {
			t.Helper()
			if _, err := r.client.Resource(api.Repositories).Namespace(r.namespace).Patch(context.Background(), "repo", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
				t.Error(err)
			}
		}
		ready := `{"type":"Ready","status":"True","reason":"Available","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}`
		between := []string{
			`[{"op":"add","path":"/status/health","value":{"healthy":true}},{"op":"add","path":"/status/conditions","value":[` + ready + `]}]`,
			`[{"op":"add","path":"/status/conditions/0","value":{"type":"NamespaceQuota","status":"True","reason":"QuotaUnlimited","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}}]`,
		}
		r.wire.fault = func(req *http.Request) *http.Response {
			// Another controller is quicker, once before each last patch.
			if req.Method == http.MethodPatch && len(between) > 0 {
				data, _ := io.ReadAll(req.Body)
				req.Body = io.NopCloser(strings.NewReader(string(data)))
				if strings.Contains(string(data), "SyncStatus") && strings.Contains(string(data), "finished") {
					next := between[0]
					between = between[1:]
					other(next)
				}
			}
			return nil
		}
		for range 2 {
			if record, status := r.pull(false, nil); record.State != "success" {
				t.Fatalf("%+v", status)
			}
		}
		_, u := r.sync()
		list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		kinds := map[string]int{}
		for _, c := range list {
			kinds[c.(map[string]any)["type"].(string)]++
		}
		for _, kind := range []string{"Ready", "NamespaceQuota", "SyncStatus", "ResourceQuota"} {
			if kinds[kind] != 1 {
				t.Errorf("%d conditions %s: %v", kinds[kind], kind, list)
			}
		}
		if healthy, _, _ := unstructured.NestedBool(u.Object, "status", "health", "healthy"); !healthy {
			t.Errorf("health is lost: %v", u.Object["status"])
		}
	})
}

// TestQuota: files beyond the quota are left out with a warning.
func TestQuota(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repository(map[string]any{"sync": map[string]any{"target": "instance"}}, nil)
	patch := []byte(`[{"op":"add","path":"/status","value":{"quota":{"maxResourcesPerRepository":3}}}]`)
	if _, err := r.client.Resource(api.Repositories).Namespace(r.namespace).Patch(t.Context(), "repo", types.JSONPatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	r.commit("a.json", board("a", "A"), "b.json", board("b", "B"), "d/c.json", board("c", "C"), "d/e.json", board("e", "E"))
	record, status := r.pull(false, nil)
	if record.State != "warning" {
		t.Errorf("%+v", status)
	}
	has(t, status.Warnings, "resource quota of 3 exceeded")
	if got := counts(status); got != "Dashboard create 2, Dashboard warning 2, Folder create 1" {
		t.Errorf("summary %q", got)
	}
	_, u := r.sync()
	if conditions := fmt.Sprint(u.Object["status"].(map[string]any)["conditions"]); !strings.Contains(conditions, "Resource quota reached: 3/3 resources") {
		t.Errorf("conditions %s", conditions)
	}
}
