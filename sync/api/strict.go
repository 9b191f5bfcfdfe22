package api

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"
)

// A server in the same process trusts the text of a body that was checked before it was sent. The
// context carries that, so no client of another process can claim it.

// StrictJSON are the options of a text that readers of JSON understand in one way.
var StrictJSON = []jsontext.Options{jsontext.AllowDuplicateNames(false), jsontext.AllowInvalidUTF8(false)}

type strictBody struct{}

// WithStrictBody returns a context for requests whose body is compact JSON that StrictJSON allows.
func WithStrictBody(ctx context.Context) context.Context {
	return context.WithValue(ctx, strictBody{}, true)
}

// HasStrictBody reports whether the body of a request is from WithStrictBody.
func HasStrictBody(ctx context.Context) bool { return ctx.Value(strictBody{}) != nil }
