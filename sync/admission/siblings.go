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

// LooksAround says whether a write of obj, which replaces old, wants the other
// objects of its kind and namespace for [Among]. Most writes do not, and reading
// all of them is not free. Old is nil for a new object.
func LooksAround(obj, old *unstructured.Unstructured) bool {
	return isRepository(obj) && obj.GetDeletionTimestamp() == nil && syncTarget(obj) == targetInstance && syncTarget(old) != targetInstance
}

// Among checks obj, which replaces old, against the other objects of its kind
// and namespace. An object of siblings with the name of obj is obj itself.
func Among(obj, old *unstructured.Unstructured, siblings []*unstructured.Unstructured) field.ErrorList {
	if !LooksAround(obj, old) {
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

// besideInstance names a repository beside which Grafana refuses obj: one of the two
// has the target instance and the other has not.
func besideInstance(obj *unstructured.Unstructured, siblings []*unstructured.Unstructured) string {
	for _, other := range siblings {
		if other.GetName() != obj.GetName() && other.GetDeletionTimestamp() == nil && (syncTarget(obj) == targetInstance) != (syncTarget(other) == targetInstance) {
			return other.GetName()
		}
	}
	return ""
}

// TooMany refuses a new Repository where siblings, the others of its namespace
// that are here to stay, are as many as there may be; a most of 0 is no limit.
// Source: Grafana.
func TooMany(obj, old *unstructured.Unstructured, siblings []*unstructured.Unstructured, most int64) field.ErrorList {
	if !Counts(obj, old, most) {
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

// Counts says whether a write of obj, which replaces old, wants the other objects
// of its kind and namespace for [TooMany].
func Counts(obj, old *unstructured.Unstructured, most int64) bool {
	return most > 0 && old == nil && isRepository(obj)
}

// overlap names a repository that reads some of the directories that obj reads.
// Objects with names of their own can belong to one of the two only.
func overlap(obj *unstructured.Unstructured, siblings []*unstructured.Unstructured) string {
	mine := source(obj)
	if mine.remote == "" {
		return ""
	}
	for _, other := range siblings {
		theirs := source(other)
		if other.GetName() == obj.GetName() || other.GetDeletionTimestamp() != nil || theirs.remote != mine.remote || theirs.branch != mine.branch {
			continue
		}
		if strings.HasPrefix(mine.path, theirs.path) || strings.HasPrefix(theirs.path, mine.path) {
			return other.GetName()
		}
	}
	return ""
}

// reads is what a repository reads: which remote, branch or revision, and directory, and
// whether it puts it into the API. The path ends in a slash.
type reads struct{ remote, branch, path string }

// source is empty for an object that reads nothing into the API.
func source(obj *unstructured.Unstructured) reads {
	if obj == nil || obj.GetAnnotations()[api.AnnoSinkDir] != "" {
		return reads{}
	}
	repo, err := api.RepositoryView(obj)
	block := repo.Spec.Block()
	if err != nil || block == nil || !repo.Spec.Sync.Enabled {
		return reads{}
	}
	path := strings.Trim(block.Path, "/") + "/"
	if path == "/" {
		path = ""
	}
	return reads{strings.TrimSuffix(block.URL, ".git"), cmp.Or(repo.GitRef, block.Branch), path}
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
