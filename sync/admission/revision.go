package admission

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
	"limpet/sync/git/gitref"
)

// validateRevision checks what a Repository pulls in place of its branch. What is
// pulled is then no branch that anything could be written to.
func validateRevision(obj *unstructured.Unstructured, spec node, kind string) {
	text := api.Annotation(obj, api.AnnoGitRef)
	if text == "" {
		return
	}
	at := field.NewPath("metadata", "annotations").Key(api.AnnoGitRef)
	if kind == "local" {
		spec.add(field.Forbidden(at, "a local directory has no revisions; leave the annotation out"))
		return
	}
	if _, err := gitref.Parse(text); err != nil {
		spec.add(field.Invalid(at, text, err.Error()))
	}
	if len(spec.texts("workflows")) > 0 {
		spec.add(field.Forbidden(spec.path.Child("workflows"), fmt.Sprintf("a repository with the annotation %s is only read; leave out the workflows or the annotation", api.AnnoGitRef)))
	}
}
