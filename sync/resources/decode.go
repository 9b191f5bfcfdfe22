package resources

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v2"

	"limpet/sync/api"
)

// A file, which is not trusted, becomes compact JSON in bounded space, or an error with the place
// of the fault. Dashboards stay JSON text from the file to the wire, so numbers keep their digits
// and no tree of maps is built.

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

// escapedBOM matches a byte order mark in a JSON string. escape matches any escape as well, so that
// the second half of one is not taken for the first half of another; it is slow.
var (
	escapedBOM = regexp.MustCompile(`\\u[fF][eE][fF][fF]`)
	escape     = regexp.MustCompile(`\\u[fF][eE][fF][fF]|\\.`)
)

// members returns the one object of a file and its members. A directory gets the file as it is, so
// that its text is examined where it lies.
// strict reports whether they are of one text that a StrictBody may have.
func (f File) members(data []byte) (doc []byte, all []field, strict bool, err error) {
	text := bytes.TrimSpace(bytes.TrimPrefix(data, utf8BOM))
	if f.Directory && len(data) <= MaxFile && bytes.HasPrefix(text, []byte{'{'}) && utf8.Valid(text) &&
		!bytes.Contains(text, utf8BOM) && !escapedBOM.Match(text) && checkDepth(text) == nil {
		if all, ok := fieldsOf(text); ok {
			return text, all, false, nil
		}
	}
	doc, strict, err = decode(f, data)
	if err != nil {
		return nil, nil, false, err
	}
	all, plain, err := split(doc)
	return doc, all, strict && plain, err
}

// decode returns the one object of a file as compact JSON of at most MaxObject bytes. A .json file
// has to be JSON. The error says what is wrong and where.
func decode(f File, data []byte) (object []byte, strict bool, err error) {
	if len(data) > MaxFile {
		return nil, false, &TooLargeError{What: "the file", Size: int64(len(data)), Limit: MaxFile}
	}
	most := MaxObject
	if f.Directory { // no request limits it
		most = MaxFile
	}
	data = bytes.TrimSpace(bytes.TrimPrefix(data, utf8BOM))
	switch {
	case len(data) == 0:
		return nil, false, errors.New("the file is empty")
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		return nil, false, errors.New("the file is UTF-16; save it as UTF-8")
	case !utf8.Valid(data):
		return nil, false, errors.New("the file is not valid UTF-8")
	case strings.EqualFold(path.Ext(f.Path), ".json"):
		return decodeJSON(data, most)
	case data[0] == '{':
		// A YAML flow mapping begins with a brace as well.
		if out, strict, err := decodeJSON(data, most); err == nil {
			return out, strict, nil
		}
	}
	object, err = decodeYAML(data)
	return object, false, err
}

// lenient has jsontext accept what encoding/json accepts, which Grafana reads files with.
var lenient = []jsontext.Options{
	jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true), jsontext.PreserveRawStrings(true),
}

func decodeJSON(data []byte, most int) (object []byte, strict bool, err error) {
	out, err := jsontext.AppendFormat(nil, data, api.StrictJSON...)
	if strict = err == nil; !strict {
		out, err = jsontext.AppendFormat(nil, data, lenient...)
	}
	if err != nil { // it has no line
		err = located(data, json.Unmarshal(data, new(json.RawMessage)))
		return nil, false, cmp.Or(checkDepth(data), err)
	}
	if jsontext.Value(out).Kind() != '{' {
		return nil, false, errors.New("the file does not hold an object")
	}
	object, err = sized(out, most)
	return object, strict && len(object) == len(out), err
}

// CheckJSON returns a *ParseError for a file that is not JSON.
func CheckJSON(path string, data []byte) error {
	if jsontext.Value(data).IsValid(lenient...) {
		return nil
	}
	if err := json.Unmarshal(data, new(json.RawMessage)); err != nil {
		return &ParseError{Path: path, Err: located(data, err)}
	}
	return nil
}

// sized returns the compact form without byte order marks in its strings, as Grafana stores it.
func sized(compact []byte, most int) ([]byte, error) {
	if bytes.Contains(compact, utf8BOM) {
		compact = bytes.ReplaceAll(compact, utf8BOM, nil)
	}
	if escapedBOM.Match(compact) {
		compact = escape.ReplaceAllFunc(compact, func(found []byte) []byte {
			if len(found) > 2 {
				return nil
			}
			return found
		})
	}
	if len(compact) > most {
		return nil, &TooLargeError{What: "the object", Size: int64(len(compact)), Limit: int64(most)}
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

// structural are the bytes that checkDepth looks at.
var structural = [256]bool{'"': true, '{': true, '[': true, '}': true, ']': true}

// checkDepth returns an error for nesting beyond maxDepth. It needs no valid JSON: strings are all
// that it parses.
func checkDepth(data []byte) error {
	depth := 0
	for i := 0; i < len(data); i++ {
		if !structural[data[i]] {
			continue
		}
		switch data[i] {
		case '"':
			i += stringEnd(data[i+1:]) + 1
		case '{', '[':
			if depth++; depth > maxDepth {
				return fmt.Errorf("the file is nested deeper than %d levels", maxDepth)
			}
		case '}', ']':
			depth--
		}
	}
	return nil
}

// stringEnd returns the place of the quote that ends a JSON string; the length of data when there
// is none.
func stringEnd(data []byte) int {
	for at := 0; ; {
		quote := bytes.IndexByte(data[at:], '"')
		if quote < 0 {
			return len(data)
		}
		escape := bytes.IndexByte(data[at:at+quote], '\\')
		if escape < 0 {
			return at + quote
		}
		if at += escape + 2; at > len(data) {
			return len(data)
		}
	}
}

// field is one member of an object.
type field struct {
	name  string
	value json.RawMessage
	text  []byte // name and value in the text that split was given
}

// longestNumber is a length at which each number is a float64.
const longestNumber = 300

// scanned are the bytes that split looks at.
var scanned = [256]bool{'"': true, '{': true, '[': true, '}': true, ']': true, ',': true, 'e': true, 'E': true}

// split returns the members of a valid compact JSON object, in order, and no members of another
// value. plain reports whether each number in it can be read as a float64 or an int64, which one
// with an exponent may not. The error is that of nesting beyond maxDepth.
func split(object json.RawMessage) (out []field, plain bool, err error) {
	if len(object) == 0 || object[0] != '{' {
		return nil, false, nil
	}
	plain = true
	depth, from := 0, 0  // a number begins behind from
	name, colon := -1, 0 // of the member at depth 1 that has begun
	for i := 0; i < len(object); i++ {
		if !scanned[object[i]] {
			continue
		}
		switch object[i] {
		case '"':
			begin := i
			i += 1 + stringEnd(object[i+1:])
			if depth == 1 && name < 0 {
				name, colon = begin, i+1
			}
		case '{', '[':
			if depth++; depth > maxDepth {
				return nil, false, fmt.Errorf("the file is nested deeper than %d levels", maxDepth)
			}
		case 'e', 'E':
			if digit := object[i-1]; '0' <= digit && digit <= '9' {
				plain = false
			}
			continue
		default:
			plain = plain && i-from <= longestNumber
			if depth == 1 && name >= 0 {
				f := field{value: object[colon+1 : i : i], text: object[name:i]}
				f.name = nameOf(object[name:colon])
				out = append(out, f)
				name = -1
			}
			if object[i] != ',' {
				depth--
			}
		}
		from = i
	}
	return out, plain, nil
}

// nameOf decodes a name with its quotes.
func nameOf(quoted []byte) (name string) {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	_ = json.Unmarshal(quoted, &name) // it is valid
	return name
}

// fieldsOf returns the members of a JSON object, in order. ok is false for any other value.
func fieldsOf(object json.RawMessage) (out []field, ok bool) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(object), lenient...)
	if open, err := dec.ReadToken(); err != nil || open.Kind() != '{' {
		return nil, false
	}
	for dec.PeekKind() == '"' {
		name, _ := dec.ReadToken()
		f := field{name: name.String()}
		value, err := dec.ReadValue()
		if err != nil {
			return nil, false
		}
		end := dec.InputOffset()
		f.value = json.RawMessage(object[end-int64(len(value)) : end : end])
		out = append(out, f)
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, false
	}
	_, err := dec.ReadToken()
	return out, err == io.EOF
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

// textOf returns the text in the value of the last member of that name, "" when it is none.
func textOf(fields []field, name string) (text string) {
	_ = json.Unmarshal(value(fields, name), &text)
	return text
}

// yamlGate lets two YAML files be decoded at a time, which bounds their memory.
var yamlGate = make(chan struct{}, 2)

// decodeYAML returns the one document of data as compact JSON. Aliases share memory while they are
// decoded; what they expand to is counted as it is written, so a bomb ends at MaxObject bytes.
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
	return sized(w.out.Bytes(), MaxObject)
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
