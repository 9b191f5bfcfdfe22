package admission

import (
	"maps"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// node is one JSON object of a request with the path that leads to it. Reading a member of the wrong type
// records an error and returns the zero value, so that the rules need no checks of their own.
type node struct {
	path *field.Path // nil for the root
	data map[string]any
	errs *field.ErrorList
}

func rootNode(obj *unstructured.Unstructured, errs *field.ErrorList) node {
	return node{data: obj.Object, errs: errs}
}

func (n node) child(name string) *field.Path {
	switch {
	case name == "":
		return n.path
	case n.path == nil:
		return field.NewPath(name)
	}
	return n.path.Child(name)
}

// has reports whether the member is there and not null.
func (n node) has(name string) bool { return n.data[name] != nil }

// names lists the members in order.
func (n node) names() []string {
	return slices.Sorted(maps.Keys(n.data))
}

// read returns a member, the zero value when it is absent or of another type.
func read[T any](n node, name, want string) T {
	value, ok := n.data[name].(T)
	if !ok && n.has(name) {
		n.typed(name, want)
	}
	return value
}

func (n node) object(name string) node {
	return node{path: n.child(name), data: read[map[string]any](n, name, "object"), errs: n.errs}
}

func (n node) text(name string) string { return read[string](n, name, "string") }
func (n node) flag(name string) bool   { return read[bool](n, name, "boolean") }
func (n node) list(name string) []any  { return read[[]any](n, name, "array") }

func (n node) integer(name string) int64 {
	switch v := n.data[name].(type) {
	case int64:
		return v
	case int:
		return int64(v)
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int64(v)
		}
	case nil:
		return 0
	}
	n.typed(name, "integer")
	return 0
}

func (n node) texts(name string) []string {
	var out []string
	for i, item := range n.list(name) {
		s, ok := item.(string)
		if !ok {
			n.add(field.TypeInvalid(n.child(name).Index(i), omitted{}, "must be of type string"))
		}
		out = append(out, s)
	}
	return out
}

func (n node) objects(name string) []node {
	var out []node
	for i, item := range n.list(name) {
		data, ok := item.(map[string]any)
		if !ok {
			n.add(field.TypeInvalid(n.child(name).Index(i), omitted{}, "must be of type object"))
		}
		out = append(out, node{path: n.child(name).Index(i), data: data, errs: n.errs})
	}
	return out
}

// enum requires a member to be one of the known values.
func (n node) enum(name string, known []string) (value string, ok bool) {
	switch value = n.text(name); {
	case value == "":
		n.required(name, "one of "+strings.Join(known, ", "))
	case !slices.Contains(known, value):
		n.add(field.NotSupported(n.child(name), value, known))
	default:
		return value, true
	}
	return value, false
}

// check records why a text may not be used; an absent or empty one may.
func (n node) check(name string, rule func(string) error) { n.checkAs(name, n.data[name], rule) }

// checkHidden is check for a value that may hold a secret, which is not repeated.
func (n node) checkHidden(name string, rule func(string) error) { n.checkAs(name, omitted{}, rule) }

func (n node) checkAs(name string, shown any, rule func(string) error) {
	if value := n.text(name); value != "" {
		if err := rule(value); err != nil {
			n.add(field.Invalid(n.child(name), shown, err.Error()))
		}
	}
}

func (n node) add(err *field.Error) { *n.errs = append(*n.errs, err) }

// typed records a wrong type, once for a member that several rules read.
func (n node) typed(name, want string) {
	err := field.TypeInvalid(n.child(name), omitted{}, "must be of type "+want)
	if !slices.ContainsFunc(*n.errs, func(known *field.Error) bool { return known.Error() == err.Error() }) {
		n.add(err)
	}
}

// required records that a member is absent or empty. One of a wrong type is reported already.
func (n node) required(name, detail string) {
	if _, isText := n.data[name].(string); name == "" || isText || !n.has(name) {
		n.add(field.Required(n.child(name), detail))
	}
}

// invalid records a bad value; name "" means the object itself, whose value is not repeated.
func (n node) invalid(name, detail string) {
	if name == "" {
		n.add(field.Invalid(n.path, omitted{}, detail))
		return
	}
	n.add(field.Invalid(n.child(name), n.data[name], detail))
}

// omitted stands in an error for a value that may hold a secret: the message goes without one.
type omitted = field.OmitValueType
