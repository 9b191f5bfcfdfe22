package apiserver

import (
	"context"
	"fmt"
	"net/http"
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
	"sigs.k8s.io/yaml"

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

// patchTypeOf reads the Content-Type of a patch, or returns a 415 status error.
func patchTypeOf(req *http.Request, k api.Kind) (types.PatchType, error) {
	given, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";")
	given = strings.TrimSpace(given)
	if !slices.Contains(patchTypes(k), given) {
		return "", unsupportedMedia(patchTypes(k)...)
	}
	return types.PatchType(given), nil
}

// patch changes one object. created reports whether an apply created it.
func (s *Server) patch(
	ctx context.Context, t target, kind types.PatchType, patch []byte, o writeOptions,
) (out []byte, created bool, err error) {
	if kind == types.ApplyYAMLPatchType {
		return s.applyPatch(ctx, t, patch, o)
	}
	out, err = s.change(ctx, t, o.DryRun, func(cur found) (plan, error) {
		if cur.object == nil {
			return plan{}, notFound(t.kind, t.name)
		}
		obj, err := s.patched(t, cur.object, kind, patch, o)
		if err != nil {
			return plan{}, err
		}
		if err := sameName(obj, t.namespace, t.name); err != nil {
			return plan{}, err
		}
		o.warn(uniqueOwners(obj)...)
		if obj, err = s.fields.update(t, cur.object, obj, o.Manager); err != nil {
			return plan{}, err
		}
		return s.replace(t, cur, obj, o)
	})
	return out, false, err
}

// patched returns the object with a JSON, merge or strategic patch applied.
func (s *Server) patched(
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
		after, findings, err = jsonPatched(before, patch, o.Validation)
	case types.MergePatchType:
		after, findings, err = mergePatched(before, patch, o.Validation)
	case types.StrategicMergePatchType:
		after, findings, err = strategicPatched(before, patch, o.Validation)
	default:
		return nil, unsupportedMedia(patchTypes(t.kind)...)
	}
	if err != nil {
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
	if err != nil {
		return nil, patchInvalid(err.Error())
	}
	findings = append(findings, more...)
	switch {
	case len(findings) == 0:
	case o.Validation == metav1.FieldValidationStrict:
		return nil, patchInvalid(strictError(findings).Error())
	case o.Validation == metav1.FieldValidationWarn:
		o.warn(findings...)
	}
	return &unstructured.Unstructured{Object: object}, nil
}

// patchInvalid returns the error for a patch whose result is no object of its
// kind. The real server repeats the whole object, which may hold secrets.
func patchInvalid(detail string) error {
	fault := field.Invalid(field.NewPath("patch"), field.OmitValueType{}, detail)
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{fault})
}

func jsonPatched(before, patch []byte, validation string) (after []byte, findings []string, err error) {
	if validation != metav1.FieldValidationIgnore {
		var operations []struct {
			Op    string `json:"op"`
			Path  string `json:"path"`
			From  string `json:"from"`
			Value any    `json:"value"`
		}
		twice, err := kjson.UnmarshalStrict(patch, &operations)
		if err != nil {
			return nil, nil, badRequest("error decoding patch: %s", err)
		}
		for _, e := range twice {
			findings = append(findings, "json patch "+e.Error())
		}
	}
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, nil, badRequest("%s", err)
	}
	if len(p) > maxPatchOperations {
		return nil, nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"The allowed maximum operations in a JSON patch is %d, got %d", maxPatchOperations, len(p)))
	}
	after, err = p.Apply(before)
	if err != nil {
		return nil, nil, apierrors.NewGenericServerResponse(
			http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	return after, findings, nil
}

func mergePatched(before, patch []byte, validation string) (after []byte, findings []string, err error) {
	if validation != metav1.FieldValidationIgnore {
		if _, findings, err = decodeMap(patch, false, metav1.FieldValidationStrict); err != nil {
			return nil, nil, badRequest("error decoding patch: %s", err)
		}
	}
	after, err = jsonpatch.MergePatch(before, patch)
	if err != nil {
		return nil, nil, badRequest("%s", err)
	}
	return after, findings, nil
}

// applyPatch is server-side apply: it creates a missing object.
func (s *Server) applyPatch(ctx context.Context, t target, patch []byte, o writeOptions) (out []byte, created bool, err error) {
	config, err := s.readConfig(t, patch, o)
	if err != nil {
		return nil, false, err
	}
	out, err = s.change(ctx, t, o.DryRun, func(cur found) (plan, error) {
		created = cur.object == nil
		if created && t.subresource != "" {
			return plan{}, notFound(t.kind, t.name)
		}
		live := cur.object
		if created {
			live = &unstructured.Unstructured{Object: map[string]any{"apiVersion": t.apiVersion(), "kind": t.kind.Kind}}
		}
		obj, err := s.fields.apply(t, live, config, o.Manager, o.Force)
		if err != nil {
			return plan{}, err
		}
		if _, err := coerce(t.kind, obj.Object); err != nil {
			return plan{}, badRequest("%s", err)
		}
		if created && obj.GetUID() != "" {
			return plan{}, apierrors.NewConflict(groupResource(t.kind), t.name, fmt.Errorf(
				"uid mismatch: the provided object specified uid %s, and no existing object was found", obj.GetUID()))
		}
		if err := sameName(obj, t.namespace, t.name); err != nil {
			return plan{}, err
		}
		o.warn(uniqueOwners(obj)...)
		if created {
			obj.SetResourceVersion("")
			return s.planNew(t, obj, o)
		}
		return s.replace(t, cur, obj, o)
	})
	return out, created, err
}

// readConfig reads the applied configuration, which is YAML or JSON.
func (s *Server) readConfig(t target, patch []byte, o writeOptions) (*unstructured.Unstructured, error) {
	data, err := yaml.YAMLToJSON(patch)
	if err != nil {
		return nil, badRequest("error decoding patch: %s", err)
	}
	var object map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &object); err != nil || object == nil {
		return nil, badRequest("error decoding patch: expected an object")
	}
	if _, err := yaml.YAMLToJSONStrict(patch); err != nil {
		switch o.Validation {
		case metav1.FieldValidationStrict:
			return nil, badRequest("error strict decoding patch: %s", err)
		case metav1.FieldValidationWarn:
			o.warn(yamlFindings(err)...)
		}
	}
	config := &unstructured.Unstructured{Object: object}
	if config.GetAPIVersion() != t.apiVersion() || config.GetKind() != t.kind.Kind {
		return nil, badRequest("invalid object type: %s", config.GroupVersionKind())
	}
	return config, nil
}

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

// strategicMerge returns a value with a patch merged in; it may change current.
// nil means that the value is removed.
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

// without returns a list without some plain values.
func without(current, values any) any {
	list, _ := current.([]any)
	gone, _ := values.([]any)
	return slices.DeleteFunc(slices.Clone(list), func(e any) bool {
		return slices.ContainsFunc(gone, func(g any) bool { return sameValue(e, g) })
	})
}
