package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
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
		return s.planUpdate(t, cur, s.fields.update(t, cur.object, obj, o.manager), o)
	})
	return out, false, err
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
	patch, err = yaml.YAMLToJSONStrict(patch)
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
		obj, err := s.fields.apply(t, live, applied, o.manager, o.force)
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

// Strategic merge patches are what kubectl sends for kinds that it was compiled with: here Secrets, Events and Leases.

// mergedLists is their schema: of our kinds only the metadata has lists that merge. The value is the path of an object.
type mergedLists string

var _ strategicpatch.LookupPatchMeta = mergedLists("")

func (m mergedLists) LookupPatchMetadataForStruct(key string) (strategicpatch.LookupPatchMeta, strategicpatch.PatchMeta, error) {
	return m + mergedLists("."+key), strategicpatch.PatchMeta{}, nil
}

func (m mergedLists) LookupPatchMetadataForSlice(key string) (strategicpatch.LookupPatchMeta, strategicpatch.PatchMeta, error) {
	var meta strategicpatch.PatchMeta
	if m == ".metadata" && (key == "finalizers" || key == "ownerReferences") {
		meta.SetPatchStrategies([]string{"merge"})
		meta.SetPatchMergeKey(map[string]string{"ownerReferences": "uid"}[key])
	}
	return m + mergedLists("."+key+"[]"), meta, nil
}

func (m mergedLists) Name() string { return string(m) }

func strategicPatched(before, patch []byte) (after []byte, err error) {
	// The library uses elements of foreign lists as keys of maps.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return strategicpatch.StrategicMergePatchUsingLookupPatchMeta(before, patch, mergedLists(""))
}
