package manifests

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
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
// objects.

// maxFile bounds a manifest file, and each file that it refers to, in bytes.
const maxFile = 4 << 20

// file is the last state of one file.
type file struct {
	name     string            // base name
	paths    []string          // of the file and those that it refers to
	sum      [sha256.Size]byte // of all their contents
	objects  []object
	warnings []string // documents that are ignored
	err      error    // of reading the file, or of applying its objects
	done     bool     // applied, or failed until something changes
}

// object is one object of a file with its position.
type object struct {
	*unstructured.Unstructured
	kind           api.Kind
	line, document int
}

func (o object) key() key { return key{o.kind.Group, o.kind.Plural, o.GetNamespace(), o.GetName()} }

// fileError is a fault of one manifest file. Nothing of the file is applied.
type fileError struct {
	file           string // base name
	line, document int    // 1-based; 0 = the file as a whole
	err            error
}

func (e *fileError) Error() string {
	if e.line == 0 {
		return fmt.Sprintf("%s: %v", e.file, e.err)
	}
	return fmt.Sprintf("%s:%d: document %d: %v", e.file, e.line, e.document, e.err)
}

func (e *fileError) Unwrap() error { return e.err }

// read reads one file and those that it refers to.
func (a *Applier) read(name string) *file {
	f := &file{name: name}
	sum := sha256.New()
	read := func(path string) ([]byte, error) {
		f.paths = append(f.paths, path)
		return readInto(sum, path)
	}
	data, err := read(filepath.Join(a.dir, name))
	if err != nil {
		f.err = &fileError{file: name, err: err}
	} else {
		f.err = f.parse(data, &expander{lookup: a.lookup, dir: a.dir, read: read})
	}
	f.done = f.err != nil
	f.sum = [sha256.Size]byte(sum.Sum(nil))
	return f
}

// changed reports whether the file, or one that it refers to, has another content. Time
// stamps would not do: two writes may fall within their granularity.
func (f *file) changed() bool {
	sum := sha256.New()
	for _, path := range f.paths {
		_, _ = readInto(sum, path) // a fault is part of the sum
	}
	return f.sum != [sha256.Size]byte(sum.Sum(nil))
}

// readInto reads a file and adds it to a sum.
func readInto(sum hash.Hash, path string) ([]byte, error) {
	data, err := readBounded(path)
	fmt.Fprintf(sum, "%s\n%d\n%v\n", path, len(data), err)
	sum.Write(data)
	return data, err
}

// declare adds the objects of a file to declared. It returns an error for an object
// that is declared already.
func (f *file) declare(declared map[key]string) error {
	for _, o := range f.objects {
		if first, taken := declared[o.key()]; taken {
			err := fmt.Errorf("%s %s/%s is declared before, in %s", o.GetKind(), o.GetNamespace(), o.GetName(), first)
			return &fileError{f.name, o.line, o.document, err}
		}
		declared[o.key()] = fmt.Sprintf("%s:%d", f.name, o.line)
	}
	return nil
}

// parse reads the documents of one file. The error is a *fileError, with which the
// file has no objects.
func (f *file) parse(data []byte, x *expander) error {
	var objects []object
	for i, doc := range splitDocuments(data) {
		fail := func(line int, err error) error { return &fileError{f.name, line, i + 1, err} }
		text, err := yaml.YAMLToJSONStrict(doc.text)
		if err != nil {
			return fail(doc.fault(err))
		}
		if string(bytes.TrimSpace(text)) == "null" {
			continue
		}
		root := map[string]any{}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &root); err != nil {
			return fail(doc.line, errors.New("a document must be an object with apiVersion, kind and metadata"))
		}
		items := []any{root}
		if list, ok := root["items"].([]any); ok && root["kind"] == "List" {
			items = list // the form in which kubectl prints several objects
		}
		for _, item := range items {
			member, _ := item.(map[string]any)
			o := object{&unstructured.Unstructured{Object: member}, api.Kind{}, doc.line, i + 1}
			warning, err := o.complete(x)
			switch {
			case err != nil:
				return fail(doc.line, err)
			case warning != "":
				f.warnings = append(f.warnings, fail(doc.line, errors.New(warning)).Error())
			default:
				objects = append(objects, o)
			}
		}
	}
	f.objects = objects
	return nil
}

// complete checks kind, version and name of an object and expands its values. A
// warning means that the server does not serve the kind.
func (o *object) complete(x *expander) (warning string, err error) {
	kind, _ := o.Object["kind"].(string)
	version, _ := o.Object["apiVersion"].(string)
	if kind == "" || version == "" {
		return "", errors.New("apiVersion and kind must be given")
	}
	gvk := o.GroupVersionKind()
	i := slices.IndexFunc(api.Kinds, func(k api.Kind) bool { return k.Group == gvk.Group && k.Kind == gvk.Kind })
	if i < 0 {
		return fmt.Sprintf("%s %s is not served here and is ignored", version, kind), nil
	}
	if o.kind = api.Kinds[i]; !slices.Contains(o.kind.Versions, gvk.Version) {
		return "", fmt.Errorf("%s has no version %s; use one of %s", kind, gvk.Version, strings.Join(o.kind.Versions, ", "))
	}
	meta, _ := o.Object["metadata"].(map[string]any)
	if name, _ := meta["name"].(string); name == "" {
		return "", fmt.Errorf("%s without metadata.name", kind)
	}
	if gvk.Group != api.DashboardGroup && gvk.Group != api.FolderGroup {
		if err := x.object(o.Object, ""); err != nil {
			return "", err
		}
	}
	if o.GetNamespace() == "" {
		o.SetNamespace(defaultNamespace)
	}
	// Files are often exported from a server, with the members that it sets.
	for _, member := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"} {
		delete(meta, member)
	}
	delete(o.Object, "status")
	return "", nil
}

// document is one YAML document of a file.
type document struct {
	text  []byte
	start int // 1-based line of the file where text begins
	line  int // and of its first line that is not blank or a comment
}

// splitDocuments cuts a file at its "---" lines and leaves empty documents out. YAML
// allows no such line inside a document.
func splitDocuments(data []byte) (out []document) {
	doc := document{start: 1}
	end := func() {
		if doc.line > 0 {
			out = append(out, doc)
		}
	}
	n := 0
	for line := range bytes.Lines(data) {
		n++
		if mark := bytes.TrimRight(line, "\r\n"); bytes.Equal(mark, []byte("---")) ||
			bytes.HasPrefix(mark, []byte("--- ")) || bytes.HasPrefix(mark, []byte("---\t")) {
			end()
			doc = document{start: n}
			line = line[3:] // what follows the mark belongs to the document
		}
		content := bytes.TrimSpace(line)
		if doc.line == 0 && len(content) > 0 && content[0] != '#' && line[0] != '%' {
			doc.line = n
		}
		doc.text = append(doc.text, line...)
	}
	end()
	return out
}

var yamlLine = regexp.MustCompile(`^(?:yaml: |error converting YAML to JSON: )*(?:unmarshal errors:\s*)?(?:line (\d+): )?`)

// fault returns the line of the file and the text of a parser's error.
func (d document) fault(err error) (int, error) {
	m := yamlLine.FindStringSubmatch(err.Error())
	line := d.line
	if n, convErr := strconv.Atoi(m[1]); convErr == nil {
		// The parser may count one line beyond the end.
		line = d.start - 1 + min(n, 1+bytes.Count(bytes.TrimRight(d.text, "\n"), []byte("\n")))
	}
	return line, errors.New(strings.TrimPrefix(err.Error(), m[0]))
}

// readBounded reads a regular file of at most maxFile bytes.
func readBounded(path string) (data []byte, err error) {
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
	data, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && int64(len(data)) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return data, err
}
