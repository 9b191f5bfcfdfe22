package apiserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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

// fileVersion returns the version of the file in a patch of kubectl apply. Other patches, "",
// change a spec in the version that it has.
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
