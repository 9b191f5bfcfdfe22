package repo

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api/admission"
	"limpet/sync/text"
	"limpet/tui/cli/command"
	"limpet/tui/cli/object"
)

type validateCmd struct {
	File string `arg:"" help:"YAML or JSON file with repositories, connections, secrets or jobs; - is stdin."`
}

// Help is the long help of the command.
func (validateCmd) Help() string {
	return "It asks no server: the rules are those of the embedded API and of Grafana's admission. " +
		"A file that passes can still be refused by a server that allows less, such as fewer targets."
}

func (c validateCmd) Run(_ context.Context, e *command.Env) error {
	data, err := e.ReadFile(c.File)
	if err != nil {
		return command.Usagef("limpet repo validate FILE    # - is stdin", "read objects: %w", err)
	}
	objects, err := object.ParseObjects(c.File, data)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if o.Object.GetNamespace() == "" {
			o.Object.SetNamespace(e.Flags.OneNamespace())
		}
		admission.Default(o.Object)
	}
	var faulty int
	t := command.Table{Columns: []string{"OBJECT", "FIELD", "REASON", "MESSAGE"}}
	items := []any{}
	for _, o := range objects {
		v := verdictOf(o, objects)
		if len(v.causes) > 0 {
			faulty++
		}
		v.rows(&t)
		items = append(items, v.object())
	}
	if err := e.PrintList(items, t); err != nil {
		return err
	}
	if faulty > 0 {
		return command.Errorf(command.ExitError, "limpet repo validate "+command.ShellWord(c.File)+"    # after correcting it",
			"%d of %d objects would be refused", faulty, len(objects))
	}
	return nil
}

// check is the result of the admission rules for one object of a file.
type check struct {
	object.Manifest
	causes   field.ErrorList
	warnings []string
}

// verdictOf checks an object as a new one, beside the others of its file.
func verdictOf(o object.Manifest, all []object.Manifest) check {
	var siblings []*unstructured.Unstructured
	v := check{Manifest: o, causes: admission.Check(o.Object, nil)}
	for _, other := range all {
		if other.Object == o.Object || other.Object.GroupVersionKind().GroupKind() != o.Object.GroupVersionKind().GroupKind() ||
			other.Object.GetNamespace() != o.Object.GetNamespace() {
			continue
		}
		if other.Object.GetName() == o.Object.GetName() {
			v.causes = append(v.causes, field.Duplicate(field.NewPath("metadata", "name"), o.Object.GetName()))
		}
		siblings = append(siblings, other.Object)
	}
	v.causes = append(v.causes, admission.CheckSiblings(o.Object, nil, siblings)...)
	v.warnings = admission.Warnings(o.Object, siblings)
	return v
}

func (v check) name() string {
	return strings.ToLower(v.Kind.Kind) + "/" + v.Object.GetName()
}

// rows adds a line for each cause and each warning, or one for a valid object.
func (v check) rows(t *command.Table) {
	if len(v.causes)+len(v.warnings) == 0 {
		t.Add(v.Object.GetNamespace(), v.name(), v.name(), "-", "ok", "-")
	}
	for _, cause := range v.causes {
		t.Add(v.Object.GetNamespace(), v.name(), v.name(), cause.Field, string(cause.Type), text.Redact(cause.ErrorBody()))
	}
	for _, warning := range v.warnings {
		t.Add(v.Object.GetNamespace(), v.name(), v.name(), "-", "warning", warning)
	}
}

// object returns the result as data; causes have the form of those of a Status.
func (v check) object() map[string]any {
	causes, warnings := []any{}, []any{}
	for _, cause := range v.causes {
		causes = append(causes, map[string]any{"field": cause.Field, "reason": string(cause.Type),
			"message": text.Redact(cause.ErrorBody())})
	}
	for _, warning := range v.warnings {
		warnings = append(warnings, warning)
	}
	return map[string]any{
		"where": v.Where, "kind": v.Kind.Kind, "namespace": v.Object.GetNamespace(), "name": v.Object.GetName(),
		"valid": len(v.causes) == 0, "causes": causes, "warnings": warnings,
	}
}
