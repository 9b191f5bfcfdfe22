package webhook

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"
)

func FuzzPayload(f *testing.F) {
	f.Add("application/json", []byte(`{"a":1}`))
	f.Add("application/x-www-form-urlencoded", []byte("payload=%7B%7D&x=1"))
	f.Add("application/x-www-form-urlencoded; charset=utf-8", []byte("payload=%"))
	f.Fuzz(func(t *testing.T, contentType string, raw []byte) {
		got, err := payloadOf(raw, contentType)
		if err != nil {
			if !errors.Is(err, errPayload) {
				t.Error(err)
			}
			return
		}
		if form, err := url.ParseQuery(string(raw)); !bytes.Equal(got, raw) && (err != nil || string(got) != form.Get("payload")) {
			t.Errorf("%q is made of %q", got, raw)
		}
	})
}

// FuzzReceiver sends anything to a Receiver by a client without the
// secret: it never leads to a job.
func FuzzReceiver(f *testing.F) {
	f.Add(http.MethodPost, boards, "push", "X-Hub-Signature-256", "sha256=00", []byte("{}"))
	f.Add(http.MethodPost, boards, "push", "X-Gitlab-Token", "x", payload(f, "gitlab-push"))
	f.Add(http.MethodPost, boards+"/..", "ping", "Content-Type", "application/x-www-form-urlencoded", []byte("payload={}"))
	f.Add(http.MethodGet, "//x", "", "X-Forwarded-For", "127.0.0.1", []byte(nil))
	g := newRig(f)
	n := 0
	f.Fuzz(func(t *testing.T, method, target, event, name, value string, raw []byte) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return
		}
		n++
		req := httptest.NewRequest(http.MethodPost, boards, bytes.NewReader(raw))
		req.Method, req.URL, req.RemoteAddr = method, u, fmt.Sprintf("198.%d.%d.%d:1", n>>16&255, n>>8&255, n&255)
		req.Header = http.Header{}
		for _, header := range []string{"X-GitHub-Event", "X-Gitlab-Event", "X-Event-Key"} {
			req.Header.Set(header, event)
		}
		req.Header.Set(name, value)
		w := g.send(req)
		if !slices.Contains([]int{301, 307, 308, 400, 401, 404, 405, 413, 429}, w.Code) || len(g.store.queued) > 0 {
			t.Errorf("%s %s: %d %s, %d queued, log %q", method, target, w.Code, w.Body, len(g.store.queued), g.log.String())
		}
	})
}
