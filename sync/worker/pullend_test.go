package worker

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/jobs"
)

// holdWrites makes writes of dashboards whose name begins so wait for their end,
// and tells about the first.
func (r *rig) holdWrites(prefix string) (entered <-chan struct{}) {
	seen := make(chan struct{}, 64)
	r.wire.answer(func(req *http.Request) *http.Response {
		if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/dashboards") {
			data, _ := io.ReadAll(req.Body)
			req.Body = io.NopCloser(strings.NewReader(string(data)))
			if strings.Contains(string(data), `"name":"`+prefix) {
				seen <- struct{}{}
				<-req.Context().Done()
			}
		}
		return nil
	})
	return seen
}

// forty commits 40 dashboards, n00 to n39.
func (r *rig) forty() {
	var files []string
	for i := range 40 {
		name := fmt.Sprintf("n%02d", i)
		files = append(files, name+".json", board(name, name))
	}
	r.commit(files...)
}

// TestCancel: a cancelled pull says so, and the next one writes what is missing.
func TestCancel(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repository(nil, nil)
	r.forty()
	entered := r.holdWrites("n2")
	r.submit(true, nil)
	<-entered
	if err := r.controller.Cancel(context.Background(), r.namespace, "repo-pull-1"); err != nil {
		t.Fatal(err)
	}
	if e := r.ended(); e.Type != jobs.EventCompleted {
		t.Fatalf("%+v", e)
	}
	if sync, _ := r.sync(); sync.State != "error" || sync.LastRef != "" || !strings.Contains(strings.Join(sync.Message, " "), "cancelled") {
		t.Errorf("sync status of a cancelled pull: %+v", sync)
	}
	r.wire.answer(nil)
	r.wire.take()
	record, _ := r.pull(true, nil)
	_, writes, _ := r.wire.take()
	if record.State != "success" || len(writes) == 0 || len(writes) >= 41 {
		t.Errorf("%s with %d writes", record.State, len(writes))
	}
	if stats := fmt.Sprint(r.object(api.Repositories, "repo").Object["status"].(map[string]any)["stats"]); !strings.Contains(stats, "count:40") {
		t.Errorf("stats %s", stats)
	}
}

// TestShutdown: an agent that stops puts the Repository back to pending, and the
// next agent ends the job.
func TestShutdown(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repository(nil, nil)
	r.forty()
	entered := r.holdWrites("n3")
	r.submit(true, nil)
	<-entered
	r.halt()
	if sync, _ := r.sync(); sync.State != "pending" || sync.LastRef != "" {
		t.Errorf("sync status after the stop: %+v", sync)
	}
	r.wire.answer(nil)
	r.wire.take()
	r.start()
	t.Cleanup(func() { r.halt() })
	if e := r.ended(); e.Type != jobs.EventCompleted || e.State != "success" {
		t.Errorf("%+v", e)
	}
	if _, writes, _ := r.wire.take(); len(writes) == 0 || len(writes) >= 41 {
		t.Errorf("%d writes", len(writes))
	}
	if sync, _ := r.sync(); sync.State != "success" || sync.LastRef != r.repo.Head(t) {
		t.Errorf("sync status %+v", sync)
	}
}

// TestLostLease: when the job has got another owner, nothing more is written, not
// even to the Repository, whose status is the other one's now.
func TestLostLease(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.halt()
	r.terms = jobs.Options{Renew: time.Second, Expiry: 30 * time.Second}
	r.start()
	t.Cleanup(func() { r.halt() })
	r.repository(nil, nil)
	r.forty()
	entered := r.holdWrites("n")
	r.submit(true, nil)
	<-entered
	steal := []byte(`{"metadata":{"labels":{"` + api.LabelClaimOwner + `":"stranger"}}}`)
	if _, err := r.client.Resource(api.Jobs).Namespace(r.namespace).Patch(t.Context(), "repo-pull-1", types.MergePatchType, steal, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	r.wire.take()
	if e := r.ended(); e.Type != jobs.EventLost {
		t.Errorf("%+v", e)
	}
	r.halt()
	for _, q := range r.all() {
		if q.method != http.MethodGet && q.code != 0 {
			t.Errorf("after the loss: %s %s %s", q.method, q.path, q.body)
		}
	}
	if sync, _ := r.sync(); sync.State != "working" {
		t.Errorf("sync status %+v", sync)
	}
}

// all returns the requests since the last take, of every kind that take knows.
func (r *rig) all() []request {
	_, _, all := r.wire.take()
	return all
}

// TestMarksAreKept: the state file knows how far a long pull has come.
func TestMarksAreKept(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repository(nil, nil)
	var files []string
	for i := range 450 {
		name := fmt.Sprintf("n%03d", i)
		files = append(files, filepath.Join(fmt.Sprint(i%9), name+".json"), board(name, name))
	}
	r.commit(files...)
	marks := make(chan string, 64)
	r.wire.answer(func(req *http.Request) *http.Response {
		if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/dashboards") {
			if claims, err := r.store.Claims(context.Background()); err == nil && len(claims) == 1 && len(claims[0].Mark) > 0 {
				select {
				case marks <- string(claims[0].Mark):
				default:
				}
			}
		}
		return nil
	})
	record, _ := r.pull(true, nil)
	if record.State != "success" {
		t.Fatalf("%+v", record)
	}
	select {
	case m := <-marks:
		if !strings.Contains(m, r.repo.Head(t)) {
			t.Errorf("mark %s", m)
		}
	default:
		t.Error("no mark was kept")
	}
}
