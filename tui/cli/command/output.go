package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/clipperhouse/displaywidth"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"limpet/sync/control"
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
		return e.printData(list, func(items []any) any { return map[string]any{"items": items} })
	}
	if g.Output != "name" {
		t.Write(e.Out, g.Output == "wide", !g.NoHeaders)
		return nil
	}
	for _, row := range t.rows {
		fmt.Fprintln(e.Out, row.name)
	}
	return nil
}

// PrintOne writes one object; txt prints it for a person. Without a name -o name prints nothing.
func (e *Env) PrintOne(item any, name string, txt func(io.Writer)) error {
	switch {
	case e.Flags.Data():
		return e.printData([]any{item}, func(items []any) any { return items[0] })
	case e.Flags.Output != "name":
		txt(e.Out)
	case name != "":
		fmt.Fprintln(e.Out, name)
	}
	return nil
}

// PrintDone writes what was done: for a person as a line.
func (e *Env) PrintDone(item any, name, format string, args ...any) error {
	return e.PrintOne(item, name, func(w io.Writer) { fmt.Fprintf(w, format+"\n", args...) })
}

// printData writes the fields of --json of a list: as one document, or as a line for each item.
func (e *Env) printData(list any, document func(items []any) any) error {
	if objects, is := list.([]any); is {
		for i, o := range objects {
			if o, is := o.(map[string]any); is && (o["secure"] != nil || o["kind"] == "Repository" || o["kind"] == "Connection") {
				objects[i] = control.Sealed(o)
			}
		}
	}
	items, err := e.Flags.PickEach(list)
	if err != nil {
		return err
	}
	if e.Flags.Output == "jsonl" {
		return encode(e.Out, "jsonl", "", items...)
	}
	return encode(e.Out, e.Flags.Output, "  ", document(items))
}

// NewJSON returns an encoder of JSON for programs and terminals: what would control a terminal or mislead a reader is
// escaped as \uXXXX.
func NewJSON(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(jsonWriter{w})
	enc.SetEscapeHTML(false)
	return enc
}

// jsonWriter takes whole documents. Outside of ASCII, JSON has runes in strings only.
type jsonWriter struct{ io.Writer }

func (w jsonWriter) Write(p []byte) (int, error) {
	hidden := func(r rune) bool { return r >= 0x7f && text.Hidden(r) && r != utf8.RuneError }
	if !bytes.ContainsFunc(p, hidden) {
		return w.Writer.Write(p)
	}
	out := make([]byte, 0, len(p)+64)
	for _, r := range string(p) {
		if !hidden(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, "\\u%04x", unit)
		}
	}
	_, err := w.Writer.Write(out)
	return len(p), err
}

// encode writes documents as YAML or JSON; without an indent, JSON takes a line each.
func encode(w io.Writer, form, indent string, documents ...any) error {
	enc := NewJSON(w)
	enc.SetIndent("", indent)
	for _, v := range documents {
		if form == "yaml" {
			data, err := yaml.Marshal(v)
			if err == nil {
				_, err = w.Write(data)
			}
			return err
		}
		if err := enc.Encode(v); err != nil {
			return err
		}
	}
	return nil
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

// PickEach returns the items of a slice with only the fields of --json, whole without it. It is never nil. A field that
// no item has or could have is an error, unless the call has changed something: then it is null.
func (g *Flags) PickEach(list any) ([]any, error) {
	items := []any{}
	if list == nil {
		return items, nil
	}
	for v, i := reflect.ValueOf(list), 0; i < v.Len(); i++ {
		items = append(items, v.Index(i).Interface())
	}
	if len(g.JSON) == 0 || len(items) == 0 {
		return items, nil
	}
	found := map[string]bool{}
	var whole any
	for i, item := range items {
		data, err := json.Marshal(item)
		if err == nil {
			err = json.Unmarshal(data, &whole)
		}
		if err != nil {
			return nil, err
		}
		picked := map[string]any{}
		for _, field := range g.JSON {
			value, ok := dig(whole, field)
			picked[field], found[field] = value, found[field] || ok
		}
		items[i] = picked
	}
	kind := reflect.TypeOf(reflect.ValueOf(list).Index(0).Interface())
	members, _ := whole.(map[string]any)
	if version, _ := members["apiVersion"].(string); strings.Contains(version, "/") { // those of the core group vary
		kind = reflect.TypeFor[object]()
	}
	for _, field := range g.JSON {
		wrong, known := unknownField(kind, field)
		if kind.Kind() == reflect.Map && members["metadata"] == nil {
			wrong, known = field, slices.Sorted(maps.Keys(members))
		}
		if !found[field] && wrong != "" && !g.writes {
			return nil, Usagef("", "--json %s: there is no field %q%s; there are %s", field, wrong, Meant(wrong, known),
				strings.Join(known, ", "))
		}
	}
	return items, nil
}

// object has the fields that objects of the API may have.
type object struct {
	APIVersion any               `json:"apiVersion"`
	Kind       any               `json:"kind"`
	Metadata   metav1.ObjectMeta `json:"metadata"`
	Spec       any               `json:"spec"`
	Status     any               `json:"status"`
	Secure     any               `json:"secure"`
}

// unknownField returns the first name of a path that a type cannot have, and the names that it has; "" where there is none.
// What JSON is made of by other means than fields may have any name.
func unknownField(t reflect.Type, path string) (wrong string, known []string) {
	for name := range strings.SplitSeq(path, ".") {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() == reflect.Slice {
			t = t.Elem() // the name is an index
			continue
		}
		if t.Kind() != reflect.Struct || t.Implements(reflect.TypeFor[json.Marshaler]()) {
			break
		}
		fields := map[string]reflect.Type{}
		for _, field := range reflect.VisibleFields(t) {
			if tag, _, _ := strings.Cut(field.Tag.Get("json"), ","); tag != "" && tag != "-" {
				fields[tag] = field.Type
			}
		}
		if t = fields[name]; t == nil {
			return name, slices.Sorted(maps.Keys(fields))
		}
	}
	return "", nil
}

// dig returns the value at a path of names and indices with dots. A name may contain dots itself, as those of labels do.
func dig(v any, path string) (value any, ok bool) {
	if path == "" {
		return v, true
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
	return nil, false
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
	documents, err := e.Flags.PickEach([]any{line})
	if err != nil {
		return err
	}
	if e.Flags.Output == "yaml" {
		io.WriteString(e.Out, "---\n")
	}
	return encode(e.Out, e.Flags.Output, "", documents...)
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

// PrintDiff prints a difference as a unified diff, or why there is none.
func PrintDiff(w io.Writer, from, to string, change snapshot.TextChange) {
	fmt.Fprintf(w, "--- %s\n+++ %s\n", text.Clean(from), text.Clean(to))
	for _, l := range change.Lines {
		fmt.Fprintln(w, text.Clean(strings.TrimPrefix(l.Op, "@")+l.Text))
	}
	switch {
	case change.More > 0:
		fmt.Fprintf(w, "... %d more lines\n", change.More)
	case len(change.Lines) == 0:
		fmt.Fprintln(w, change.Form)
	}
}
