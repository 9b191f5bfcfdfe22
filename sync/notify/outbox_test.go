package notify

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/netx"
)

// receiver is a webhook that keeps what it got.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex // guards what follows
	got    []fluxEvent
	status int
	bodies chan struct{}
}

func receive(t *testing.T) *receiver {
	r := &receiver{status: 200, bodies: make(chan struct{}, 100)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		var p fluxEvent
		if err := json.Unmarshal(body, &p); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		if w.WriteHeader(r.status); r.status == 200 {
			r.got = append(r.got, p)
			r.bodies <- struct{}{}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) reasons() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.got {
		out = append(out, p.InvolvedObject.Name+" "+p.Reason)
	}
	return out
}

func openStore(t *testing.T, path string) *state.Store {
	t.Helper()
	s, _, err := state.Open(t.Context(), state.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func openOutbox(t *testing.T, s *state.Store, urls ...string) *Outbox {
	t.Helper()
	o := Options{Store: s, Client: &netx.Client{AllowInsecure: true, Timeout: Timeout}, Logger: slog.New(slog.DiscardHandler)}
	var err error
	if o.Targets, err = ParseTargets(urls, nil, false); err != nil {
		t.Fatal(err)
	}
	b, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPairs checks which events are told: each failure once a day, each recovery, no quiet success.
func TestPairs(t *testing.T) {
	t.Parallel()
	r := receive(t)
	b := openOutbox(t, openStore(t, filepath.Join(t.TempDir(), "limpet.db")), r.URL)
	at := time.Now()
	for _, e := range []Event{
		{Name: "a", Severity: Info, Reason: "Quiet", Quiet: true},
		{Name: "a", Severity: Error, Reason: "Failed", Message: "one"},
		{Name: "a", Severity: Error, Reason: "Failed", Message: "one", Time: at.Add(23 * time.Hour)},
		{Name: "b", Severity: Info, Reason: "Changed"},
		{Name: "a", Severity: Error, Reason: "Refused", Message: "two"},
		{Name: "a", Topic: "other", Severity: Info, Reason: "Quiet", Quiet: true},
		{Name: "a", Severity: Error, Reason: "Failed", Message: "one", Time: at.Add(25 * time.Hour)},
		{Name: "a", Severity: Info, Reason: "Recovered", Quiet: true},
		{Name: "a", Severity: Info, Reason: "Quiet", Quiet: true},
	} {
		if err := b.Add(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if wait, down := b.senders[0].runOnce(t.Context()); wait != 0 || down {
		t.Errorf("it waits %v, down %v", wait, down)
	}
	want := []string{"a Failed", "b Changed", "a Refused", "a Failed", "a Recovered"}
	if got := r.reasons(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := r.got[4].Metadata["limpet/recovered"]; got != "Refused,Failed" {
		t.Errorf("recovered %q", got)
	}
}
