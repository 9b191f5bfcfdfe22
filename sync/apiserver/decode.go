package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"limpet/sync/api"
)

// Decoding is lenient by default and returns findings: duplicate members and members that the kind
// does not have. The client decides by fieldValidation whether findings are dropped, sent as
// Warning headers, or an error.

// decodeBody reads an object from a request body. It returns 400 status errors,
// which never repeat the body: it may hold secrets.
func decodeBody(t target, body []byte, o writeOptions) (*unstructured.Unstructured, error) {
	const unrecognized = "the object provided is unrecognized (must be of type %s): %s"
	object, findings, err := decodeMap(body)
	if err != nil {
		return nil, badRequest(unrecognized, t.kind.Kind, "couldn't get version/kind; json parse error: "+err.Error())
	}
	if !t.kind.CRD { // as Kubernetes does for its own kinds
		for name, value := range map[string]string{"kind": t.kind.Kind, "apiVersion": t.apiVersion()} {
			if object[name] == nil || object[name] == "" {
				object[name] = value
			}
		}
	}
	kind, _ := object["kind"].(string)
	given, ok := object["apiVersion"].(string)
	switch {
	case kind == "":
		return nil, badRequest(unrecognized, t.kind.Kind, "Object 'Kind' is missing")
	case !ok && object["apiVersion"] != nil:
		return nil, badRequest(unrecognized, t.kind.Kind, "Object 'apiVersion' is not a string")
	}
	more, err := coerce(t.kind, object)
	if err == nil {
		err = o.report(append(findings, more...))
	}
	if err != nil {
		return nil, badRequest("%s in version %q cannot be handled as a %s: %s", kind, t.version, t.kind.Kind, err)
	}
	if given != t.apiVersion() {
		return nil, badRequest("the API version in the data (%s) does not match the expected API version (%s)", given, t.apiVersion())
	}
	return &unstructured.Unstructured{Object: object}, nil
}

// report handles findings as the client wishes.
func (o writeOptions) report(findings []string) error {
	switch {
	case len(findings) == 0:
	case o.validation == metav1.FieldValidationStrict:
		return fmt.Errorf("strict decoding error: %s", strings.Join(findings, ", "))
	case o.validation == metav1.FieldValidationWarn:
		o.warn(findings...)
	}
	return nil
}

// decodeMap reads JSON that must be an object. findings are the members that are given twice.
func decodeMap(body []byte) (object map[string]any, findings []string, err error) {
	twice, err := kjson.UnmarshalStrict(body, &object)
	for _, e := range twice {
		findings = append(findings, e.Error())
	}
	if err == nil && object == nil {
		err = errors.New("expected an object")
	}
	return object, findings, err
}

// coerce converts an object to the shape of its kind: metadata as the typed ObjectMeta holds it,
// and neither unknown members nor nulls at the top level. It returns the removed members, and an
// error for metadata of wrong types.
func coerce(k api.Kind, object map[string]any) (findings []string, err error) {
	if raw, ok := object["metadata"]; ok {
		meta := metav1.ObjectMeta{}
		data, err := json.Marshal(raw)
		if err != nil {
			return nil, err
		}
		unknown, err := kjson.UnmarshalStrict(data, &meta)
		if err != nil {
			return nil, err
		}
		for _, e := range unknown {
			if at, ok := e.(kjson.FieldError); ok {
				findings = append(findings, fmt.Sprintf("unknown field %q", "metadata."+at.FieldPath()))
			}
		}
		if object["metadata"], err = runtime.DefaultUnstructuredConverter.ToUnstructured(&meta); err != nil {
			return nil, err
		}
	}
	return append(findings, dropUnknown(k, object)...), nil
}

// dropUnknown removes nulls and the members that the kind does not have from the top level, and
// returns the latter.
func dropUnknown(k api.Kind, object map[string]any) (findings []string) {
	objects, others := topLevel(k)
	known := append([]string{"apiVersion", "kind", "metadata"}, append(objects, others...)...)
	for name, value := range object {
		if !slices.Contains(known, name) {
			findings = append(findings, fmt.Sprintf("unknown field %q", name))
		} else if value != nil || name == "metadata" {
			continue
		}
		delete(object, name)
	}
	slices.Sort(findings)
	return findings
}

// sameValue reports whether decoded JSON is equal. 1 and 1.0 differ, because they are stored
// differently.
func sameValue(a, b any) bool { return reflect.DeepEqual(a, b) }

// asMap returns a JSON value as an object; nil if it is none.
func asMap(value any) map[string]any {
	m, _ := value.(map[string]any)
	return m
}
