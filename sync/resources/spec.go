package resources

import (
	"encoding/json"
	"slices"
)

// spec is the specification of a dashboard: the text of anything but an object,
// or the members that are left of an object.
type spec struct {
	text   json.RawMessage
	fields []field
}

// cleanSpec leaves out the members of a dashboard that belong to one server's
// database. Nothing else changes, not even the order.
func cleanSpec(text json.RawMessage) *spec {
	if len(text) == 0 || text[0] != '{' {
		return &spec{text: text}
	}
	return cleaned(fieldsOf(text))
}

func cleaned(fields []field) *spec {
	return &spec{fields: slices.DeleteFunc(fields, func(f field) bool {
		return f.name == "uid" || f.name == "version" || f.name == "id"
	})}
}

// append appends the text of the specification to out.
func (s *spec) append(out []byte) []byte {
	if s.text != nil {
		return append(out, s.text...)
	}
	out = append(out, '{')
	for _, f := range s.fields {
		out = appendMember(out, f.name, f.value)
	}
	return append(out, '}')
}

// size is about the length of the text.
func (s *spec) size() int {
	n := len(s.text)
	for _, f := range s.fields {
		n += len(f.name) + len(f.value) + 4
	}
	return n
}

// appendMember appends a member to an object whose brace is still open.
func appendMember(out []byte, name string, value []byte) []byte {
	return append(appendName(out, name), value...)
}

func appendName(out []byte, name string) []byte {
	if out[len(out)-1] != '{' {
		out = append(out, ',')
	}
	quoted, _ := json.Marshal(name) // text always marshals
	return append(append(out, quoted...), ':')
}
