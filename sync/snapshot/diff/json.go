package diff

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
)

const (
	// mostDepth and mostForm bound what JSON becomes with a member on a line: blanks
	// in front of each grow with the depth. In bytes.
	mostDepth = 64
	mostForm  = 8 << 20
)

// bothJSON writes two contents in one form: sorted keys, two blanks for each depth.
// False says that one of them is no JSON, or grows too large in that form.
func bothJSON(before, after []byte) (a, b []string, ok bool) {
	if before == nil && after == nil {
		return nil, nil, false
	}
	if a, ok = formed(before); !ok {
		return nil, nil, false
	}
	b, ok = formed(after)
	return a, b, ok
}

func formed(data []byte) ([]string, bool) {
	if data == nil {
		return nil, true
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // a number is shown as it is written
	var v any
	if d.Decode(&v) != nil {
		return nil, false
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, false
	}
	f := former{}
	if !f.value("", v, 0, "") {
		return nil, false
	}
	return f.lines, true
}

// former collects the lines of a value.
type former struct {
	lines []string
	size  int
}

func (f *former) line(depth int, text string) bool {
	text = strings.Repeat("  ", depth) + text
	f.size += len(text)
	f.lines = append(f.lines, text)
	return f.size <= mostForm
}

// value writes v behind head, and comma behind it.
func (f *former) value(head string, v any, depth int, comma string) bool {
	if depth > mostDepth {
		return false
	}
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			return f.line(depth, head+"{}"+comma)
		}
		ok := f.line(depth, head+"{")
		for i, key := range slices.Sorted(maps.Keys(v)) {
			ok = ok && f.value(scalar(key)+": ", v[key], depth+1, unlessLast(i, len(v)))
		}
		return ok && f.line(depth, "}"+comma)
	case []any:
		if len(v) == 0 {
			return f.line(depth, head+"[]"+comma)
		}
		ok := f.line(depth, head+"[")
		for i, item := range v {
			ok = ok && f.value("", item, depth+1, unlessLast(i, len(v)))
		}
		return ok && f.line(depth, "]"+comma)
	}
	return f.line(depth, head+scalar(v)+comma)
}

func unlessLast(i, n int) string {
	if i < n-1 {
		return ","
	}
	return ""
}

// scalar is a value without members.
func scalar(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil { // no value of a decoder does that
		return "?"
	}
	return strings.TrimSuffix(b.String(), "\n")
}
