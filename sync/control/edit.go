package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/snapshot"
	"limpet/sync/snapshot/diff"
	"limpet/sync/text"
)

// ErrEdited reports that an object has changed since its text was read for an edit.
var ErrEdited = errors.New("conflict: it was changed meanwhile, and nothing was written; edit it again")

const editHead = "# Save and close: the difference is shown, and applied after a yes. [redacted] stays as it is on the server.\n"

// Edit reads the text of an object, checks a changed one by a dry run of the API, or applies it.
// Only the difference is written, with the resourceVersion: what is redacted in the text stays, and
// a change by others is a conflict. The status is no part of it, so that its writers are none.
func Edit(ctx context.Context, client *kube.Client, res schema.GroupVersionResource, e snapshot.Edit) (out snapshot.Edited, err error) {
	for try := 1; ; try++ {
		u, err := client.Resource(res).Namespace(e.Namespace).Get(ctx, e.Name, metav1.GetOptions{})
		if err == nil {
			u, res, err = client.Stored(ctx, res, u)
		}
		if err == nil && e.UID != "" && string(u.GetUID()) != e.UID {
			err = fmt.Errorf("%s %s: %w", e.Kind, e.Name, ErrReplaced)
		}
		if err != nil {
			return out, err
		}
		if out.Text, err = Editable(u); err != nil || e.Before == "" {
			return out, err
		}
		if out.Text != e.Before {
			return out, ErrEdited
		}
		patch, err := editPatch(e, u)
		if err != nil || patch == nil {
			return out, err
		}
		opts := metav1.PatchOptions{FieldManager: "limpet", FieldValidation: metav1.FieldValidationStrict}
		if !e.Apply {
			opts.DryRun = []string{metav1.DryRunAll}
		}
		_, err = client.Resource(res).Namespace(e.Namespace).Patch(ctx, e.Name, types.MergePatchType, patch, opts)
		if apierrors.IsConflict(err) && try < cancelTries { // its status was written meanwhile
			continue
		}
		out.Diff = diff.Texts([]byte(e.Before), []byte(e.After))
		return out, err
	}
}

// Editable returns what may be edited of an object, as YAML, without secrets.
func Editable(u *unstructured.Unstructured) (string, error) {
	data, err := yaml.Marshal(Sealed(WithoutServerFields(u)))
	return editHead + string(data), err
}

// Sealed replaces the secrets in an object. An API of plain CRDs returns secure values as they were
// given.
func Sealed(object map[string]any) any {
	values, _ := object["secure"].(map[string]any)
	for _, value := range values {
		if value, ok := value.(map[string]any); ok && value["create"] != nil {
			value["create"] = text.Redacted
		}
	}
	return redacted("", object)
}

// WithoutServerFields returns a copy of an object without what the server writes.
func WithoutServerFields(u *unstructured.Unstructured) map[string]any {
	u = u.DeepCopy()
	delete(u.Object, "status")
	for _, member := range []string{"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid"} {
		unstructured.RemoveNestedField(u.Object, "metadata", member)
	}
	return u.Object
}

// redacted redacts the texts of a value, each beside the key of its member: of the YAML it could
// take indents and quotes.
func redacted(key string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, one := range v {
			v[name] = redacted(name+": ", one)
		}
	case []any:
		for i, one := range v {
			v[i] = redacted(key, one)
		}
	case string:
		if clean, ok := strings.CutPrefix(text.Redact(key+v), key); ok {
			return clean
		}
		return text.Redacted
	}
	return value
}

// editPatch returns the merge patch from the text before to the one after; nil when they mean the
// same.
func editPatch(e snapshot.Edit, u *unstructured.Unstructured) ([]byte, error) {
	before, err := api.DocumentJSON([]byte(e.Before))
	if err != nil {
		return nil, err
	}
	after, err := api.DocumentJSON([]byte(e.After))
	if err != nil {
		return nil, fmt.Errorf("invalid YAML: %w", err)
	}
	patch, err := jsonpatch.CreateMergePatch(before, after)
	if err != nil {
		return nil, fmt.Errorf("invalid object: %w", err)
	}
	if bytes.Contains(patch, []byte(text.Redacted)) {
		return nil, fmt.Errorf("the changed part holds %s, which is no value: leave it as it is, or write the value", text.Redacted)
	}
	var change map[string]any
	if err := json.Unmarshal(patch, &change); err != nil || len(change) == 0 {
		return nil, err
	}
	meta, _ := change["metadata"].(map[string]any)
	for _, fixed := range []string{"name", "namespace"} {
		if _, ok := meta[fixed]; ok {
			return nil, fmt.Errorf("metadata.%s cannot be changed", fixed)
		}
	}
	for _, fixed := range []string{"apiVersion", "kind", "status"} {
		if _, ok := change[fixed]; ok {
			return nil, fmt.Errorf("%s cannot be changed", fixed)
		}
	}
	if meta == nil {
		meta = map[string]any{}
	}
	meta["uid"], meta["resourceVersion"] = u.GetUID(), u.GetResourceVersion()
	change["metadata"] = meta
	return json.Marshal(change)
}
