package git

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"limpet/sync/text"
)

// Files of a repository in the form of git's configuration: .lfsconfig and
// .gitmodules. They come from whoever may push, so they are read strictly: what git
// itself would take but nobody writes into such a file is refused.

// maxConfig bounds such a file, in bytes.
const maxConfig = 64 << 10

// setting is one line of a configuration file.
type setting struct {
	section, sub string // sub as it is written, section in lower case
	key          string // in lower case
	value        string
}

// parseConfig reads all settings, in order. A header is a setting without a key.
func parseConfig(data []byte) ([]setting, error) {
	if len(data) > maxConfig {
		return nil, &TooLargeError{What: "configuration file", Size: int64(len(data)), Limit: maxConfig}
	}
	if !utf8.Valid(data) {
		return nil, errors.New("it is not UTF-8")
	}
	var out []setting
	var at setting
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(strings.ReplaceAll(line, "\t", " "))
		fail := func(why string) ([]setting, error) { return nil, fmt.Errorf("line %d %s", i+1, why) }
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
			continue
		case strings.ContainsFunc(line, text.Hidden):
			return fail("holds a control character")
		case line[0] == '[':
			section, sub, ok := header(line)
			if !ok {
				return fail("is no header of a section")
			}
			at = setting{section: section, sub: sub}
			out = append(out, at)
			continue
		case at.section == "":
			return fail("is in no section")
		}
		key, value, ok := strings.Cut(line, "=")
		if key = strings.ToLower(strings.TrimSpace(key)); !ok || !wordOf(key) {
			return fail("is not of the form key = value")
		}
		if value, ok = unquote(strings.TrimSpace(value)); !ok {
			return fail("has a value that cannot be read")
		}
		out = append(out, setting{at.section, at.sub, key, value})
	}
	return out, nil
}

// header reads [section] and [section "sub"].
func header(line string) (section, sub string, ok bool) {
	inner, ok := strings.CutSuffix(line[1:], "]")
	if !ok {
		return "", "", false
	}
	section, rest, named := strings.Cut(inner, " ")
	if section = strings.ToLower(section); !wordOf(section) {
		return "", "", false
	}
	if !named {
		return section, "", true
	}
	if rest = strings.TrimSpace(rest); len(rest) < 2 || rest[0] != '"' {
		return "", "", false
	}
	sub, ok = unquote(rest)
	return section, sub, ok && sub != ""
}

// wordOf tells whether s may be the name of a section or a key.
func wordOf(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	})
}

// unquote reads a value: as it is up to a comment, or whole in quotes. Escapes are
// those of a quote and of a backslash; a value does not go on in the next line.
func unquote(v string) (string, bool) {
	if !strings.HasPrefix(v, `"`) {
		if at := strings.IndexAny(v, "#;"); at >= 0 {
			v = strings.TrimSpace(v[:at])
		}
		return v, !strings.ContainsAny(v, `"\`)
	}
	var b strings.Builder
	for i := 1; i < len(v); i++ {
		switch c := v[i]; {
		case c == '"':
			rest := strings.TrimSpace(v[i+1:])
			return b.String(), rest == "" || rest[0] == '#' || rest[0] == ';'
		case c == '\\' && i+1 < len(v) && (v[i+1] == '"' || v[i+1] == '\\'):
			i++
			b.WriteByte(v[i])
		case c == '\\':
			return "", false
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}
