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
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"limpet/sync/api"
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
		return usage("limpet apply -f FILE", "read objects: %w", err)
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
	for _, dry := range []bool{true, false} {
		for _, o := range objects {
			s, err := at(o)
			if err != nil {
				return err
			}
			if err := r.applyOne(ctx, s, o, dry); err != nil {
				return err
			}
		}
	}
	return nil
}

// manifestObject is one object of a file and where it stands there.
type manifestObject struct {
	kind  api.Kind
	u     *unstructured.Unstructured
	where string
}

func (r *run) applyOne(ctx context.Context, s *session, o manifestObject, dry bool) error {
	u := o.u.DeepCopy()
	if u.GetNamespace() == "" {
		u.SetNamespace(r.g.oneNamespace())
	}
	res := s.Client.Resource(u.GroupVersionKind().GroupVersion().WithResource(o.kind.Plural)).Namespace(u.GetNamespace())
	opts := metav1.PatchOptions{FieldManager: fieldManager, Force: new(true), FieldValidation: metav1.FieldValidationStrict}
	if dry {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	body, err := json.Marshal(u.Object)
	if err != nil {
		return err
	}
	before := ""
	if old, err := res.Get(ctx, u.GetName(), metav1.GetOptions{}); err == nil {
		before = old.GetResourceVersion()
	} else if !apierrors.IsNotFound(err) {
		return err
	}
	made, err := res.Patch(ctx, u.GetName(), types.ApplyPatchType, body, opts)
	if err != nil {
		return fmt.Errorf("%s: %w", o.where, err)
	}
	if dry {
		return nil
	}
	verb := "configured"
	switch before {
	case "":
		verb = "created"
	case made.GetResourceVersion():
		verb = "unchanged"
	}
	name := o.kind.Singular + "/" + made.GetName()
	return r.g.printOne(r.world.Out, made.Object, name, func(w io.Writer) { fmt.Fprintf(w, "%s %s\n", name, verb) })
}

// parseObjects reads all documents of a file and refuses it whole when one is
// not an object of a kind that limpet knows.
func parseObjects(file string, data []byte) ([]manifestObject, error) {
	dec := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	var out []manifestObject
	for n := 1; ; n++ {
		doc, err := dec.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		where := fmt.Sprintf("%s, document %d", file, n)
		if err != nil {
			return nil, usage("", "%s: %w", where, err)
		}
		js, err := utilyaml.ToJSON(doc)
		if err != nil {
			return nil, usage("", "%s: %w", where, err)
		}
		if s := strings.TrimSpace(string(js)); s == "null" || s == "" {
			continue
		}
		u := new(unstructured.Unstructured)
		if err := u.UnmarshalJSON(js); err != nil {
			return nil, usage("", "%s: %w", where, err)
		}
		items := []unstructured.Unstructured{*u}
		if u.IsList() {
			list, err := u.ToList()
			if err != nil {
				return nil, usage("", "%s: %w", where, err)
			}
			items = list.Items
		}
		for i := range items {
			o, err := checkObject(&items[i], where)
			if err != nil {
				return nil, err
			}
			out = append(out, o)
		}
	}
	if len(out) == 0 {
		return nil, usage("", "%s holds no objects", file)
	}
	return out, nil
}

func checkObject(u *unstructured.Unstructured, where string) (manifestObject, error) {
	gvk := u.GroupVersionKind()
	var near []string
	for _, k := range api.Kinds {
		if k.Group == gvk.Group && k.Kind == gvk.Kind {
			if u.GetName() == "" {
				return manifestObject{}, usage("", "%s: %s without metadata.name", where, k.Kind)
			}
			return manifestObject{kind: k, u: u, where: where}, nil
		}
		near = append(near, k.Kind)
	}
	msg := fmt.Sprintf("%s: unknown kind %q of %q", where, gvk.Kind, u.GetAPIVersion())
	if n := nearest(gvk.Kind, near); n != "" {
		msg += fmt.Sprintf(", did you mean %q?", n)
	}
	return manifestObject{}, usage("limpet get --help    # lists the kinds", "%s", msg)
}

// kindNamed finds a kind by plural, singular, short name or Kind, with or
// without its group behind a dot.
func kindNamed(word string) (api.Kind, error) {
	name, group, _ := strings.Cut(strings.ToLower(word), ".")
	var names []string
	for _, k := range api.Kinds {
		if group != "" && group != k.Group {
			continue
		}
		for _, n := range append([]string{k.Plural, k.Singular, strings.ToLower(k.Kind)}, k.Short...) {
			if n == name {
				return k, nil
			}
		}
		names = append(names, k.Plural)
	}
	msg := fmt.Sprintf("unknown kind %q", word)
	if n := nearest(name, names); n != "" {
		msg += fmt.Sprintf(", did you mean %q?", n)
	}
	return api.Kind{}, usage("limpet get --help    # lists the kinds", "%s", msg)
}

func (s *session) resource(ctx context.Context, k api.Kind) (gvr, error) {
	version := k.Versions[0]
	if k.Group == api.DashboardGroup || k.Group == api.FolderGroup {
		v, err := s.Client.Preferred(ctx, k.Group)
		if err != nil {
			return gvr{}, err
		}
		version = v
	}
	return gvr{Group: k.Group, Version: version, Resource: k.Plural}, nil
}

type getCmd struct {
	Kind     string `arg:"" help:"Kind: repositories, jobs, historicjobs, connections, dashboards, folders, gitrepositories, secrets, events, leases."`
	Name     string `arg:"" optional:"" help:"Name of one object."`
	Selector string `short:"l" help:"Label selector."`
	Limit    int    `help:"At most so many; 0 = all." default:"0"`
}

func (c getCmd) Run(ctx context.Context, r *run) error {
	k, err := kindNamed(c.Kind)
	if err != nil {
		return err
	}
	s, err := r.open(ctx, need{API: true, Group: k.Group})
	if err != nil {
		return err
	}
	defer s.Close()
	res, err := s.resource(ctx, k)
	if err != nil {
		return err
	}
	if c.Name != "" {
		u, err := s.find(ctx, res, r.g.listNamespace(), c.Name)
		if apierrors.IsNotFound(err) {
			return fail(ExitError, "limpet get "+k.Plural, "%s %q not found", k.Singular, c.Name)
		}
		if err != nil {
			return err
		}
		return r.g.printOne(r.world.Out, u.Object, k.Singular+"/"+u.GetName(), func(w io.Writer) {
			// A table cannot fail to be written but by w, whose errors the
			// caller sees at its end.
			_ = kindTable(k, []unstructured.Unstructured{*u}).write(w, r.g.Output == "wide", !r.g.NoHeaders)
		})
	}
	items, err := s.selected(ctx, res, r.g.listNamespace(), c.Selector, c.Limit)
	if err != nil {
		return err
	}
	objects := make([]any, len(items))
	for i := range items {
		objects[i] = items[i].Object
	}
	return r.g.printList(r.world.Out, objects, kindTable(k, items))
}

// kindTable shows objects in the printer columns of their kind.
func kindTable(k api.Kind, items []unstructured.Unstructured) table {
	t := table{Wide: []string{"NAMESPACE", "UID"}}
	for _, col := range k.Columns {
		t.Columns = append(t.Columns, strings.ToUpper(col.Name))
	}
	now := time.Now()
	for i := range items {
		u := &items[i]
		var row []string
		for _, col := range k.Columns {
			cell := col.Text(u.Object)
			if at, err := time.Parse(time.RFC3339, cell); err == nil && col.Type == "date" {
				cell = since(now, at)
			}
			row = append(row, orDash(cell))
		}
		t.Rows = append(t.Rows, append(row, u.GetNamespace(), string(u.GetUID())))
		t.Names = append(t.Names, k.Singular+"/"+u.GetName())
	}
	return t
}

type deleteCmd struct {
	Kind string `arg:"" help:"Kind of the object, as for get."`
	Name string `arg:"" help:"Name of the object."`
}

func (c deleteCmd) Run(ctx context.Context, r *run) error {
	k, err := kindNamed(c.Kind)
	if err != nil {
		return err
	}
	s, err := r.open(ctx, need{API: true, Group: k.Group})
	if err != nil {
		return err
	}
	defer s.Close()
	res, err := s.resource(ctx, k)
	if err != nil {
		return err
	}
	u, err := s.find(ctx, res, r.g.listNamespace(), c.Name)
	if apierrors.IsNotFound(err) {
		return fail(ExitError, "limpet get "+k.Plural, "%s %q not found", k.Singular, c.Name)
	}
	if err != nil {
		return err
	}
	// The UID keeps a namesake safe that was made between the two calls.
	uid := u.GetUID()
	err = s.Client.Resource(res).Namespace(u.GetNamespace()).Delete(ctx, c.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil {
		return err
	}
	return r.g.printOne(r.world.Out, map[string]string{"kind": k.Kind, "name": c.Name, "result": "deleted"}, k.Singular+"/"+c.Name, func(w io.Writer) {
		fmt.Fprintf(w, "%s/%s deleted\n", k.Singular, c.Name)
	})
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
		err = fmt.Errorf("%s is larger than %s", path, bytesText(maxManifest))
	}
	return data, err
}
