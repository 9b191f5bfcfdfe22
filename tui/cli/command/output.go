package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"limpet/sync/control"
	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// PrintList writes items in the requested format. JSON and YAML of a list are always {"items":
// [...]}, also when it is empty.
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

// NewJSON returns an encoder of JSON for programs and terminals: what would control a terminal or
// mislead a reader is escaped as \uXXXX.
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
