package command

import (
	"io"
	"regexp"
	"slices"

	"limpet/sync/snapshot"
	"limpet/tui"
)

// ColorFunc gives a text the colour of a state; nil leaves it as it is.
type ColorFunc func(state, text string) string

// Colors returns the colours of an output: those of the theme on a terminal, or with --color always.
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

// paint gives a text the colour of a state.
func (ink ColorFunc) paint(state, text string) string {
	if ink == nil {
		return text
	}
	return ink(state, text)
}

// Color returns --color; where that is auto, CLICOLOR_FORCE decides.
func (e *Env) Color() string {
	if force := e.Getenv("CLICOLOR_FORCE"); e.Flags.Color == "auto" && force != "" && force != "0" && e.Getenv("NO_COLOR") == "" {
		return "always"
	}
	return e.Flags.Color
}

// stateColumns are the columns that hold states. Other cells have no colour: an object may be named like a state.
var stateColumns = []string{"STATE", "HEALTH", "SYNC", "RESULT", "READY", "TOKEN"}

// OfColumns colours the columns that hold states, below the header lines.
func (ink ColorFunc) OfColumns(names []string, head int) func(line, column int, text string) string {
	if ink == nil {
		return nil
	}
	return func(line, column int, text string) string {
		if line >= head && slices.Contains(stateColumns, names[column]) {
			return ink(text, text)
		}
		return text
	}
}

// ofFields colours the marked words and the keys of problems.
func (ink ColorFunc) ofFields(marks []mark) func(line, column int, text string) string {
	return func(line, column int, text string) string {
		if column == 0 {
			switch text {
			case "!":
				return ink.paint("error", text)
			case "error", "warning":
				return ink.paint(text, text)
			}
			return text
		}
		for _, m := range marks {
			if m.line == line {
				text = ink.Word(text, m.word, m.state)
			}
		}
		return text
	}
}

// Word colours the first place where a word stands alone in a text.
func (ink ColorFunc) Word(text, word, state string) string {
	if ink == nil || word == "" {
		return text
	}
	at := regexp.MustCompile(`(?:^| )(` + regexp.QuoteMeta(word) + `)(?:[ ,:]|$)`).FindStringSubmatchIndex(text)
	if at == nil {
		return text
	}
	return text[:at[2]] + ink(state, word) + text[at[3]:]
}

// ConditionState returns the state that a condition stands for; some types are true when something is wrong.
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

// Accessible reports whether w gets names and values instead of tables: with --accessible, or when w is a
// terminal without cursor control. A pipe has no TERM either, but its reader wants columns.
func (e *Env) Accessible(w io.Writer) bool {
	return e.Flags.Accessible || IsTerminal(w) && PrintsOnly(e.Getenv)
}

// IsAccessible reports whether w gets names and values instead of tables.
func IsAccessible(w io.Writer) bool {
	out, ok := w.(*stdout)
	return ok && out.accessible
}

// OnScreen reports whether a dashboard can be shown: input and output are a terminal with cursor control.
func (e *Env) OnScreen() bool {
	return !e.Flags.Accessible && IsTerminal(e.Out) && IsTerminal(e.In) && !PrintsOnly(e.Getenv)
}
