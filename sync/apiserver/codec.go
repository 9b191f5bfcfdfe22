package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"limpet/sync/api"
)

// Objects have two forms in this package: *unstructured.Unstructured while they are changed, and the JSON
// bytes that are stored, kept for watches and sent. The stored form carries the preferred version of its kind, or the
// one of its spec where versions differ in it, and the resourceVersion of the write that made it.

// decodeObject reads the stored form. Whole numbers become int64.
func decodeObject(data []byte) (*unstructured.Unstructured, error) {
	object := map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &object); err != nil {
		return nil, fmt.Errorf("read stored object: %w", err)
	}
	return &unstructured.Unstructured{Object: object}, nil
}

// encodeObject writes the compact form with members in the order of their names.
func encodeObject(object map[string]any) ([]byte, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("write object: %w", err)
	}
	return data, nil
}

// atRevision returns the object with metadata.resourceVersion set. The object must have that member.
func atRevision(data []byte, revision uint64) []byte {
	place := find(data, "metadata", "resourceVersion")
	if !place.found() {
		return data
	}
	return splice(data, place, strconv.AppendQuote(nil, formatRevision(revision)))
}

// inVersion returns the stored form under the version of a target. Nothing is converted: if the version of the spec is
// another one, the status names it as Grafana's does, whose clients read that version after a failed conversion.
func (t target) inVersion(data []byte) []byte {
	place := find(data, "apiVersion")
	stored := text(data, place)
	if !place.found() || stored == t.apiVersion() {
		return data
	}
	data = splice(data, place, strconv.AppendQuote(nil, t.apiVersion()))
	if !t.kind.VersionedSpec {
		return data
	}
	version := stored[strings.IndexByte(stored, '/')+1:]
	failed := !(version < "v2" && t.version < "v2") // all before v2 are the classic model
	conversion := fmt.Appendf(nil, `"conversion":{"failed":%t,"storedVersion":%q}`, failed, version)
	status := find(data, "status")
	if !status.found() {
		end := len(data) - 1
		return splice(data, span{end, end}, fmt.Appendf(nil, `,"status":{%s}`, conversion))
	}
	if data[status.from+1] != '}' {
		conversion = append(conversion, ',')
	}
	return splice(data, span{status.from + 1, status.from + 1}, conversion)
}

// storedVersion removes the answer of inVersion from an object that a client sends back, and returns the version of its
// spec; "" for that of the request.
func (t target) storedVersion(object map[string]any) string {
	status := asMap(object["status"])
	if _, there := status["conversion"]; !t.kind.VersionedSpec || !there {
		return ""
	}
	version, _ := asMap(status["conversion"])["storedVersion"].(string)
	if delete(status, "conversion"); len(status) == 0 {
		delete(object, "status")
	}
	if !slices.Contains(t.kind.Versions, version) {
		return ""
	}
	return version
}

// withVersion returns the target with the version of the spec that is written, and gives it to the objects.
func (t target) withVersion(version string, objects ...*unstructured.Unstructured) target {
	if t.kind.VersionedSpec && version != "" {
		t.version = version
		for _, obj := range objects {
			obj.SetAPIVersion(t.apiVersion())
		}
	}
	return t
}

func formatRevision(revision uint64) string { return strconv.FormatUint(revision, 10) }

// unquote decodes a JSON string with its quotes.
func unquote(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	// The scanner is only given strings that the library wrote.
	if err := json.Unmarshal(quoted, &s); err != nil {
		return ""
	}
	return s
}

// Decoding is lenient by default and returns findings: duplicate members and members that the kind does not have. The
// client decides by fieldValidation whether findings are dropped, sent as Warning headers, or an error.

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

// coerce converts an object to the shape of its kind: metadata as the typed ObjectMeta holds it, and neither unknown
// members nor nulls at the top level. It returns the removed members, and an error for metadata of wrong types.
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

// dropUnknown removes nulls and the members that the kind does not have from the top level, and returns the latter.
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

// sameValue reports whether decoded JSON is equal. 1 and 1.0 differ, because they are stored differently.
func sameValue(a, b any) bool { return reflect.DeepEqual(a, b) }

// asMap returns a JSON value as an object; nil if it is none.
func asMap(value any) map[string]any {
	m, _ := value.(map[string]any)
	return m
}

// A scanner for JSON that this package has written. Objects are stored as the bytes that clients receive; lists,
// watches and selectors read a few members of thousands of them, and decoding each would cost fifty times more.
//
// The input is trusted: it is one compact JSON value without errors. Foreign bytes are decoded with the library first.

// span is the place of a value in a JSON text: data[from:to].
type span struct{ from, to int }

// none is the span of an absent value.
var none = span{-1, -1}

func (s span) found() bool { return s.from >= 0 }

func (s span) of(data []byte) []byte { return data[s.from:s.to] }

// find returns the place of the value at the path of member names, or none.
func find(data []byte, path ...string) span {
	at := span{0, len(data)}
	for _, name := range path {
		if at = member(data, at, name); !at.found() {
			return none
		}
	}
	return at
}

// member returns the place of one member's value in the object at place.
func member(data []byte, place span, name string) span {
	hit := none
	eachMember(data, place, func(key []byte, value span) bool {
		if string(key) == name {
			hit = value
			return false
		}
		return true
	})
	return hit
}

// eachMember calls fn with the raw name (escapes not resolved) and the place of the value of each member of
// the object at place, until fn returns false. It does nothing if there is no object at place.
func eachMember(data []byte, place span, fn func(key []byte, value span) bool) {
	i := place.from
	if i >= place.to || data[i] != '{' {
		return
	}
	i++
	for i < place.to && data[i] == '"' {
		end := skip(data, i)
		key := data[i+1 : end-1]
		from := end + 1 // the colon
		to := skip(data, from)
		if !fn(key, span{from, to}) {
			return
		}
		if data[to] != ',' {
			return
		}
		i = to + 1
	}
}

// skip returns the index behind the value that begins at i.
func skip(data []byte, i int) int {
	switch data[i] {
	case '"':
		for i++; data[i] != '"'; i++ {
			if data[i] == '\\' {
				i++
			}
		}
		return i + 1
	case '{', '[':
		depth := 0
		for {
			switch data[i] {
			case '"':
				i = skip(data, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
	default:
		for i < len(data) && data[i] != ',' && data[i] != '}' && data[i] != ']' {
			i++
		}
		return i
	}
}

// text returns the string at place; "" for an absent value and for one that is no
// string. The library decodes strings with escapes.
func text(data []byte, place span) string {
	if !place.found() || data[place.from] != '"' {
		return ""
	}
	return unquote(data[place.from:place.to])
}

// splice returns data with the value at place replaced.
func splice(data []byte, place span, value []byte) []byte {
	out := make([]byte, 0, len(data)-(place.to-place.from)+len(value))
	out = append(out, data[:place.from]...)
	out = append(out, value...)
	return append(out, data[place.to:]...)
}
