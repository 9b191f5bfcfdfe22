// Package object has the commands of objects of any kind: apply, get and delete.
package object

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"limpet/sync/api"
	"limpet/tui/cli/command"
)

// Manifest is one object of a file and its position there.
type Manifest struct {
	Kind   api.Kind
	Object *unstructured.Unstructured
	file   string
	Where  string
}

// ReadFile reads the objects of a file that a command names; - is stdin.
func ReadFile(e *command.Env, file, call string) ([]Manifest, error) {
	data, err := e.ReadFile(file)
	if err != nil {
		return nil, command.Usagef(call+"    # - is stdin", "read objects: %w", err)
	}
	return ParseObjects(file, data)
}

// ParseObjects reads all objects of a file and rejects the file when one is of an unknown kind.
func ParseObjects(file string, data []byte) ([]Manifest, error) {
	objects, err := ReadDocuments(file, data)
	for i := range objects {
		if err := objects[i].check(); err != nil {
			return nil, err
		}
	}
	return objects, err
}

// ReadDocuments reads the objects of a file of YAML or JSON documents, and those of lists. Its errors name the
// position and never the content, which may be a secret.
func ReadDocuments(file string, data []byte) ([]Manifest, error) {
	dec := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	name := file
	if file == "-" {
		name = "stdin"
	}
	var out []Manifest
	for n := 1; ; n++ {
		doc, err := dec.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		where := fmt.Sprintf("%s, document %d", name, n)
		if err == nil {
			doc, err = yaml.YAMLToJSONStrict(doc)
		}
		if err != nil {
			return nil, command.Usagef(validates(file), "%s: %w", where, err)
		}
		var content map[string]any
		if err := utiljson.Unmarshal(doc, &content); err != nil {
			return nil, command.Usagef(validates(file), "%s is no object", where)
		}
		if content == nil {
			continue // comments only
		}
		u := &unstructured.Unstructured{Object: content}
		if u.GetKind() == "" || u.GetAPIVersion() == "" {
			return nil, command.Usagef(validates(file), "%s: an object needs apiVersion and kind", where)
		}
		items := []unstructured.Unstructured{*u}
		if u.IsList() {
			list, err := u.ToList()
			if err != nil {
				return nil, command.Usagef(validates(file), "%s: a list whose items are no objects", where)
			}
			items = list.Items
		}
		for i := range items {
			out = append(out, Manifest{Object: &items[i], file: file, Where: where})
		}
	}
	if len(out) == 0 {
		return nil, command.Usagef(validates(file), "%s holds no objects", name)
	}
	return out, nil
}

// validates is the command that validates a file after a correction.
func validates(file string) string {
	return "limpet repo validate " + command.ShellWord(file) + "    # after correcting it"
}

// check finds the kind of the object.
func (o *Manifest) check() error {
	gvk := o.Object.GroupVersionKind()
	i := slices.IndexFunc(api.Kinds, func(k api.Kind) bool { return k.Group == gvk.Group && k.Kind == gvk.Kind })
	if i < 0 {
		return unknownKind(fmt.Sprintf("%s: unknown kind %q of %q", o.Where, gvk.Kind, o.Object.GetAPIVersion()), gvk.Kind)
	}
	o.Kind = api.Kinds[i]
	name, _, _ := unstructured.NestedFieldNoCopy(o.Object.Object, "metadata", "name")
	switch {
	case o.Object.GetName() != "":
		return nil
	case name != nil && name != "": // YAML reads y, on and 1e3 as other types than text
		return command.Usagef(validates(o.file), "%s: metadata.name of %s is no text; write it between quotation marks", o.Where, gvk.Kind)
	}
	return command.Usagef(validates(o.file), "%s: %s without metadata.name", o.Where, gvk.Kind)
}

// unknownKind names the kind that a word comes near to.
func unknownKind(what, word string) error {
	var names []string
	for _, k := range api.Kinds {
		names = append(names, k.Kind, k.Plural, k.Singular)
	}
	if n := command.Nearest(word, names); n != "" {
		what += fmt.Sprintf(", did you mean %q?", n)
	}
	return command.Usagef("limpet get --help    # lists the kinds", "%s", what)
}
