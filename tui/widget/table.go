package widget

import (
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/clipperhouse/displaywidth"
)

// wideWidth is the width from which columns have their wide form.
const wideWidth = 120

// Column is one column of a table. Only the rows of the visible window are rendered.
type Column[T any] struct {
	Head        string
	Width, Wide int // in cells; Wide on a wide screen, 0 = Width
	// Rank orders the columns that a narrow screen drops: the highest first; 0 stays.
	Rank  int
	Right bool // right-aligned, for numbers and times
	Whole bool // as wide as its longest text, up to half of the table
	Cell  func(row T, w int) (string, Role)
}

// Table draws rows in columns.
type Table[T any] struct {
	Columns []Column[T]
	Grow    int // the column that gets the remaining cells
	Most    int // its most cells while the column Then is shown, which gets the others; 0 = no bound
	Then    int
	Over    int              // columns from this rank on make room for the texts of the column Grow; 0 = none
	Marked  func(i int) bool // whether a row is marked; nil = none
}

// Plain adapts a text to a cell.
func Plain[T any](text func(T) string) func(T, int) (string, Role) {
	return func(row T, _ int) (string, Role) { return text(row), RolePlain }
}

// fit returns the widths of the columns in w cells; 0 = dropped.
func (t Table[T]) fit(rows []T, w int, wide bool) []int {
	out := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		if out[i] = c.Width; wide && c.Wide > 0 {
			out[i] = c.Wide
		}
		for k := 0; c.Whole && k < len(rows); k++ {
			text, _ := c.Cell(rows[k], w)
			out[i] = max(out[i], min(displaywidth.String(text), w/2))
		}
	}
	for {
		sum, worst := 0, -1
		for i, c := range t.Columns {
			if out[i] == 0 {
				continue
			}
			sum += out[i] + 1
			if c.Rank > 0 && (worst < 0 || c.Rank > t.Columns[worst].Rank) {
				worst = i
			}
		}
		if rest := w - sum; worst >= 0 && t.Over > 0 && t.Columns[worst].Rank >= t.Over && t.cuts(rows, out[t.Grow]+rest) {
			out[worst] = 0
		} else if rest >= 0 || worst < 0 {
			if more := out[t.Grow] + rest - t.Most; t.Most > 0 && more > 0 && out[t.Then] > 0 {
				out[t.Then], rest = out[t.Then]+more, rest-more
			}
			out[t.Grow] = max(out[t.Grow]+rest, 4)
			return out
		} else {
			out[worst] = 0
		}
	}
}

// cuts reports whether a text of the column Grow is longer than w cells. What adapts to its width
// is as short as it can be.
func (t Table[T]) cuts(rows []T, w int) bool {
	return slices.ContainsFunc(rows, func(row T) bool {
		text, _ := t.Columns[t.Grow].Cell(row, 0)
		return displaywidth.String(text) > w
	})
}

// Window returns the first row to show, so that the row of the cursor is near the middle of a long
// list.
func Window(cursor, rows, height int) int {
	if rows <= height {
		return 0
	}
	return min(max(cursor-height/2, 0), rows-height)
}

// Draw draws heads and the rows around the row index inside a box; no heads where they displace the
// last row.
func (t Table[T]) Draw(c *Canvas, box Rect, rows []T, index int, focused bool) {
	x, y, w, h := box.X+1, box.Y+1, box.W-2, box.H-2
	widths := t.fit(rows, w-2, box.W >= wideWidth)
	line := func(y int, cell func(k int) (string, Role)) {
		at := x + 2
		for k, column := range t.Columns {
			if widths[k] == 0 {
				continue
			}
			text, role := cell(k)
			if text = Cut(text, widths[k], c.G.More); column.Right {
				c.Right(at, at+widths[k], y, role, text)
			} else {
				c.Put(at, y, widths[k], role, text)
			}
			at += widths[k] + 1
		}
	}
	if h > 2 || len(rows) < h {
		line(y, func(k int) (string, Role) { return t.Columns[k].Head, RoleHead })
		y, h = y+1, h-1
	}
	h = max(h, 0)
	top, onRow := Window(index, len(rows), h), c.OnRow
	c.OnRow = nil
	for i := top; i < len(rows) && i-top < h; i++ {
		ly := y + i - top
		if onRow != nil {
			onRow(i, Rect{x, ly, w, 1})
		}
		line(ly, func(k int) (string, Role) { return t.Columns[k].Cell(rows[i], widths[k]) })
		if t.Marked != nil && t.Marked(i) {
			c.Put(x+1, ly, 1, RoleKey, "*")
		}
		if i == index && focused { // a list without the keys has no mark
			c.Cursor(x, ly, x+w)
		}
	}
}

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
