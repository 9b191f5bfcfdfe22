// Package attributes finds the filter that the .gitattributes of a tree give to a file, as git
// check-attr does: the last line that matches decides, lines of a directory come after those of the
// ones above it, and macros are those of the root.
//
// # Bounds
//
// Anyone with push access can write these files. Those of one tree share MaxBytes of text,
// MaxFilters attributes that may decide about filters, maxGlobs bytes of different patterns with
// wildcards, and maxSteps for matching all its files. A pattern is compiled once and matched in
// linear time; a plain name or path costs one lookup.
package attributes

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"limpet/sync/git/giterr"
)

// Bounds. Source of the last: git, which ignores a longer line.
const (
	MaxBytes   = 1 << 20
	MaxFilters = 10_000
	maxGlobs   = 64 << 10
	maxSteps   = 1 << 31 // bytes of a pattern times bytes of a path
	maxLine    = 2048
)

// File is the name of the files with rules.
const File = ".gitattributes"

// filter is the attribute that counts here.
const filter = "filter"

// Rules are those of a directory and of the ones above it.
type Rules struct {
	tree     *tree
	above    *Rules            // nil for the root
	dir      string            // "" for the root, else it ends with a slash
	literals map[string][]rule // by name, or by path below dir with a slash before it
	globs    []rule
}

// tree has what the rules of one tree share.
type tree struct {
	filters, globs int   // that are used
	steps          int64 // that are used
	compiled       map[string]*glob
	macros         map[string][]attribute
}

type rule struct {
	line  int
	glob  *glob // nil for a plain name or path
	base  bool  // it is for the name alone
	attrs []attribute
}

// glob is a pattern with wildcards. What it matches begins and ends with literals.
type glob struct {
	before, after string
	size          int
	pattern       *regexp.Regexp // of a path with separators; nil matches nothing
}

type attribute struct {
	name, value string // "" for one that is set, unset or unspecified
	set         bool
}

// New returns the rules of a tree of which no file was read.
func New() *Rules {
	return &Rules{tree: &tree{compiled: map[string]*glob{}, macros: map[string][]attribute{}}}
}

// Below returns the rules with those of the file in one more directory, which is "" for the root or
// ends with a slash. It ends with ctx; another error is a *giterr.TooLargeError.
func (r *Rules) Below(ctx context.Context, dir string, file []byte) (*Rules, error) {
	t, text := r.tree, strings.TrimPrefix(string(file), "\ufeff")
	for line := range strings.Lines(text) {
		if dir != "" {
			break
		}
		name, attrs := parse(line)
		if macro, is := strings.CutPrefix(name, macroPrefix); is && validName.MatchString(macro) {
			t.macros[macro] = attrs
			t.filters += 1 + len(attrs)
		}
	}
	own := &Rules{tree: t, above: r, dir: dir, literals: map[string][]rule{}}
	number := 0
	irrelevant := func(a attribute) bool { return a.name != filter && t.macros[a.name] == nil }
	for line := range strings.Lines(text) {
		if len(t.macros) == 0 && !strings.Contains(line, filter) {
			continue
		}
		name, attrs := parse(line)
		attrs = slices.DeleteFunc(attrs, irrelevant)
		if len(attrs) > 0 && (name == macroPrefix || !strings.HasPrefix(name, macroPrefix)) {
			number++
			own.add(name, rule{line: number, attrs: attrs})
			t.filters += len(attrs)
		}
		if t.filters > MaxFilters {
			return r, tooMany("number of filters", int64(t.filters), MaxFilters)
		}
		if t.globs > maxGlobs {
			return r, tooMany("number of bytes in patterns with wildcards", int64(t.globs), maxGlobs)
		}
		if ctx.Err() != nil {
			return r, context.Cause(ctx)
		}
	}
	if number == 0 {
		return r, nil
	}
	return own, nil
}

func tooMany(what string, n, limit int64) error {
	what += " in all " + File
	return &giterr.TooLargeError{Count: true, What: what, Size: n, Limit: limit}
}

// add takes in a rule, unless it matches no file: git knows no negative ones, and a slash at the
// end is for directories.
func (r *Rules) add(text string, own rule) {
	if strings.HasPrefix(text, "!") || strings.HasSuffix(text, "/") {
		return
	}
	own.base = !strings.Contains(text, "/")
	if !strings.ContainsAny(text, wild) {
		if !own.base {
			text = "/" + strings.TrimPrefix(text, "/")
		}
		r.literals[text] = append(r.literals[text], own)
		return
	}
	if own.glob = r.tree.glob(strings.TrimPrefix(text, "/")); own.glob.pattern != nil {
		r.globs = append(r.globs, own)
	}
}

const (
	blank       = " \t\r\n"
	macroPrefix = "[attr]"
	wild        = `*?[\`
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

// Empty reports whether no file of rules was read.
func (r *Rules) Empty() bool { return r.above == nil }

// Filter returns the filter of a file by its path below the root, "" for none. The file has to be
// in the directory of the rules or below it. It ends with ctx; another error is a
// *giterr.TooLargeError.
func (r *Rules) Filter(ctx context.Context, path string) (string, error) {
	found := map[string]string{}
	name := path[strings.LastIndexByte(path, '/')+1:]
	for ; r.above != nil; r = r.above {
		rel := path[len(r.dir):]
		hits := slices.Concat(r.literals[name], r.literals["/"+rel])
		r.tree.steps += int64(len(r.globs))
		for _, own := range r.globs {
			text := rel
			if own.base {
				text = name
			}
			matches, err := r.tree.match(ctx, own.glob, text)
			if err != nil {
				return "", err
			}
			if matches {
				hits = append(hits, own)
			}
		}
		slices.SortFunc(hits, func(a, b rule) int { return cmp.Compare(b.line, a.line) })
		for _, own := range hits {
			r.tree.decide(found, own.attrs)
			if value, decided := found[filter]; decided {
				return value, nil
			}
		}
	}
	return "", nil
}

// match reports whether a pattern matches a name or path.
func (t *tree) match(ctx context.Context, g *glob, text string) (bool, error) {
	if !strings.HasPrefix(text, g.before) || !strings.HasSuffix(text, g.after) {
		return false, nil
	}
	if t.steps += int64(g.size) * int64(len(text)); t.steps > maxSteps {
		return false, tooMany("number of steps to match the patterns", t.steps, maxSteps)
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	return g.pattern.MatchString(strings.ReplaceAll(text, "/", separator)), nil
}

// decide adds the attributes that were not decided before, with those of macros that are set.
func (t *tree) decide(found map[string]string, attrs []attribute) {
	t.steps += int64(len(attrs))
	for _, a := range slices.Backward(attrs) {
		if _, decided := found[a.name]; decided {
			continue
		}
		found[a.name] = a.value
		if a.set {
			t.decide(found, t.macros[a.name])
		}
	}
}

// separator stands for a slash in what is matched: no set of characters has it.
const separator = "\U0010ffff"

var (
	// token is a part of a pattern: stars, a set of characters, an escaped character, or one that
	// stands for itself.
	token = regexp.MustCompile(`(?s)\*\*+/?|\[[!^]?\]?(?:\[:[a-z]+:\]|\\.|[^\]\\])*\]|\\.|.`)
	// escaped is a letter or digit of a set that means something else in a regular expression when it
	// is escaped.
	escaped = regexp.MustCompile(`\\([0-9A-Za-z])`)
)

// glob compiles a pattern, unless an equal one was.
func (t *tree) glob(text string) *glob {
	if known := t.compiled[text]; known != nil {
		return known
	}
	g := &glob{
		before: text[:strings.IndexAny(text, wild)],
		// stars take the slash after them with them
		after: strings.TrimPrefix(text[strings.LastIndexAny(text, wild+"]")+1:], "/"),
		size:  len(text),
	}
	t.compiled[text] = g
	if t.globs += len(text); t.globs <= maxGlobs {
		g.pattern = compile(text)
	}
	return g
}

// compile makes a regular expression of a pattern, nil for one that matches nothing.
func compile(glob string) *regexp.Regexp {
	out := "(?s)^"
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
