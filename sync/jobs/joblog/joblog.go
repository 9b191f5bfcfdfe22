// Package joblog keeps the last log lines of each running job, for the dashboard.
package joblog

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"limpet/sync/text"
)

const (
	maxLines = 200     // kept of a job
	maxText  = 2 << 10 // bytes of a line
)

// Line is one log line of a running job.
type Line struct {
	At    time.Time `json:"at"`
	Level string    `json:"level"` // debug, info, warn, error
	Text  string    `json:"text"`  // the message, then name=value of the attributes
}

// Buffer keeps the last lines of every running job, by the UID of the job.
type Buffer struct {
	mu   sync.Mutex // guards jobs and what is in it
	jobs map[string][]Line
}

// New returns a Buffer without jobs.
func New() *Buffer { return &Buffer{jobs: map[string][]Line{}} }

// Begin starts to keep the lines of a job.
func (b *Buffer) Begin(uid string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.jobs[uid] = []Line{}
}

// End forgets the lines of a job.
func (b *Buffer) End(uid string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.jobs, uid)
}

// Add keeps a line of a job that is running. Of a long line the beginning is kept.
func (b *Buffer) Add(uid string, line Line) {
	b.mu.Lock()
	defer b.mu.Unlock()

	lines, ok := b.jobs[uid]
	if !ok {
		return
	}
	if len(lines) >= 2*maxLines {
		lines = append(lines[:0], lines[len(lines)-maxLines+1:]...)
	}
	line.Text = text.Clip(line.Text, maxText)
	b.jobs[uid] = append(lines, line)
}

// Lines returns the last lines of a job, the oldest first.
func (b *Buffer) Lines(uid string) []Line {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := b.jobs[uid]
	return slices.Clone(lines[max(0, len(lines)-maxLines):])
}

// Handler returns a handler that keeps the records of a job from a level on, with secrets redacted.
func (b *Buffer) Handler(uid string, level slog.Level) slog.Handler {
	out := &output{}
	attrs := slog.NewTextHandler(&out.text, &slog.HandlerOptions{Level: level, ReplaceAttr: attribute})
	return handler{attrs, b, uid, out}
}

// attribute redacts an attribute, and leaves out what a Line has a field for.
func attribute(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 {
		switch a.Key {
		case slog.TimeKey, slog.LevelKey, slog.MessageKey:
			return slog.Attr{}
		}
	}
	return text.RedactAttr(groups, a)
}

// handler keeps records as lines; another handler formats their attributes.
type handler struct {
	attrs  slog.Handler
	buffer *Buffer
	uid    string
	out    *output
}

// output is where all handlers of one job write attributes.
type output struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.attrs.Enabled(ctx, level)
}

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	h.out.mu.Lock()
	defer h.out.mu.Unlock()

	h.out.text.Reset()
	if err := h.attrs.Handle(ctx, r); err != nil {
		return err
	}
	line := text.Redact(r.Message) + " " + h.out.text.String()
	h.buffer.Add(h.uid, Line{r.Time, strings.ToLower(r.Level.String()), strings.TrimSpace(line)})
	return nil
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.attrs = h.attrs.WithAttrs(attrs)
	return h
}

func (h handler) WithGroup(name string) slog.Handler {
	h.attrs = h.attrs.WithGroup(name)
	return h
}
