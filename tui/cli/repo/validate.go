package repo

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
	"limpet/sync/api/admission"
	"limpet/sync/auth"
	"limpet/sync/kube"
	"limpet/sync/netx"
	"limpet/sync/text"
	"limpet/tui/cli/command"
	"limpet/tui/cli/object"
)

type validateCmd struct {
	File string `arg:"" help:"YAML or JSON file with repositories, connections, secrets or jobs; - is stdin."`
}

func (c validateCmd) Run(_ context.Context, e *command.Env) error {
	objects, err := object.ReadFile(e, c.File, "limpet repo validate FILE")
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(objects, func(o object.Manifest) bool { return o.Kind.Kind != "Dashboard" && o.Kind.Kind != "Folder" }) {
		return command.Usagef("limpet apply -f "+text.ShellWord(c.File)+" --dry-run    # asks the API",
			"%s: %s; repo validate expects a Repository, Connection, Secret or Job", objects[0].Where, objects[0].Kind.Kind)
	}
	for _, o := range objects {
		if o.Object.GetNamespace() == "" {
			o.Object.SetNamespace(e.Flags.OneNamespace())
		}
		admission.Default(o.Object)
	}
	faulty := 0
	t := command.Table{Columns: []string{"OBJECT", "FIELD", "REASON", "MESSAGE"}}
	items := []any{}
	for _, o := range objects {
		faults, warnings := check(o, objects, e.Flags.FieldValidation())
		if len(faults) > 0 {
			faulty++
		}
		items = append(items, result(o, faults, warnings, &t))
	}
	if err := e.PrintList(items, t); err != nil {
		return err
	}
	if faulty > 0 {
		return command.Errorf(command.ExitError, "limpet repo validate "+text.ShellWord(c.File)+"    # after correcting it",
			"%d of %d objects would be refused", faulty, len(objects))
	}
	return nil
}

// check checks an object as a new one, beside the others of its file.
func check(o object.Manifest, all []object.Manifest, validation string) (faults field.ErrorList, warnings []string) {
	var siblings []*unstructured.Unstructured
	faults = admission.Check(o.Object, nil)
	for _, other := range all {
		if other.Object == o.Object || other.Object.GroupVersionKind().GroupKind() != o.Object.GroupVersionKind().GroupKind() ||
			other.Object.GetNamespace() != o.Object.GetNamespace() {
			continue
		}
		if other.Object.GetName() == o.Object.GetName() {
			faults = append(faults, field.Duplicate(field.NewPath("metadata", "name"), o.Object.GetName()))
		}
		siblings = append(siblings, other.Object)
	}
	more, _ := admission.CheckSiblings(o.Object, nil, 0, func() ([]*unstructured.Unstructured, error) { return siblings, nil })
	for _, f := range admission.UnknownFields(o.Object) {
		switch validation {
		case metav1.FieldValidationStrict:
			more = append(more, &field.Error{Type: field.ErrorTypeForbidden, Field: f.Field(), Detail: f.Detail()})
		case metav1.FieldValidationWarn:
			warnings = append(warnings, f.String())
		}
	}
	return append(faults, more...), append(append(warnings, admission.Warnings(o.Object)...), privateHost(o.Object)...)
}

// privateHost warns of a Git host that a Grafana server refuses unless it is allowed there. A name
// is not looked up.
func privateHost(u *unstructured.Unstructured) []string {
	repo, err := api.RepositoryView(u)
	block := repo.Spec.Block()
	if err != nil || block == nil || u.GetKind() != "Repository" {
		return nil
	}
	at, err := auth.ParseAddress(block.URL)
	if ip, _ := netip.ParseAddr(at.Host); err != nil || at.Scheme == "file" || at.Host != "localhost" && netx.PublicOnly.Check(ip) == nil {
		return nil
	}
	return []string{"spec." + repo.Spec.Type + ".url: a Grafana server refuses private hosts by default; try: " + kube.AllowedGitURLs}
}

// result returns the result as data and adds a row for each cause and each warning, or one for a
// valid object.
func result(o object.Manifest, faults field.ErrorList, warnings []string, t *command.Table) map[string]any {
	namespace, name := o.Object.GetNamespace(), strings.ToLower(o.Kind.Kind)+"/"+o.Object.GetName()
	causes := []any{}
	for _, f := range faults {
		message := text.Redact(f.ErrorBody())
		t.Add(namespace, name, name, f.Field, string(f.Type), message)
		causes = append(causes, map[string]any{"field": f.Field, "reason": string(f.Type), "message": message})
	}
	for _, warning := range warnings {
		t.Add(namespace, name, name, "-", "warning", warning)
	}
	if len(faults)+len(warnings) == 0 {
		t.Add(namespace, name, name, "-", "ok", "-")
	}
	return map[string]any{
		"where": o.Where, "kind": o.Kind.Kind, "namespace": namespace, "name": o.Object.GetName(),
		"valid": len(faults) == 0, "causes": causes, "warnings": command.List(warnings),
	}
}
