package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	kjson "sigs.k8s.io/json"
)

// Strategic merge patches are what kubectl sends for kinds that it was compiled with: here Secrets,
// Events and Leases. Of these only the metadata has lists that merge.

// mergedLists are the lists of metadata whose elements merge, with their keys; "" = the element is
// its own.
var mergedLists = map[string]string{"finalizers": "", "ownerReferences": "uid"}

// directive is a member of a strategic patch in JSON that is one.
var directive = regexp.MustCompile(`"(\$patch|\$retainKeys|\$setElementOrder/[^"\\]*|\$deleteFromPrimitiveList/[^"\\]*)":`)

// strategicPatched returns before with the patch. The directives $setElementOrder,
// $deleteFromPrimitiveList, and $patch: delete of an element are those that kubectl makes for these
// kinds; others are an error.
func strategicPatched(before, patch []byte) ([]byte, error) {
	var object, change map[string]any
	for data, into := range map[*[]byte]*map[string]any{&before: &object, &patch: &change} {
		if err := kjson.UnmarshalCaseSensitivePreserveInts(*data, into); err != nil {
			return nil, err
		}
	}
	metadata, changes := asMap(object["metadata"]), asMap(change["metadata"])
	for list, key := range mergedLists {
		elements, err := mergedElements(metadata[list], changes, list, key)
		if err != nil {
			return nil, fmt.Errorf("metadata.%s: %w", list, err)
		}
		if elements != nil {
			changes[list] = elements
		}
	}
	patch, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	if at := directive.FindSubmatch(patch); at != nil {
		return nil, fmt.Errorf("the directive %s is not supported here", at[1])
	}
	if before, err = json.Marshal(object); err != nil {
		return nil, err
	}
	return jsonpatch.MergePatch(before, patch)
}

// mergedElements returns a list with the changes of a patch, nil when the patch does not change it,
// and takes the directives from the patch.
func mergedElements(live any, changes map[string]any, list, key string) ([]any, error) {
	order, _ := changes["$setElementOrder/"+list].([]any)
	removed, _ := changes["$deleteFromPrimitiveList/"+list].([]any)
	delete(changes, "$setElementOrder/"+list)
	delete(changes, "$deleteFromPrimitiveList/"+list)
	given, named := changes[list].([]any)
	if removed == nil && !named {
		return nil, nil
	}
	before, _ := live.([]any)
	out, byKey := []any{}, map[string]int{}
	for i, element := range slices.Concat(before, removed, given) {
		id, err := elementKey(element, key)
		if err != nil {
			return nil, err
		}
		at, there := byKey[id]
		switch {
		case i >= len(before) && i < len(before)+len(removed) || i >= len(before) && asMap(element)["$patch"] == "delete":
			if there {
				out[at] = nil
				delete(byKey, id)
			}
		case !there:
			byKey[id] = len(out)
			out = append(out, element)
		case key != "":
			maps.Copy(asMap(out[at]), asMap(element))
		}
	}
	out = slices.DeleteFunc(out, func(element any) bool { return element == nil })
	rank := map[string]int{}
	for i, element := range order {
		id, _ := elementKey(element, key)
		rank[id] = i - len(order) // elements that the order does not name come behind
	}
	slices.SortStableFunc(out, func(a, b any) int {
		first, _ := elementKey(a, key)
		second, _ := elementKey(b, key)
		return rank[first] - rank[second]
	})
	return out, nil
}

// elementKey returns the merge key of a list element.
func elementKey(element any, key string) (string, error) {
	if key != "" {
		element = asMap(element)[key]
	}
	id, ok := element.(string)
	if !ok {
		return "", errors.New("an element without its key, a string")
	}
	return id, nil
}
