package widget

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"limpet/sync/text"
)

// FilterTerms is a filter line taken apart: field:value[,value] and plain words.
type FilterTerms struct {
	Fields map[string][]string
	Words  []string
	// Problem says what of the line means nothing, and what was probably meant.
	Problem string
}

// FieldSet are the fields that a filter line may name. The values are those that
// a field can have; none = any.
type FieldSet map[string][]string

// ParseTerms takes a filter line apart.
func ParseTerms(line string, known FieldSet) FilterTerms {
	t := FilterTerms{Fields: map[string][]string{}}
	for _, word := range strings.Fields(line) {
		field, value, is := strings.Cut(word, ":")
		if !is || field == "" || strings.Contains(value, ":") && !slices.Contains([]string{"since", "until"}, field) {
			t.Words = append(t.Words, word)
			continue
		}
		values, ok := known[field]
		if !ok {
			t.fail(fmt.Sprintf("there is no field %s", field), field, known.names())
			continue
		}
		for _, v := range strings.Split(value, ",") {
			switch begun := withPrefix(values, v); {
			case v == "": // being typed
			case len(values) == 0:
				t.Fields[field] = append(t.Fields[field], v)
			case len(begun) == 0:
				t.fail(fmt.Sprintf("%s:%s is none of %s", field, v, strings.Join(values, ", ")), v, values)
			default:
				t.Fields[field] = append(t.Fields[field], begun...)
			}
		}
	}
	return t
}

// withPrefix are the values that begin so: while one is being typed, all that it may
// become are meant.
func withPrefix(values []string, with string) []string {
	var out []string
	for _, v := range values {
		if strings.HasPrefix(v, with) {
			out = append(out, v)
		}
	}
	return out
}

// fail keeps the first problem, with what was probably meant.
func (t *FilterTerms) fail(what, word string, candidates []string) {
	if t.Problem != "" {
		return
	}
	t.Problem = what
	if near := nearestWord(word, candidates); near != "" {
		first, _, _ := strings.Cut(what, " is none of ")
		t.Problem = first + ": did you mean " + near + "?"
	}
}

// One is the value of a field that has one; "" = not named.
func (t FilterTerms) One(field string) string {
	if v := t.Fields[field]; len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}

// Moment is the time of a field: an age such as 24h or 7d, a day, or a moment.
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
	t.fail(fmt.Sprintf("%s:%s is no age such as 24h or 7d, and no day such as %s", field, txt, now.UTC().Format(time.DateOnly)), "", nil)
	return time.Time{}
}

func (f FieldSet) names() []string {
	var out []string
	for name := range f {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// nearestWord is the candidate that a word was probably meant to be, "" when none is
// like it.
func nearestWord(word string, candidates []string) string {
	best, least := "", max(len(word)/3, 1)+1
	for _, c := range candidates {
		if d := text.Distance(word, c); d < least {
			best, least = c, d
		}
	}
	return best
}

// Complete completes the last word of a filter: the name of a field, then one of
// its values. Where the value is whole already it takes the next one.
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

// ContainsWords says that every word of the filter occurs in one of the fields.
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

// MaxLine bounds what is typed into one line, in runes.
const MaxLine = 200

// Edit is a line after a key press: what it types is added, backspace takes the
// last rune, Ctrl-W the last word, Ctrl-U all.
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

// Matches says that a value is one of those named, none named meaning all. Of a name
// the beginning will do.
func (t FilterTerms) Matches(field, value string) bool {
	named, ok := t.Fields[field]
	return !ok || slices.ContainsFunc(named, func(n string) bool { return strings.HasPrefix(strings.ToLower(value), strings.ToLower(n)) })
}

func (t FilterTerms) MatchesAny(field string, values []string) bool {
	return slices.ContainsFunc(values, func(v string) bool { return t.Matches(field, v) })
}
