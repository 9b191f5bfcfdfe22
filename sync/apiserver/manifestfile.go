package apiserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"limpet/sync/api"
)

// A manifest file holds YAML (or JSON) documents, one object each, or Lists of
// objects. Values may refer to the environment and to files: manifestexpand.go.

// maxManifest bounds a manifest file, and each file that it refers to, in bytes.
const maxManifest = 4 << 20

// manifestError is a fault of one manifest file. Nothing of the file is applied.
type manifestError struct {
	File     string // base name
	Line     int    // 1-based; 0 = the file as a whole
	Document int    // 1-based; 0 = the file as a whole
	Err      error
}

func (e *manifestError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s:%d: document %d: %v", e.File, e.Line, e.Document, e.Err)
}

func (e *manifestError) Unwrap() error { return e.Err }

// manifestObject is one object of a file with its position.
type manifestObject struct {
	Kind     api.Kind
	Object   *unstructured.Unstructured
	Line     int
	Document int
}

// parsed is the content of one file.
type parsed struct {
	Objects  []manifestObject
	Warnings []string // documents that are ignored
}

// parseManifest reads the documents of one file. The error is a *manifestError.
func parseManifest(name string, data []byte, namespace string, x *expander) (parsed, error) {
	var out parsed
	for i, doc := range splitDocuments(data) {
		fail := func(line int, err error) (parsed, error) {
			return parsed{}, &manifestError{File: name, Line: line, Document: i + 1, Err: err}
		}
		text, err := yaml.YAMLToJSONStrict(doc.text)
		if err != nil {
			line, err := yamlFault(err, doc)
			return fail(line, err)
		}
		if string(bytes.TrimSpace(text)) == "null" {
			continue
		}
		root := map[string]any{}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &root); err != nil {
			return fail(doc.line, errors.New("a document must be an object with apiVersion, kind and metadata"))
		}
		for _, one := range itemsOf(root) {
			object, warning, err := readManifestObject(one, namespace, x)
			switch {
			case err != nil:
				return fail(doc.line, err)
			case warning != "":
				out.Warnings = append(out.Warnings, fmt.Sprintf("%s:%d: document %d: %s", name, doc.line, i+1, warning))
			default:
				object.Line, object.Document = doc.line, i+1
				out.Objects = append(out.Objects, object)
			}
		}
	}
	return out, nil
}

// itemsOf returns the objects of a List, in which kubectl prints several objects.
func itemsOf(root map[string]any) []map[string]any {
	items, ok := root["items"].([]any)
	if kind, _ := root["kind"].(string); !ok || kind != "List" {
		return []map[string]any{root}
	}
	out := make([]map[string]any, 0, len(items))
	for _, item := range items {
		object, _ := item.(map[string]any) // nil is refused as an object without a kind
		out = append(out, object)
	}
	return out
}

// readManifestObject checks kind, version and name of one object and expands its
// values. A warning means that this server does not serve the kind.
func readManifestObject(root map[string]any, namespace string, x *expander) (manifestObject, string, error) {
	obj := &unstructured.Unstructured{Object: root}
	kind, _ := root["kind"].(string)
	version, _ := root["apiVersion"].(string)
	if kind == "" || version == "" {
		return manifestObject{}, "", errors.New("apiVersion and kind must be given")
	}
	gvk := obj.GroupVersionKind()
	k, ok := kindNamed(gvk.Group, gvk.Kind)
	if !ok {
		return manifestObject{}, fmt.Sprintf("%s %s is not served here and is ignored", version, kind), nil
	}
	if !served(k, gvk.Version) {
		return manifestObject{}, "", fmt.Errorf("%s has no version %s; use one of %s", kind, gvk.Version, strings.Join(k.Versions, ", "))
	}
	meta, ok := root["metadata"].(map[string]any)
	if name, _ := meta["name"].(string); !ok || name == "" {
		return manifestObject{}, "", fmt.Errorf("%s without metadata.name", kind)
	}
	if k.Group != api.DashboardGroup && k.Group != api.FolderGroup {
		if err := x.object(root, ""); err != nil {
			return manifestObject{}, "", err
		}
	}
	if obj.GetNamespace() == "" {
		obj.SetNamespace(namespace)
	}
	// Files are often exported from a server, with the members that it sets.
	for _, member := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"} {
		delete(meta, member)
	}
	delete(root, "status")
	return manifestObject{Kind: k, Object: obj}, "", nil
}

// document is one YAML document and the line of its first content.
type document struct {
	text   []byte
	before int // lines of the file before text
	line   int // 1-based line of the first line that is not blank or a comment
}

// splitDocuments cuts a file at its "---" lines. YAML allows no such line
// inside a document.
func splitDocuments(data []byte) []document {
	var out []document
	start, first, content := 0, 0, 0
	lines := bytes.SplitAfter(data, []byte("\n"))
	at := 0
	flush := func(end, next, line int) {
		if content > 0 {
			out = append(out, document{text: data[start:end], before: first, line: content})
		}
		start, first, content = next, line, 0
	}
	for i, line := range lines {
		text := bytes.TrimRight(line, "\r\n")
		switch {
		case bytes.Equal(text, []byte("---")) || bytes.HasPrefix(text, []byte("--- ")) || bytes.HasPrefix(text, []byte("---\t")):
			// The rest of the line after the mark belongs to the document.
			flush(at, at+3, i)
			if rest := bytes.TrimSpace(text[3:]); len(rest) > 0 && rest[0] != '#' {
				content = i + 1
			}
		case content == 0 && len(bytes.TrimSpace(text)) > 0 && bytes.TrimSpace(text)[0] != '#' && text[0] != '%':
			content = i + 1
		}
		at += len(line)
	}
	flush(at, at, 0)
	return out
}

var yamlLine = regexp.MustCompile(`^(?:yaml: |error converting YAML to JSON: )*(?:unmarshal errors:\s*)?line (\d+): `)

// yamlFault converts the line of a parser error to a line of the file.
func yamlFault(err error, doc document) (int, error) {
	text := err.Error()
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		if n, convErr := strconv.Atoi(m[1]); convErr == nil {
			// The parser may count one line beyond the end.
			n = min(n, 1+bytes.Count(bytes.TrimRight(doc.text, "\n"), []byte("\n")))
			return doc.before + n, errors.New(strings.TrimPrefix(text, m[0]))
		}
	}
	return doc.line, errors.New(strings.TrimPrefix(strings.TrimPrefix(text, "error converting YAML to JSON: "), "yaml: "))
}

// readBounded reads a regular file of at most limit bytes.
func readBounded(path string, limit int64) (data []byte, err error) {
	// A named pipe would block the open itself.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data, err = io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return data, err
}

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
