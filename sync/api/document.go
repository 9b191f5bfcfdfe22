package api

import (
	"bytes"
	"encoding/json"
	"errors"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// DocumentJSON returns a document of JSON or YAML as JSON, without a member that is given twice.
// Readers of YAML know neither all escapes of JSON nor its surrogate pairs, so what is JSON is read
// as JSON.
func DocumentJSON(doc []byte) ([]byte, error) {
	text := bytes.TrimSpace(bytes.TrimPrefix(doc, []byte("\ufeff")))
	if !json.Valid(text) || text[0] != '{' && text[0] != '[' {
		return yaml.YAMLToJSONStrict(doc)
	}
	var value any
	twice, err := kjson.UnmarshalStrict(text, &value)
	return text, errors.Join(append(twice, err)...)
}
