package admission

import (
	"fmt"

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
	for _, other := range all {
		if other.GetName() == obj.GetName() || other.GetDeletionTimestamp() != nil {
			continue
		}
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
