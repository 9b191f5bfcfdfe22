package state

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"limpet/state/frame"
)

// jsonFields returns the names of the members of T in JSON.
func jsonFields[T any]() map[string]bool {
	names := map[string]bool{}
	for f := range reflect.TypeFor[T]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names[name] = true
	}
	return names
}

var claimFields, recordFields = jsonFields[Claim](), jsonFields[Record]()

// encodeOver returns v as JSON with those members of old, the body that it replaces (nil = none), that are not among the
// known ones: a newer program of the same schema may have written them, and a later upgrade needs them.
func encodeOver(b frame.Bucket, v any, old []byte, known map[string]bool) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %s record: %w", b, err)
	}
	var extra map[string]json.RawMessage
	if old == nil || json.Unmarshal(old, &extra) != nil {
		return body, nil
	}
	maps.DeleteFunc(extra, func(name string, _ json.RawMessage) bool { return known[name] })
	if len(extra) == 0 {
		return body, nil
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, fmt.Errorf("encode %s record: %w", b, err)
	}
	maps.Copy(all, extra)
	return json.Marshal(all)
}
