package command

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"

	"limpet/sync/text"
)

// Table is a list for a person. Wide columns are shown with -o wide only.
type Table struct {
	Columns []string
	Wide    []string
	rows    []tableRow
}

// tableRow is one line: its cells are those of Columns, then those of Wide.
type tableRow struct {
	namespace string
	name      string // for -o name
	cells     []string
}

// Add adds a row. name is that of the object for -o name.
func (t *Table) Add(namespace, name string, cells ...string) {
	t.rows = append(t.rows, tableRow{namespace, name, cells})
}

// Write writes the table with columns, for a screen reader each row as lines of "column: value".
func (t Table) Write(w io.Writer, wide, headers bool) {
	columns, skip := slices.Concat([]string{"NAMESPACE"}, t.Columns), 1
	if wide {
		columns, skip = append(columns, t.Wide...), 0
	}
	for _, r := range t.rows {
		if r.namespace != t.rows[0].namespace { // a name alone is ambiguous
			skip = 0
		}
	}
	lines := [][]string{columns[skip:]}
	for _, r := range t.rows {
		lines = append(lines, slices.Concat([]string{text.OrDash(r.namespace)}, r.cells[:len(columns)-1])[skip:])
	}
	columns = columns[skip:]
	if !IsAccessible(w) {
		head := 1
		if !headers {
			lines, head = lines[1:], 0
		}
		io.WriteString(w, Align(lines, ColorsOf(w).OfColumns(columns, head)))
		return
	}
	for i, row := range lines[1:] {
		if i > 0 {
			fmt.Fprintln(w)
		}
		for j, txt := range row {
			if txt != "" && txt != "-" {
				fmt.Fprintf(w, "%s: %s\n", strings.ToLower(columns[j]), cleanCell(txt))
			}
		}
	}
}

// columnGap is the blank between two columns, in cells.
const columnGap = 3

// Align formats lines of cells as columns. Paint colours a cell without changing its width.
func Align(lines [][]string, paint func(line, column int, text string) string) string {
	var width []int
	for _, line := range lines {
		for j, txt := range line {
			line[j] = cleanCell(txt)
			if j == len(width) {
				width = append(width, 0)
			}
			width[j] = max(width[j], displaywidth.String(line[j]))
		}
	}
	var b strings.Builder
	for i, line := range lines {
		row := ""
		for j, txt := range line {
			gap := width[j] - displaywidth.String(txt) + columnGap
			row += paint(i, j, txt) + strings.Repeat(" ", gap)
		}
		b.WriteString(strings.TrimRight(row, " ") + "\n")
	}
	return b.String()
}

func cleanCell(txt string) string { return RedactText(text.Clean(txt)) }

// RedactText removes secrets from a text that another program has written to a job. Only texts with
// a URL are examined: that is where they occur, and lists are long.
func RedactText(s string) string {
	if !strings.Contains(s, "://") {
		return s
	}
	return text.Redact(s)
}

// Fields writes one object for a person, a "key  value" line for each field.
type Fields struct {
	lines  [][]string
	states []string // of the lines; "" = none
}

// Add adds a value.
func (f *Fields) Add(key, value string) { f.AddState(key, "", value) }

// AddState adds a value whose first word has the colour of a state.
func (f *Fields) AddState(key, state, value string) {
	f.lines, f.states = append(f.lines, []string{key, value}), append(f.states, state)
}

// AddSet adds a value, unless it is empty.
func (f *Fields) AddSet(key, value string) {
	if value != "" {
		f.Add(key, value)
	}
}

// AddTime adds a time, unless it is zero.
func (f *Fields) AddTime(key string, at time.Time) {
	if !at.IsZero() {
		f.Add(key, at.UTC().Format(time.RFC3339))
	}
}

// Write writes the fields with aligned values, for a screen reader as "key: value".
func (f *Fields) Write(w io.Writer) {
	if !IsAccessible(w) {
		io.WriteString(w, Align(f.lines, ColorsOf(w).ofFields(f.states)))
		return
	}
	for _, line := range f.lines {
		key := strings.Replace(line[0], "!", "problem", 1)
		if key != "" {
			key += ": "
		}
		fmt.Fprintln(w, key+cleanCell(line[1]))
	}
}
