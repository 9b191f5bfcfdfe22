package apiserver

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Strategic merge patches are what kubectl sends for kinds that it was compiled
// with: here Secrets, Events and Leases. They are merge patches with directives,
// and with lists that merge; of our kinds only the metadata has such lists.

// mergedLists are the lists that merge, and the member that identifies an
// element; "" for lists of plain values.
var mergedLists = map[string]string{"metadata.finalizers": "", "metadata.ownerReferences": "uid"}

func strategicPatched(before, patch []byte, validation string) (after []byte, findings []string, err error) {
	change, findings, err := decodeMap(patch, false, validation)
	if err != nil {
		return nil, nil, badRequest("error decoding patch: %s", err)
	}
	current, _, err := decodeMap(before, false, metav1.FieldValidationIgnore)
	if err != nil {
		return nil, nil, err
	}
	merged, _ := strategicMerge(current, change, "").(map[string]any)
	after, err = encodeObject(merged)
	return after, findings, err
}

// strategicMerge answers a value with a patch merged in; it may change current.
// nil means that the value goes.
func strategicMerge(current, patch any, path string) any {
	change, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	switch change["$patch"] {
	case "delete":
		return nil
	case "replace":
		delete(change, "$patch")
		return change
	}
	object, ok := current.(map[string]any)
	if !ok {
		object = map[string]any{}
	}
	if keep, ok := change["$retainKeys"].([]any); ok {
		for name := range object {
			if !slices.Contains(keep, any(name)) {
				delete(object, name)
			}
		}
	}
	for name, value := range change {
		if list, ok := strings.CutPrefix(name, "$deleteFromPrimitiveList/"); ok {
			object[list] = without(object[list], value)
			continue
		}
		if strings.HasPrefix(name, "$") {
			continue
		}
		at := strings.TrimPrefix(path+"."+name, ".")
		next := value
		if key, merges := mergedLists[at]; merges && value != nil {
			next = mergeLists(object[name], value, key, at)
		} else {
			next = strategicMerge(object[name], value, at)
		}
		if next == nil {
			delete(object, name)
		} else {
			object[name] = next
		}
	}
	return object
}

// mergeLists adds the elements of a patch to a list, merging those with the
// same key.
func mergeLists(current, patch any, key, path string) any {
	list, _ := current.([]any)
	change, ok := patch.([]any)
	if !ok {
		return patch
	}
	list = slices.Clone(list)
	for _, element := range change {
		i := slices.IndexFunc(list, func(e any) bool { return sameElement(e, element, key) })
		switch next := strategicMerge(elementAt(list, i), element, path+"[]"); {
		case next == nil && i >= 0:
			list = slices.Delete(list, i, i+1)
		case next == nil:
		case i >= 0:
			list[i] = next
		default:
			list = append(list, next)
		}
	}
	return list
}

func elementAt(list []any, i int) any {
	if i < 0 {
		return nil
	}
	return list[i]
}

func sameElement(a, b any, key string) bool {
	if key == "" {
		return sameValue(a, b)
	}
	x, okX := a.(map[string]any)
	y, okY := b.(map[string]any)
	return okX && okY && x[key] != nil && sameValue(x[key], y[key])
}

// without answers a list without some plain values.
func without(current, values any) any {
	list, _ := current.([]any)
	gone, _ := values.([]any)
	return slices.DeleteFunc(slices.Clone(list), func(e any) bool {
		return slices.ContainsFunc(gone, func(g any) bool { return sameValue(e, g) })
	})
}
