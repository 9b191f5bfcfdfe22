package manifests

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"limpet/sync/api"
	"limpet/sync/fileid"
)

// A manifest file holds YAML (or JSON) documents, one object each, or Lists of objects.

// file is the last state of one file.
type file struct {
	name     string            // base name
	paths    []string          // of the file and those that it refers to
	stamps   []fileid.Stamp    // of these, as they were last read
	read     time.Time         // when that was
	sum      [sha256.Size]byte // of all their contents
	objects  []*object
	warnings []string // documents that are ignored
	err      error    // of reading the file, or of applying its objects
	done     bool     // applied, or failed until something changes
	foreign  []error  // objects that belong to others
	others   []key    // objects that the selector does not take
}

// object is one object of a file with its position.
type object struct {
	*unstructured.Unstructured
	kind  api.Kind
	where string // file and document
	// version is the resourceVersion of the object of the server that was found as this one says, ""
	// for none.
	version string
}

func (o *object) key() key { return key{resource(o.kind), o.GetNamespace(), o.GetName()} }

// read reads one file and those that it refers to.
func (a *Applier) read(name string) *file {
	f := &file{name: name, read: time.Now()}
	sum := sha256.New()
	read := func(path string) ([]byte, error) {
		f.paths, f.stamps = append(f.paths, path), append(f.stamps, stampOf(path))
		return f.readInto(sum, len(f.paths)-1)
	}
	data, err := read(filepath.Join(a.Dir, name))
	if err != nil {
		f.err = fmt.Errorf("%s: %w", name, err)
	} else {
		f.err = f.parse(data, &expander{lookup: a.lookup, dir: a.Dir, read: read}, a.Options)
	}
	f.done = f.err != nil
	f.sum = [sha256.Size]byte(sum.Sum(nil))
	return f
}

// stampOf returns the stamp of a file, or the zero Stamp when there is none.
func stampOf(path string) fileid.Stamp {
	info, err := os.Stat(path)
	if err != nil {
		return fileid.Stamp{}
	}
	return fileid.Of(info)
}

// changed reports whether the file, or one that it refers to, has another content. With whole it is
// read even if its stamp is as it was: a network file system may show an old one for a minute.
func (f *file) changed(whole bool) bool {
	now, stamps := time.Now(), make([]fileid.Stamp, len(f.paths))
	for i, path := range f.paths {
		stamps[i] = stampOf(path)
		whole = whole || stamps[i] != f.stamps[i] || !stamps[i].Shows(f.read)
	}
	if !whole {
		return false
	}
	f.stamps, f.read = stamps, now
	sum := sha256.New()
	for i := range f.paths {
		_, _ = f.readInto(sum, i) // a fault is part of the sum
	}
	return f.sum != [sha256.Size]byte(sum.Sum(nil))
}

// readInto reads the file of a path and adds it to a sum. One that cannot be read is read again at
// the next poll, whatever its stamp: the fault may pass.
func (f *file) readInto(sum hash.Hash, i int) ([]byte, error) {
	data, err := fileid.Read(f.paths[i], fileid.MaxSettings)
	if err != nil {
		f.stamps[i] = fileid.Stamp{}
	}
	fmt.Fprintf(sum, "%s\n%d\n%v\n", f.paths[i], len(data), err)
	sum.Write(data)
	return data, err
}

// declare adds the objects of a file to declared. It returns an error for an object that is
// declared already.
func (f *file) declare(declared map[key]string) error {
	for _, o := range f.objects {
		if first, taken := declared[o.key()]; taken {
			return fmt.Errorf("%s: %s %s/%s is declared before, in %s", o.where, o.GetKind(), o.GetNamespace(), o.GetName(), first)
		}
		declared[o.key()] = o.where
	}
	return nil
}

// parse reads the documents of one file. With an error the file has no objects.
func (f *file) parse(data []byte, x *expander, rules Options) error {
	documents, err := ReadDocuments(f.name, data)
	if err == nil && len(documents) == 0 { // it may be cut
		err = fmt.Errorf("%s: no object is declared; try: remove the file", f.name)
	}
	if err != nil {
		return err
	}
	var objects []*object
	for _, d := range documents {
		o := &object{Unstructured: d.Unstructured, where: d.Where}
		if rules.Validation == metav1.FieldValidationWarn {
			f.warnings = append(f.warnings, d.Unknown...)
		}
		warning, err := o.complete(x, rules)
		switch {
		case errors.Is(err, errNotSelected):
			f.others = append(f.others, o.key())
		case err != nil:
			return fmt.Errorf("%s: %w", o.where, err)
		case len(d.Unknown) > 0 && rules.Validation == metav1.FieldValidationStrict:
			return errors.New(strings.Join(d.Unknown, "; "))
		case warning != "":
			f.warnings = append(f.warnings, o.where+": "+warning)
		default:
			objects = append(objects, o)
		}
	}
	f.objects = objects
	return nil
}

// errNotSelected means that an object is for another site.
var errNotSelected = errors.New("the selector does not take the object")

// complete checks kind, version and name of an object and expands its values. A warning means that
// the kind is another program's; a mistyped one is an error, because it may be an object of the
// server.
func (o *object) complete(x *expander, rules Options) (warning string, err error) {
	kind, gvk := o.GetKind(), o.GroupVersionKind()
	i := slices.IndexFunc(api.Kinds, func(k api.Kind) bool { return k.Group == gvk.Group && k.Kind == gvk.Kind })
	if i < 0 && slices.ContainsFunc(api.Kinds, func(k api.Kind) bool { return k.Group == gvk.Group || k.Kind == gvk.Kind }) {
		return "", fmt.Errorf("%s %s is no kind of the API; correct it, or move the object to another directory", o.GetAPIVersion(), kind)
	}
	if i < 0 {
		return fmt.Sprintf("%s %s is not served here and is ignored", o.GetAPIVersion(), kind), nil
	}
	if o.kind = api.Kinds[i]; !slices.Contains(o.kind.Versions, gvk.Version) {
		return "", fmt.Errorf("%s has no version %s; use one of %s", kind, gvk.Version, strings.Join(o.kind.Versions, ", "))
	}
	meta, _ := o.Object["metadata"].(map[string]any)
	if name, _ := meta["name"].(string); name == "" {
		return "", fmt.Errorf("%s without metadata.name", kind)
	}
	if namespace, _ := meta["namespace"].(string); namespace == "" {
		o.SetNamespace(cmp.Or(rules.Namespace, defaultNamespace))
	}
	if rules.Selector != nil && !rules.Selector.Matches(labels.Set(o.GetLabels())) { // before variables that are not set here
		return "", errNotSelected
	}
	if !o.kind.Provisioned() {
		if err := x.object(o.Object, ""); err != nil {
			return "", err
		}
	}
	// Files are often exported from a server, with the members that it sets.
	for _, member := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"} {
		delete(meta, member)
	}
	delete(o.Object, "status")
	return "", nil
}
