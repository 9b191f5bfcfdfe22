package admission

import (
	"cmp"
	"fmt"
	"iter"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
)

// targetInstance is the target that only one repository of a namespace has.
const targetInstance = "instance"

// CheckSiblings checks obj, which replaces old (nil for a new object), against the other
// Repositories of its namespace, of which there may be most; 0 = no limit. read returns
// them, obj itself may be among them; it is called only if a rule depends on them.
func CheckSiblings(
	obj, old *unstructured.Unstructured, most int64, read func() ([]*unstructured.Unstructured, error),
) (errs field.ErrorList, err error) {
	takes := syncTarget(obj) == targetInstance && syncTarget(old) != targetInstance
	counts := most > 0 && old == nil
	if !isRepository(obj) || obj.GetDeletionTimestamp() != nil || !takes && !counts {
		return nil, nil
	}
	all, err := read()
	if err != nil {
		return nil, err
	}
	have := int64(0)
	for other := range siblingsOf(obj, all) {
		have++
		if takes && syncTarget(other) == targetInstance {
			errs = append(errs, field.Forbidden(field.NewPath("spec", "sync", "target"),
				fmt.Sprintf("only one repository of a namespace has the target %s, and that is %q", targetInstance, other.GetName())))
			takes = false
		}
	}
	if counts && have >= most { // source: Grafana
		errs = append(errs, field.Forbidden(field.NewPath("spec"), fmt.Sprintf("Maximum number of %d repositories reached", most)))
	}
	return errs, nil
}

// siblingsOf returns the others of all that are not being deleted.
func siblingsOf(obj *unstructured.Unstructured, all []*unstructured.Unstructured) iter.Seq[*unstructured.Unstructured] {
	return func(yield func(*unstructured.Unstructured) bool) {
		for _, other := range all {
			if other.GetName() != obj.GetName() && other.GetDeletionTimestamp() == nil && !yield(other) {
				return
			}
		}
	}
}

// instanceConflict returns the name of a repository beside which Grafana refuses obj:
// exactly one of the two has the target instance.
func instanceConflict(obj *unstructured.Unstructured, siblings []*unstructured.Unstructured) string {
	for other := range siblingsOf(obj, siblings) {
		if (syncTarget(obj) == targetInstance) != (syncTarget(other) == targetInstance) {
			return other.GetName()
		}
	}
	return ""
}

// overlapping returns the name of a repository that reads some of the directories that
// obj reads. An object whose file names it can belong to one of the two only.
func overlapping(obj *unstructured.Unstructured, siblings []*unstructured.Unstructured) string {
	mine := sourceAreaOf(obj)
	if mine.remote == "" {
		return ""
	}
	for other := range siblingsOf(obj, siblings) {
		theirs := sourceAreaOf(other)
		nested := strings.HasPrefix(mine.path, theirs.path) || strings.HasPrefix(theirs.path, mine.path)
		if nested && theirs.remote == mine.remote && theirs.branch == mine.branch {
			return other.GetName()
		}
	}
	return ""
}

// sourceArea is what a repository reads into the API. The path ends in a slash.
type sourceArea struct{ remote, branch, path string }

// sourceAreaOf returns the zero sourceArea for an object that reads nothing into the API.
func sourceAreaOf(obj *unstructured.Unstructured) sourceArea {
	if obj == nil || obj.GetAnnotations()[api.AnnoSinkDir] != "" {
		return sourceArea{}
	}
	repo, err := api.RepositoryView(obj)
	block := repo.Spec.Block()
	if err != nil || block == nil || !repo.Spec.Sync.Enabled {
		return sourceArea{}
	}
	path := strings.Trim(block.Path, "/") + "/"
	if path == "/" {
		path = ""
	}
	return sourceArea{strings.TrimSuffix(block.URL, ".git"), cmp.Or(repo.GitRef, block.Branch), path}
}

func isRepository(obj *unstructured.Unstructured) bool {
	return obj != nil && obj.GetKind() == "Repository" && obj.GroupVersionKind().Group == api.ProvisioningGroup
}

func syncTarget(obj *unstructured.Unstructured) string {
	if obj == nil {
		return ""
	}
	target, _, _ := unstructured.NestedString(obj.Object, "spec", "sync", "target")
	return target
}
