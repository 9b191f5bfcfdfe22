package admission

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
)

// targetInstance is the target that only one repository of a namespace has.
const targetInstance = "instance"

// NeedsSiblings reports whether [CheckSiblings] needs the other objects of the kind
// and namespace, which are expensive to read. old is nil for a new object.
func NeedsSiblings(obj, old *unstructured.Unstructured) bool {
	return isRepository(obj) && obj.GetDeletionTimestamp() == nil && syncTarget(obj) == targetInstance && syncTarget(old) != targetInstance
}

// CheckSiblings checks obj, which replaces old, against the other objects of its kind
// and namespace. An object of siblings with the name of obj is obj itself.
func CheckSiblings(obj, old *unstructured.Unstructured, siblings []*unstructured.Unstructured) field.ErrorList {
	if !NeedsSiblings(obj, old) {
		return nil
	}
	for _, other := range siblings {
		if other.GetName() != obj.GetName() && other.GetDeletionTimestamp() == nil && syncTarget(other) == targetInstance {
			return field.ErrorList{field.Forbidden(field.NewPath("spec", "sync", "target"),
				fmt.Sprintf("only one repository of a namespace has the target %s, and that is %q", targetInstance, other.GetName()))}
		}
	}
	return nil
}

// instanceConflict returns the name of a repository beside which Grafana refuses obj:
// exactly one of the two has the target instance.
func instanceConflict(obj *unstructured.Unstructured, siblings []*unstructured.Unstructured) string {
	for _, other := range siblings {
		if other.GetName() != obj.GetName() && other.GetDeletionTimestamp() == nil && (syncTarget(obj) == targetInstance) != (syncTarget(other) == targetInstance) {
			return other.GetName()
		}
	}
	return ""
}

// CheckQuota refuses a new Repository where siblings, the others of its namespace
// that are here to stay, are as many as there may be; a most of 0 is no limit.
// Source: Grafana.
func CheckQuota(obj, old *unstructured.Unstructured, siblings []*unstructured.Unstructured, most int64) field.ErrorList {
	if !NeedsCount(obj, old, most) {
		return nil
	}
	have := int64(0)
	for _, other := range siblings {
		if other.GetDeletionTimestamp() == nil {
			have++
		}
	}
	if have < most {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"), fmt.Sprintf("Maximum number of %d repositories reached", most))}
}

// NeedsCount reports whether [CheckQuota] needs the other objects of the kind and
// namespace.
func NeedsCount(obj, old *unstructured.Unstructured, most int64) bool {
	return most > 0 && old == nil && isRepository(obj)
}

// overlapping returns the name of a repository that reads some of the directories that
// obj reads. An object whose file names it can belong to one of the two only.
func overlapping(obj *unstructured.Unstructured, siblings []*unstructured.Unstructured) string {
	mine := sourceAreaOf(obj)
	if mine.remote == "" {
		return ""
	}
	for _, other := range siblings {
		theirs := sourceAreaOf(other)
		if other.GetName() == obj.GetName() || other.GetDeletionTimestamp() != nil || theirs.remote != mine.remote || theirs.branch != mine.branch {
			continue
		}
		if strings.HasPrefix(mine.path, theirs.path) || strings.HasPrefix(theirs.path, mine.path) {
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
