package command

import (
	"cmp"
	"io"
	"slices"
	"strings"

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

// errorColors returns the colours of messages on w by the arguments or the environment, also when the rest of
// the command line is invalid.
func errorColors(w io.Writer, args []string, env func(string) string) ColorFunc {
	g := Flags{Output: "table", Color: cmp.Or(flagValue(args, "color", env), "auto"), Theme: flagValue(args, "theme", env)}
	read := flagValue(args, "accessible", env)
	g.Accessible = read != "" && read != "false" || slices.Contains(args, "--accessible")
	return (&Env{Flags: &g, World: World{Lookup: func(name string) (string, bool) { return env(name), true }}}).Colors(w)
}

// Color returns --color; where that is auto, CLICOLOR_FORCE decides.
func (e *Env) Color() string {
	if force := e.Getenv("CLICOLOR_FORCE"); e.Flags.Color == "auto" && force != "" && force != "0" && e.Getenv("NO_COLOR") == "" {
		return "always"
	}
	return e.Flags.Color
}

// cellStyle colours the cell of a line and a column; nil leaves all as they are.
type cellStyle func(line, column int, text string) string

func (p cellStyle) cell(line, column int, text string) string {
	if p == nil {
		return text
	}
	return p(line, column, text)
}

// OfColumns colours the columns that hold states, below the header lines. Other cells are left alone: an
// object may be named like a state.
func (ink ColorFunc) OfColumns(names []string, head int) cellStyle {
	if ink == nil {
		return nil
	}
	return func(line, column int, text string) string {
		if line < head {
			return text
		}
		switch names[column] {
		case "STATE", "HEALTH", "SYNC", "RESULT", "READY", "TOKEN":
			return ink(text, text)
		}
		return text
	}
}

// mark is a word in the value of a line of fields that names a state.
type mark struct {
	line        int
	word, state string
}

// ofFields colours the marked words and the keys of problems.
func (ink ColorFunc) ofFields(marks []mark) cellStyle {
	if ink == nil {
		return nil
	}
	return func(line, column int, text string) string {
		if column == 0 {
			switch key, _, _ := strings.Cut(text, " "); key {
			case "!":
				return ink.Word(text, key, "error")
			case "error", "warning":
				return ink(text, text)
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
	for at := 0; ; {
		i := strings.Index(text[at:], word)
		if i < 0 {
			return text
		}
		from, to := at+i, at+i+len(word)
		if (from == 0 || text[from-1] == ' ') && (to == len(text) || strings.IndexByte(" ,:", text[to]) >= 0) {
			return text[:from] + ink(state, word) + text[to:]
		}
		at = to
	}
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
	switch env("TERM") {
	case "", "dumb", "unknown":
		return true
	}
	return false
}

// Accessible reports whether w gets names and values instead of tables: with --accessible, or when w is a
// terminal without cursor control. A pipe has no TERM either, but its reader wants columns.
func (e *Env) Accessible(w io.Writer) bool {
	return e.Flags.Accessible || IsTerminal(w) && PrintsOnly(e.Getenv)
}
