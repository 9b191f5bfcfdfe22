// Package attributes finds the filter that the .gitattributes of a tree give to a file, as git check-attr does: the last
// line that matches decides, lines of a directory come after those of the ones above it, and macros are those of the root.
//
// Anyone with push access can write these files. MaxBytes bounds those of one tree together, MaxRules the lines about
// filters that are looked at for one file; a pattern is matched in linear time.
package attributes

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"limpet/sync/git/giterr"
)

// Bounds. Source of the last: git, which ignores a longer line.
const (
	MaxBytes = 1 << 20
	MaxRules = 1000
	maxLine  = 2048
)

// File is the name of the files with rules.
const File = ".gitattributes"

// filter is the attribute that counts here.
const filter = "filter"

// Rules are those that hold in a directory. The zero value has none.
type Rules struct {
	rules  []rule
	macros map[string][]attribute
}

type rule struct {
	pattern *regexp.Regexp // of a path below the root, with separators
	base    bool           // it is for the name alone
	attrs   []attribute
}

type attribute struct {
	name, value string // "" for one that is set, unset or unspecified
	set         bool
}

// Below returns the rules with those of the file in one more directory, which is "" for the root or ends with a slash.
// The error is a *giterr.TooLargeError.
func (r Rules) Below(dir string, file []byte) (Rules, error) {
	text := strings.TrimPrefix(string(file), "\ufeff")
	for line := range strings.Lines(text) {
		name, attrs := parse(line)
		if macro, is := strings.CutPrefix(name, macroPrefix); is && dir == "" && validName.MatchString(macro) {
			if r.macros == nil {
				r.macros = map[string][]attribute{}
			}
			r.macros[macro] = attrs
		}
	}
	for line := range strings.Lines(text) {
		name, attrs := parse(line)
		decides := func(a attribute) bool { return a.name == filter || r.macros[a.name] != nil }
		if !slices.ContainsFunc(attrs, decides) || strings.HasPrefix(name, macroPrefix) && name != macroPrefix {
			continue
		}
		if pattern := compile(dir, name); pattern != nil {
			r.rules = append(r.rules, rule{pattern, !strings.Contains(name, "/"), attrs})
		}
		if n := len(r.rules); n > MaxRules {
			return r, &giterr.TooLargeError{Count: true, What: "number of filters in " + File, Size: int64(n), Limit: MaxRules}
		}
	}
	return r, nil
}

const (
	blank       = " \t\r\n"
	macroPrefix = "[attr]"
)

var validName = regexp.MustCompile(`^[A-Za-z0-9._][-A-Za-z0-9._]*$`)

// parse reads a line. One that git ignores has no attributes.
func parse(line string) (name string, attrs []attribute) {
	if line = strings.Trim(line, blank); line == "" || line[0] == '#' || len(line) > maxLine {
		return "", nil
	}
	name = line[:strings.IndexAny(line+" ", blank)]
	rest := line[len(name):]
	if quoted, err := strconv.QuotedPrefix(line); err == nil && line[0] == '"' {
		name, _ = strconv.Unquote(quoted)
		rest = line[len(quoted):]
	}
	for word := range strings.FieldsSeq(rest) {
		bare := strings.TrimLeft(word[:1], "-!") + word[1:]
		key, value, valued := strings.Cut(bare, "=")
		if !validName.MatchString(key) {
			return "", nil
		}
		if bare != word {
			value = ""
		}
		attrs = append(attrs, attribute{key, value, bare == word && !valued})
	}
	return name, attrs
}

// Filter returns the filter of a file by its path below the root, "" for none. The file has to be in the directory
// of the rules or below it.
func (r Rules) Filter(path string) string {
	found := map[string]string{}
	name := path[strings.LastIndexByte(path, '/')+1:]
	path = strings.ReplaceAll(path, "/", separator)
	for _, rule := range slices.Backward(r.rules) {
		if rule.base && rule.pattern.MatchString(name) || !rule.base && rule.pattern.MatchString(path) {
			r.decide(found, rule.attrs)
		}
		if value, decided := found[filter]; decided {
			return value
		}
	}
	return ""
}

// decide adds the attributes that were not decided before, with those of macros that are set.
func (r Rules) decide(found map[string]string, attrs []attribute) {
	for _, a := range slices.Backward(attrs) {
		if _, decided := found[a.name]; decided {
			continue
		}
		found[a.name] = a.value
		if a.set {
			r.decide(found, r.macros[a.name])
		}
	}
}

// separator stands for a slash in what is matched: no set of characters has it.
const separator = "\U0010ffff"

var (
	// token is a part of a pattern: stars, a set of characters, an escaped character, or one that stands for itself.
	token = regexp.MustCompile(`(?s)\*\*+/?|\[[!^]?\]?(?:\[:[a-z]+:\]|\\.|[^\]\\])*\]|\\.|.`)
	// escaped is a letter or digit of a set that means something else in a regular expression when it is escaped.
	escaped = regexp.MustCompile(`\\([0-9A-Za-z])`)
)

// compile makes a regular expression of a pattern of a directory, nil for one that matches no file: git knows no
// negative ones, and a slash at the end is for directories.
func compile(dir, glob string) *regexp.Regexp {
	if strings.HasPrefix(glob, "!") || strings.HasSuffix(glob, "/") {
		return nil
	}
	out := "(?s)^"
	if strings.Contains(glob, "/") {
		out += regexp.QuoteMeta(dir)
		glob = strings.TrimPrefix(glob, "/")
	}
	for _, at := range token.FindAllStringIndex(glob, -1) {
		part, first := glob[at[0]:at[1]], at[0] == 0 || glob[at[0]-1] == '/'
		switch {
		case part == "[", part == "[]", part == "[!]", part == "[^]", part == `\`:
			return nil
		case part[0] == '[':
			part = set(part[1 : len(part)-1])
		case part[0] == '\\':
			part = regexp.QuoteMeta(part[1:])
		case part == "?":
			part = "[^/]"
		case first && strings.HasPrefix(part, "**") && strings.HasSuffix(part, "/"):
			part = "(?:.*/)?"
		case first && strings.HasPrefix(part, "**") && at[1] == len(glob):
			part = ".*"
		case part[0] == '*':
			part = "[^/]*" + strings.TrimLeft(part, "*")
		default:
			part = regexp.QuoteMeta(part)
		}
		out += part
	}
	re, _ := regexp.Compile(strings.ReplaceAll(out, "/", separator) + "$") // it fails for sets that git takes for malformed as well
	return re
}

// set makes a set of a regular expression.
func set(chars string) string {
	negation := ""
	if chars[0] == '!' || chars[0] == '^' {
		negation = "^" + separator
		chars = chars[1:]
	}
	chars = strings.ReplaceAll(escaped.ReplaceAllString(chars, "$1"), "/", `\x2f`)
	if chars[0] == ']' {
		chars = `\` + chars
	}
	return "[" + negation + chars + "]"
}
