package admission

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
	"limpet/sync/auth"
)

// validateMirrors checks where else a Repository may be read from.
func validateMirrors(obj *unstructured.Unstructured, spec node, kind string) {
	text := api.Annotation(obj, api.AnnoGitMirrors)
	if text == "" {
		return
	}
	at := field.NewPath("metadata", "annotations").Key(api.AnnoGitMirrors)
	if kind == "local" {
		spec.add(field.Forbidden(at, "a local directory has no mirrors; leave the annotation out"))
		return
	}
	if _, err := auth.Mirrors(text, spec.object(kind).text("url")); err != nil {
		spec.add(field.Invalid(at, redacted{}, err.Error()))
	}
}
