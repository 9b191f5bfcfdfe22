package command

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"
	"sigs.k8s.io/yaml"

	"limpet/sync/snapshot"
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

// PrintList writes items in the requested format. JSON and YAML of a list are always {"items": [...]}, also
// when it is empty.
func (e *Env) PrintList(list any, t Table) error {
	g := e.Flags
	if g.Data() {
		items, err := g.PickEach(list)
		if err != nil {
			return err
		}
		return g.printData(e.Out, map[string]any{"items": items}, items)
	}
	if g.Output != "name" {
		return t.Write(e.Out, g.Output == "wide", !g.NoHeaders)
	}
	for _, row := range t.rows {
		fmt.Fprintln(e.Out, row.name)
	}
	return nil
}

// PrintOne writes one object; txt prints it for a person. Without a name -o name prints nothing.
func (e *Env) PrintOne(item any, name string, txt func(io.Writer)) error {
	g := e.Flags
	switch {
	case g.Data():
		items, err := g.PickEach([]any{item})
		if err != nil {
			return err
		}
		return g.printData(e.Out, items[0], items)
	case g.Output != "name":
		txt(e.Out)
	case name != "":
		fmt.Fprintln(e.Out, name)
	}
	return nil
}

// printData writes a document as JSON or YAML, or its items as lines.
func (g *Flags) printData(w io.Writer, document any, items []any) error {
	switch g.Output {
	case "jsonl":
		return printLines(w, items)
	case "yaml":
		return PrintYAML(w, document)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(document)
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

// PrintYAML writes a document as YAML.
func PrintYAML(w io.Writer, v any) error {
	data, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// Data reports whether the output is for programs.
func (g *Flags) Data() bool { return machine(g.Output) }

// machine reports whether an output format is for programs.
func machine(form string) bool { return form == "json" || form == "jsonl" || form == "yaml" }

// settleOutput makes --json and --output consistent.
func (g *Flags) settleOutput() error {
	switch {
	case len(g.JSON) == 0 || g.Data():
		return nil
	case g.Output == "table":
		g.Output = "json"
		return nil
	}
	return Usagef("limpet get repositories --json metadata.name    # without -o "+g.Output,
		"--json chooses fields of an object, and -o %s shows none", g.Output)
}

// PickEach returns the items of a slice with only the fields of --json, whole without it. It is never nil.
func (g *Flags) PickEach(list any) ([]any, error) {
	items := []any{}
	if list == nil {
		return items, nil
	}
	for v, i := reflect.ValueOf(list), 0; i < v.Len(); i++ {
		item, err := g.pick(v.Index(i).Interface())
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

// pick returns the fields of --json of one item, the item itself without it.
func (g *Flags) pick(item any) (any, error) {
	if len(g.JSON) == 0 {
		return item, nil
	}
	data, err := json.Marshal(item)
	if err != nil {
		return nil, err
	}
	var whole any
	if err := json.Unmarshal(data, &whole); err != nil {
		return nil, err
	}
	picked := map[string]any{}
	for _, field := range g.JSON {
		picked[field] = dig(whole, field)
	}
	return picked, nil
}

// dig returns the value at a path of names and indices with dots, nil for none. A name may contain dots itself,
// as those of labels do.
func dig(v any, path string) any {
	if path == "" {
		return v
	}
	switch v := v.(type) {
	case map[string]any:
		for at := len(path); at > 0; at = strings.LastIndexByte(path[:at], '.') {
			if inner, ok := v[path[:at]]; ok {
				return dig(inner, strings.TrimPrefix(path[at:], "."))
			}
		}
	case []any:
		first, rest, _ := strings.Cut(path, ".")
		if i, err := strconv.Atoi(first); err == nil && i >= 0 && i < len(v) {
			return dig(v[i], rest)
		}
	}
	return nil
}

// StreamLine is one document of a watch. Type names the member that it has besides.
type StreamLine struct {
	Type          string          `json:"type"`
	SchemaVersion int             `json:"schemaVersion"`
	Time          time.Time       `json:"time"`
	Job           any             `json:"job,omitempty"`
	Log           *snapshot.Event `json:"log,omitempty"`
	Ended         any             `json:"ended,omitempty"`
	Status        any             `json:"status,omitempty"`
}

// PrintStream writes one document of a stream: a line of JSON, or a YAML document behind "---".
func (e *Env) PrintStream(line StreamLine) error {
	line.SchemaVersion, line.Time = schemaVersion, time.Now().UTC()
	document, err := e.Flags.pick(line)
	if err != nil {
		return err
	}
	if e.Flags.Output != "yaml" {
		return printLines(e.Out, []any{document})
	}
	io.WriteString(e.Out, "---\n")
	return PrintYAML(e.Out, document)
}

// Write writes the table with columns, for a screen reader each row as lines of "column: value".
func (t Table) Write(w io.Writer, wide, headers bool) error {
	columns := t.Columns
	if wide {
		columns = slices.Concat(t.Columns, t.Wide)
	}
	lines := [][]string{columns}
	mixed := wide // a name alone is ambiguous where the rows are of several namespaces
	for _, r := range t.rows {
		lines = append(lines, r.cells[:len(columns)])
		mixed = mixed || r.namespace != t.rows[0].namespace
	}
	for i := range lines {
		switch {
		case mixed && i == 0:
			lines[i] = append([]string{"NAMESPACE"}, columns...)
		case mixed:
			lines[i] = append([]string{text.OrDash(t.rows[i-1].namespace)}, lines[i]...)
		}
	}
	if columns = lines[0]; !IsAccessible(w) {
		head := 1
		if !headers {
			lines, head = lines[1:], 0
		}
		_, err := io.WriteString(w, Align(lines, ColorsOf(w).OfColumns(columns, head)))
		return err
	}
	var b strings.Builder
	for i, row := range lines[1:] {
		if i > 0 {
			b.WriteByte('\n')
		}
		for j, txt := range row {
			if txt != "" && txt != "-" {
				fmt.Fprintf(&b, "%s: %s\n", strings.ToLower(columns[j]), cleanCell(txt))
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
			if paint != nil {
				txt = paint(i, j, txt)
			}
			row += txt + strings.Repeat(" ", gap)
		}
		b.WriteString(strings.TrimRight(row, " ") + "\n")
	}
	return b.String()
}

func cleanCell(txt string) string { return RedactText(text.Clean(txt)) }

// RedactText removes secrets from a text that another program has written to a job. Only texts with a URL are
// examined: that is where they occur, and lists are long.
func RedactText(s string) string {
	if !strings.Contains(s, "://") {
		return s
	}
	return text.Redact(s)
}

// Fields writes one object for a person, a "key  value" line for each field.
type Fields struct {
	lines [][]string
	marks []mark
}

// mark is a word in the value of a line of fields that names a state.
type mark struct {
	line        int
	word, state string
}

// Add adds a value.
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

// Write writes the fields with aligned values, for a screen reader as "key: value".
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
		fmt.Fprintln(w, key+cleanCell(line[1]))
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
