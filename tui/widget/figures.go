package widget

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/clipperhouse/displaywidth"
)

// factWidth is the width of the name of a fact, in cells.
const factWidth = 13

// Fact is a text with a name. Without a text the name is a head.
type Fact struct {
	Role       Role
	Name, Text string
}

// Sheet is a list of facts.
type Sheet []Fact

// Head adds a head, Add a fact unless its text is empty.
func (s *Sheet) Head(name string) { *s = append(*s, Fact{Role: RoleTitle, Name: name}) }

func (s *Sheet) Add(r Role, name, text string) { s.AddIf(text != "", r, name, text) }

// AddIf adds a fact if a condition holds.
func (s *Sheet) AddIf(holds bool, r Role, name, text string) {
	if holds {
		*s = append(*s, Fact{Role: r, Name: name, Text: text})
	}
}

// Lines lays the facts out on lines of w cells; a long one continues below its text.
func (s Sheet) Lines(c *Canvas, w int) (out []TextLine) {
	for _, f := range s {
		if f.Text == "" {
			out = append(out, Styled(f.Role, f.Name))
			continue
		}
		for _, l := range Wrap(f.Text, w-factWidth) {
			out = append(out, Styled(f.Role, fmt.Sprintf("%-*s%s", factWidth, Cut(f.Name, factWidth-1, c.G.More), l)))
			f.Name = ""
		}
	}
	return out
}

// FoldLine cuts a text to w cells, or wraps it when wraps is set.
func (c *Canvas) FoldLine(r Role, txt string, w int, wraps bool) (out []TextLine) {
	if !wraps {
		return []TextLine{Styled(r, Cut(txt, w, c.G.More))}
	}
	for _, l := range strings.Split(ansi.Hardwrap(txt, w, true), "\n") {
		out = append(out, Styled(r, l))
	}
	return out
}

// MarkedLines wraps text to lines of w cells behind the glyph of a state.
func (c *Canvas) MarkedLines(r Role, state, text string, w int) (out []TextLine) {
	mark := c.G.State[state] + " "
	for _, l := range Wrap(text, w-2) {
		out = append(out, Styled(r, mark+l))
		mark = "  "
	}
	return out
}

// StateGlyph returns the glyph of a state; those of other programs have that of "unknown".
func (c *Canvas) StateGlyph(state string) string {
	if glyph, ok := c.G.State[state]; ok {
		return glyph
	}
	return c.G.State["unknown"]
}

// Bar returns a progress bar of w cells; a percentage below 0 is unknown.
func (c *Canvas) Bar(w int, percent float64) string {
	full := 0
	if percent > 0 {
		full = min(int(percent/100*float64(w)+0.5), w)
	}
	return strings.Repeat(c.G.full, full) + strings.Repeat(c.G.rest, w-full)
}

// Spark draws the last 24 hours. A cell that stands for several hours shows the worst.
func (c *Canvas) Spark(runs string, w int) string {
	if runs == "" {
		return strings.Repeat(c.G.spark['.'], min(w, 24))
	}
	const rank = ".cswe"
	w = min(w, len(runs))
	var b strings.Builder
	for i := range w {
		worst := 0
		for k := i * len(runs) / w; k < (i+1)*len(runs)/w; k++ {
			worst = max(worst, strings.IndexByte(rank, runs[k]))
		}
		b.WriteString(c.G.spark[rank[worst]])
	}
	return b.String()
}

// Hint is a key and what it does.
type Hint struct{ Key, Text string }

// HintWidth returns the width of a line of hints in cells.
func HintWidth(hints []Hint) int {
	w := -2
	for _, h := range hints {
		w += displaywidth.String(h.Key) + 1 + displaywidth.String(h.Text) + 2
	}
	return w
}

// Hints draws a line of hints.
func (c *Canvas) Hints(x, y, end int, r Role, hints []Hint) {
	for _, h := range hints {
		x = c.Put(x, y, end-x, RoleKey, h.Key)
		x = c.Put(x+1, y, end-x-1, r, h.Text) + 2
	}
}
