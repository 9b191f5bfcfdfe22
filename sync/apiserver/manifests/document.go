package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"

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

// ReadDocuments reads YAML or JSON documents: one object each, or a list of objects, the form in
// which kubectl prints several. Its errors never hold content, which may be secret.
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

// unknownIn returns the unknown fields of an object with file and line. doc is its document, which
// begins at the line first; item is its index if that is a list.
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

// lineOf returns the line of the member at a path and its value, else those of the last one before
// it.
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
