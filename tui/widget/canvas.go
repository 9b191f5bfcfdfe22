// Package widget draws the parts of frames: a canvas of cells, boxes, lists and lines of facts.
// It does not depend on the state of the dashboard.
package widget

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/clipperhouse/displaywidth"
)

// Canvas is a grid of w by h cells. Screens draw on it only, so a frame has exactly h lines of
// exactly w cells whatever its texts contain.
type Canvas struct {
	W, H  int
	cells []cell
	// addresses are the targets of the links on the canvas.
	addresses []string
}

// cell is one column of one line. A wide grapheme is stored in the first of its two cells; the
// other one has no text.
type cell struct {
	text string
	role Role
	link uint8 // number of the address, from 1; 0 = no link
}

func newCanvas(w, h int) *Canvas {
	c := &Canvas{W: w, H: h, cells: make([]cell, w*h)}
	for i := range c.cells {
		c.cells[i].text = " "
	}
	return c
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

// lead links n cells of a line to the address of that number, until they are overwritten.
func (c *Canvas) lead(x, y, n, to int) {
	for k := range n {
		c.cells[y*c.W+x+k].link = uint8(to)
	}
}

// PaintRow changes the role of the cells of a part of a line; lists mark the cursor with it.
func (c *Canvas) PaintRow(x, y, end int, r Role) {
	for ; x < end && x < c.W; x++ {
		c.cells[y*c.W+x].role = r
	}
}

// Frame renders the canvas as text: h lines, joined by newlines, with an escape sequence only
// where the style or the link changes. Empty styles add nothing.
func (c *Canvas) Frame(t Theme) string {
	var b strings.Builder
	b.Grow(len(c.cells) + c.H*16)
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
			if s := t[cell.role]; s != style {
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

// Box draws a frame with a title at the left and a note at the right of its upper edge, and a
// foot at the right of the lower one.
func (c *Canvas) Box(g glyphs, x, y, w, h int, title, note, foot string, focused bool) {
	if w < 4 || h < 2 {
		return
	}
	r := RoleFrame
	if focused {
		r = roleFocus
	}
	right, bottom := x+w-1, y+h-1
	c.Fill(x+1, y, right, r, g.Horizontal)
	c.Fill(x+1, bottom, right, r, g.Horizontal)
	for row := y + 1; row < bottom; row++ {
		c.Put(x, row, 1, r, g.vertical)
		c.Put(right, row, 1, r, g.vertical)
	}
	c.Put(x, y, 1, r, g.topLeft)
	c.Put(right, y, 1, r, g.topRight)
	c.Put(x, bottom, 1, r, g.bottomLeft)
	c.Put(right, bottom, 1, r, g.bottomRight)
	used := x + 2
	if title != "" {
		used = c.Put(x+1, y, w-3, r, " ")
		used = c.Put(used, y, right-used-1, RoleTitle, title)
		used = c.Put(used, y, right-used-1, r, " ")
	}
	c.label(g, used, right, y, r, note)
	c.label(g, x+2, right, bottom, r, foot)
}

// label puts text right-aligned into an edge that ends at column right.
func (c *Canvas) label(g glyphs, from, right, y int, r Role, text string) {
	if text == "" {
		return
	}
	text = " " + text + " "
	at := right - 1 - displaywidth.String(text)
	if at < from {
		return
	}
	c.Put(at, y, right-1-at, r, text)
}

// Right writes text that ends at column end (not included).
func (c *Canvas) Right(from, end, y int, r Role, text string) {
	text = Cut(text, end-from, "")
	c.Put(end-displaywidth.String(text), y, end-from, r, text)
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
