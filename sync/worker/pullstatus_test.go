package worker

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
		r.wire.answer(func(req *http.Request) *http.Response {
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
		})
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

// TestQuota: files beyond the quota are left out with a warning, and come when there
// is room for them, whatever the pull of then was asked to look at.
func TestQuota(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := newRig(t, server, func(o *PullOptions) { o.Parallel = 1 }) // the deepest first
		r.repository(map[string]any{"sync": map[string]any{"target": "instance"}}, nil)
		limit := func(n int) { r.state(fmt.Sprintf(`{"status":{"quota":{"maxResourcesPerRepository":%d}}}`, n)) }
		told := func(sync, resources string) api.SyncStatus {
			t.Helper()
			_, u := r.sync()
			repo, err := api.RepositoryView(u)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range repo.Status.Conditions {
				got := c.Status + " " + c.Reason + ": " + c.Message
				if want := map[string]string{"SyncStatus": sync, "ResourceQuota": resources}[c.Type]; got != want {
					t.Errorf("%s is %q, want %q", c.Type, got, want)
				}
			}
			return repo.Status.Sync
		}
		limit(3)
		r.commit("a.json", board("a", "A"), "b.json", board("b", "B"), "d/c.json", board("c", "C"), "d/e.json", board("e", "E"))
		record, status := r.pull(false, nil)
		if record.State != "warning" {
			t.Errorf("%+v", status)
		}
		has(t, status.Warnings, "resource quota of 3 exceeded")
		if got := counts(status); got != "Dashboard create 2, Dashboard warning 2, Folder create 1" {
			t.Errorf("summary %q", got)
		}
		told("False SyncQuotaExceeded: Resource quota exceeded: 2 creations left out", "True QuotaReached: Resource quota reached: 3/3 resources")

		// One goes, and the next pull is of everything although changes were asked for.
		r.commit("d/c.json", "", "d/e.json", board("e", "E2"))
		if _, status = r.pull(true, nil); counts(status) != "Dashboard create 1, Dashboard delete 1, Dashboard update 1, Dashboard warning 1" {
			t.Errorf("summary %q", counts(status))
		}
		if sync := told("False SyncQuotaExceeded: Resource quota exceeded: 1 creations left out", "True QuotaReached: Resource quota reached: 3/3 resources"); sync.Incremental {
			t.Error("it says that it looked at changes only")
		}
		limit(10)
		if record, status = r.pull(false, nil); record.State != "success" || counts(status) != "Dashboard create 1" {
			t.Errorf("%+v", status)
		}
		told("True SyncSuccessful: Sync completed successfully", "True WithinQuota: Within quota: 4/10 resources")
		// What it has is counted where nobody has written that down.
		limit(4)
		r.state(`{"status":{"stats":null}}`)
		r.commit("f.json", board("f", "F"))
		r.pull(true, nil)
		told("False SyncQuotaExceeded: Resource quota exceeded: 1 creations left out", "True QuotaReached: Resource quota reached: 4/4 resources")
		r.commit("f.json", "")
		r.pull(true, nil)
		limit(2)
		r.commit("b.json", board("b", "B2"))
		if record, status = r.pull(true, nil); record.State != "success" {
			t.Errorf("an update needs no room: %+v", status)
		}
		if sync := told("True SyncSuccessful: Sync completed successfully", "False QuotaExceeded: Resource quota exceeded: 4/2 resources"); !sync.Incremental {
			t.Error("it looked at everything")
		}
	})
}
