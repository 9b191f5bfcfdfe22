package object

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/tui/cli/command"
)

// fieldManager owns the fields that 'limpet apply' sets.
const fieldManager = "limpet"

// ApplyCommand is 'limpet apply'.
type ApplyCommand struct {
	File string `short:"f" required:"" help:"YAML or JSON file with one or more objects; - is stdin."`
}

func (c ApplyCommand) Run(ctx context.Context, e *command.Env) error {
	objects, err := ReadFile(e, c.File, "limpet apply -f FILE")
	if err != nil {
		return err
	}
	// Dashboards and folders may live on other servers, so each group has its own session. The embedded API is
	// one, and its file opens once.
	sessions := map[string]*command.Session{}
	defer func() {
		for _, s := range sessions {
			s.Close()
		}
	}()
	at := func(o Manifest) (*command.Session, error) {
		group := o.Kind.Group
		if e.Embedded() {
			group = ""
		}
		if sessions[group] == nil {
			s, err := e.Open(ctx, command.Needs{API: true, Group: group})
			if err != nil {
				return nil, err
			}
			sessions[group] = s
		}
		return sessions[group], nil
	}
	// A dry run of all comes first, so that an invalid one is rejected before anything is written.
	var made []any
	for _, dry := range []bool{true, false} {
		for _, o := range objects {
			s, err := at(o)
			if err != nil {
				return err
			}
			u, err := applyOne(ctx, e, s, o, dry)
			if err != nil {
				return applyError(err, o, len(made))
			}
			if !dry {
				made = append(made, u.Object)
			}
		}
	}
	if e.Flags.Data() {
		return e.PrintList(made, command.Table{})
	}
	return nil
}

// applyError adds the object and its file, and what was written before it.
func applyError(err error, o Manifest, written int) error {
	err = fmt.Errorf("%s: %w", o.Where, err)
	if written > 0 {
		err = fmt.Errorf("%w (what comes before it in the file was written)", err)
	}
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return command.WithHint(err, "limpet apply -f "+command.ShellWord(o.file)+"    # after correcting it")
	}
	return err
}

// applyOne applies one object and prints the result, unless it is a dry run.
func applyOne(ctx context.Context, e *command.Env, s *command.Session, o Manifest, dry bool) (*unstructured.Unstructured, error) {
	u := o.Object.DeepCopy()
	if u.GetNamespace() == "" {
		u.SetNamespace(e.Flags.OneNamespace())
	}
	res := s.Client.Resource(u.GroupVersionKind().GroupVersion().WithResource(o.Kind.Plural)).Namespace(u.GetNamespace())
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
	line := o.Kind.Singular + "/" + made.GetName()
	switch {
	case e.Flags.Data():
		return made, nil
	case e.Flags.Output == "name":
	case before == "":
		line += " created"
	case before == made.GetResourceVersion():
		line += " unchanged"
	default:
		line += " configured"
	}
	_, err = fmt.Fprintln(e.Out, line)
	return made, err
}
