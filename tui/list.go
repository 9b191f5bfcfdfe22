package tui

import (
	"fmt"

	"github.com/clipperhouse/displaywidth"
)

// column is one column of a list. Lists are cut to what is seen: only the rows
// of the window are ever made into text.
type column struct {
	head  string
	width int
	right bool // numbers and times end where the column ends
	// rank says when the column goes if the screen is narrow: the highest
	// first; 0 stays.
	rank int
}

// fit drops columns until the rest fits into w cells and gives what is left to
// the column grow.
func fit(columns []column, w, grow int) []int {
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
			sum += c.width + 1
			if c.rank > 0 && (worst < 0 || c.rank > columns[worst].rank) {
				worst = i
			}
		}
		if sum <= w || worst < 0 {
			out := make([]int, len(columns))
			for i, c := range columns {
				if keep[i] {
					out[i] = c.width
				}
			}
			out[grow] = max(out[grow]+w-sum, 4)
			return out
		}
		keep[worst] = false
	}
}

// widen gives a column the room that its longest text needs, up to half of the
// list; other columns go for that.
func (p *painter) widen(columns []column, w int, texts []string, at int) {
	for _, text := range texts {
		columns[at].width = max(columns[at].width, min(displaywidth.String(text), w/2))
	}
}

// window returns the first row to show so that the cursor's row is on the
// screen, near the middle when the list is longer than the window.
func window(cursor, rows, height int) int {
	if rows <= height {
		return 0
	}
	return min(max(cursor-height/2, 0), rows-height)
}

// line is one row of a list: a cell for each column, and their roles.
type line struct {
	cells  []string
	roles  []role
	whole  string // instead of cells: a note that has the row for itself
	marked bool
}

// tableRoom is how many of so many rows have room in h lines: the heads of the columns
// take one of them, unless that is one too many.
func tableRoom(rows, h int) int {
	if h > 2 || rows < h {
		h--
	}
	return max(h, 0)
}

// list draws the heads and the rows of a window; where that has no room for a head
// and two rows, and there are more rows than fit, the rows alone. index gives the row of the cursor;
// row turns one into text.
func (p *painter) list(x, y, w, h int, columns []column, grow, rows, index int, focused bool, row func(i int) line) {
	widths := fit(columns, w-2, grow)
	if room := tableRoom(rows, h); room < h {
		at := x + 2
		for i, c := range columns {
			if widths[i] == 0 {
				continue
			}
			p.cell(at, y, widths[i], c.right, roleHead, c.head)
			at += widths[i] + 1
		}
		y, h = y+1, room
	}
	top, onRow := window(index, rows, h), p.onRow
	p.onRow = nil
	for i := top; i < rows && i-top < h; i++ {
		ly := y + i - top
		l := row(i)
		if onRow != nil {
			onRow(i, x, ly, w)
		}
		if l.whole != "" {
			p.put(x+2, ly, w-4, roleDim, cut(l.whole, w-4, p.g.more))
			continue
		}
		at := x + 2
		for k, c := range columns {
			if widths[k] == 0 {
				continue
			}
			p.cell(at, ly, widths[k], c.right, l.roles[k], l.cells[k])
			at += widths[k] + 1
		}
		if l.marked {
			p.put(x+1, ly, 1, roleKey, "*")
		}
		if i == index {
			p.put(x, ly, 1, roleKey, p.g.cursor)
			if focused {
				p.paintRow(x+1, ly, x+w, roleCursor)
			}
		}
	}
}

// indexOf is the row of the cursor, 0 when it is on none.
func indexOf(cursor string, keys []string) int {
	for i, k := range keys {
		if k == cursor {
			return i
		}
	}
	return 0
}

// place says where in a list the cursor is, and when the list is only the
// beginning of a longer one.
func place(index, rows, all int) string {
	switch {
	case rows == 0:
		return ""
	case rows < all:
		return fmt.Sprintf("%d/%d of %d", index+1, rows, all)
	}
	return fmt.Sprintf("%d/%d", index+1, rows)
}

// keepCursor keeps a cursor on its row; when the row is gone it moves to the row
// that has taken its place.
func keepCursor(cursor string, before, after []string) string {
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

func keysOf[T any](rows []T, key func(T) string) []string {
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = key(r)
	}
	return out
}

func step(cursor string, keys []string, by int) string {
	if len(keys) == 0 {
		return ""
	}
	return keys[min(max(indexOf(cursor, keys)+by, 0), len(keys)-1)]
}
