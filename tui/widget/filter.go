package widget

import (
	"maps"
	"slices"
	"strings"
	"time"

	"limpet/sync/text"
)

// FilterTerms is a parsed filter line: field:value[,value] and plain words.
type FilterTerms struct {
	Fields map[string][]string
	Words  []string
	// Problem describes the first invalid part of the line, with a suggestion.
	Problem string
}

// FieldSet maps the fields of a filter line to their possible values; none = any.
type FieldSet map[string][]string

// ParseTerms parses a filter line.
func ParseTerms(line string, known FieldSet) FilterTerms {
	t := FilterTerms{Fields: map[string][]string{}}
	for _, word := range strings.Fields(line) {
		field, value, is := strings.Cut(word, ":")
		if !is || field == "" || strings.Contains(value, ":") && field != "since" && field != "until" {
			t.Words = append(t.Words, word)
			continue
		}
		values, ok := known[field]
		if !ok {
			t.fail("there is no field "+field, "", field, known.names())
			continue
		}
		for _, v := range strings.Split(value, ",") {
			begun := withPrefix(values, v)
			if len(values) == 0 {
				begun = []string{v}
			}
			if v == "" { // still being typed
				continue
			}
			if t.Fields[field] = append(t.Fields[field], begun...); len(begun) == 0 {
				t.fail(field+":"+v, " is none of "+strings.Join(values, ", "), v, values)
			}
		}
	}
	return t
}

// withPrefix returns the values with a prefix, so that a value that is still being typed selects
// all its completions.
func withPrefix(values []string, with string) []string {
	return slices.DeleteFunc(slices.Clone(values), func(v string) bool { return !strings.HasPrefix(v, with) })
}

// fail keeps the first problem, with the candidate that is most similar to the word or a reason.
func (t *FilterTerms) fail(what, why, word string, candidates []string) {
	if near := text.Nearest(word, candidates); near != "" {
		why = ": did you mean " + near + "?"
	}
	if t.Problem == "" {
		t.Problem = what + why
	}
}

// One returns the value of a field with a single value; "" = not set.
func (t FilterTerms) One(field string) string {
	if v := t.Fields[field]; len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}

// Moment returns the time of a field: an age such as 24h or 7d, a day, or a time.
func (t *FilterTerms) Moment(field string, now time.Time) time.Time {
	txt := t.One(field)
	if txt == "" {
		return time.Time{}
	}
	if days, ok := strings.CutSuffix(txt, "d"); ok {
		if d, err := time.ParseDuration(days + "h"); err == nil && d >= 0 {
			return now.Add(-24 * d)
		}
	}
	if d, err := time.ParseDuration(txt); err == nil && d >= 0 {
		return now.Add(-d)
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04", time.RFC3339} {
		if at, err := time.Parse(layout, txt); err == nil {
			return at
		}
	}
	t.fail(field+":"+txt, " is no age such as 24h or 7d, and no day such as "+now.UTC().Format(time.DateOnly), "", nil)
	return time.Time{}
}

// Matches reports whether one of the values begins with one of those of the field, or the field is
// not set.
func (t FilterTerms) Matches(field string, values ...string) bool {
	named, ok := t.Fields[field]
	return !ok || slices.ContainsFunc(values, func(v string) bool {
		return slices.ContainsFunc(named, func(n string) bool { return strings.HasPrefix(strings.ToLower(v), strings.ToLower(n)) })
	})
}

func (f FieldSet) names() []string { return slices.Sorted(maps.Keys(f)) }

// Complete completes the last word of a filter: the name of a field, then a value, then the next
// value.
func Complete(line string, fields FieldSet) string {
	at := strings.LastIndexByte(line, ' ') + 1
	head, word := line[:at], line[at:]
	name, value, is := strings.Cut(word, ":")
	if !is {
		if begun := withPrefix(fields.names(), word); len(begun) > 0 {
			return head + begun[0] + ":"
		}
		return line
	}
	values := fields[name]
	last := strings.LastIndexByte(value, ',') + 1
	typed := value[last:]
	next := ""
	if i := slices.Index(values, typed); i >= 0 {
		next = values[(i+1)%len(values)]
	} else if begun := withPrefix(values, typed); len(begun) > 0 {
		next = begun[0]
	} else {
		return line
	}
	return head + name + ":" + value[:last] + next
}

// ContainsWords reports whether every word of the filter occurs in one of the fields.
func ContainsWords(filter string, fields ...string) bool {
	for _, word := range strings.Fields(strings.ToLower(filter)) {
		found := false
		for _, f := range fields {
			found = found || strings.Contains(strings.ToLower(f), word)
		}
		if !found {
			return false
		}
	}
	return true
}

// MaxLine is the maximum length of a typed line, in runes.
const MaxLine = 500

// Edit returns a line after a key press: text is appended; backspace, Ctrl-W and Ctrl-U delete a
// rune, a word, the line.
func Edit(line, name, txt string) string {
	r := []rune(line)
	switch name {
	case "backspace":
		return string(r[:max(len(r)-1, 0)])
	case "ctrl+w":
		line = strings.TrimRight(line, " ")
		return line[:strings.LastIndexByte(line, ' ')+1]
	case "ctrl+u":
		return ""
	}
	r = append(r, []rune(text.Clean(txt))...)
	return string(r[:min(len(r), MaxLine)])
}
