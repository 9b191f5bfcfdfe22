package cli

import (
	"cmp"
	"io"
	"slices"
	"strings"

	"limpet/sync/snapshot"
	"limpet/tui"
)

// ink gives a text the colour of a state; nil gives none.
type ink func(state, text string) string

// ink is that of what is written to w: for a person at a terminal, or where
// --color always wants it.
func (r *run) ink(w io.Writer) ink {
	if r.g.Accessible || r.g.Output != "table" && r.g.Output != "wide" || r.color() != "always" && (!isTerminal(w) || printsOnly(r.Getenv)) {
		return nil
	}
	return tui.Ink(tui.Options{Color: r.color(), Theme: r.g.Theme, Env: r.Getenv})
}

// inkOf is the ink of an output, nil where it has none.
func inkOf(w io.Writer) ink {
	switch out := w.(type) {
	case *stdout:
		return out.ink
	case *stderr:
		return out.ink
	}
	return nil
}

// paint gives a text the colour of a state, where there are colours.
func (ink ink) paint(state, text string) string {
	if ink == nil {
		return text
	}
	return ink(state, text)
}

// errorInk is the ink of messages on w as the arguments say, or the environment, also
// when the rest of the call cannot be read.
func errorInk(w io.Writer, args []string, env func(string) string) ink {
	g := Globals{Output: "table", Color: cmp.Or(flagValue(args, "color", env), "auto"), Theme: flagValue(args, "theme", env)}
	read := flagValue(args, "accessible", env)
	g.Accessible = read != "" && read != "false" || slices.Contains(args, "--accessible")
	return (&run{g: &g, World: World{Lookup: func(name string) (string, bool) { return env(name), true }}}).ink(w)
}

// color is --color; where that does not decide CLICOLOR_FORCE does.
func (r *run) color() string {
	if force := r.Getenv("CLICOLOR_FORCE"); r.g.Color == "auto" && force != "" && force != "0" && r.Getenv("NO_COLOR") == "" {
		return "always"
	}
	return r.g.Color
}

// painter colours the cell of a line and a column; nil leaves all as they are.
type painter func(line, column int, text string) string

func (p painter) cell(line, column int, text string) string {
	if p == nil {
		return text
	}
	return p(line, column, text)
}

// ofColumns colours what stands in the columns that tell a state, below so many
// lines of head. An object may be called as a state is, so no other cell is looked at.
func (ink ink) ofColumns(names []string, head int) painter {
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
func (ink ink) ofFields(marks []mark) painter {
	if ink == nil {
		return nil
	}
	return func(line, column int, text string) string {
		if column == 0 {
			switch key, _, _ := strings.Cut(text, " "); key {
			case "!":
				return ink.word(text, key, "error")
			case "error", "warning":
				return ink(text, text)
			}
			return text
		}
		for _, m := range marks {
			if m.line == line {
				text = ink.word(text, m.word, m.state)
			}
		}
		return text
	}
}

// word colours the first place where a word stands alone in a text.
func (ink ink) word(text, word, state string) string {
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

// conditionState is the state that a condition tells; some types are true when
// something is wrong.
func conditionState(c snapshot.Condition) string {
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
