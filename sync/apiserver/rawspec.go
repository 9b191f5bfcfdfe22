package apiserver

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// A dashboard that this process creates keeps the text of its spec, from the file in Git to the
// state file: it is scanned once and never becomes a tree of maps. Its fields have no owner until
// another manager applies some of them, for which the API machinery knows a manager
// before-first-apply.

// strict refuses what the decoder would not store as it is.
var strict = []jsontext.Options{jsontext.AllowDuplicateNames(false), jsontext.AllowInvalidUTF8(false)}

// cutSpec returns the body of a new object with an empty spec, and the spec as compact JSON. It
// returns the body as it is, and nil, where the text cannot be stored: decodeBody reads it.
func cutSpec(body []byte) (rest, spec []byte) {
	text := jsontext.Value(bytes.Clone(body))
	if text.Compact(strict...) != nil || !plainNumbers(text) {
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
