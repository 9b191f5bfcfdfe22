package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"

	"limpet/sync/api"
	"limpet/sync/view"
)

// newLogger logs to w: for a daemon as JSON, or as text on a terminal, unless
// --log-format decides; for a command as lines to the person who runs it.
func newLogger(g *Globals, w io.Writer, daemon bool) *slog.Logger {
	var level slog.Level
	// The flag's enum admits only names that UnmarshalText knows.
	_ = level.UnmarshalText([]byte(g.LogLevel))
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: api.RedactAttr}
	switch {
	case g.LogFormat == "json" || g.LogFormat == "" && daemon && !isTerminal(w):
		return slog.New(slog.NewJSONHandler(w, opts))
	case g.LogFormat == "text" || daemon:
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(&personHandler{out: &lockedWriter{w: w}, level: level})
}

// personHandler writes "limpet: warning: text (key value, ...)": no time, since
// the person is there, and in the form of the errors of the same command.
type personHandler struct {
	out   *lockedWriter // shared with the handlers that With makes
	level slog.Level
	attrs []slog.Attr
}

// lockedWriter lets one line through at a time.
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

func (h *personHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

func (h *personHandler) Handle(_ context.Context, rec slog.Record) error {
	var b strings.Builder
	b.WriteString("limpet: ")
	switch {
	case rec.Level >= slog.LevelError:
		b.WriteString("error: ")
	case rec.Level >= slog.LevelWarn:
		b.WriteString("warning: ")
	}
	b.WriteString(view.Clean(api.Redact(rec.Message)))
	var notes []string
	note := func(a slog.Attr) bool {
		a = api.RedactAttr(nil, a)
		// The rooms of the house mean nothing to the person.
		if a.Key != "room" && a.Key != "" {
			notes = append(notes, fmt.Sprintf("%s %s", strings.ReplaceAll(a.Key, "_", " "), view.Clean(a.Value.String())))
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

func (h *personHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.attrs = append(append([]slog.Attr{}, h.attrs...), attrs...)
	return &next
}

// WithGroup implements slog.Handler; nothing that logs to a person makes groups.
func (h *personHandler) WithGroup(string) slog.Handler { return h }
