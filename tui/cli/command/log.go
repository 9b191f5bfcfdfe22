package command

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"limpet/sync/text"
)

// NewLogger logs to w: for a daemon as JSON, or as text on a terminal, unless --log-format decides;
// for a command as lines for a person.
func NewLogger(g *Flags, w io.Writer, daemon bool) *slog.Logger {
	g.SetLogLevel(g.LogLevel)
	opts := &slog.HandlerOptions{Level: &g.level, ReplaceAttr: text.RedactAttr}
	switch logFormat(g, w, daemon) {
	case "json":
		return slog.New(JSONHandler(g, w))
	case "text":
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(&textHandler{w: w, level: g.level.Level()})
}

// JSONHandler writes the lines of a daemon to w as JSON.
func JSONHandler(g *Flags, w io.Writer) slog.Handler {
	return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: &g.level, ReplaceAttr: text.RedactAttr})
}

// SetLogLevel changes the level of the logs of a daemon.
func (g *Flags) SetLogLevel(level string) {
	g.LogLevel = level
	_ = g.level.UnmarshalText([]byte(level)) // the enum of the flag admits only names that it knows
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

// textHandler writes "limpet: warning: text (key value, ...)", without a time and in the form of
// the command's errors.
type textHandler struct {
	w     io.Writer
	level slog.Level
	attrs []slog.Attr
}

func (h *textHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

func (h *textHandler) Handle(_ context.Context, rec slog.Record) error {
	line := "limpet: "
	switch ink := ColorsOf(h.w); {
	case rec.Level >= slog.LevelError:
		line += ink.Paint("error", "error:") + " "
	case rec.Level >= slog.LevelWarn:
		line += ink.Paint("warning", "warning:") + " "
	}
	line += text.Clean(text.Redact(rec.Message))
	attrs := slices.Clone(h.attrs)
	rec.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a)
		return true
	})
	var notes []string
	for _, a := range attrs {
		// Components are of no interest to a person.
		if a = text.RedactAttr(nil, a); a.Key != "component" && a.Key != "" {
			notes = append(notes, fmt.Sprintf("%s %s", strings.ReplaceAll(a.Key, "_", " "), text.Clean(a.Value.String())))
		}
	}
	if len(notes) > 0 {
		line += " (" + strings.Join(notes, ", ") + ")"
	}
	_, err := io.WriteString(h.w, line+"\n")
	return err
}

func (h *textHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &textHandler{h.w, h.level, slices.Concat(h.attrs, attrs)}
}

// WithGroup implements slog.Handler; no logger for a person makes groups.
func (h *textHandler) WithGroup(string) slog.Handler { return h }
