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
