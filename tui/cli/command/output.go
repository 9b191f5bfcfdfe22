package command

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"limpet/sync/text"

	"github.com/clipperhouse/displaywidth"
	"sigs.k8s.io/yaml"
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

func (t *Table) Add(namespace, name string, cells ...string) {
	t.rows = append(t.rows, tableRow{namespace, name, cells})
}

// mixedNamespaces reports whether the rows are of several namespaces, so that names alone are ambiguous.
func (t *Table) mixedNamespaces() bool {
	for _, r := range t.rows {
		if r.namespace != t.rows[0].namespace {
			return true
		}
	}
	return false
}

// PrintList writes items in the requested format. JSON and YAML of a list are always {"items": [...]}, also
// when it is empty.
func (e *Env) PrintList(list any, t Table) error {
	g, w := e.Flags, e.Out
	var items []any
	if g.Data() {
		var err error
		if items, err = g.PickEach(list); err != nil {
			return err
		}
	}
	switch g.Output {
	case "json":
		return printJSON(w, map[string]any{"items": items})
	case "jsonl":
		return printLines(w, items)
	case "yaml":
		return PrintYAML(w, map[string]any{"items": items})
	case "name":
		for _, row := range t.rows {
			fmt.Fprintln(w, row.name)
		}
		return nil
	}
	return t.Write(w, g.Output == "wide", !g.NoHeaders)
}

// PrintOne writes one object; txt prints it for a person. Without a name -o name prints nothing.
func (e *Env) PrintOne(item any, name string, txt func(io.Writer)) error {
	g, w := e.Flags, e.Out
	if g.Data() && len(g.JSON) > 0 {
		picked, err := g.PickEach([]any{item})
		if err != nil {
			return err
		}
		item = picked[0]
	}
	switch g.Output {
	case "json":
		return printJSON(w, item)
	case "jsonl":
		return printLines(w, []any{item})
	case "yaml":
		return PrintYAML(w, item)
	case "name":
		if name != "" {
			fmt.Fprintln(w, name)
		}
		return nil
	}
	txt(w)
	return nil
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printLines writes each item as JSON in a line of its own.
func printLines(w io.Writer, items []any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, item := range items {
		if err := enc.Encode(item); err != nil {
			return err
		}
	}
	return nil
}

// Data reports whether the output is for programs.
func (g *Flags) Data() bool { return machine(g.Output) }

// machine reports whether an output format is for programs.
func machine(form string) bool { return form == "json" || form == "jsonl" || form == "yaml" }

func PrintYAML(w io.Writer, v any) error {
	data, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

func (t Table) Write(w io.Writer, wide, headers bool) error {
	columns := slices.Clone(t.Columns)
	if wide {
		columns = append(columns, t.Wide...)
	}
	lines := [][]string{}
	if headers {
		lines = append(lines, columns)
	}
	for _, r := range t.rows {
		lines = append(lines, r.cells[:len(columns)])
	}
	names := columns
	if wide || t.mixedNamespaces() {
		names = append([]string{"NAMESPACE"}, columns...)
		for i := range lines {
			first := "NAMESPACE"
			if at := i - len(lines) + len(t.rows); at >= 0 {
				first = text.OrDash(t.rows[at].namespace)
			}
			lines[i] = append([]string{first}, lines[i]...)
		}
	}
	if IsAccessible(w) {
		return t.writeLabelled(w, columns, lines[len(lines)-len(t.rows):])
	}
	_, err := io.WriteString(w, Align(lines, ColorsOf(w).OfColumns(names, len(lines)-len(t.rows))))
	return err
}

// writeLabelled writes each row as lines of "column: value", with a blank line between rows. Empty values are
// left out.
func (t Table) writeLabelled(w io.Writer, columns []string, rows [][]string) error {
	var b strings.Builder
	for i, row := range rows {
		if i > 0 {
			b.WriteByte('\n')
		}
		if len(row) > len(columns) {
			columns = append([]string{"NAMESPACE"}, columns...)
		}
		for j, txt := range row {
			if txt = RedactText(text.Clean(txt)); txt != "" && txt != "-" {
				fmt.Fprintf(&b, "%s: %s\n", strings.ToLower(columns[j]), txt)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// columnGap is the blank between two columns, in cells.
const columnGap = 3

// Align formats lines of cells as columns. Paint colours a cell without changing its width; nil means no
// colours.
func Align(lines [][]string, paint cellStyle) string {
	var width []int
	for _, line := range lines {
		for j, txt := range line {
			line[j] = RedactText(text.Clean(txt))
			if j == len(width) {
				width = append(width, 0)
			}
			width[j] = max(width[j], displaywidth.String(line[j]))
		}
	}
	var b strings.Builder
	for i, line := range lines {
		var row strings.Builder
		for j, txt := range line {
			row.WriteString(paint.cell(i, j, txt))
			if j < len(line)-1 {
				row.WriteString(strings.Repeat(" ", width[j]-displaywidth.String(txt)+columnGap))
			}
		}
		b.WriteString(strings.TrimRight(row.String(), " "))
		b.WriteByte('\n')
	}
	return b.String()
}

// Fields writes one object for a person, a "key  value" line for each field.
type Fields struct {
	lines [][]string
	marks []mark
}

func (f *Fields) Add(key, value string) { f.lines = append(f.lines, []string{key, value}) }

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

// AddState adds a value that begins with the name of a state.
func (f *Fields) AddState(key, state, value string) {
	f.Add(key, value)
	f.Mark(state, state)
}

// Mark gives a word of the last value the colour of a state.
func (f *Fields) Mark(word, state string) {
	f.marks = append(f.marks, mark{len(f.lines) - 1, word, state})
}

// MarkCount marks "n state", unless n is 0.
func (f *Fields) MarkCount(n int, state string) {
	if n > 0 {
		f.Mark(fmt.Sprintf("%d %s", n, state), state)
	}
}

func (f *Fields) Write(w io.Writer) {
	if !IsAccessible(w) {
		io.WriteString(w, Align(f.lines, ColorsOf(w).ofFields(f.marks)))
		return
	}
	for _, line := range f.lines {
		key := line[0]
		if key == "!" {
			key = "problem"
		}
		if key != "" {
			key += ": "
		}
		fmt.Fprintln(w, key+RedactText(text.Clean(line[1])))
	}
}

// Since returns the age of t, "-" when t is zero.
func Since(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return text.Age(now.Sub(t))
}

// List returns s, or an empty slice for nil: JSON prints [] and not null.
func List[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
