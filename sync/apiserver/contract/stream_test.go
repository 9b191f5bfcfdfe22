package contract

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// patience is how long a case waits for something that must come.
const patience = 15 * time.Second

// event is one line of a watch.
type event struct {
	Type   string `json:"type"`
	Object object `json:"object"`
}

// stream is an open watch. It ends with its case.
type stream struct {
	e      *env
	events chan event // closed at the end of the answer
	end    context.CancelFunc
}

// watch opens a watch of a collection and demands that it is answered with 200.
func (e *env) watch(path string, options ...option) *stream {
	e.Helper()
	ctx, cancel := context.WithCancel(e.Context())
	r := e.request(http.MethodGet, path, nil, append([]option{query("watch", "true")}, options...)...)
	resp, err := e.target.HTTP.Do(r.WithContext(ctx))
	if err != nil {
		cancel()
		e.Fatalf("watch %s: %v", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		cancel()
		e.Fatalf("watch %s answered %d", path, resp.StatusCode)
	}
	s := &stream{e: e, events: make(chan event), end: cancel}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(s.events)
		defer resp.Body.Close()
		lines := json.NewDecoder(resp.Body)
		for {
			var ev event
			if lines.Decode(&ev) != nil {
				return
			}
			select {
			case s.events <- ev:
			case <-ctx.Done():
				return
			}
		}
	}()
	e.Cleanup(func() { cancel(); <-done })
	return s
}

// next waits for one event; ok is false at the end of the watch.
func (s *stream) next() (ev event, ok bool) {
	s.e.Helper()
	select {
	case ev, ok = <-s.events:
		return ev, ok
	case <-time.After(patience):
		s.e.Fatalf("no event in %s", patience)
		return event{}, false
	}
}

// expect demands that the next event is of this type and this object.
func (s *stream) expect(kind, n string) object {
	s.e.Helper()
	ev, ok := s.next()
	if !ok {
		s.e.Fatalf("the watch ended, want %s %s", kind, n)
	}
	if ev.Type != kind || kind != "BOOKMARK" && name(ev.Object) != n {
		raw, _ := json.Marshal(ev)
		s.e.Fatalf("event %s, want %s %s", clip(raw), kind, n)
	}
	return ev.Object
}

// over demands that the watch ends without another event.
func (s *stream) over() {
	s.e.Helper()
	if ev, ok := s.next(); ok {
		raw, _ := json.Marshal(ev)
		s.e.Fatalf("event %s, want the end", clip(raw))
	}
}
