package cli

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// fieldManager owns what 'limpet apply' sets.
const fieldManager = "limpet"

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
		return r.printList(made, table{})
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
	_, err = fmt.Fprintln(r.Out, line)
	return made, err
}
