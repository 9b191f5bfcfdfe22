package manifests

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Values of a manifest may refer to the environment and to files of the host:
//
//	${NAME}, $__env{NAME}   the environment variable NAME, which must be set
//	$__file{PATH}           the text of a file, without blanks at its ends
//	$${ $$__env{ $$__file{  the same without the first $, not expanded
//
// They are expanded in values, not in names of members, and not in dashboards and folders, where
// ${...} is Grafana's own syntax. Expanded text is not expanded again.

// expander expands references by an environment and a base directory.
type expander struct {
	lookup func(string) (string, bool)
	dir    string
	read   func(path string) ([]byte, error)
}

// references matches references. The escaped form comes first.
var (
	references   = regexp.MustCompile(`\$\$(?:__env|__file)?\{|\$(__env|__file)?\{([^{}]*)\}|\$(?:__env|__file)?\{`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// Reference returns the first reference in a text, "" without one.
func Reference(text string) string {
	for _, match := range references.FindAllString(text, -1) {
		if !strings.HasPrefix(match, "$$") {
			return match
		}
	}
	return ""
}

// object expands the values of an object in place, in the order of its members.
func (x *expander) object(object map[string]any, path string) error {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		value, err := x.value(object[name], path+name)
		if err != nil {
			return err
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
	var fault error
	out := references.ReplaceAllStringFunc(value, func(match string) string {
		parts := references.FindStringSubmatch(match)
		switch {
		case fault != nil:
		case strings.HasPrefix(match, "$$"):
			return match[1:]
		case !strings.HasSuffix(match, "}"):
			fault = fmt.Errorf("%s without its closing brace; write $%s to mean the text itself", match, match)
		default:
			var text string
			text, fault = x.reference(parts[1], parts[2])
			return text
		}
		return ""
	})
	return out, fault
}

// reference returns the value of one reference. Editors add a line break to a file that is not part
// of a token.
func (x *expander) reference(source, name string) (string, error) {
	switch {
	case source == "__file" && name == "":
		return "", errors.New("$__file{} names no file")
	case source == "__file":
		if !filepath.IsAbs(name) {
			name = filepath.Join(x.dir, name)
		}
		data, err := x.read(name)
		return strings.TrimSpace(string(data)), err
	case !variableName.MatchString(name):
		return "", fmt.Errorf("%q is not the name of an environment variable; write $${ to mean the text itself", name)
	}
	value, ok := x.lookup(name)
	if !ok {
		return "", fmt.Errorf("environment variable %s is not set", name)
	}
	return value, nil
}
