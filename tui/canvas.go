package tui

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/clipperhouse/displaywidth"
)

// canvas is a grid of w by h cells. Everything that a screen shows is put on
// it, so that a frame has exactly h lines of exactly w cells whatever the texts
// in it are.
type canvas struct {
	w, h  int
	cells []cell
	// addresses are where parts of it lead.
	addresses []string
}

// cell is one column of one line. A wide grapheme stands in the first of its
// two cells; the other one has no text.
type cell struct {
	text string
	role role
	link uint8 // of the addresses, from 1; 0 = it leads nowhere
}

func newCanvas(w, h int) *canvas {
	c := &canvas{w: w, h: h, cells: make([]cell, w*h)}
	for i := range c.cells {
		c.cells[i].text = " "
	}
	return c
}

// put writes clean text at column x of line y, at most limit cells of it, and
// returns the column behind it. What does not fit is cut.
func (c *canvas) put(x, y, limit int, r role, text string) int {
	end := min(x+limit, c.w)
	if y < 0 || y >= c.h || x < 0 {
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

// set replaces one cell. Half of a wide grapheme that it tears apart becomes a
// blank, so that the columns of a line stay true.
func (c *canvas) set(x, y int, text string, r role) {
	i := y*c.w + x
	if text != "" && c.cells[i].text == "" && x > 0 {
		c.cells[i-1].text = " "
	}
	if x+1 < c.w && c.cells[i+1].text == "" && c.cells[i].text != "" {
		c.cells[i+1].text = " "
	}
	c.cells[i] = cell{text: text, role: r}
}

// fill writes text over and over from x to the column end.
func (c *canvas) fill(x, y, end int, r role, text string) {
	for x < end {
		next := c.put(x, y, end-x, r, text)
		if next == x {
			return
		}
		x = next
	}
}

// text is what a cell shows, "" = there is no such cell, or it is half of another.
func (c *canvas) text(x, y int) string {
	if x < 0 || x >= c.w || y < 0 || y >= c.h {
		return ""
	}
	return c.cells[y*c.w+x].text
}

// lead has n cells of a line lead to the address of that number, until they are
// written anew.
func (c *canvas) lead(x, y, n, to int) {
	for k := range n {
		c.cells[y*c.w+x+k].link = uint8(to)
	}
}

// paintRow changes the role of all cells of a part of a line, for the cursor.
func (c *canvas) paintRow(x, y, end int, r role) {
	for ; x < end && x < c.w; x++ {
		c.cells[y*c.w+x].role = r
	}
}

// frame turns the canvas into text: h lines, joined by newlines, with an escape
// sequence only where the style changes, or where the text leads. Styles that are
// empty cost nothing.
func (c *canvas) frame(t theme) string {
	var b strings.Builder
	b.Grow(len(c.cells) + c.h*16)
	for y := range c.h {
		if y > 0 {
			b.WriteByte('\n')
		}
		style, link := "", uint8(0)
		for x := range c.w {
			cell := c.cells[y*c.w+x]
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

// box draws a frame with a title at the left and a note at the right of its
// upper edge, and a foot at the right of the lower one.
func (c *canvas) box(g glyphs, x, y, w, h int, title, note, foot string, focused bool) {
	if w < 4 || h < 2 {
		return
	}
	r := roleFrame
	if focused {
		r = roleFocus
	}
	right, bottom := x+w-1, y+h-1
	c.fill(x+1, y, right, r, g.horizontal)
	c.fill(x+1, bottom, right, r, g.horizontal)
	for row := y + 1; row < bottom; row++ {
		c.put(x, row, 1, r, g.vertical)
		c.put(right, row, 1, r, g.vertical)
	}
	c.put(x, y, 1, r, g.topLeft)
	c.put(right, y, 1, r, g.topRight)
	c.put(x, bottom, 1, r, g.bottomLeft)
	c.put(right, bottom, 1, r, g.bottomRight)
	used := x + 2
	if title != "" {
		used = c.put(x+1, y, w-3, r, " ")
		used = c.put(used, y, right-used-1, roleTitle, title)
		used = c.put(used, y, right-used-1, r, " ")
	}
	c.label(g, used, right, y, r, note)
	c.label(g, x+2, right, bottom, r, foot)
}

// label puts text right-aligned into an edge that ends at column right.
func (c *canvas) label(g glyphs, from, right, y int, r role, text string) {
	if text == "" {
		return
	}
	text = " " + text + " "
	at := right - 1 - displaywidth.String(text)
	if at < from {
		return
	}
	c.put(at, y, right-1-at, r, text)
}

// right writes text so that it ends at column end (not included).
func (c *canvas) right(from, end, y int, r role, text string) {
	text = cut(text, end-from, "")
	c.put(end-displaywidth.String(text), y, end-from, r, text)
}

// cut shortens text to w cells; tail marks the place of what is gone.
func cut(text string, w int, tail string) string {
	if w <= 0 {
		return ""
	}
	if displaywidth.String(text) <= w {
		return text
	}
	return displaywidth.TruncateString(text, w, tail)
}

// wrap breaks text at blanks into lines of at most w cells. A word that is
// longer is broken too: what an error says at its end matters as much.
func wrap(text string, w int) []string {
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
			head := cut(cur, w, "")
			if head == "" {
				return append(out, cur) // not even one letter fits
			}
			out, cur = append(out, head), cur[len(head):]
		}
	}
	return append(out, cur)
}
