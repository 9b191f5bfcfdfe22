package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// table is a list for a person. Wide columns come after the others and are
// shown with -o wide only.
type table struct {
	Columns []string
	Wide    []string
	Rows    [][]string // len = len(Columns)+len(Wide)
	Names   []string   // one per row, for -o name
}

// print writes items in the format that was asked for. JSON and YAML of a list
// are always {"items": [...]}, also when it is empty.
func (g *Globals) printList(w io.Writer, items any, t table) error {
	switch g.Output {
	case "json":
		return printJSON(w, map[string]any{"items": items})
	case "yaml":
		return printYAML(w, map[string]any{"items": items})
	case "name":
		for _, n := range t.Names {
			fmt.Fprintln(w, n)
		}
		return nil
	}
	return t.write(w, g.Output == "wide", !g.NoHeaders)
}

// printOne writes one object; text is its form for a person.
func (g *Globals) printOne(w io.Writer, item any, name string, text func(io.Writer)) error {
	switch g.Output {
	case "json":
		return printJSON(w, item)
	case "yaml":
		return printYAML(w, item)
	case "name":
		fmt.Fprintln(w, name)
		return nil
	}
	text(w)
	return nil
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func printYAML(w io.Writer, v any) error {
	data, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

func (t table) write(w io.Writer, wide, headers bool) error {
	n := len(t.Columns)
	columns := t.Columns
	if wide {
		columns = append(append([]string{}, columns...), t.Wide...)
		n = len(columns)
	}
	rows := t.Rows
	if headers {
		rows = append([][]string{columns}, rows...)
	}
	width := make([]int, n)
	clean := make([][]string, len(rows))
	for i, row := range rows {
		clean[i] = make([]string, n)
		for j := 0; j < n && j < len(row); j++ {
			clean[i][j] = plain(row[j])
			width[j] = max(width[j], utf8.RuneCountInString(clean[i][j]))
		}
	}
	var b strings.Builder
	for _, row := range clean {
		var line strings.Builder
		for j, cell := range row {
			line.WriteString(cell)
			if j < n-1 {
				line.WriteString(strings.Repeat(" ", width[j]-utf8.RuneCountInString(cell)+3))
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " "))
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// plain keeps foreign text on its line: names and messages come from Git and
// from the API, and must not move the cursor of a terminal.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r < 0x20, r == 0x7f, r >= 0x80 && r < 0xa0,
			r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0x200e, r == 0x200f, r == 0x061c, r == 0xfeff:
			return -1
		}
		return r
	}, s)
}

// since is the age of t in the short form of kubectl: 42s, 5m, 3h, 2d.
func since(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return short(now.Sub(t))
}

func short(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func millis(ms int64) time.Time {
	if ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
