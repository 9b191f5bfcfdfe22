package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"limpet/sync/text"
)

// filterTerms is a filter line taken apart: field:value[,value] and plain words.
type filterTerms struct {
	fields map[string][]string
	words  []string
	// problem says what of the line means nothing, and what was probably meant.
	problem string
}

// fieldSet are the fields that a filter line may name. The values are those that
// a field can have; none = any.
type fieldSet map[string][]string

// parseTerms takes a filter line apart.
func parseTerms(line string, known fieldSet) filterTerms {
	t := filterTerms{fields: map[string][]string{}}
	for _, word := range strings.Fields(line) {
		field, value, is := strings.Cut(word, ":")
		if !is || field == "" || strings.Contains(value, ":") && !slices.Contains([]string{"since", "until"}, field) {
			t.words = append(t.words, word)
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
				t.fields[field] = append(t.fields[field], v)
			case len(begun) == 0:
				t.fail(fmt.Sprintf("%s:%s is none of %s", field, v, strings.Join(values, ", ")), v, values)
			default:
				t.fields[field] = append(t.fields[field], begun...)
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
func (t *filterTerms) fail(what, word string, candidates []string) {
	if t.problem != "" {
		return
	}
	t.problem = what
	if near := nearestWord(word, candidates); near != "" {
		first, _, _ := strings.Cut(what, " is none of ")
		t.problem = first + ": did you mean " + near + "?"
	}
}

// one is the value of a field that has one; "" = not named.
func (t filterTerms) one(field string) string {
	if v := t.fields[field]; len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}

// moment is the time of a field: an age such as 24h or 7d, a day, or a moment.
func (t *filterTerms) moment(field string, now time.Time) time.Time {
	txt := t.one(field)
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

func (f fieldSet) names() []string {
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

// complete completes the last word of a filter: the name of a field, then one of
// its values. Where the value is whole already it takes the next one.
func complete(line string, fields fieldSet) string {
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

// matches says that every word of the filter occurs in one of the fields.
func matches(filter string, fields ...string) bool {
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

// maxLine bounds what is typed into one line, in runes.
const maxLine = 200

// edit is a line after a key press: what it types is added, backspace takes the
// last rune, Ctrl-W the last word, Ctrl-U all.
func edit(line, name, txt string) string {
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
	return string(r[:min(len(r), maxLine)])
}
