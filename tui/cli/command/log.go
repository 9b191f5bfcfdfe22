package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"

	"limpet/sync/text"
)

// NewLogger logs to w: for a daemon as JSON, or as text on a terminal, unless --log-format decides; for a
// command as lines for a person.
func NewLogger(g *Flags, w io.Writer, daemon bool) *slog.Logger {
	var level slog.Level
	// The flag's enum admits only names that UnmarshalText knows.
	_ = level.UnmarshalText([]byte(g.LogLevel))
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: text.RedactAttr}
	switch logFormat(g, w, daemon) {
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts))
	case "text":
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(&textHandler{out: &lockedWriter{w: w}, level: level})
}

// logFormat returns json, text, or "" for lines for a person.
func logFormat(g *Flags, w io.Writer, daemon bool) string {
	switch {
	case g.LogFormat != "" || !daemon:
		return g.LogFormat
	case IsTerminal(w):
		return "text"
	}
	return "json"
}

// lostLines returns the log line that reports lost lines.
func lostLines(g *Flags, form string) func(n int) []byte {
	return func(n int) []byte {
		var line bytes.Buffer
		NewLogger(&Flags{LogLevel: g.LogLevel, LogFormat: form}, &line,
			false).Error("log lines are lost: they were not read for too long", "lines", n)
		return line.Bytes()
	}
}

// textHandler writes "limpet: warning: text (key value, ...)", without a time and in the form of the
// command's errors.
type textHandler struct {
	out   *lockedWriter // shared with the handlers that With makes
	level slog.Level
	attrs []slog.Attr
}

// lockedWriter writes one line at a time.
type lockedWriter struct {
	mu sync.Mutex // guards w
	w  io.Writer
}

func (l *lockedWriter) line(s string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := io.WriteString(l.w, s)
	return err
}

func (h *textHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

func (h *textHandler) Handle(_ context.Context, rec slog.Record) error {
	var b strings.Builder
	b.WriteString("limpet: ")
	switch {
	case rec.Level >= slog.LevelError:
		b.WriteString(ColorsOf(h.out.w).paint("error", "error:") + " ")
	case rec.Level >= slog.LevelWarn:
		b.WriteString(ColorsOf(h.out.w).paint("warning", "warning:") + " ")
	}
	b.WriteString(text.Clean(text.Redact(rec.Message)))
	var notes []string
	note := func(a slog.Attr) bool {
		a = text.RedactAttr(nil, a)
		// Components are of no interest to a person.
		if a.Key != "component" && a.Key != "" {
			notes = append(notes, fmt.Sprintf("%s %s", strings.ReplaceAll(a.Key, "_", " "), text.Clean(a.Value.String())))
		}
		return true
	}
	for _, a := range h.attrs {
		note(a)
	}
	rec.Attrs(note)
	if len(notes) > 0 {
		b.WriteString(" (" + strings.Join(notes, ", ") + ")")
	}
	b.WriteByte('\n')
	return h.out.line(b.String())
}

func (h *textHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.attrs = append(append([]slog.Attr{}, h.attrs...), attrs...)
	return &next
}

// WithGroup implements slog.Handler; no logger for a person makes groups.
func (h *textHandler) WithGroup(string) slog.Handler { return h }
