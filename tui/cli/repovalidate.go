package cli

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api/admission"
	"limpet/sync/text"
)

type repoValidateCmd struct {
	File string `arg:"" help:"YAML or JSON file with repositories, connections, secrets or jobs; - is stdin."`
}

// Help is the long help of the command.
func (repoValidateCmd) Help() string {
	return "It asks no server: the rules are those of the embedded API and of Grafana's admission. " +
		"A file that passes can still be refused by a server that allows less, such as fewer targets."
}

func (c repoValidateCmd) Run(_ context.Context, r *run) error {
	data, err := r.readFile(c.File)
	if err != nil {
		return usage("limpet repo validate FILE    # - is stdin", "read objects: %w", err)
	}
	objects, err := parseObjects(c.File, data)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if o.u.GetNamespace() == "" {
			o.u.SetNamespace(r.g.oneNamespace())
		}
		admission.Default(o.u)
	}
	var faulty int
	t := table{Columns: []string{"OBJECT", "FIELD", "REASON", "MESSAGE"}}
	items := []any{}
	for _, o := range objects {
		v := verdictOf(o, objects)
		if len(v.causes) > 0 {
			faulty++
		}
		v.rows(&t)
		items = append(items, v.object())
	}
	if err := r.printList(items, t); err != nil {
		return err
	}
	if faulty > 0 {
		return fail(ExitError, "limpet repo validate "+shellWord(c.File)+"    # after correcting it", "%d of %d objects would be refused", faulty, len(objects))
	}
	return nil
}

// verdict is what the rules say of one object of a file.
type verdict struct {
	manifestObject
	causes   field.ErrorList
	warnings []string
}

// verdictOf checks an object, as a new one, beside the others of its file.
func verdictOf(o manifestObject, all []manifestObject) verdict {
	var siblings []*unstructured.Unstructured
	v := verdict{manifestObject: o, causes: admission.Check(o.u, nil)}
	for _, other := range all {
		if other.u == o.u || other.u.GroupVersionKind().GroupKind() != o.u.GroupVersionKind().GroupKind() || other.u.GetNamespace() != o.u.GetNamespace() {
			continue
		}
		if other.u.GetName() == o.u.GetName() {
			v.causes = append(v.causes, field.Duplicate(field.NewPath("metadata", "name"), o.u.GetName()))
		}
		siblings = append(siblings, other.u)
	}
	v.causes = append(v.causes, admission.CheckSiblings(o.u, nil, siblings)...)
	v.warnings = admission.Warnings(o.u, siblings)
	return v
}

func (v verdict) name() string {
	return strings.ToLower(v.kind.Kind) + "/" + v.u.GetName()
}

// rows tells each cause and each warning on a line, or that there is none.
func (v verdict) rows(t *table) {
	if len(v.causes)+len(v.warnings) == 0 {
		t.add(v.u.GetNamespace(), v.name(), v.name(), "-", "ok", "-")
	}
	for _, cause := range v.causes {
		t.add(v.u.GetNamespace(), v.name(), v.name(), cause.Field, string(cause.Type), text.Redact(cause.ErrorBody()))
	}
	for _, warning := range v.warnings {
		t.add(v.u.GetNamespace(), v.name(), v.name(), "-", "warning", warning)
	}
}

// object is the verdict as data; causes have the form of those of a Status.
func (v verdict) object() map[string]any {
	causes, warnings := []any{}, []any{}
	for _, cause := range v.causes {
		causes = append(causes, map[string]any{"field": cause.Field, "reason": string(cause.Type), "message": text.Redact(cause.ErrorBody())})
	}
	for _, warning := range v.warnings {
		warnings = append(warnings, warning)
	}
	return map[string]any{
		"where": v.where, "kind": v.kind.Kind, "namespace": v.u.GetNamespace(), "name": v.u.GetName(),
		"valid": len(v.causes) == 0, "causes": causes, "warnings": warnings,
	}
}
