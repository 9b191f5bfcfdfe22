package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"limpet/state"
	"limpet/sync/netx"
)

// fluxEvent is the part of a payload that the tests look at.
type fluxEvent struct {
	InvolvedObject map[string]any
	Metadata       map[string]string
	Reason         string
}

// receiver is a webhook that keeps what it got.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex // guards what follows
	got    []fluxEvent
	status int
}

func receive(t *testing.T) *receiver {
	r := &receiver{status: 200}
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
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) reasons() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.got {
		out = append(out, p.InvolvedObject["name"].(string)+" "+p.Reason)
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
	if wait, down := b.senders[0].runOnce(t.Context()); wait != giveUp || down {
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

// serve answers requests by a handler without a network, so that synctest knows when all wait.
type serve func(w http.ResponseWriter, r *http.Request)

func (s serve) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	s(w, r)
	return w.Result(), nil
}

// TestOutage: a target that is down for an hour gets everything in order, another one is not
// delayed, and Retry-After holds. A poisoned event delays its object alone, until it is given up
// after a day.
func TestOutage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limpet.db")
	synctest.Test(t, func(t *testing.T) {
		store, _, err := state.Open(t.Context(), state.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		began, asked := time.Now(), 0
		got := map[string][]string{}
		down := serve(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			var p fluxEvent
			_ = json.Unmarshal(body, &p)
			switch {
			case r.Host == "down" && time.Since(began) < time.Hour:
				asked++
				w.Header().Set("Retry-After", "600")
				w.WriteHeader(http.StatusServiceUnavailable)
			case p.Reason == "Poison":
				w.WriteHeader(http.StatusUnprocessableEntity)
			default:
				got[r.Host] = append(got[r.Host], p.InvolvedObject["name"].(string)+p.Reason)
			}
		})
		b := openOutbox(t, store, "https://down/hook", "https://up/hook")
		b.Client.Transport = down
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		var want []string
		for i := range 100 {
			name := fmt.Sprint("n", i%3)
			e := Event{Name: name, Severity: Info, Reason: fmt.Sprint(".", i)}
			if i == 50 {
				e.Name, e.Reason = "bad", "Poison"
			} else {
				want = append(want, e.Name+e.Reason)
			}
			if err := b.Add(ctx, e); err != nil {
				t.Fatal(err)
			}
			time.Sleep(30 * time.Second)
		}
		if err := b.Add(ctx, Event{Name: "bad", Severity: Info, Reason: ".after"}); err != nil {
			t.Fatal(err)
		}
		if synctest.Wait(); !slices.Equal(got["up"], want) || len(got["down"]) > 0 {
			t.Errorf("after %v: up %q, down %q", time.Since(began), got["up"], got["down"])
		}
		time.Sleep(25 * time.Minute)
		if synctest.Wait(); !slices.Equal(got["down"], want) || asked > 7 {
			t.Errorf("after %v and %d attempts: %q", time.Since(began), asked, got["down"])
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if got := got["down"]; got[len(got)-1] != "bad.after" {
			t.Errorf("the last is %q", got[len(got)-1])
		}
		for _, s := range b.Status() {
			if s.Pending != 0 || s.Dropped != 1 || s.Sent != 100 || s.Error != "" {
				t.Errorf("%+v", s)
			}
		}
		cancel()
		<-ended
	})
}

// TestRefusals: a target that refuses everything gets a few events, however many come; one that
// refuses those of some objects gets each of them now and then, and the others at once.
func TestRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		refuses func(object string) bool
		most    int // requests that are refused, in 2 minutes of 300 events
		taken   int
	}{
		"all":        {func(string) bool { return true }, 40, 0},
		"one object": {func(o string) bool { return o == "n7" }, 10, 299},
		"the oldest": {func(o string) bool { return len(o) == 2 }, 120, 290},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "limpet.db")
			synctest.Test(t, func(t *testing.T) {
				store, _, err := state.Open(t.Context(), state.Options{Path: path})
				if err != nil {
					t.Fatal(err)
				}
				defer store.Close()
				refused, taken := 0, 0
				b := openOutbox(t, store, "https://up/hook")
				b.Client.Transport = serve(func(w http.ResponseWriter, r *http.Request) {
					var p fluxEvent
					if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
						t.Error(err)
					}
					if tt.refuses(p.InvolvedObject["name"].(string)) {
						refused++
						w.WriteHeader(http.StatusBadRequest)
						return
					}
					taken++
				})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- b.Run(ctx) }()
				for i := range 300 {
					if err := b.Add(ctx, Event{Name: fmt.Sprint("n", i), Severity: Error, Reason: "Failed"}); err != nil {
						t.Fatal(err)
					}
					time.Sleep(2 * time.Minute / 300)
				}
				if tt.taken > 0 {
					time.Sleep(maxWait)
				}
				if synctest.Wait(); refused > tt.most || taken != tt.taken {
					t.Errorf("%d refused, want at most %d; %d taken, want %d", refused, tt.most, taken, tt.taken)
				}
				cancel()
				<-ended
			})
		})
	}
}

// TestOneRefusal: a target that refuses one event again and again is not down: others go at once.
func TestOneRefusal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limpet.db")
	synctest.Test(t, func(t *testing.T) {
		store, _, err := state.Open(t.Context(), state.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		refused, taken := 0, 0
		b := openOutbox(t, store, "https://up/hook")
		b.Client.Transport = serve(func(w http.ResponseWriter, r *http.Request) {
			var p fluxEvent
			if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
				t.Error(err)
			}
			if p.InvolvedObject["name"] == "bad" {
				refused++
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			taken++
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		for i, name := range []string{"bad", "good"} {
			if err := b.Add(ctx, Event{Name: name, Severity: Error, Reason: "Failed"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep([]time.Duration{10 * time.Minute, time.Second}[i])
		}
		if synctest.Wait(); refused <= mostRefusals || taken != 1 {
			t.Errorf("%d refused, %d taken", refused, taken)
		}
		cancel()
		<-ended
	})
}

// TestRestart: what was not taken comes again after a restart, with its id; the queue of a target
// that is gone is dropped, and one that is too long loses its oldest.
func TestRestart(t *testing.T) {
	t.Parallel()
	r, path := receive(t), filepath.Join(t.TempDir(), "limpet.db")
	store := openStore(t, path)
	b := openOutbox(t, store, r.URL, r.URL+"/gone")
	for i := range 5 {
		if err := b.Add(t.Context(), Event{Name: "a", Severity: Info, Reason: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	target := b.Targets[0].id
	more := func([]byte) (*state.Notice, error) {
		return &state.Notice{Queue: map[string][]byte{target: []byte(`{"name":"a","reason":"last"}`)}}, nil
	}
	dropped, err := store.Notify(t.Context(), "a", 4, more)
	if err != nil || dropped[target] != 2 {
		t.Fatalf("%v %v", dropped, err)
	}
	queue, err := store.Facts(t.Context(), state.QueuePrefix+target+"/")
	if err != nil || len(queue) != 4 {
		t.Fatalf("%d, %v", len(queue), err)
	}
	var first Event
	if err := json.Unmarshal(queue[slices.Min(slices.Collect(maps.Keys(queue)))], &first); err != nil || first.Reason != "2" {
		t.Errorf("%+v %v", first, err)
	}
	if err := b.Targets[0].send(t.Context(), b.Client, b.Logger, &first); err != nil { // and the power fails
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	store = openStore(t, path)
	b = openOutbox(t, store, r.URL)
	b.senders[0].runOnce(t.Context())
	if n := len(r.got); n != 5 || r.got[0].Metadata["limpet/event-id"] != r.got[1].Metadata["limpet/event-id"] || r.got[n-1].Reason != "last" {
		t.Errorf("%d: %+v %+v", n, r.got[0], r.got[1])
	}
	if left, err := store.Facts(t.Context(), "outbox/"); err != nil || len(left) != 0 {
		t.Errorf("%d left, %v", len(left), err)
	}
}

// TestHeartbeat: calls come each minute, and none while something fails.
func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failing error
		calls := 0
		target, err := ParseHeartbeat("https://up/beat", false)
		if err != nil {
			t.Fatal(err)
		}
		client := &netx.Client{Timeout: Timeout, Transport: serve(func(_ http.ResponseWriter, r *http.Request) {
			if calls++; failing != nil || r.Method != "GET" || r.URL.Path != "/beat" {
				t.Errorf("%s %s", r.Method, r.URL)
			}
		})}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- Heartbeat(ctx, target, client, func(context.Context) error { return failing }, slog.New(slog.DiscardHandler))
		}()
		for _, step := range []struct {
			failing error
			calls   int
		}{{nil, 11}, {errors.New("no"), 11}, {nil, 21}} {
			failing = step.failing
			time.Sleep(10*time.Minute + time.Second)
			if synctest.Wait(); calls != step.calls {
				t.Errorf("%v: %d calls, want %d", failing, calls, step.calls)
			}
		}
		cancel()
		<-ended
	})
}
