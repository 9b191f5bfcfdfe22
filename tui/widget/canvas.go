// Package widget draws the parts of frames: a canvas of cells, boxes, tables and lines of facts.
// It does not depend on the state of the dashboard.
package widget

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/ansi"
	"github.com/clipperhouse/displaywidth"

	"limpet/sync/text"
)

// Canvas is a grid of w by h cells, so a frame has exactly h lines of w cells whatever its texts
// contain.
type Canvas struct {
	W, H int
	G    glyphs
	// OnRow, when set, is called with the area of each row of the next table.
	OnRow func(row int, area Rect)

	cells  *uv.ScreenBuffer
	styles [roleCount]uv.Style
	links  bool // not for logs and screen readers
}

// grids are cells of former canvases: new ones are most of the memory that a frame takes.
var grids sync.Pool

// NewCanvas returns an empty canvas with the glyphs and capabilities of a terminal.
func NewCanvas(w, h int, caps Caps) *Canvas {
	cells, ok := grids.Get().(*uv.ScreenBuffer)
	if ok && cells.Width() == w && cells.Height() == h {
		cells.Clear()
	} else {
		fresh := uv.NewScreenBuffer(w, h)
		cells = &fresh
	}
	return &Canvas{W: w, H: h, G: caps.Glyphs(), cells: cells, styles: caps.Look().styles(), links: !caps.ASCII || !caps.Mono}
}

// Frame renders the canvas as text, h lines joined by newlines, and ends its use.
func (c *Canvas) Frame() string {
	defer grids.Put(c.cells)
	return c.cells.Render()
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

// Put writes at most limit cells of clean text at column x of line y and returns the column behind
// it.
func (c *Canvas) Put(x, y, limit int, r Role, text string) int {
	return c.put(x, y, limit, uv.Cell{Style: c.styles[r]}, text)
}

func (c *Canvas) put(x, y, limit int, cell uv.Cell, text string) int {
	end := min(x+limit, c.W)
	for g := displaywidth.StringGraphemes(text); x >= 0 && g.Next(); {
		if cell.Content, cell.Width = g.Value(), g.Width(); x+cell.Width > end {
			break
		}
		if cell.Width > 0 {
			c.cells.SetCell(x, y, &cell)
			x += cell.Width
		}
	}
	return x
}

// PutLine writes a line of text with its links, and marks a cut.
func (c *Canvas) PutLine(x, y, limit int, l TextLine) {
	text := Cut(l.Text, limit, c.G.More)
	c.Put(x, y, limit, l.Role, text)
	for _, link := range l.Links {
		before, _, ok := strings.Cut(l.Text, link.Text)
		if !c.links || !ok || !link.safe() || len(before) >= len(text) {
			continue
		}
		seen := text[len(before):]
		if strings.HasPrefix(seen, link.Text) {
			seen = link.Text
		}
		at := displaywidth.String(before)
		c.put(x+at, y, limit-at, uv.Cell{Style: c.styles[l.Role], Link: uv.NewLink(link.URL)}, seen)
	}
}

// PutCut writes text and marks a cut.
func (c *Canvas) PutCut(x, y, limit int, r Role, text string) {
	c.Put(x, y, limit, r, Cut(text, limit, c.G.More))
}

// Right writes text that ends at column end (not included).
func (c *Canvas) Right(from, end, y int, r Role, text string) {
	text = Cut(text, end-from, "")
	c.Put(end-displaywidth.String(text), y, end-from, r, text)
}

// Fill repeats text from x to the column end.
func (c *Canvas) Fill(x, y, end int, r Role, text string) {
	c.Put(x, y, end-x, r, strings.Repeat(text, max(end-x, 0)))
}

// Cursor marks the row of the cursor from x to the column end.
func (c *Canvas) Cursor(x, y, end int) {
	c.Put(x, y, 1, RoleKey, c.G.Cursor)
	for x++; x < end; x++ {
		if cell := c.cells.CellAt(x, y); cell != nil && cell.Width > 0 {
			cell.Style = c.styles[RoleCursor]
		}
	}
}

// Box is a frame with a title and a note in its upper edge and a foot in the lower one. More is the
// key that shows the lines for which a panel has no room.
type Box struct {
	Title, Note, Foot, More string
	Focused                 bool
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
	right, bottom := at.X+at.W-1, at.Y+at.H-1
	edge := strings.Repeat(g.Horizontal, at.W-2)
	c.Put(at.X, at.Y, at.W, r, g.topLeft+edge+g.topRight)
	c.Put(at.X, bottom, at.W, r, g.bottomLeft+edge+g.bottomRight)
	for y := at.Y + 1; y < bottom; y++ {
		c.Put(at.X, y, 1, r, g.vertical)
		c.Put(right, y, 1, r, g.vertical)
	}
	used := at.X + 2
	if b.Title != "" {
		used = c.Put(at.X+1, at.Y, at.W-3, r, " ")
		used = c.Put(used, at.Y, right-used-1, RoleTitle, b.Title)
		used = c.Put(used, at.Y, right-used-1, r, " ")
	}
	c.label(used, right, at.Y, r, b.Note)
	c.label(at.X+2, right, bottom, r, b.Foot)
}

// label puts text right-aligned into an edge that ends at column right, if there is room.
func (c *Canvas) label(from, right, y int, r Role, text string) {
	text = " " + text + " "
	if at := right - 1 - displaywidth.String(text); text != "  " && at >= from {
		c.Put(at, y, right-1-at, r, text)
	}
}

// Dialog clears an area of w by h cells in the middle, and a cell around it except in the first and
// the last line.
func (c *Canvas) Dialog(w, h int) Rect {
	r := Rect{max((c.W-w)/2, 0), max((c.H-h)/2, 0), w, h}
	for row := max(r.Y-1, min(r.Y, 1)); row < max(r.Y+h, min(r.Y+h+1, c.H-1)); row++ {
		c.Fill(max(r.X-1, 0), row, r.X+w+1, RolePlain, " ")
	}
	return r
}

// TextLine is a line of the screen.
type TextLine struct {
	Role  Role
	Text  string
	Links []Link // parts of the text
}

// Link is a text that terminals open as a web address (OSC 8), where they can.
type Link struct{ Text, URL string }

// safe reports whether the address of a link can control no terminal.
func (l Link) safe() bool {
	hidden := func(r rune) bool { return r <= ' ' || r > '~' }
	return (strings.HasPrefix(l.URL, "https://") || strings.HasPrefix(l.URL, "http://")) && !strings.ContainsFunc(l.URL, hidden)
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

// Lines puts lines into a box. The last one counts those that do not fit, unless it would be the
// only one, and names the key that shows them, if there is one.
func (c *Canvas) Lines(at Rect, lines []TextLine, key string) {
	for i, l := range lines[:min(len(lines), max(at.H-2, 0))] {
		if rest := len(lines) - i; i == at.H-3 && i > 0 && rest > 1 {
			l = Styled(RoleDim, fmt.Sprintf("%s %d more lines", c.G.More, rest)+When(key != "", ": "+key))
		}
		c.PutLine(at.X+2, at.Y+1+i, at.W-4, l)
	}
}

// Panel draws a box with lines.
func (c *Canvas) Panel(at Rect, b Box, lines []TextLine) {
	c.Box(at, b)
	c.Lines(at, lines, b.More)
}

// Scroll draws a box with the lines from top on, which it bounds. The foot shows the position when
// not all lines fit.
func (c *Canvas) Scroll(at Rect, b Box, lines []TextLine, top *int) {
	*top = max(min(*top, len(lines)-max(at.H-2, 0)), 0)
	shown := lines[*top:min(*top+max(at.H-2, 0), len(lines))]
	if len(shown) < len(lines) {
		b.Foot = fmt.Sprintf("%d-%d/%d", *top+1, *top+len(shown), len(lines))
	}
	c.Panel(at, b, shown)
}

// Empty explains why a box has no contents.
func (c *Canvas) Empty(at Rect, texts ...string) {
	var lines []TextLine
	for _, t := range texts {
		lines = Wrapped(lines, RoleDim, t, at.W-4)
	}
	c.Lines(at, lines[:min(len(lines), max(at.H-2, 0))], "")
}

// Cut shortens text to w cells; tail marks the cut.
func Cut(text string, w int, tail string) string {
	if w <= 0 {
		return ""
	}
	return displaywidth.TruncateString(text, w, tail)
}

// Wrap breaks text at blanks into lines of at most w cells, and longer words too: the end of an
// error matters as well.
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
		parts := strings.Split(ansi.Hardwrap(word, w, true), "\n")
		out, cur = append(out, parts[:len(parts)-1]...), parts[len(parts)-1]
	}
	return append(out, cur)
}

// DayTime formats a time in a list that spans days.
func DayTime(t, now time.Time) string {
	t = t.UTC()
	if t.Format(time.DateOnly) == now.UTC().Format(time.DateOnly) {
		return t.Format("15:04:05")
	}
	return t.Format("01-02 15:04")
}

// Ago formats the age of t, "-" when t is zero.
func Ago(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return text.Age(now.Sub(t)) + " ago"
}

// ClockTime formats a time in the short form, with the date when it is not today.
func ClockTime(t, now time.Time) string {
	if t.IsZero() {
		return "an unknown time"
	}
	t = t.UTC()
	if t.Format(time.DateOnly) == now.UTC().Format(time.DateOnly) {
		return t.Format("15:04:05Z")
	}
	return t.Format("2006-01-02 15:04Z")
}

// When returns text if a condition holds, else "".
func When(holds bool, text string) string {
	if holds {
		return text
	}
	return ""
}

// Join joins the texts that are not empty.
func Join(sep string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(t string) bool { return t == "" }), sep)
}

// Thousands formats a count with its noun: "1 file", "1,204 files".
func Thousands(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return text.Thousands(int(n)) + " " + noun + "s"
}
