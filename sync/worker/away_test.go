package worker

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"limpet/sync/api"
	"limpet/sync/jobs"
)

// unwell makes the server answer so for requests that are about one of the
// resources, as long as sick says so.
func (r *rig) unwell(code int, sick func(req *http.Request) bool) {
	r.wire.answer(func(req *http.Request) *http.Response {
		if !sick(req) {
			return nil
		}
		return &http.Response{StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
			Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader("not now"))}
	})
}

// TestServerGoesAway: a server that goes away in the middle of a pull, or before
// it, makes no error of it: the job goes on when the server is back.
func TestServerGoesAway(t *testing.T) {
	t.Parallel()
	writes := func(req *http.Request) bool {
		return strings.Contains(req.URL.Path, "/dashboards") && req.Method != http.MethodGet
	}
	for name, c := range map[string]struct {
		code int
		sick func(req *http.Request) bool
	}{
		"401 for dashboards":       {401, writes},
		"401 for folders":          {401, func(req *http.Request) bool { return strings.Contains(req.URL.Path, "/folders") }},
		"401 for the first status": {401, func(req *http.Request) bool { return strings.HasSuffix(req.URL.Path, "/repositories/repo/status") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "embedded", nil)
			r.repository(nil, nil)
			r.forty()
			var met, well atomic.Int64
			r.unwell(c.code, func(req *http.Request) bool {
				if !c.sick(req) || well.Load() > 0 {
					return false
				}
				// Some come through before the server goes.
				return met.Add(1) > 7 || !writes(req)
			})
			r.submit(false, nil)
			released := r.ended()
			if released.Type != jobs.EventRetry || !strings.Contains(released.Text, "API unavailable") {
				t.Fatalf("the job was not put back: %+v", released)
			}
			well.Store(1)
			if e := r.ended(); e.Type != jobs.EventCompleted || e.State != api.StateSuccess {
				t.Fatalf("%+v", e)
			}
			if sync, _ := r.sync(); sync.State != "success" || sync.LastRef == "" {
				t.Errorf("sync status: %+v", sync)
			}
			r.expect("all is there", false, "success", "no changes to sync")
		})
	}
}

// TestOneObjectIsRefused: trouble with one object that looks like that of the
// server does not keep the others away for ever: in the last attempt it is the
// object's.
func TestOneObjectIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.halt()
	r.terms.MaxAttempts = 1
	r.start()
	r.repository(nil, nil)
	r.forty()
	r.unwell(401, func(req *http.Request) bool {
		if req.Method != http.MethodPost || !strings.HasSuffix(req.URL.Path, "/dashboards") {
			return false
		}
		data, _ := io.ReadAll(req.Body)
		req.Body = io.NopCloser(bytes.NewReader(data))
		return bytes.Contains(data, []byte(`"name":"n05"`))
	})
	record, status := r.pull(false, nil)
	if record.State != "error" || len(status.Errors) != 1 || !strings.Contains(status.Errors[0], "n05") {
		t.Errorf("%s: %q", record.State, status.Errors)
	}
	if _, repo := r.sync(); !strings.Contains(fmt.Sprint(repo.Object["status"].(map[string]any)["stats"]), "count:39") {
		t.Errorf("stats %v", repo.Object["status"])
	}
}
