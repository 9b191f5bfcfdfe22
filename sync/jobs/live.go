package jobs

import (
	"context"
	"log/slog"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
)

// liveLines is how many log lines of a running job are kept for the dashboard.
const liveLines = 200

// Line is one log line of a running job.
type Line struct {
	At    time.Time `json:"at"`
	Level string    `json:"level"` // debug, info, warn, error
	Text  string    `json:"text"`
}

// Running is a job that this agent holds, as it is at the moment.
type Running struct {
	UID, Namespace, Name string
	Repository, Action   string
	Driver               string // that works on it: its index, or DriverCleanup
	State                string // working, or cancelling once a person wants it to stop
	Message              string
	Attempt, MaxAttempts int
	Created              time.Time // of the Job, by the server's clock
	Started              time.Time // of this run, by the local clock
	LeaseUntil           time.Time // when the claim expires unless it is renewed, by the local clock
	RenewAt              time.Time // when it is renewed next
	Branch               string
	RefFrom, RefTo       string
	Done, Total          int64
	Progress             float64  // 0 to 100; below 0 = the total is unknown
	Errors, Warnings     []string // the first of them
	ErrorCount           int64    // of all, also those without a text
	WarningCount         int64
	Summary              []api.JobSummary
	Commit               *state.Commit // RefTo; nil = it was not read yet
	Steps                []Step        // of this run; the last one goes on
	Lines                []Line        // of the log, the last 200, oldest first
	// Job is the object as it was seen last; in Event.Last alone.
	Job *unstructured.Unstructured
}

// Live returns the jobs that this agent holds, the oldest first. It is safe for
// concurrent use and does no I/O.
func (c *Controller) Live() []Running {
	c.mu.Lock()
	held := c.holding()
	c.mu.Unlock()
	out := make([]Running, 0, len(held))
	for _, h := range held {
		out = append(out, c.look(h))
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i], out[j]
		if d := a.Started.Compare(b.Started); d != 0 {
			return d < 0
		}
		return strings.Compare(a.UID, b.UID) < 0
	})
	return out
}

func (c *Controller) look(h *held) Running {
	r := Running{UID: h.uid, Namespace: h.Namespace, Name: h.Name, Repository: h.repository, Action: h.action, Driver: h.driver,
		State: api.StateWorking, Attempt: h.attempt, MaxAttempts: c.o.MaxAttempts, Created: h.created, Started: h.began,
		Progress: -1, Lines: c.live.lines(h.uid)}
	r.LeaseUntil, r.RenewAt = h.until()
	if reason, _ := h.interrupted(); reason != "" {
		r.State = "cancelling"
	}
	h.mu.Lock()
	p := h.progress
	h.mu.Unlock()
	if p == nil {
		return r
	}
	a := p.look()
	r.Message, r.Branch, r.RefFrom, r.RefTo = a.Message, a.Branch, a.RefFrom, a.RefTo
	r.Done, r.Total, r.ErrorCount, r.WarningCount = a.Done, a.Total, a.ErrorCount, a.WarningCount
	r.Commit, r.Steps = a.Commit, a.Steps
	r.Errors, r.Warnings, r.Summary = a.Errors, a.Warnings, a.summary()
	if a.Total > 0 {
		r.Progress = a.percent()
	}
	return r
}

// scribe keeps the last log lines of every running job.
type scribe struct {
	mu   sync.Mutex // guards jobs and what is in it
	jobs map[string][]Line
}

func newScribe() *scribe { return &scribe{jobs: map[string][]Line{}} }

func (s *scribe) begin(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs[uid] = []Line{}
}

func (s *scribe) end(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.jobs, uid)
}

func (s *scribe) line(uid string, at time.Time, level, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines, ok := s.jobs[uid]
	if !ok {
		return
	}
	if len(lines) >= 2*liveLines {
		lines = append(lines[:0], lines[len(lines)-liveLines+1:]...)
	}
	s.jobs[uid] = append(lines, Line{At: at, Level: level, Text: text})
}

func (s *scribe) lines(uid string) []Line {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.jobs[uid]
	return slices.Clone(lines[max(0, len(lines)-liveLines):])
}

// logger returns a logger whose lines carry the name of the job and are kept for
// the dashboard too.
func (s *scribe) logger(a about, base *slog.Logger) *slog.Logger {
	base = base.With("job", a.String(), "uid", a.uid, "repo", a.repository, "attempt", a.attempt)
	return slog.New(&scribeHandler{scribe: s, uid: a.uid, next: base.Handler()})
}

// scribeHandler writes a line for the dashboard and passes the record on.
type scribeHandler struct {
	scribe *scribe
	uid    string
	next   slog.Handler
	attrs  string // of the logger, as text
	group  string // prefix of attribute names
}

// Enabled keeps debug lines out of the dashboard unless the log has them too.
func (h *scribeHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.next.Enabled(ctx, level)
}

func (h *scribeHandler) Handle(ctx context.Context, r slog.Record) error {
	var text strings.Builder
	text.WriteString(r.Message)
	text.WriteString(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		writeAttr(&text, h.group, a)
		return true
	})
	h.scribe.line(h.uid, r.Time, strings.ToLower(r.Level.String()), clip(text.String(), maxMessage))
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

func (h *scribeHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var text strings.Builder
	text.WriteString(h.attrs)
	for _, a := range attrs {
		writeAttr(&text, h.group, a)
	}
	c := *h
	c.attrs, c.next = text.String(), h.next.WithAttrs(attrs)
	return &c
}

func (h *scribeHandler) WithGroup(name string) slog.Handler {
	c := *h
	c.group, c.next = h.group+name+".", h.next.WithGroup(name)
	return &c
}

func writeAttr(w *strings.Builder, group string, a slog.Attr) {
	if a.Equal(slog.Attr{}) {
		return
	}
	w.WriteString(" " + group + a.Key + "=" + a.Value.Resolve().String())
}
