package object

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/apiserver/manifests"
	"limpet/sync/resources"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

// Manifest is one object of a file and its position there.
type Manifest struct {
	Kind    api.Kind
	Object  *unstructured.Unstructured
	file    string
	Where   string
	unknown []string // fields, with file and line
}

// ReadFile reads the objects of a file that a command names; - is stdin.
func ReadFile(e *command.Env, file, call string) ([]Manifest, error) {
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		return nil, command.Usagef("limpet repo pull NAME --dry-run    # checks the files of a commit",
			"%s is a directory; name one file", file)
	}
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

// ReadDocuments reads the objects of YAML or JSON documents and lists. Its errors never hold
// content, which may be secret.
func ReadDocuments(file string, data []byte) ([]Manifest, error) {
	name := file
	if file == "-" {
		name = "stdin"
	}
	documents, err := manifests.ReadDocuments(name, data)
	if strings.EqualFold(filepath.Ext(file), ".json") { // the agent reads such a file as JSON
		err = cmp.Or(resources.CheckJSON(file, data), err)
	}
	if err == nil && len(documents) == 0 {
		err = fmt.Errorf("%s holds no objects", name)
	}
	if err != nil {
		return nil, command.Usagef(validates(file), "%w", err)
	}
	out := make([]Manifest, len(documents))
	for i, d := range documents {
		out[i] = Manifest{Object: d.Unstructured, file: file, Where: d.Where, unknown: d.Unknown}
	}
	return out, nil
}

// validates is the command that validates a file after a correction.
func validates(file string) string {
	return "limpet repo validate " + text.ShellWord(file) + "    # after correcting it"
}

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
	return command.Usagef("limpet get --help    # lists the kinds", "%s%s", what, command.Suggestion(word, names))
}
