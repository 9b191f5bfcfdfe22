// Package object has the commands of objects of any kind: apply, get and delete.
package object

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/apiserver/manifests"
	"limpet/sync/control"
	"limpet/sync/snapshot"
	"limpet/sync/snapshot/diff"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

// fieldManager owns the fields that 'limpet apply' sets.
const fieldManager = "limpet"

// ApplyCommand is 'limpet apply'.
type ApplyCommand struct {
	File  string `short:"f" required:"" help:"YAML or JSON file with one or more objects; - is stdin."`
	Force bool   `help:"Change objects that a file of --manifests declares, too."`

	DryRun bool `help:"Print what would be created or updated; nothing is written." xor:"write"`
	Diff   bool `help:"The same, with the difference of each object." xor:"write"`
}

func (c ApplyCommand) Run(ctx context.Context, e *command.Env) error {
	objects, err := ReadFile(e, c.File, "limpet apply -f FILE")
	if err != nil {
		return err
	}
	if err := errors.Join(checkFields(e, objects), checkReferences(objects)); err != nil {
		return err
	}
	// Each group has its own session, because it may live on another server. The embedded API is one,
	// opened once.
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
			old, u, err := applyOne(ctx, e, s, o, dry, c.Force)
			switch {
			case err != nil:
				return applyError(err, o, len(made))
			case !dry:
				made = append(made, u.Object)
				printApplied(e, o, old, u)
			case c.DryRun || c.Diff:
				plan, err := c.plan(e, o, old, u)
				if err != nil {
					return err
				}
				made = append(made, plan)
			}
		}
		if c.DryRun || c.Diff {
			break
		}
	}
	if e.Flags.Data() {
		return e.PrintList(made, command.Table{})
	}
	return nil
}

// checkFields refuses unknown fields, or warns of them, as --validate says.
func checkFields(e *command.Env, objects []Manifest) error {
	var unknown []string
	for _, o := range objects {
		unknown = append(unknown, o.unknown...)
	}
	switch mode := e.Flags.FieldValidation(); {
	case len(unknown) == 0:
	case mode == metav1.FieldValidationStrict:
		return command.Usagef("limpet apply -f "+text.ShellWord(objects[0].file)+" --validate=warn    # keeps them, without effect",
			"%s", strings.Join(unknown, "; "))
	case mode == metav1.FieldValidationWarn:
		e.Notef("warning: %s", strings.Join(unknown, "; "))
	}
	return nil
}

// checkReferences refuses ${NAME} in a secret: a directory of --manifests expands it, and a host
// would get the text itself.
func checkReferences(objects []Manifest) error {
	for _, o := range objects {
		for _, member := range []string{"secure", "stringData"} {
			secrets, _ := json.Marshal(o.Object.Object[member])
			if strings.Contains(string(secrets), text.Redacted) {
				return command.Usagef("", "%s: %s holds %s, which limpet prints in place of a secret", o.Where, member, text.Redacted)
			}
			if name := manifests.Reference(string(secrets)); name != "" {
				return command.Usagef("envsubst < "+text.ShellWord(o.file)+" | limpet apply -f -",
					"%s: %s in %s is expanded by --manifests only", o.Where, name, member)
			}
		}
	}
	return nil
}

// applyError adds the object and its file, and what was written before it.
func applyError(err error, o Manifest, written int) error {
	err = fmt.Errorf("%s: %w", o.Where, err)
	if written > 0 {
		err = fmt.Errorf("%w (what comes before it in the file was written)", err)
	}
	if apierrors.IsConflict(err) && o.Object.GetResourceVersion() != "" {
		return command.WithHint(err, "limpet edit "+o.Kind.Singular+" "+text.ShellWord(o.Object.GetName())+
			"    # or remove metadata.resourceVersion and metadata.uid from the file")
	}
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return command.WithHint(err, "limpet apply -f "+text.ShellWord(o.file)+"    # after correcting it")
	}
	return err
}

// applyOne applies one object, or with dry lets the API do all but the write. It returns the object
// before, nil for none, and after.
func applyOne(ctx context.Context, e *command.Env, s *command.Session, o Manifest, dry, force bool) (old, made *unstructured.Unstructured,
	err error) {
	u := o.Object.DeepCopy()
	if u.GetNamespace() == "" {
		u.SetNamespace(e.Flags.OneNamespace())
	}
	res := s.Client.Resource(u.GroupVersionKind().GroupVersion().WithResource(o.Kind.Plural)).Namespace(u.GetNamespace())
	opts := metav1.PatchOptions{FieldManager: fieldManager, Force: new(true), FieldValidation: e.Flags.FieldValidation()}
	body, err := json.Marshal(u.Object)
	if err != nil {
		return nil, nil, err
	}
	if old, err = res.Get(ctx, u.GetName(), metav1.GetOptions{}); apierrors.IsNotFound(err) {
		old, err = nil, nil
	} else if err == nil {
		err = OwnedByFile(old, o.Kind, "apply -f "+text.ShellWord(o.file), force)
	}
	if err != nil {
		return nil, nil, err
	}
	if dry {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	if made, err = res.Patch(ctx, u.GetName(), types.ApplyPatchType, body, opts); err != nil {
		return nil, nil, err
	}
	made.SetManagedFields(nil)
	return old, made, nil
}

// printApplied prints what was done with one object, unless the objects are printed as data.
func printApplied(e *command.Env, o Manifest, old, made *unstructured.Unstructured) {
	line := o.Kind.Singular + "/" + made.GetName()
	switch {
	case e.Flags.Data():
		return
	case e.Flags.Output == "name":
	case old == nil:
		line += " created"
	case old.GetResourceVersion() == made.GetResourceVersion():
		line += " unchanged"
	default:
		line += " configured"
	}
	fmt.Fprintln(e.Out, line)
}

// planned is what would be done with one object.
type planned struct {
	Kind      string               `json:"kind"`
	Namespace string               `json:"namespace,omitempty"`
	Name      string               `json:"name"`
	Action    string               `json:"action"` // create, update or unchanged
	Diff      *snapshot.TextChange `json:"diff,omitempty"`
}

// plan returns what would be done with one object, and prints it unless it is printed as data.
func (c ApplyCommand) plan(e *command.Env, o Manifest, old, made *unstructured.Unstructured) (p planned, err error) {
	p = planned{Kind: o.Kind.Kind, Namespace: made.GetNamespace(), Name: made.GetName(), Action: "create"}
	var before, after string
	RegisterSecrets(o.Object)
	if old != nil {
		p.Action = "update"
		before, err = control.Editable(old)
	}
	if err == nil {
		after, err = control.Editable(made)
	}
	if err != nil {
		return p, err
	}
	if old != nil && reflect.DeepEqual(control.WithoutServerFields(old), control.WithoutServerFields(made)) {
		p.Action = "unchanged"
	}
	if c.Diff && p.Action != "unchanged" && o.Kind.Kind != "Secret" {
		var was []byte
		if old != nil {
			was = []byte(before)
		}
		change := diff.Texts(was, []byte(after))
		p.Diff = &change
	}
	name := o.Kind.Singular + "/" + p.Name
	switch {
	case e.Flags.Data():
		return p, nil
	case e.Flags.Output == "name":
		fmt.Fprintln(e.Out, name)
		return p, nil
	}
	fmt.Fprintf(e.Out, "%s %s (dry run)\n", name, p.Action)
	if p.Diff != nil {
		command.PrintDiff(e.Out, "live/"+name, "file/"+name, *p.Diff)
	}
	return p, nil
}

// RegisterSecrets has the secrets that an object gives to the API redacted in all output.
func RegisterSecrets(u *unstructured.Unstructured) {
	secure, _, _ := unstructured.NestedMap(u.Object, "secure")
	for field := range secure {
		value, _, _ := unstructured.NestedString(secure, field, "create")
		text.RegisterSecret([]byte(value))
	}
}

// OwnedByFile refuses a change of an object that comes from a file of --manifests, unless it is
// forced.
func OwnedByFile(u *unstructured.Unstructured, k api.Kind, call string, force bool) error {
	file := api.Annotation(u, api.AnnoManifest)
	if file == "" || force {
		return nil
	}
	return command.Errorf(command.ExitError, "limpet "+call+" --force    # the agent restores it within a minute",
		"%s/%s is declared in %s of --manifests: change it there", k.Singular, u.GetName(), file)
}
