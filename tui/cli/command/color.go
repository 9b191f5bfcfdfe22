package command

import (
	"cmp"
	"io"
	"slices"
	"strings"

	"limpet/sync/snapshot"
	"limpet/tui"
)

// ColorFunc gives a text the colour of a state; nil gives none.
type ColorFunc func(state, text string) string

// Colors is that of what is written to w: for a person at a terminal, or where
// --color always wants it.
func (e *Env) Colors(w io.Writer) ColorFunc {
	if e.Flags.Accessible || e.Flags.Output != "table" && e.Flags.Output != "wide" || e.Color() != "always" && (!IsTerminal(w) || PrintsOnly(e.Getenv)) {
		return nil
	}
	return tui.Ink(tui.Options{Color: e.Color(), Theme: e.Flags.Theme, Env: e.Getenv})
}

// ColorsOf is the ink of an output, nil where it has none.
func ColorsOf(w io.Writer) ColorFunc {
	switch out := w.(type) {
	case *stdout:
		return out.colors
	case *stderr:
		return out.colors
	}
	return nil
}

// paint gives a text the colour of a state, where there are colours.
func (ink ColorFunc) paint(state, text string) string {
	if ink == nil {
		return text
	}
	return ink(state, text)
}

// errorColors is the ink of messages on w as the arguments say, or the environment, also
// when the rest of the call cannot be read.
func errorColors(w io.Writer, args []string, env func(string) string) ColorFunc {
	g := Flags{Output: "table", Color: cmp.Or(flagValue(args, "color", env), "auto"), Theme: flagValue(args, "theme", env)}
	read := flagValue(args, "accessible", env)
	g.Accessible = read != "" && read != "false" || slices.Contains(args, "--accessible")
	return (&Env{Flags: &g, World: World{Lookup: func(name string) (string, bool) { return env(name), true }}}).Colors(w)
}

// Color is --color; where that does not decide CLICOLOR_FORCE does.
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

// OfColumns colours what stands in the columns that tell a state, below so many
// lines of head. An object may be called as a state is, so no other cell is looked at.
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

// mark is a word in the value of a line of fields that tells a state.
type mark struct {
	line        int
	word, state string
}

// ofFields colours the marked words, and the keys of what is wrong.
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

// ConditionState is the state that a condition tells; some types are true when
// something is wrong.
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

// PrintsOnly says that a terminal can do no more than print: it says so, or nobody
// has said which one it is.
func PrintsOnly(env func(string) string) bool {
	switch env("TERM") {
	case "", "dumb", "unknown":
		return true
	}
	return false
}

// Accessible says that what is written to w is lines that can be read out: because that
// is asked for, or because w is a terminal that can only print. A pipe has no TERM
// either; what reads it wants columns.
func (e *Env) Accessible(w io.Writer) bool {
	return e.Flags.Accessible || IsTerminal(w) && PrintsOnly(e.Getenv)
}
