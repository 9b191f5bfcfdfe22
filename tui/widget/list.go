package widget

import (
	"fmt"

	"github.com/clipperhouse/displaywidth"
)

// Column is one column of a list. Only the rows of the visible window are rendered.
type Column struct {
	Head  string
	Width int
	Right bool // right-aligned, for numbers and times
	// Rank orders the columns that a narrow screen drops: the highest first; 0 stays.
	Rank int
}

// Fit drops columns until the rest fits into w cells and gives the remaining cells to the column
// grow.
func Fit(columns []Column, w, grow int) []int {
	keep := make([]bool, len(columns))
	for i := range keep {
		keep[i] = true
	}
	for {
		sum, worst := 0, -1
		for i, c := range columns {
			if !keep[i] {
				continue
			}
			sum += c.Width + 1
			if c.Rank > 0 && (worst < 0 || c.Rank > columns[worst].Rank) {
				worst = i
			}
		}
		if sum <= w || worst < 0 {
			out := make([]int, len(columns))
			for i, c := range columns {
				if keep[i] {
					out[i] = c.Width
				}
			}
			out[grow] = max(out[grow]+w-sum, 4)
			return out
		}
		keep[worst] = false
	}
}

// Widen gives a column the width of its longest text, up to half of the list, at the cost of
// other columns.
func (p *Painter) Widen(columns []Column, w int, texts []string, at int) {
	for _, text := range texts {
		columns[at].Width = max(columns[at].Width, min(displaywidth.String(text), w/2))
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

// Line is one row of a list: a cell and a role for each column.
type Line struct {
	Cells  []string
	Roles  []Role
	Whole  string // instead of cells: a note that fills the row
	Marked bool
}

// TableRoom returns how many of the rows fit into h lines. The heads of the columns take one
// line, unless they would displace the last row.
func TableRoom(rows, h int) int {
	if h > 2 || rows < h {
		h--
	}
	return max(h, 0)
}

// List draws the heads and the rows of a window. Without room for a head and two rows it draws
// rows only, when there are more rows than fit. index is the row of the cursor; row renders one
// row.
func (p *Painter) List(x, y, w, h int, columns []Column, grow, rows, index int, focused bool, row func(i int) Line) {
	widths := Fit(columns, w-2, grow)
	if room := TableRoom(rows, h); room < h {
		at := x + 2
		for i, c := range columns {
			if widths[i] == 0 {
				continue
			}
			p.cell(at, y, widths[i], c.Right, RoleHead, c.Head)
			at += widths[i] + 1
		}
		y, h = y+1, room
	}
	top, onRow := Window(index, rows, h), p.OnRow
	p.OnRow = nil
	for i := top; i < rows && i-top < h; i++ {
		ly := y + i - top
		l := row(i)
		if onRow != nil {
			onRow(i, x, ly, w)
		}
		if l.Whole != "" {
			p.Put(x+2, ly, w-4, RoleDim, Cut(l.Whole, w-4, p.G.More))
			continue
		}
		at := x + 2
		for k, c := range columns {
			if widths[k] == 0 {
				continue
			}
			p.cell(at, ly, widths[k], c.Right, l.Roles[k], l.Cells[k])
			at += widths[k] + 1
		}
		if l.Marked {
			p.Put(x+1, ly, 1, RoleKey, "*")
		}
		if i == index {
			p.Put(x, ly, 1, RoleKey, p.G.Cursor)
			if focused {
				p.PaintRow(x+1, ly, x+w, RoleCursor)
			}
		}
	}
}

// IndexOf returns the row of the cursor, 0 when no row has its key.
func IndexOf(cursor string, keys []string) int {
	for i, k := range keys {
		if k == cursor {
			return i
		}
	}
	return 0
}

// Place describes the position of the cursor, and whether the list is only the beginning of a
// longer one.
func Place(index, rows, all int) string {
	switch {
	case rows == 0:
		return ""
	case rows < all:
		return fmt.Sprintf("%d/%d of %d", index+1, rows, all)
	}
	return fmt.Sprintf("%d/%d", index+1, rows)
}

// KeepCursor returns the key of the cursor in the new list. When its row is gone, it returns the
// row that has taken its place.
func KeepCursor(cursor string, before, after []string) string {
	if len(after) == 0 {
		return ""
	}
	for _, k := range after {
		if k == cursor {
			return cursor
		}
	}
	for i, k := range before {
		if k == cursor {
			return after[min(i, len(after)-1)]
		}
	}
	return after[0]
}

func KeysOf[T any](rows []T, key func(T) string) []string {
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = key(r)
	}
	return out
}

func Step(cursor string, keys []string, by int) string {
	if len(keys) == 0 {
		return ""
	}
	return keys[min(max(IndexOf(cursor, keys)+by, 0), len(keys)-1)]
}

// Col returns a column of text; see Column.Rank.
func Col(head string, width, rank int) Column { return Column{Head: head, Width: width, Rank: rank} }

// NumCol returns a column of numbers or times.
func NumCol(head string, width, rank int) Column {
	return Column{Head: head, Width: width, Rank: rank, Right: true}
}
