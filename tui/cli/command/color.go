package command

import (
	"io"
	"slices"
	"strings"

	"limpet/sync/snapshot"
	"limpet/tui"
)

// ColorFunc gives a text the colour of a state; nil leaves it as it is.
type ColorFunc func(state, text string) string

// Colors returns the colours of an output: those of the theme on a terminal, or with --color
// always.
func (e *Env) Colors(w io.Writer) ColorFunc {
	if e.Flags.Accessible || e.Flags.Output != "table" && e.Flags.Output != "wide" || e.Color() != "always" &&
		(!IsTerminal(w) || PrintsOnly(e.Getenv)) {
		return nil
	}
	return tui.Ink(tui.Options{Color: e.Color(), Theme: e.Flags.Theme, Env: e.Getenv})
}

// ColorsOf returns the colours of an output, nil where it has none.
func ColorsOf(w io.Writer) ColorFunc {
	switch out := w.(type) {
	case *stdout:
		return out.colors
	case *stderr:
		return out.colors
	}
	return nil
}

// Color returns --color; where that is auto, CLICOLOR_FORCE decides.
func (e *Env) Color() string {
	if force := e.Getenv("CLICOLOR_FORCE"); e.Flags.Color == "auto" && force != "" && force != "0" && e.Getenv("NO_COLOR") == "" {
		return "always"
	}
	return e.Flags.Color
}

// Paint gives a text the colour of a state.
func (ink ColorFunc) Paint(state, text string) string {
	if ink == nil || state == "" {
		return text
	}
	return ink(state, text)
}

// stateColumns are the columns that hold states. Other cells have no colour: an object may be named
// like a state.
var stateColumns = []string{"STATE", "HEALTH", "SYNC", "RESULT", "READY", "TOKEN"}

// OfColumns colours the columns that hold states, below the header lines.
func (ink ColorFunc) OfColumns(names []string, head int) func(line, column int, text string) string {
	return func(line, column int, text string) string {
		if line >= head && slices.Contains(stateColumns, names[column]) {
			return ink.Paint(text, text)
		}
		return text
	}
}

// ofFields colours the keys of problems, and the first word of values that have a state.
func (ink ColorFunc) ofFields(states []string) func(line, column int, text string) string {
	return func(line, column int, text string) string {
		switch {
		case column > 0:
			first := text[:max(strings.IndexAny(text+" ", " ,:"), 0)]
			return ink.Paint(states[line], first) + text[len(first):]
		case text == "!":
			return ink.Paint("error", text)
		case text == "error" || text == "warning":
			return ink.Paint(text, text)
		}
		return text
	}
}

// ConditionState returns the state that a condition stands for; some types are true when something
// is wrong.
func ConditionState(c snapshot.Condition) string {
	switch {
	case c.Status == "Unknown":
		return "unknown"
	case c.Unmet():
		return "error"
	case c.Type != "Reconciling":
		return "success"
	case c.Status == "True":
		return "working"
	}
	return ""
}

// PrintsOnly reports whether TERM names a terminal without cursor control, or none at all.
func PrintsOnly(env func(string) string) bool {
	return slices.Contains([]string{"", "dumb", "unknown"}, env("TERM"))
}

// Accessible reports whether w gets names and values instead of tables: with --accessible, or when
// w is a terminal without cursor control. A pipe has no TERM either, but its reader wants columns.
func (e *Env) Accessible(w io.Writer) bool {
	return e.Flags.Accessible || IsTerminal(w) && PrintsOnly(e.Getenv)
}

// IsAccessible reports whether w gets names and values instead of tables.
func IsAccessible(w io.Writer) bool {
	out, ok := w.(*stdout)
	return ok && out.accessible
}

// OnScreen reports whether a dashboard can be shown: input and output are a terminal with cursor
// control.
func (e *Env) OnScreen() bool {
	return !e.Flags.Accessible && IsTerminal(e.Out) && IsTerminal(e.In) && !PrintsOnly(e.Getenv)
}
