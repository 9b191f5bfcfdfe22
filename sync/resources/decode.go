package resources

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"path"
	"strings"
	"unicode/utf8"
)

// Files come from strangers. A file becomes compact JSON in bounded space, or
// an error with the place of the fault; only then is it interpreted.
// Dashboards stay JSON text from the file to the wire: no tree of maps is built
// for them, so numbers keep their digits and a large file costs a few passes.

// Limits of one file, in bytes. A file over a limit is a warning.
const (
	// MaxFile bounds what is read at all. White space may be most of it.
	MaxFile = 4 << 20
	// MaxYAML bounds YAML files, which cost about 200 bytes of memory for each
	// byte in the worst case.
	MaxYAML = 1 << 20
	// MaxObject bounds the compact form. Source: the request limit of etcd, the
	// smallest of the stores behind Kubernetes-style servers, less its envelope.
	MaxObject = 3<<19 - 16<<10
	// maxDepth bounds nesting. Dashboards with rows, panels and transformations
	// stay below 40.
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

// decode returns the one object of the file at path p as compact JSON of at most
// MaxObject bytes. A .json file has to be JSON. The error says what is wrong
// and where.
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
	out, ok := compact(data)
	if !ok {
		if err := checkDepth(data); err != nil {
			return nil, err
		}
		return nil, syntaxError(data)
	}
	if out[0] != '{' {
		return nil, errors.New("the file does not hold an object")
	}
	return sized(out)
}

func sized(compact []byte) ([]byte, error) {
	if len(compact) > MaxObject {
		return nil, &TooLargeError{What: "the object", Size: int64(len(compact)), Limit: MaxObject}
	}
	return compact, nil
}

// syntaxError returns why data is not JSON, with line and column.
func syntaxError(data []byte) error {
	err := json.Unmarshal(data, new(json.RawMessage))
	syntax, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return err
	}
	before := data[:min(max(int(syntax.Offset)-1, 0), len(data))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	return fmt.Errorf("line %d, column %d: %w", line, column, err)
}

// checkDepth returns an error for nesting beyond maxDepth. It needs no valid JSON:
// strings are all that it parses.
func checkDepth(data []byte) error {
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			i = stringEnd(data, i) - 1
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

// stringEnd returns the index after the string that begins at data[i].
func stringEnd(data []byte, i int) int {
	for i++; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(data)
}

// valueEnd returns the index after the value that begins at compact[i].
func valueEnd(compact []byte, i int) int {
	depth := 0
	for i < len(compact) {
		switch compact[i] {
		case '"':
			i = stringEnd(compact, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}

// members yields the members of a valid, compact JSON object in their order:
// the name and the text of the value, which is a part of compact. Anything but
// an object has no members.
func members(compact []byte) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		if len(compact) < 2 || compact[0] != '{' {
			return
		}
		for i := 1; i < len(compact) && compact[i] == '"'; {
			end := stringEnd(compact, i)
			name := string(compact[i+1 : end-1])
			if strings.ContainsRune(name, '\\') {
				// The text is valid, so it unquotes.
				_ = json.Unmarshal(compact[i:end], &name)
			}
			start := end + 1 // after the colon
			stop := valueEnd(compact, start)
			if !yield(name, compact[start:stop]) {
				return
			}
			i = stop + 1 // after the comma
		}
	}
}
