package api

import (
	"fmt"
	"strings"
)

// Value returns what stands in the column of an object; nil when it is not there.
func (c Column) Value(object map[string]any) any {
	if c.Path == "" {
		return valueAt(object, ".metadata.name")
	}
	return valueAt(object, c.Path)
}

// Text returns the Value as text; "" when it is not there.
func (c Column) Text(object map[string]any) string {
	value := c.Value(object)
	if value == nil {
		return ""
	}
	return strings.TrimSpace(fmt.Sprint(value))
}

// valueAt reads the subset of JSONPath that columns are written in: members and one filter for list elements, as in
//
//	.status.conditions[?(@.type=="Ready")].status
//
// It answers nil for what is not there.
func valueAt(value any, path string) any {
	for path != "" && value != nil {
		switch {
		case strings.HasPrefix(path, "[?(@."):
			filter, rest, _ := strings.Cut(path[len("[?(@."):], ")]")
			name, wanted, _ := strings.Cut(filter, "==")
			value, path = elementWhere(value, name, strings.Trim(wanted, `"`)), rest
		default:
			path = strings.TrimPrefix(path, ".")
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			object, ok := value.(map[string]any)
			if !ok {
				return nil
			}
			value, path = object[path[:end]], path[end:]
		}
	}
	return value
}

// elementWhere is the first element of a list with a member of a value.
func elementWhere(list any, name, wanted string) any {
	elements, ok := list.([]any)
	if !ok {
		return nil
	}
	for _, e := range elements {
		if object, ok := e.(map[string]any); ok && object[name] == wanted {
			return e
		}
	}
	return nil
}
