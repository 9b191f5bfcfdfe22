package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"limpet/sync/api"
	"limpet/sync/text"
)

// fieldManager owns what 'limpet apply' sets.
const fieldManager = "limpet"

// maxManifest bounds a file of objects; the API takes 3 MiB an object.
const maxManifest = 32 << 20

type applyCmd struct {
	File string `short:"f" required:"" help:"YAML or JSON file with one or more objects; - is stdin."`
}

func (c applyCmd) Run(ctx context.Context, r *run) error {
	data, err := r.readFile(c.File)
	if err != nil {
		return usage("limpet apply -f FILE    # - is stdin", "read objects: %w", err)
	}
	objects, err := parseObjects(c.File, data)
	if err != nil {
		return err
	}
	// Dashboards and folders may live on servers of their own, so each group
	// has its session. The embedded API is one, and its file opens once.
	sessions := map[string]*session{}
	defer func() {
		for _, s := range sessions {
			s.Close()
		}
	}()
	at := func(o manifestObject) (*session, error) {
		group := o.kind.Group
		if r.embedded() {
			group = ""
		}
		if sessions[group] == nil {
			s, err := r.open(ctx, need{API: true, Group: group})
			if err != nil {
				return nil, err
			}
			sessions[group] = s
		}
		return sessions[group], nil
	}
	// All are asked for without effect first, so that a bad one is refused
	// before the first is written.
	for _, o := range objects {
		s, err := at(o)
		if err != nil {
			return err
		}
		if _, err := r.applyOne(ctx, s, o, true); err != nil {
			return applyError(err, o, 0)
		}
	}
	var made []any
	for n, o := range objects {
		s, err := at(o)
		if err != nil {
			return err
		}
		u, err := r.applyOne(ctx, s, o, false)
		if err != nil {
			return applyError(err, o, n)
		}
		made = append(made, u.Object)
	}
	if r.g.data() {
		return r.g.printList(r.world.Out, made, table{})
	}
	return nil
}

// applyError says which object of which file it was, and how much was written
// before it.
func applyError(err error, o manifestObject, written int) error {
	err = fmt.Errorf("%s: %w", o.where, err)
	if written > 0 {
		err = fmt.Errorf("%w (what comes before it in the file was written)", err)
	}
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return hinted(err, "limpet apply -f "+shellWord(o.file)+"    # after correcting it")
	}
	return err
}

// manifestObject is one object of a file and where it stands there.
type manifestObject struct {
	kind  api.Kind
	u     *unstructured.Unstructured
	file  string
	where string
}

// applyOne applies one object and says on a line what that did, unless it is a
// dry run.
func (r *run) applyOne(ctx context.Context, s *session, o manifestObject, dry bool) (*unstructured.Unstructured, error) {
	u := o.u.DeepCopy()
	if u.GetNamespace() == "" {
		u.SetNamespace(r.g.oneNamespace())
	}
	res := s.Client.Resource(u.GroupVersionKind().GroupVersion().WithResource(o.kind.Plural)).Namespace(u.GetNamespace())
	opts := metav1.PatchOptions{FieldManager: fieldManager, Force: new(true), FieldValidation: metav1.FieldValidationStrict}
	body, err := json.Marshal(u.Object)
	if err != nil {
		return nil, err
	}
	if dry {
		opts.DryRun = []string{metav1.DryRunAll}
		return res.Patch(ctx, u.GetName(), types.ApplyPatchType, body, opts)
	}
	before := ""
	if old, err := res.Get(ctx, u.GetName(), metav1.GetOptions{}); err == nil {
		before = old.GetResourceVersion()
	} else if !apierrors.IsNotFound(err) {
		return nil, err
	}
	made, err := res.Patch(ctx, u.GetName(), types.ApplyPatchType, body, opts)
	if err != nil {
		return nil, err
	}
	made.SetManagedFields(nil)
	line := o.kind.Singular + "/" + made.GetName()
	switch {
	case r.g.data():
		return made, nil
	case r.g.Output == "name":
	case before == "":
		line += " created"
	case before == made.GetResourceVersion():
		line += " unchanged"
	default:
		line += " configured"
	}
	_, err = fmt.Fprintln(r.world.Out, line)
	return made, err
}

// parseObjects reads all objects of a file and refuses it whole when one is of
// no kind that limpet knows.
func parseObjects(file string, data []byte) ([]manifestObject, error) {
	objects, err := readDocuments(file, data)
	if err != nil {
		return nil, err
	}
	for i := range objects {
		if objects[i], err = checkObject(objects[i]); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// readDocuments reads the objects of a file of YAML or JSON documents; those of
// lists are taken apart. Its errors tell where and never what stands there: it
// may be a secret.
func readDocuments(file string, data []byte) ([]manifestObject, error) {
	dec := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	name := file
	if file == "-" {
		name = "stdin"
	}
	var out []manifestObject
	for n := 1; ; n++ {
		doc, err := dec.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		where := fmt.Sprintf("%s, document %d", name, n)
		if err != nil {
			return nil, usage(validates(file), "%s: %w", where, err)
		}
		js, err := yaml.YAMLToJSONStrict(doc)
		if err != nil {
			return nil, usage(validates(file), "%s: %w", where, err)
		}
		var content map[string]any
		if err := utiljson.Unmarshal(js, &content); err != nil {
			return nil, usage(validates(file), "%s is no object", where)
		}
		if content == nil {
			continue // comments only
		}
		u := &unstructured.Unstructured{Object: content}
		if u.GetKind() == "" || u.GetAPIVersion() == "" {
			return nil, usage(validates(file), "%s: an object needs apiVersion and kind", where)
		}
		items := []unstructured.Unstructured{*u}
		if u.IsList() {
			list, err := u.ToList()
			if err != nil {
				return nil, usage(validates(file), "%s: a list whose items are no objects", where)
			}
			items = list.Items
		}
		for i := range items {
			out = append(out, manifestObject{u: &items[i], file: file, where: where})
		}
	}
	if len(out) == 0 {
		return nil, usage(validates(file), "%s holds no objects", name)
	}
	return out, nil
}

// validates is the call that looks at a file again once it has been corrected.
func validates(file string) string {
	return "limpet repo validate " + shellWord(file) + "    # after correcting it"
}

// checkObject finds the kind of an object.
func checkObject(o manifestObject) (manifestObject, error) {
	gvk := o.u.GroupVersionKind()
	var near []string
	for _, k := range api.Kinds {
		if k.Group == gvk.Group && k.Kind == gvk.Kind {
			if name, there, _ := unstructured.NestedFieldNoCopy(o.u.Object, "metadata", "name"); there && o.u.GetName() == "" && name != "" && name != nil {
				// y, on and 1e3 are no texts to YAML.
				return o, usage(validates(o.file), "%s: metadata.name of %s is no text; write it between quotation marks", o.where, k.Kind)
			}
			if o.u.GetName() == "" {
				return o, usage(validates(o.file), "%s: %s without metadata.name", o.where, k.Kind)
			}
			o.kind = k
			return o, nil
		}
		near = append(near, k.Kind)
	}
	msg := fmt.Sprintf("%s: unknown kind %q of %q", o.where, gvk.Kind, o.u.GetAPIVersion())
	if n := nearest(gvk.Kind, near); n != "" {
		msg += fmt.Sprintf(", did you mean %q?", n)
	}
	return o, usage("limpet get --help    # lists the kinds", "%s", msg)
}

// readFile reads a file or, for "-", stdin, up to maxManifest.
func (r *run) readFile(path string) ([]byte, error) {
	in := r.world.In
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxManifest+1))
	if err == nil && len(data) > maxManifest {
		err = fmt.Errorf("%s is larger than %s", path, text.Size(maxManifest))
	}
	return data, err
}
