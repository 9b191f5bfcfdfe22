package cli

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

// table is a list for a person. Wide columns come after the others and are
// shown with -o wide only.
type table struct {
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

func (t *table) add(namespace, name string, cells ...string) {
	t.rows = append(t.rows, tableRow{namespace, name, cells})
}

// spread says that the rows are not all of one namespace, so that a name alone
// does not tell them apart.
func (t *table) spread() bool {
	for _, r := range t.rows {
		if r.namespace != t.rows[0].namespace {
			return true
		}
	}
	return false
}

// printList writes items in the format that was asked for. JSON and YAML of a list
// are always {"items": [...]}, also when it is empty.
func (r *run) printList(list any, t table) error {
	g, w := r.g, r.Out
	var items []any
	if g.data() {
		var err error
		if items, err = g.pickEach(list); err != nil {
			return err
		}
	}
	switch g.Output {
	case "json":
		return printJSON(w, map[string]any{"items": items})
	case "jsonl":
		return printLines(w, items)
	case "yaml":
		return printYAML(w, map[string]any{"items": items})
	case "name":
		for _, row := range t.rows {
			fmt.Fprintln(w, row.name)
		}
		return nil
	}
	return t.write(w, g.Output == "wide", !g.NoHeaders)
}

// printOne writes one object; text is its form for a person. What has no name
// prints nothing with -o name.
func (r *run) printOne(item any, name string, txt func(io.Writer)) error {
	g, w := r.g, r.Out
	if g.data() && len(g.JSON) > 0 {
		picked, err := g.pickEach([]any{item})
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
		return printYAML(w, item)
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

// data says that a command is to print objects and no lines for people.
func (g *Globals) data() bool { return machine(g.Output) }

// machine says that an output format is for programs.
func machine(form string) bool { return form == "json" || form == "jsonl" || form == "yaml" }

func printYAML(w io.Writer, v any) error {
	data, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

func (t table) write(w io.Writer, wide, headers bool) error {
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
	if wide || t.spread() {
		names = append([]string{"NAMESPACE"}, columns...)
		for i := range lines {
			first := "NAMESPACE"
			if at := i - len(lines) + len(t.rows); at >= 0 {
				first = text.OrDash(t.rows[at].namespace)
			}
			lines[i] = append([]string{first}, lines[i]...)
		}
	}
	if labelled(w) {
		return t.read(w, columns, lines[len(lines)-len(t.rows):])
	}
	_, err := io.WriteString(w, align(lines, inkOf(w).ofColumns(names, len(lines)-len(t.rows))))
	return err
}

// read writes a table as it is read out: the name of the column before each value, a
// blank line between two rows. What a row does not have is left out.
func (t table) read(w io.Writer, columns []string, rows [][]string) error {
	var b strings.Builder
	for i, row := range rows {
		if i > 0 {
			b.WriteByte('\n')
		}
		if len(row) > len(columns) {
			columns = append([]string{"NAMESPACE"}, columns...)
		}
		for j, txt := range row {
			if txt = maskText(text.Clean(txt)); txt != "" && txt != "-" {
				fmt.Fprintf(&b, "%s: %s\n", strings.ToLower(columns[j]), txt)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// columnGap is the blank between two columns, in cells.
const columnGap = 3

// align makes lines of cells into text whose columns stand below each other. Paint
// colours a cell, which is as wide as before on a terminal; nil = none.
func align(lines [][]string, paint painter) string {
	var width []int
	for _, line := range lines {
		for j, txt := range line {
			line[j] = maskText(text.Clean(txt))
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

// fields writes one "key  value" line each, for one object shown to a person.
type fields struct {
	lines [][]string
	marks []mark
}

func (f *fields) add(key, value string) { f.lines = append(f.lines, []string{key, value}) }

// addState adds a value that begins with a word of state, or is one.
func (f *fields) addState(key, state, value string) {
	f.add(key, value)
	f.mark(state, state)
}

// mark gives a word of the value that was added last the colour of a state.
func (f *fields) mark(word, state string) {
	f.marks = append(f.marks, mark{len(f.lines) - 1, word, state})
}

// markCount does so with a number and the state it counts, unless it is 0.
func (f *fields) markCount(n int, state string) {
	if n > 0 {
		f.mark(fmt.Sprintf("%d %s", n, state), state)
	}
}

func (f *fields) write(w io.Writer) {
	if !labelled(w) {
		io.WriteString(w, align(f.lines, inkOf(w).ofFields(f.marks)))
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
		fmt.Fprintln(w, key+maskText(text.Clean(line[1])))
	}
}

// since is the age of t, "-" when t is not known.
func since(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return text.Age(now.Sub(t))
}

// list is s, or an empty one: what prints as [] and not as null.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
