package kube

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestServes: what the server serves is asked once in ten minutes, and again after
// an answer that was none.
func TestServes(t *testing.T) {
	list := func(names string) string {
		return `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"provisioning.grafana.app/v0alpha1","resources":[{"name":"repositories"}` + names + `]}`
	}
	var answer atomic.Pointer[http.HandlerFunc]
	var asked atomic.Int64
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/provisioning.grafana.app/v0alpha1" {
			t.Errorf("%s", r.URL.Path)
		}
		asked.Add(1)
		(*answer.Load())(w, r)
	})
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, Config{Server: "http://api", Transport: &wire{handler: handler}})
		for n, step := range []struct {
			later  time.Duration
			code   int
			kind   string
			body   string
			serves bool
			asked  int64 // in all
			fails  bool
		}{
			{code: 404, kind: jsonType, body: `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`, asked: 1},
			{code: 403, kind: jsonType, body: `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`, asked: 2, fails: true},
			{code: 200, kind: "text/html", body: "<html>", asked: 3, fails: true},
			{code: 200, kind: jsonType, body: list(""), asked: 4},
			{code: 200, kind: jsonType, body: list(`,{"name":"repositories/webhook"}`), asked: 4},
			{later: 9 * time.Minute, asked: 4},
			{later: time.Minute, serves: true, asked: 5},
			{code: 200, kind: jsonType, body: list(""), serves: true, asked: 5},
			{later: 10 * time.Minute, asked: 6},
		} {
			time.Sleep(step.later)
			if step.code != 0 {
				h := http.HandlerFunc(reply(step.code, step.kind, step.body))
				answer.Store(&h)
			}
			got, err := c.Serves(t.Context(), "repositories/webhook")
			if got != step.serves || (err != nil) != step.fails || asked.Load() != step.asked {
				t.Errorf("step %d: %v %v, asked %d times", n, got, err, asked.Load())
			}
		}
	})
}
