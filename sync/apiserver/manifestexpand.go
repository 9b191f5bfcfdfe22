package apiserver

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Values of a manifest may refer to the environment and to files of the host:
//
//	${NAME}, $__env{NAME}   the environment variable NAME, which must be set
//	$__file{PATH}           the text of a file, without blanks at its ends
//	$${ $$__env{ $$__file{  the same without the first $, not expanded
//
// They are expanded in values, not in names of members, and not in dashboards
// and folders, where ${...} is Grafana's own syntax. Expanded text is not
// expanded again.

// expander expands references by an environment and a base directory.
type expander struct {
	lookup func(string) (string, bool)
	dir    string
	// files collects the paths of the references, which are polled as well.
	files []string
}

// references matches references. The escaped form comes first.
var (
	references   = regexp.MustCompile(`\$\$(?:__env|__file)?\{|\$(__env|__file)?\{([^{}]*)\}|\$(?:__env|__file)?\{`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// object expands the values of an object in place, in the order of its members.
func (x *expander) object(object map[string]any, path string) error {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		value, err := x.value(object[name], path+name)
		if err != nil {
			return err
		}
		if text, ok := value.(string); ok && value != object[name] {
			value = retype(name, text)
		}
		object[name] = value
	}
	return nil
}

func (x *expander) value(value any, path string) (any, error) {
	switch v := value.(type) {
	case string:
		out, err := x.text(v)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return out, nil
	case map[string]any:
		return v, x.object(v, path+".")
	case []any:
		for i := range v {
			out, err := x.value(v[i], fmt.Sprintf("%s[%d]", path, i))
			if err != nil {
				return nil, err
			}
			v[i] = out
		}
	}
	return value, nil
}

// text expands one value.
func (x *expander) text(value string) (string, error) {
	if !strings.Contains(value, "$") {
		return value, nil
	}
	var out strings.Builder
	last := 0
	for _, at := range references.FindAllStringSubmatchIndex(value, -1) {
		out.WriteString(value[last:at[0]])
		last = at[1]
		match := value[at[0]:at[1]]
		switch {
		case strings.HasPrefix(match, "$$"):
			out.WriteString(match[1:])
		case at[4] < 0:
			return "", fmt.Errorf("%s without its closing brace; write $%s to mean the text itself", match, match)
		default:
			source := ""
			if at[2] >= 0 {
				source = value[at[2]:at[3]]
			}
			text, err := x.reference(source, value[at[4]:at[5]])
			if err != nil {
				return "", err
			}
			out.WriteString(text)
		}
	}
	out.WriteString(value[last:])
	return out.String(), nil
}

// reference returns the value of one reference.
func (x *expander) reference(source, name string) (string, error) {
	if source == "__file" {
		return x.file(name)
	}
	if !variableName.MatchString(name) {
		return "", fmt.Errorf("%q is not the name of an environment variable; write $${ to mean the text itself", name)
	}
	value, ok := x.lookup(name)
	if !ok {
		return "", fmt.Errorf("environment variable %s is not set", name)
	}
	return value, nil
}

// file returns the text of a file without the blanks at its ends: editors add a
// line break that is not part of a token.
func (x *expander) file(path string) (string, error) {
	if path == "" {
		return "", errors.New("$__file{} names no file")
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(x.dir, path)
	}
	x.files = append(x.files, path)
	data, err := readBounded(path, maxManifest)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(data)), nil
}

// typedMembers are the members that are not strings. YAML reads a reference as a
// string, so its value is parsed again.
var typedMembers = map[string]func(string) (any, error){
	"intervalSeconds":           wholeNumber,
	"enabled":                   truth,
	"disabled":                  truth,
	"generateDashboardPreviews": truth,
}

func wholeNumber(s string) (any, error) { return strconv.ParseInt(s, 10, 64) }

func truth(s string) (any, error) { return strconv.ParseBool(s) }

// retype returns the typed value of an expanded member. A malformed value stays
// text, which validation reports.
func retype(name, text string) any {
	if read := typedMembers[name]; read != nil {
		if value, err := read(strings.TrimSpace(text)); err == nil {
			return value
		}
	}
	return text
}
