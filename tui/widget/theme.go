package widget

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/ansi"

	"limpet/sync/text"
)

// Role is the meaning of a piece of text; the theme defines its style.
type Role uint8

const (
	RolePlain Role = iota
	RoleDim
	RoleTitle
	RoleFrame
	roleFocus
	RoleHead
	RoleGood
	RoleBad
	RoleWarn
	RoleWork
	RoleCursor
	RoleKey
	RoleBanner
	roleCount
)

// Theme holds the SGR parameters of each role, from the sixteen colours of the terminal; the
// background is left alone.
type Theme [roleCount]string

// Caps are the capabilities of the terminal.
type Caps struct {
	ASCII bool // no glyph beyond ASCII
	Mono  bool // no colour; bold and reverse stay
	Theme int  // index into the coloured themes
}

var Coloured = []Theme{
	// The palette of the terminal.
	{RoleDim: "2", RoleTitle: "1", RoleFrame: "2", roleFocus: "36", RoleHead: "2", RoleGood: "32", RoleBad: "1;31", RoleWarn: "33",
		RoleWork: "36", RoleCursor: "1;7", RoleKey: "1", RoleBanner: "1;33"},
	// High contrast: nothing dim, bold where it counts.
	{RoleTitle: "1", roleFocus: "1;97", RoleHead: "1;4", RoleGood: "1;92", RoleBad: "1;97;41", RoleWarn: "1;93", RoleWork: "1;96",
		RoleCursor: "1;7", RoleKey: "1", RoleBanner: "1;97;41"},
	// Blue and orange, distinguishable with any colour vision.
	{RoleDim: "2", RoleTitle: "1", RoleFrame: "2", roleFocus: "94", RoleHead: "2", RoleGood: "94", RoleBad: "1;33", RoleWarn: "33",
		RoleWork: "96", RoleCursor: "1;7", RoleKey: "1", RoleBanner: "1;33"},
	mono,
}

var mono = Theme{RoleTitle: "1", roleFocus: "1", RoleBad: "1", RoleCursor: "7", RoleKey: "1", RoleBanner: "7"}

// Themes are the names of the themes, the default first.
var Themes = []string{"terminal", "high-contrast", "blue-orange", "mono"}

// Look returns the theme of the terminal. Without colours and in ASCII it is empty, for logs and
// screen readers.
func (c Caps) Look() Theme {
	switch {
	case c.Mono && c.ASCII:
		return Theme{}
	case c.Mono:
		return mono
	}
	return Coloured[c.Theme%len(Coloured)]
}

func (t Theme) styles() (out [roleCount]uv.Style) {
	for r, sgr := range t {
		var params ansi.Params
		for _, p := range strings.FieldsFunc(sgr, func(r rune) bool { return r == ';' }) {
			n, _ := strconv.Atoi(p)
			params = append(params, ansi.Param(n))
		}
		if len(params) > 0 {
			uv.ReadStyle(params, &out[r])
		}
	}
	return out
}

type glyphs struct {
	topLeft, topRight, bottomLeft, bottomRight, Horizontal, vertical string
	Cursor, full, rest, More, Arrow, Up, Down, Dot, Ring             string
	State                                                            map[string]string
	spark                                                            map[byte]string
}

var UnicodeGlyphs = glyphs{
	topLeft: "╭", topRight: "╮", bottomLeft: "╰", bottomRight: "╯", Horizontal: "─", vertical: "│",
	Cursor: "▸", full: "█", rest: "░", More: "…", Arrow: "→", Up: "↑", Down: "↓", Dot: "●", Ring: "○",
	State: map[string]string{"working": "▶", "pending": "·", "success": "✓", "warning": "!", "error": "✗", "other": "◇",
		"unknown": "?", "cancelled": "■", "dead": "†", "suspended": "‖"},
	spark: map[byte]string{'.': "▁", 'c': "■", 's': "▂", 'w': "!", 'e': "✗"},
}

var asciiGlyphs = glyphs{
	topLeft: "+", topRight: "+", bottomLeft: "+", bottomRight: "+", Horizontal: "-", vertical: "|",
	Cursor: ">", full: "=", rest: ".", More: "~", Arrow: "->", Up: "^", Down: "v", Dot: "*", Ring: "o",
	State: map[string]string{"working": ">", "pending": ".", "success": "+", "warning": "!", "error": "x", "other": "o",
		"unknown": "?", "cancelled": "#", "dead": "X", "suspended": "="},
	spark: map[byte]string{'.': ".", 'c': "#", 's': "+", 'w': "!", 'e': "x"},
}

func (c Caps) Glyphs() glyphs {
	if c.ASCII {
		return asciiGlyphs
	}
	return UnicodeGlyphs
}

// StateRole returns the colour of a state; its glyph and its word carry the same meaning. The
// second line of a case holds words of commands: of checks, the agent, conditions and sources.
func StateRole(state string) Role {
	switch state {
	case "working":
		return RoleWork
	case "success", "healthy",
		"ok", "ready", "True":
		return RoleGood
	case "warning", "unknown", "suspended",
		"warn", "degraded", "drained", "Unknown":
		return RoleWarn
	case "error", "failing", "dead",
		"fail", "failed", "stalled", "offline", "unreachable", "expired", "False":
		return RoleBad
	}
	return RolePlain
}

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
	var out []string
	for _, v := range values {
		if strings.HasPrefix(v, with) {
			out = append(out, v)
		}
	}
	return out
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

// Matches reports whether one of the values begins with one of those of the field, or the field is
// not set.
func (t FilterTerms) Matches(field string, values ...string) bool {
	named, ok := t.Fields[field]
	return !ok || slices.ContainsFunc(values, func(v string) bool {
		return slices.ContainsFunc(named, func(n string) bool { return strings.HasPrefix(strings.ToLower(v), strings.ToLower(n)) })
	})
}
