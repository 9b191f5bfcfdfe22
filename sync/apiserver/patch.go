package apiserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"limpet/sync/api"
)

// maxPatchOperations bounds a JSON patch. Source: the real API server.
const maxPatchOperations = 10000

// A few copies of copies in a JSON patch would fill the memory.
func init() { jsonpatch.AccumulatedCopySizeLimit = maxBody }

// patchTypes returns the patch types of a kind. Strategic merge patches exist for
// the kinds of the core API only, as on a real server.
func patchTypes(k api.Kind) []string {
	out := []string{string(types.JSONPatchType), string(types.MergePatchType), string(types.ApplyYAMLPatchType)}
	if !k.CRD {
		out = append(out, string(types.StrategicMergePatchType))
	}
	return out
}

// patch changes one object. created reports whether an apply created it.
func (s *Server) patch(
	ctx context.Context, t target, form types.PatchType, patch []byte, o writeOptions,
) (out []byte, created bool, err error) {
	if form == types.ApplyYAMLPatchType {
		return s.applyPatch(ctx, t, patch, o)
	}
	out, err = s.change(ctx, t, o, func(cur found) (*plan, error) {
		if cur.object == nil {
			return nil, t.notFound()
		}
		obj, err := patched(t, cur.object, form, patch, o)
		if err != nil {
			return nil, err
		}
		if err := sameName(obj, t); err != nil {
			return nil, err
		}
		version := cmp.Or(t.fileVersion(cur.object, obj), t.storedVersion(obj.Object), cur.version)
		t := t
		if obj.GetAPIVersion() == t.apiVersion() {
			t = t.withVersion(version, cur.object, obj)
		}
		return s.planUpdate(t, cur, updateOwners(t, cur.object, obj, o.manager), o)
	})
	return out, false, err
}

// fileVersion returns the version of the file in a patch of kubectl apply. Other patches, "", change a spec in the version
// that it has.
func (t target) fileVersion(old, obj *unstructured.Unstructured) string {
	text := api.Annotation(obj, lastApplied)
	var file unstructured.Unstructured
	if text == api.Annotation(old, lastApplied) || json.Unmarshal([]byte(text), &file.Object) != nil {
		return ""
	}
	version := cmp.Or(t.storedVersion(file.Object), file.GroupVersionKind().Version)
	if !slices.Contains(t.kind.Versions, version) {
		return ""
	}
	return version
}

// patched returns the object with a JSON, merge or strategic patch applied.
func patched(
	t target, cur *unstructured.Unstructured, form types.PatchType, patch []byte, o writeOptions,
) (*unstructured.Unstructured, error) {
	before, err := encodeObject(cur.Object)
	if err != nil {
		return nil, err
	}
	var after []byte
	var findings []string
	switch form {
	case types.JSONPatchType:
		after, err = jsonPatched(before, patch)
	case types.MergePatchType:
		if _, findings, err = decodeMap(patch); err == nil {
			after, err = jsonpatch.MergePatch(before, patch)
		}
	default:
		if _, findings, err = decodeMap(patch); err == nil {
			after, err = strategicPatched(before, patch)
		}
	}
	if err != nil {
		var known apierrors.APIStatus
		if !errors.As(err, &known) {
			err = badRequest("error decoding patch: %s", err)
		}
		return nil, err
	}
	var object map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(after, &object); err != nil || object == nil {
		return nil, patchInvalid("the patched object is not an object")
	}
	if kind, _ := object["kind"].(string); kind == "" {
		return nil, patchInvalid("Object 'Kind' is missing")
	}
	more, err := coerce(t.kind, object)
	if err == nil {
		err = o.report(append(findings, more...))
	}
	if err != nil {
		return nil, patchInvalid(err.Error())
	}
	return &unstructured.Unstructured{Object: object}, nil
}

// patchInvalid returns the error for a patch whose result is no object of its
// kind. The real server repeats the whole object, which may hold secrets.
func patchInvalid(detail string) error {
	fault := field.Invalid(field.NewPath("patch"), field.OmitValueType{}, detail)
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{fault})
}

func jsonPatched(before, patch []byte) (after []byte, err error) {
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	if len(p) > maxPatchOperations {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"The allowed maximum operations in a JSON patch is %d, got %d", maxPatchOperations, len(p)))
	}
	if after, err = p.Apply(before); err != nil {
		err = statusError(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error())
	}
	return after, err
}

// applyPatch is server-side apply: it creates a missing object.
func (s *Server) applyPatch(ctx context.Context, t target, patch []byte, o writeOptions) (out []byte, created bool, err error) {
	var config map[string]any
	patch, err = api.DocumentJSON(patch)
	if err == nil {
		config, _, err = decodeMap(patch)
	}
	if err != nil {
		return nil, false, badRequest("error decoding patch: %s", err)
	}
	if unknown := dropUnknown(t.kind, config); len(unknown) > 0 { // without regard to fieldValidation, as on the real server
		return nil, false, statusError(http.StatusInternalServerError, "", "failed to create typed patch object: "+strings.Join(unknown, ", "))
	}
	applied := &unstructured.Unstructured{Object: config}
	version := t.storedVersion(config)
	if applied.GetAPIVersion() != t.apiVersion() || applied.GetKind() != t.kind.Kind {
		return nil, false, badRequest("invalid object type: %s", applied.GroupVersionKind())
	}
	out, err = s.change(ctx, t, o, func(cur found) (*plan, error) {
		live := cur.object
		if created = live == nil; created {
			if t.subresource != "" {
				return nil, t.notFound()
			}
			live = t.empty()
		}
		t := t.withVersion(version, live, applied)
		if version == "" && config["spec"] == nil {
			t = t.withVersion(cur.version, live, applied)
		}
		obj, err := applyOwned(t, live, applied, o.manager, o.force)
		if err != nil {
			return nil, err
		}
		if _, err := coerce(t.kind, obj.Object); err != nil {
			return nil, badRequest("%s", err)
		}
		if created && obj.GetUID() != "" {
			return nil, conflict(t, "uid mismatch: the provided object specified uid %s, and no existing object was found", obj.GetUID())
		}
		if err := sameName(obj, t); err != nil {
			return nil, err
		}
		if created {
			obj.SetResourceVersion("")
			return s.planNew(t, obj, o)
		}
		return s.planUpdate(t, cur, obj, o)
	})
	return out, created, err
}

// Strategic merge patches are what kubectl sends for kinds that it was compiled with: here Secrets, Events and Leases. Of
// these only the metadata has lists that merge.

// mergedLists are the lists of metadata whose elements merge, with their keys; "" = the element is its own.
var mergedLists = map[string]string{"finalizers": "", "ownerReferences": "uid"}

// directive is a member of a strategic patch in JSON that is one.
var directive = regexp.MustCompile(`"(\$patch|\$retainKeys|\$setElementOrder/[^"\\]*|\$deleteFromPrimitiveList/[^"\\]*)":`)

// strategicPatched returns before with the patch. The directives $setElementOrder, $deleteFromPrimitiveList, and
// $patch: delete of an element are those that kubectl makes for these kinds; others are an error.
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

// mergedElements returns a list with the changes of a patch, nil when the patch does not change it, and takes the
// directives from the patch.
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
