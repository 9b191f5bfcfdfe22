package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/go-json-experiment/json/jsontext"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"limpet/state"
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

// StrictJSON are the options of a text that readers of JSON understand in one way.
var StrictJSON = []jsontext.Options{
	jsontext.AllowDuplicateNames(false), jsontext.AllowInvalidUTF8(false), jsontext.PreserveRawStrings(true),
}

// StrictBody is the body of a request: compact JSON that StrictJSON allows, each number of which is
// a float64 or an int64. Its last member is "spec", an object.
type StrictBody struct {
	Text []byte // which does not change
	Spec int    // bytes of the object
	// End is the text from the comma before "spec" on in its stored form; the zero value = not known.
	End state.Tail
}

// strictBody is the key in a context of a body that was checked before it was sent. A server in the
// same process trusts its text; no client of another process can claim that.
type strictBody struct{}

// WithStrictBody returns a context for requests with such a body.
func WithStrictBody(ctx context.Context, b StrictBody) context.Context {
	return context.WithValue(ctx, strictBody{}, b)
}

// StrictBodyOf returns the body of a context of WithStrictBody.
func StrictBodyOf(ctx context.Context) (b StrictBody, ok bool) {
	b, ok = ctx.Value(strictBody{}).(StrictBody)
	return b, ok
}

// Cut returns the body with an empty spec, and the spec.
func (b StrictBody) Cut() (rest, spec []byte) {
	end := len(b.Text) - len("}")
	from := end - b.Spec
	return append(b.Text[:from:from], "{}}"...), b.Text[from:end]
}
