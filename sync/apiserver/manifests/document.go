package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"

	"limpet/sync/api"
	"limpet/sync/api/admission"
)

// Document is one object of a file.
type Document struct {
	*unstructured.Unstructured
	Where   string   // file and number of the document
	Unknown []string // fields without effect, with file and line
}

// ReadDocuments reads YAML or JSON documents: one object each, or a list of objects, the form in which kubectl prints
// several. Its errors never hold content, which may be secret.
func ReadDocuments(file string, data []byte) (out []Document, err error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n, line := 1, 1; ; n++ {
		where := fmt.Sprintf("%s: document %d", file, n)
		doc, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		var text []byte
		if err == nil {
			text, err = api.DocumentJSON(doc)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		first := line
		line += bytes.Count(doc, []byte("\n")) + 1 // and the separator
		var root unstructured.Unstructured
		if kjson.UnmarshalCaseSensitivePreserveInts(text, &root.Object) != nil {
			return nil, fmt.Errorf("%s: a document must be an object with apiVersion, kind and metadata", where)
		}
		if root.Object == nil {
			continue // comments only
		}
		if root.GetKind() == "" || root.GetAPIVersion() == "" {
			return nil, fmt.Errorf("%s: no apiVersion and kind, so it is no object, such as a Repository; "+
				"files of dashboards are checked by: limpet repo pull NAME --dry-run", where)
		}
		list := &unstructured.UnstructuredList{Items: []unstructured.Unstructured{root}}
		if root.IsList() {
			if list, err = root.ToList(); err != nil {
				return nil, fmt.Errorf("%s: a list whose items are no objects", where)
			}
		}
		for i := range list.Items {
			u := &list.Items[i]
			out = append(out, Document{u, where, unknownIn(u, file, doc, first, i)})
		}
	}
}

// escapes are those of JSON that a reader of YAML refuses.
var escapes = regexp.MustCompile(`\\(/|u[dD][89a-fA-F])`)

// maxUnknown bounds the reported unknown fields of an object.
const maxUnknown = 20

// unknownIn returns the unknown fields of an object with file and line. doc is its document, which begins at the line
// first; item is its index if that is a list.
func unknownIn(obj *unstructured.Unstructured, file string, doc []byte, first, item int) (out []string) {
	fields := admission.UnknownFields(obj)
	if len(fields) == 0 {
		return nil
	}
	root := &yamlv3.Node{Line: 1}
	if yamlv3.Unmarshal(escapes.ReplaceAll(doc, []byte("__")), root) == nil && len(root.Content) > 0 {
		root = root.Content[0]
	}
	_, root = lineOf(root, []string{"items", strconv.Itoa(item)})
	for _, f := range fields[:min(len(fields), maxUnknown)] {
		line, _ := lineOf(root, f.Path)
		out = append(out, fmt.Sprintf("%s:%d: %s", file, first-1+line, f))
	}
	return out
}

// lineOf returns the line of the member at a path and its value, else those of the last one before it.
func lineOf(n *yamlv3.Node, path []string) (int, *yamlv3.Node) {
	line := n.Line
	for _, name := range path {
		if n.Kind == yamlv3.AliasNode {
			n = n.Alias
		}
		var next *yamlv3.Node
		if i, err := strconv.Atoi(name); err == nil && n.Kind == yamlv3.SequenceNode && i < len(n.Content) {
			line, next = n.Content[i].Line, n.Content[i]
		}
		for i := 0; i+1 < len(n.Content) && n.Kind == yamlv3.MappingNode; i += 2 {
			if n.Content[i].Value == name {
				line, next = n.Content[i].Line, n.Content[i+1]
			}
		}
		if next == nil {
			break
		}
		n = next
	}
	return line, n
}

// Values of a manifest may refer to the environment and to files of the host:
//
//	${NAME}, $__env{NAME}   the environment variable NAME, which must be set
//	$__file{PATH}           the text of a file, without blanks at its ends
//	$${ $$__env{ $$__file{  the same without the first $, not expanded
//
// They are expanded in values, not in names of members, and not in dashboards and folders, where ${...} is
// Grafana's own syntax. Expanded text is not expanded again.

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

// reference returns the value of one reference. Editors add a line break to a file that is not part of a token.
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
