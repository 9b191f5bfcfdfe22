package jobs

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxLines is how many log lines of a running job are kept for the dashboard.
const maxLines = 200

// Line is one log line of a running job.
type Line struct {
	At    time.Time `json:"at"`
	Level string    `json:"level"` // debug, info, warn, error
	Text  string    `json:"text"`
}

func levelName(l slog.Level) string { return strings.ToLower(l.String()) }

// logBuffer keeps the last log lines of every running job.
type logBuffer struct {
	mu   sync.Mutex // guards jobs and what is in it
	jobs map[string][]Line
}

func newLogBuffer() *logBuffer { return &logBuffer{jobs: map[string][]Line{}} }

func (b *logBuffer) begin(uid string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.jobs[uid] = []Line{}
}

func (b *logBuffer) end(uid string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.jobs, uid)
}

func (b *logBuffer) add(uid string, at time.Time, level, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines, ok := b.jobs[uid]
	if !ok {
		return
	}
	if len(lines) >= 2*maxLines {
		lines = append(lines[:0], lines[len(lines)-maxLines+1:]...)
	}
	b.jobs[uid] = append(lines, Line{At: at, Level: level, Text: text})
}

func (b *logBuffer) lines(uid string) []Line {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := b.jobs[uid]
	return slices.Clone(lines[max(0, len(lines)-maxLines):])
}

// logger returns a logger whose lines carry the name of the job and are kept for
// the dashboard too.
func (b *logBuffer) logger(job jobRef, base *slog.Logger) *slog.Logger {
	base = base.With("job", job.String(), "uid", job.uid, "repo", job.repository, "attempt", job.attempt)
	return slog.New(&logBufferHandler{buffer: b, uid: job.uid, next: base.Handler()})
}

// logBufferHandler writes a line for the dashboard and passes the record on.
type logBufferHandler struct {
	buffer *logBuffer
	uid    string
	next   slog.Handler
	attrs  string // of the logger, as text
	group  string // prefix of attribute names
}

// Enabled keeps debug lines out of the dashboard unless the log has them too.
func (h *logBufferHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.next.Enabled(ctx, level)
}

func (h *logBufferHandler) Handle(ctx context.Context, r slog.Record) error {
	var text strings.Builder
	text.WriteString(r.Message)
	text.WriteString(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		writeAttr(&text, h.group, a)
		return true
	})
	h.buffer.add(h.uid, r.Time, levelName(r.Level), clip(text.String(), maxMessage))
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

func (h *logBufferHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var text strings.Builder
	text.WriteString(h.attrs)
	for _, a := range attrs {
		writeAttr(&text, h.group, a)
	}
	c := *h
	c.attrs, c.next = text.String(), h.next.WithAttrs(attrs)
	return &c
}

func (h *logBufferHandler) WithGroup(name string) slog.Handler {
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
