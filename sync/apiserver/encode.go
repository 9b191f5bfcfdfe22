package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"
)

// Objects travel through this package in two forms: as *unstructured.Unstructured
// while they are changed, and as the JSON bytes that are stored, kept for
// watches and sent. The stored form carries the preferred version of its kind
// and the resourceVersion of the write that made it.

// decodeObject reads the stored form. Whole numbers become int64.
func decodeObject(data []byte) (*unstructured.Unstructured, error) {
	object := map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &object); err != nil {
		return nil, fmt.Errorf("read stored object: %w", err)
	}
	return &unstructured.Unstructured{Object: object}, nil
}

// encodeObject writes the compact form with members in the order of their names.
func encodeObject(object map[string]any) ([]byte, error) { return encodeValue(object) }

func encodeValue(value any) ([]byte, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("write object: %w", err)
	}
	return data, nil
}

// atRevision answers the object with metadata.resourceVersion set. The object
// must have that member.
func atRevision(data []byte, revision uint64) []byte {
	place := find(data, "metadata", "resourceVersion")
	if !place.found() {
		return data
	}
	return splice(data, place, strconv.AppendQuote(nil, formatRevision(revision)))
}

// atVersion answers the object under another apiVersion.
func atVersion(data []byte, apiVersion string) []byte {
	place := find(data, "apiVersion")
	if !place.found() || text(data, place) == apiVersion {
		return data
	}
	return splice(data, place, strconv.AppendQuote(nil, apiVersion))
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
