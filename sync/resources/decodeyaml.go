package resources

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v2"
)

// yamlGate lets two YAML files be decoded at a time, which bounds their memory.
var yamlGate = make(chan struct{}, 2)

// decodeYAML returns the one document of data as compact JSON. Aliases share memory while they are decoded;
// what they expand to is counted as it is written, so a bomb ends at MaxObject bytes.
func decodeYAML(data []byte) ([]byte, error) {
	if len(data) > MaxYAML {
		return nil, &TooLargeError{What: "the YAML file", Size: int64(len(data)), Limit: MaxYAML}
	}
	yamlGate <- struct{}{}
	defer func() { <-yamlGate }()

	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc any
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the file is empty")
		}
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file holds more than one document; one file is one resource")
	}
	if _, ok := doc.(map[any]any); !ok {
		return nil, errors.New("the file does not hold an object")
	}
	w := jsonWriter{}
	if err := w.value(doc, 1); err != nil {
		return nil, err
	}
	return sized(w.out.Bytes())
}

// jsonWriter writes what the YAML decoder made as compact JSON.
type jsonWriter struct{ out bytes.Buffer }

func (w *jsonWriter) value(v any, depth int) error {
	if w.out.Len() > MaxObject {
		return &TooLargeError{What: "the object", Size: int64(w.out.Len()), Limit: MaxObject}
	}
	if depth > maxDepth {
		return fmt.Errorf("the file is nested deeper than %d levels", maxDepth)
	}
	switch v := v.(type) {
	case map[any]any:
		named := make(map[string]any, len(v))
		for key, item := range v {
			name, err := keyText(key)
			if err != nil {
				return err
			}
			named[name] = item
		}
		w.out.WriteByte('{')
		for i, name := range slices.Sorted(maps.Keys(named)) {
			if i > 0 {
				w.out.WriteByte(',')
			}
			w.text(name)
			w.out.WriteByte(':')
			if err := w.value(named[name], depth+1); err != nil {
				return err
			}
		}
		w.out.WriteByte('}')
	case []any:
		w.out.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				w.out.WriteByte(',')
			}
			if err := w.value(item, depth+1); err != nil {
				return err
			}
		}
		w.out.WriteByte(']')
	case string:
		w.text(v)
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return fmt.Errorf("the number %v has no JSON form", v)
		}
		return w.marshal(v)
	default:
		return w.marshal(v)
	}
	return nil
}

func (w *jsonWriter) text(s string) { _ = w.marshal(s) } // a string always marshals

func (w *jsonWriter) marshal(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("the value %v has no JSON form", v)
	}
	w.out.Write(data)
	return nil
}

// keyText is the name of a member for a YAML key, as Kubernetes reads it.
func keyText(key any) (string, error) {
	switch key := key.(type) {
	case string:
		return key, nil
	case int, int64, uint64, bool:
		return fmt.Sprint(key), nil
	case float64:
		return strconv.FormatFloat(key, 'g', -1, 64), nil
	}
	return "", fmt.Errorf("the key %v is not a string", key)
}
