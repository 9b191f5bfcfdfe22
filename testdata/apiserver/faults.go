package main

import (
	"context"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"
)

// fault is what happens to the requests that it matches. Empty conditions match
// all; of several faults the first that matches counts.
type fault struct {
	Method string `json:"method"`
	Path   string `json:"path"`  // part of the path
	Agent  string `json:"agent"` // part of the User-Agent
	User   string `json:"user"`
	Watch  *bool  `json:"watch"` // nil = watches and others

	// Exactly one of these is set, but for RetryAfter, which goes with Status.
	Status     int    `json:"status"` // the answer; the API does not see the request
	RetryAfter string `json:"retryAfter"`
	Delay      string `json:"delay"` // the API sees the request so much later
	Hang       bool   `json:"hang"`  // nobody answers, the API does not see the request
	Mute       bool   `json:"mute"`  // the API does what is asked, its answer is lost
}

func (f fault) matches(r *http.Request, user string) bool {
	return (f.Method == "" || f.Method == r.Method) && strings.Contains(r.URL.Path, f.Path) &&
		strings.Contains(r.UserAgent(), f.Agent) && (f.User == "" || f.User == user) &&
		(f.Watch == nil || *f.Watch == (r.URL.Query().Get("watch") != ""))
}

// noDate as the shift of a clock means that answers have no Date.
const noDate = time.Duration(math.MinInt64)

// faults stand before the API and its log, so that the log has what the API did,
// whatever the client saw of it. The answers that a fault gives are there too.
type faults struct {
	log *requestLog

	mu      sync.Mutex // guards the fields below
	list    []fault
	ahead   time.Duration
	changed chan struct{} // closed when list is replaced: requests that hang are given up
}

func newFaults(log *requestLog) *faults { return &faults{log: log, changed: make(chan struct{})} }

func (f *faults) set(list []fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = list
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *faults) shift(ahead time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead = ahead
}

// find returns the fault of a request, the shift of the clock, and a channel
// that is closed when the faults change.
func (f *faults) find(r *http.Request) (fault, time.Duration, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.list {
		if one.matches(r, userOf(r, f.log.token)) {
			return one, f.ahead, f.changed
		}
	}
	return fault{}, f.ahead, f.changed
}

func (f *faults) wrap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one, ahead, changed := f.find(r)
		switch ahead {
		case 0:
		case noDate:
			w.Header()["Date"] = nil
		default:
			w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
		}
		switch {
		case one.Status != 0:
			if one.RetryAfter != "" {
				w.Header().Set("Retry-After", one.RetryAfter)
			}
			f.log.write(f.log.line(r), one.Status, nil, nil)
			http.Error(w, "out of order, says the test", one.Status)
			return
		case one.Hang:
			hang(r, changed)
			panic(http.ErrAbortHandler)
		case one.Mute:
			// The client may give up first; what it asked for is done all the same.
			h.ServeHTTP(&deaf{header: http.Header{}}, r.WithContext(context.WithoutCancel(r.Context())))
			hang(r, changed)
			panic(http.ErrAbortHandler)
		case one.Delay != "":
			if d, err := time.ParseDuration(one.Delay); err == nil {
				timer := time.NewTimer(d)
				defer timer.Stop()
				select {
				case <-timer.C:
				case <-changed:
				case <-r.Context().Done():
				}
			}
		}
		h.ServeHTTP(w, r)
	})
}

// hang waits until the client goes or the faults change.
func hang(r *http.Request, changed <-chan struct{}) {
	select {
	case <-changed:
	case <-r.Context().Done():
	}
}

// deaf takes an answer that nobody gets.
type deaf struct{ header http.Header }

func (d *deaf) Header() http.Header         { return d.header }
func (d *deaf) Write(p []byte) (int, error) { return len(p), nil }
func (d *deaf) WriteHeader(int)             {}
func (d *deaf) Flush()                      {}

// userOf names who is asking: "NAME" for the administrator's token with ".NAME"
// behind it, so that a test can tell its clients apart.
func userOf(r *http.Request, admin string) string {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if name, ok := strings.CutPrefix(token, admin+"."); ok {
		return name
	}
	return ""
}
