// Package widget draws the parts of frames: a canvas of cells, boxes, tables and lines of facts.
// It does not depend on the state of the dashboard.
package widget

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/clipperhouse/displaywidth"
)

// Canvas is a grid of w by h cells. Screens draw on it only, so a frame has exactly h lines of
// exactly w cells whatever its texts contain.
type Canvas struct {
	W, H int
	G    glyphs
	// OnRow, when set, is called with the area of each row of the next table.
	OnRow func(row int, area Rect)

	caps      Caps
	cells     []cell
	addresses []string // targets of the links on the canvas
}

// cell is one column of one line. A wide grapheme is stored in the first of its two cells; the
// other one has no text.
type cell struct {
	text string
	role Role
	link uint8 // number of the address, from 1; 0 = no link
}

// NewCanvas returns an empty canvas with the glyphs and capabilities of a terminal.
func NewCanvas(w, h int, caps Caps) *Canvas {
	c := &Canvas{W: w, H: h, G: caps.Glyphs(), caps: caps, cells: make([]cell, w*h)}
	for i := range c.cells {
		c.cells[i].text = " "
	}
	return c
}

// Rect is an area of a canvas.
type Rect struct{ X, Y, W, H int }

// Top splits an area after h lines, Left after w columns.
func (r Rect) Top(h int) (top, rest Rect) {
	return Rect{r.X, r.Y, r.W, h}, Rect{r.X, r.Y + h, r.W, r.H - h}
}

func (r Rect) Left(w int) (left, rest Rect) {
	return Rect{r.X, r.Y, w, r.H}, Rect{r.X + w, r.Y, r.W - w, r.H}
}

// Put writes clean text at column x of line y, at most limit cells of it, and returns the column
// behind it. Text that does not fit is cut.
func (c *Canvas) Put(x, y, limit int, r Role, text string) int {
	end := min(x+limit, c.W)
	if y < 0 || y >= c.H || x < 0 {
		return x
	}
	g := displaywidth.StringGraphemes(text)
	for g.Next() {
		n := g.Width()
		if n == 0 {
			continue
		}
		if x+n > end {
			break
		}
		c.set(x, y, g.Value(), r)
		for k := 1; k < n; k++ {
			c.set(x+k, y, "", r)
		}
		x += n
	}
	return x
}

// set replaces one cell. When it splits a wide grapheme, the other half becomes a blank, so that
// the columns of the line stay aligned.
func (c *Canvas) set(x, y int, text string, r Role) {
	i := y*c.W + x
	if text != "" && c.cells[i].text == "" && x > 0 {
		c.cells[i-1].text = " "
	}
	if x+1 < c.W && c.cells[i+1].text == "" && c.cells[i].text != "" {
		c.cells[i+1].text = " "
	}
	c.cells[i] = cell{text: text, role: r}
}

// PutCut writes text and marks a cut.
func (c *Canvas) PutCut(x, y, limit int, r Role, text string) int {
	return c.Put(x, y, limit, r, Cut(text, limit, c.G.More))
}

// Right writes text that ends at column end (not included).
func (c *Canvas) Right(from, end, y int, r Role, text string) {
	text = Cut(text, end-from, "")
	c.Put(end-displaywidth.String(text), y, end-from, r, text)
}

// Fill repeats text from x to the column end.
func (c *Canvas) Fill(x, y, end int, r Role, text string) {
	for x < end {
		next := c.Put(x, y, end-x, r, text)
		if next == x {
			return
		}
		x = next
	}
}

// text returns the text of a cell, "" outside the canvas and for the second half of a grapheme.
func (c *Canvas) text(x, y int) string {
	if x < 0 || x >= c.W || y < 0 || y >= c.H {
		return ""
	}
	return c.cells[y*c.W+x].text
}

// PaintRow changes the role of the cells of a part of a line; lists mark the cursor with it.
func (c *Canvas) PaintRow(x, y, end int, r Role) {
	for ; x < end && x < c.W; x++ {
		c.cells[y*c.W+x].role = r
	}
}

// Frame renders the canvas as text: h lines, joined by newlines, with an escape sequence only
// where the style or the link changes. Empty styles add nothing.
func (c *Canvas) Frame() string {
	var b strings.Builder
	b.Grow(len(c.cells) + c.H*16)
	theme := c.caps.Look()
	for y := range c.H {
		if y > 0 {
			b.WriteByte('\n')
		}
		style, link := "", uint8(0)
		for x := range c.W {
			cell := c.cells[y*c.W+x]
			if cell.link != link {
				b.WriteString(c.hyperlink(cell.link, y))
				link = cell.link
			}
			if s := theme[cell.role]; s != style {
				if style != "" {
					b.WriteString("\x1b[0m")
				}
				if s != "" {
					b.WriteString("\x1b[" + s + "m")
				}
				style = s
			}
			b.WriteString(cell.text)
		}
		if link != 0 {
			b.WriteString(ansi.ResetHyperlink())
		}
		if style != "" {
			b.WriteString("\x1b[0m")
		}
	}
	return b.String()
}

// Box is a frame around an area: a title at the left and a note at the right of its upper edge,
// and a foot at the right of the lower one.
type Box struct {
	Title, Note, Foot string
	Focused           bool
}

// Box draws a box.
func (c *Canvas) Box(at Rect, b Box) {
	if at.W < 4 || at.H < 2 {
		return
	}
	g, r := c.G, RoleFrame
	if b.Focused {
		r = roleFocus
	}
	x, y, right, bottom := at.X, at.Y, at.X+at.W-1, at.Y+at.H-1
	for _, edge := range []struct {
		y           int
		left, right string
	}{{y, g.topLeft, g.topRight}, {bottom, g.bottomLeft, g.bottomRight}} {
		c.Put(x, edge.y, 1, r, edge.left)
		c.Fill(x+1, edge.y, right, r, g.Horizontal)
		c.Put(right, edge.y, 1, r, edge.right)
	}
	for row := y + 1; row < bottom; row++ {
		c.Put(x, row, 1, r, g.vertical)
		c.Put(right, row, 1, r, g.vertical)
	}
	used := x + 2
	if b.Title != "" {
		used = c.Put(x+1, y, at.W-3, r, " ")
		used = c.Put(used, y, right-used-1, RoleTitle, b.Title)
		used = c.Put(used, y, right-used-1, r, " ")
	}
	c.label(used, right, y, r, b.Note)
	c.label(x+2, right, bottom, r, b.Foot)
}

// label puts text right-aligned into an edge that ends at column right, if there is room.
func (c *Canvas) label(from, right, y int, r Role, text string) {
	text = " " + text + " "
	if at := right - 1 - displaywidth.String(text); text != "  " && at >= from {
		c.Put(at, y, right-1-at, r, text)
	}
}

// Dialog clears an area of w by h cells in the middle.
func (c *Canvas) Dialog(w, h int) Rect {
	r := Rect{max((c.W-w)/2, 0), max((c.H-h)/2, 0), w, h}
	for row := r.Y; row < r.Y+h && row < c.H; row++ {
		c.Fill(r.X, row, min(r.X+w, c.W), RolePlain, " ")
	}
	return r
}

// TextLine is a line of the screen.
type TextLine struct {
	Role Role
	Text string
}

// Styled returns a line of text in a role.
func Styled(r Role, text string) TextLine { return TextLine{Role: r, Text: text} }

// Wrapped appends text to lines of w cells.
func Wrapped(out []TextLine, r Role, text string, w int) []TextLine {
	for _, l := range Wrap(text, w) {
		out = append(out, Styled(r, l))
	}
	return out
}

// Lines puts lines into a box and links web addresses in them. When they do not fit, the last
// line counts the missing ones, unless it would be the only one.
func (c *Canvas) Lines(at Rect, lines []TextLine, addresses ...string) {
	for i, l := range lines[:min(len(lines), max(at.H-2, 0))] {
		if rest := len(lines) - i; i == at.H-3 && i > 0 && rest > 1 {
			l = TextLine{RoleDim, fmt.Sprintf("%s %d more lines", c.G.More, rest)}
		}
		c.PutCut(at.X+2, at.Y+1+i, at.W-4, l.Role, l.Text)
	}
	for _, a := range addresses {
		c.Link(at.X+2, at.Y+1, at.W-4, at.H-2, a)
	}
}

// Panel draws a box with lines.
func (c *Canvas) Panel(at Rect, b Box, lines []TextLine, addresses ...string) {
	c.Box(at, b)
	c.Lines(at, lines, addresses...)
}

// Scroll draws a box with the lines from top on. Its foot tells the place when not all fit.
func (c *Canvas) Scroll(at Rect, b Box, lines []TextLine, top int, addresses ...string) {
	top = Scrolled(top, len(lines), at.H)
	shown := lines[top:min(top+max(at.H-2, 0), len(lines))]
	if len(shown) < len(lines) {
		b.Foot = fmt.Sprintf("%d-%d/%d", top+1, top+len(shown), len(lines))
	}
	c.Panel(at, b, shown, addresses...)
}

// Scrolled returns the first visible line in a box of h lines.
func Scrolled(top, lines, h int) int { return max(min(top, lines-max(h-2, 0)), 0) }

// ScrolledBy returns the first visible line after a step.
func ScrolledBy(top, by, lines, h int) int {
	return Scrolled(max(Scrolled(top, lines, h)+by, 0), lines, h)
}

// Empty explains why a box has no contents.
func (c *Canvas) Empty(at Rect, texts ...string) {
	var lines []TextLine
	for _, t := range texts {
		lines = Wrapped(lines, RoleDim, t, at.W-4)
	}
	c.Lines(at, lines[:min(len(lines), max(at.H-2, 0))])
}

// Cut shortens text to w cells; tail marks the cut.
func Cut(text string, w int, tail string) string {
	if w <= 0 {
		return ""
	}
	if displaywidth.String(text) <= w {
		return text
	}
	return displaywidth.TruncateString(text, w, tail)
}

// Wrap breaks text at blanks into lines of at most w cells. Longer words are broken too, because
// the end of an error message matters as much as its start.
func Wrap(text string, w int) []string {
	var out []string
	cur := ""
	for _, word := range strings.Fields(text) {
		if cur != "" && displaywidth.String(cur)+1+displaywidth.String(word) <= w {
			cur += " " + word
			continue
		}
		if cur != "" {
			out = append(out, cur)
		}
		for cur = word; displaywidth.String(cur) > w; {
			head := Cut(cur, w, "")
			if head == "" {
				return append(out, cur) // not even one letter fits
			}
			out, cur = append(out, head), cur[len(head):]
		}
	}
	return append(out, cur)
}
