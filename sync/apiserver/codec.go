package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"limpet/sync/api"
)

// Objects have two forms in this package: *unstructured.Unstructured while they are changed, and
// the JSON bytes that are stored, kept for watches and sent. The stored form carries the preferred
// version of its kind, or the one of its spec where versions differ in it, and the resourceVersion
// of the write that made it. Its members are sorted, but those of a spec that was stored as its text.
//
// A dashboard that this process creates keeps the text of its spec, from the file in Git to the
// state file: it is scanned once and never becomes a tree of maps. Its fields have no owner until
// another manager applies some of them, for which the API machinery knows a manager
// before-first-apply.

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

// atRevision returns the object with metadata.resourceVersion set. The object must have that
// member.
func atRevision(data []byte, revision uint64) []byte {
	place := find(data, "metadata", "resourceVersion")
	if !place.found() {
		return data
	}
	return splice(data, place, strconv.AppendQuote(nil, formatRevision(revision)))
}

// inVersion returns the stored form under the version of a target. Nothing is converted: if the
// version of the spec is another one, the status names it as Grafana's does, whose clients read
// that version after a failed conversion.
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

// storedVersion removes the answer of inVersion from an object that a client sends back, and
// returns the version of its spec; "" for that of the request.
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

// withVersion returns the target with the version of the spec that is written, and gives it to the
// objects.
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

// cutSpec returns the body of a new object with an empty spec, and the spec as compact JSON. It
// returns the body as it is, and nil, where the text cannot be stored: decodeBody reads it.
func cutSpec(body []byte) (rest, spec []byte) {
	text, err := jsontext.AppendFormat(nil, body, api.StrictJSON...)
	if err != nil || !plainNumbers(text) {
		return body, nil
	}
	place := find(text, "spec")
	if !place.found() || text[place.from] != '{' {
		return body, nil
	}
	return splice(text, place, []byte("{}")), place.of(text)
}

// longestNumber is a length at which each number is a float64.
const longestNumber = 300

// plainNumbers reports whether each number in a JSON text can be read as a float64 or an int64,
// which one with an exponent may not.
func plainNumbers(data []byte) bool {
	digits := 0
	for i := 0; i < len(data); i++ {
		switch b := data[i]; {
		case b == '"':
			i = skip(data, i) - 1
			digits = 0
		case '0' <= b && b <= '9':
			if digits++; digits > longestNumber {
				return false
			}
		case digits > 0 && (b == 'e' || b == 'E'):
			return false
		case b != '.':
			digits = 0
		}
	}
	return true
}
