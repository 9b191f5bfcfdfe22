package resources

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"
)

// A file, which is not trusted, becomes compact JSON in bounded space, or an error with the place of the fault.
// Dashboards stay JSON text from the file to the wire, so numbers keep their digits and no tree of maps is built.

// Limits of one file, in bytes. A file over a limit is a warning.
const (
	// MaxFile bounds what is read at all. White space may be most of it.
	MaxFile = 4 << 20
	// MaxYAML bounds YAML files, which cost about 200 bytes of memory for each byte in the worst case.
	MaxYAML = 1 << 20
	// MaxObject bounds the compact form. Source: the request limit of etcd, the
	// smallest of the stores behind Kubernetes-style servers, less its envelope.
	MaxObject = 3<<19 - 16<<10
	// maxDepth bounds nesting. Dashboards with rows, panels and transformations stay below 40.
	maxDepth = 200
)

// TooLargeError reports that a file or the object in it is over a limit.
type TooLargeError struct {
	What        string
	Size, Limit int64 // bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s is too large: %d bytes, the limit is %d", e.What, e.Size, e.Limit)
}

var utf8BOM = []byte("\xef\xbb\xbf")

// decode returns the one object of the file at path p as compact JSON of at most MaxObject bytes. A .json
// file has to be JSON. The error says what is wrong and where.
func decode(p string, data []byte) ([]byte, error) {
	if len(data) > MaxFile {
		return nil, &TooLargeError{What: "the file", Size: int64(len(data)), Limit: MaxFile}
	}
	data = bytes.TrimSpace(bytes.TrimPrefix(data, utf8BOM))
	switch {
	case len(data) == 0:
		return nil, errors.New("the file is empty")
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		return nil, errors.New("the file is UTF-16; save it as UTF-8")
	case !utf8.Valid(data):
		return nil, errors.New("the file is not valid UTF-8")
	case strings.EqualFold(path.Ext(p), ".json"):
		return decodeJSON(data)
	case data[0] == '{':
		// A YAML flow mapping begins with a brace as well.
		if out, err := decodeJSON(data); err == nil {
			return out, nil
		}
	}
	return decodeYAML(data)
}

func decodeJSON(data []byte) ([]byte, error) {
	if err := checkDepth(data); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if json.Compact(&out, data) != nil { // its error has no place
		return nil, located(data, json.Unmarshal(data, new(json.RawMessage)))
	}
	if out.Bytes()[0] != '{' {
		return nil, errors.New("the file does not hold an object")
	}
	return sized(out.Bytes())
}

// CheckJSON returns a *ParseError for a file that is not JSON.
func CheckJSON(path string, data []byte) error {
	if err := json.Unmarshal(data, new(json.RawMessage)); err != nil {
		return &ParseError{Path: path, Err: located(data, err)}
	}
	return nil
}

func sized(compact []byte) ([]byte, error) {
	if len(compact) > MaxObject {
		return nil, &TooLargeError{What: "the object", Size: int64(len(compact)), Limit: MaxObject}
	}
	return compact, nil
}

// located adds line and column to a syntax error.
func located(data []byte, err error) error {
	syntax, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return err
	}
	before := data[:min(max(int(syntax.Offset)-1, 0), len(data))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	return fmt.Errorf("%d:%d: not JSON: %w", line, column, err)
}

// checkDepth returns an error for nesting beyond maxDepth. It needs no valid JSON: strings are all that it parses.
func checkDepth(data []byte) error {
	depth, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch b := data[i]; {
		case quoted && b == '\\':
			i++
		case b == '"':
			quoted = !quoted
		case quoted:
		case b == '{' || b == '[':
			if depth++; depth > maxDepth {
				return fmt.Errorf("the file is nested deeper than %d levels", maxDepth)
			}
		case b == '}' || b == ']':
			depth--
		}
	}
	return nil
}

// field is one member of an object.
type field struct {
	name  string
	value json.RawMessage
}

// fieldsOf returns the members of a valid JSON object, in order. Anything but an object has none.
func fieldsOf(object json.RawMessage) []field {
	dec := json.NewDecoder(bytes.NewReader(object))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil
	}
	var out []field
	for dec.More() {
		name, err := dec.Token()
		f := field{}
		if f.name, _ = name.(string); err != nil || dec.Decode(&f.value) != nil {
			break // the text is valid, so there is no error
		}
		out = append(out, f)
	}
	return out
}

// value returns the value of the last member of that name; nil when there is none.
func value(fields []field, name string) json.RawMessage {
	for i := len(fields) - 1; i >= 0; i-- {
		if fields[i].name == name {
			return fields[i].value
		}
	}
	return nil
}
