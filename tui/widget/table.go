package widget

import "github.com/clipperhouse/displaywidth"

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
	Grow    int              // the column that gets the remaining cells
	Note    func(T) string   // the text of a row without cells; nil = none
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
		if sum <= w || worst < 0 {
			out[t.Grow] = max(out[t.Grow]+w-sum, 4)
			return out
		}
		out[worst] = 0
	}
}

// Window returns the first row to show. The row of the cursor is visible, near the middle when
// the list is longer than the window.
func Window(cursor, rows, height int) int {
	if rows <= height {
		return 0
	}
	return min(max(cursor-height/2, 0), rows-height)
}

// Draw draws the heads and the rows around the row index inside a box. The heads take one line,
// unless they would displace the last row.
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
		ly, note := y+i-top, ""
		if onRow != nil {
			onRow(i, Rect{x, ly, w, 1})
		}
		if t.Note != nil {
			note = t.Note(rows[i])
		}
		if note != "" {
			c.PutCut(x+2, ly, w-4, RoleDim, note)
		} else {
			line(ly, func(k int) (string, Role) { return t.Columns[k].Cell(rows[i], widths[k]) })
		}
		if t.Marked != nil && t.Marked(i) {
			c.Put(x+1, ly, 1, RoleKey, "*")
		}
		if i == index {
			c.Cursor(x, ly, x+w, focused)
		}
	}
}
