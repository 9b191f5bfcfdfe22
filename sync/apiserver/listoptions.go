package apiserver

import (
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
)

// listOptions are the parameters of list, watch and deletecollection.
type listOptions struct {
	Select        selection
	Version       string // resourceVersion as sent
	Match         metav1.ResourceVersionMatch
	Limit         int64
	Continue      string
	Timeout       time.Duration // 0 = none
	Bookmarks     bool
	InitialEvents *bool // sendInitialEvents as sent, or true where a watch begins with "any" version
}

// revision is the parsed resourceVersion; given is false for "" and "0".
func (o listOptions) revision() (revision uint64, given bool, err error) {
	if o.Version == "" || o.Version == "0" {
		return 0, false, nil
	}
	revision, err = parseRevision(o.Version)
	return revision, err == nil, err
}

// listParameters reads and checks the parameters. Contradictions are 422 status
// errors, malformed values 400.
func listParameters(q url.Values, k api.Kind, name string, watching bool) (listOptions, error) {
	o := listOptions{
		Version:   q.Get("resourceVersion"),
		Match:     metav1.ResourceVersionMatch(q.Get("resourceVersionMatch")),
		Continue:  q.Get("continue"),
		Bookmarks: flagOf(q, "allowWatchBookmarks"),
	}
	var err error
	if o.Limit, err = number(q, "limit"); err != nil {
		return o, err
	}
	seconds, err := number(q, "timeoutSeconds")
	if err != nil {
		return o, err
	}
	o.Timeout = time.Duration(seconds) * time.Second
	if _, ok := q["sendInitialEvents"]; ok {
		send := flagOf(q, "sendInitialEvents")
		o.InitialEvents = &send
	}
	if errs := o.check(watching); len(errs) > 0 {
		return o, apierrors.NewInvalid(schema.GroupKind{Group: metaGroup, Kind: "ListOptions"}, "", errs)
	}
	if watching && o.InitialEvents == nil && o.Match == "" && (o.Version == "" || o.Version == "0") {
		send := true
		o.InitialEvents = &send
	}
	o.Select, err = parseSelection(k, q.Get("labelSelector"), q.Get("fieldSelector"), name)
	return o, err
}

// check applies the rules of the real server for parameters that exclude each
// other.
func (o listOptions) check(watching bool) (errs field.ErrorList) {
	match, initial := field.NewPath("resourceVersionMatch"), field.NewPath("sendInitialEvents")
	const notOlder = metav1.ResourceVersionMatchNotOlderThan
	if !watching {
		if o.InitialEvents != nil {
			errs = append(errs, field.Forbidden(initial, "sendInitialEvents is forbidden for list"))
		}
		if o.Match == "" {
			return errs
		}
		if o.Version == "" {
			errs = append(errs, field.Forbidden(match, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
		}
		if o.Continue != "" {
			errs = append(errs, field.Forbidden(match, "resourceVersionMatch is forbidden when continue is provided"))
		}
		if o.Match != metav1.ResourceVersionMatchExact && o.Match != notOlder {
			known := []metav1.ResourceVersionMatch{metav1.ResourceVersionMatchExact, notOlder, ""}
			errs = append(errs, field.NotSupported(match, o.Match, known))
		}
		if o.Match == metav1.ResourceVersionMatchExact && o.Version == "0" {
			errs = append(errs, field.Forbidden(match, `resourceVersionMatch "exact" is forbidden for resourceVersion "0"`))
		}
		return errs
	}
	if o.InitialEvents != nil && o.Match != notOlder {
		errs = append(errs, field.Forbidden(match, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
	}
	if o.Match != "" {
		if o.InitialEvents == nil {
			errs = append(errs, field.Forbidden(match, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
		}
		if o.Match != notOlder {
			errs = append(errs, field.NotSupported(match, o.Match, []metav1.ResourceVersionMatch{notOlder}))
		}
		if o.Continue != "" {
			errs = append(errs, field.Forbidden(match, "resourceVersionMatch is forbidden when continue is provided"))
		}
	}
	return errs
}

// selection picks objects by namespace, labels and fields. It works on stored
// bytes and reads only the members that it needs.
type selection struct {
	Namespace string // "" = all
	Labels    labels.Selector
	Fields    fields.Selector
}

// everything reports whether the selection has all objects of its namespace.
func (s selection) everything() bool { return s.Labels.Empty() && s.Fields.Empty() }

// parseSelection reads the selectors of a request. name is that of the path, for
// watches of one object. It returns a 400 status error for malformed selectors
// and for fields that the kind does not support.
func parseSelection(k api.Kind, labelSelector, fieldSelector, name string) (selection, error) {
	s := selection{Labels: labels.Everything(), Fields: fields.Everything()}
	var err error
	if labelSelector != "" {
		if s.Labels, err = labels.Parse(labelSelector); err != nil {
			return s, badRequest("%s", err)
		}
	}
	if fieldSelector != "" {
		if s.Fields, err = fields.ParseSelector(fieldSelector); err != nil {
			return s, badRequest("%s", err)
		}
		for _, r := range s.Fields.Requirements() {
			if fieldPath(k, r.Field) == nil {
				return s, badRequest("field label not supported: %s", r.Field)
			}
		}
	}
	if name == "" {
		return s, nil
	}
	if !s.Fields.Empty() {
		if value, ok := s.Fields.RequiresExactMatch("metadata.name"); !ok || value != name {
			return s, badRequest("fieldSelector metadata.name doesn't match requested name")
		}
		return s, nil
	}
	s.Fields = fields.OneTermEqualSelector("metadata.name", name)
	return s, nil
}

// fieldPath returns the member path of a supported field selector, else nil.
// Sources: Grafana's register.go for repositories, the core API for events and
// secrets (kubectl describe selects events by their object).
func fieldPath(k api.Kind, name string) []string {
	allowed := name == "metadata.name" || name == "metadata.namespace"
	switch {
	case allowed:
	case k.Group == api.ProvisioningGroup && k.Plural == "repositories":
		allowed = name == "spec.connection.name"
	case k.Group == "" && k.Plural == "secrets":
		allowed = name == "type"
	case k.Group == "" && k.Plural == "events":
		if name == "source" {
			return []string{"source", "component"}
		}
		allowed = strings.HasPrefix(name, "involvedObject.") || name == "reason" || name == "type" || name == "reportingComponent"
	}
	if !allowed {
		return nil
	}
	return strings.Split(name, ".")
}

// exactName returns the name of a selection of a single object.
func (s selection) exactName() (string, bool) { return s.Fields.RequiresExactMatch("metadata.name") }

// matches reports whether the selection has an object of the kind, given in
// stored form.
func (s selection) matches(k api.Kind, data []byte) bool {
	if data == nil {
		return false
	}
	if s.Namespace != "" && text(data, find(data, "metadata", "namespace")) != s.Namespace {
		return false
	}
	if !s.Labels.Empty() && !s.Labels.Matches(labelsOf(data)) {
		return false
	}
	for _, r := range s.Fields.Requirements() {
		if got := fieldText(data, fieldPath(k, r.Field)); (got == r.Value) != (r.Operator != "!=") {
			return false
		}
	}
	return true
}

// fieldText returns a value as text, and the JSON of a value that is no string.
func fieldText(data []byte, path []string) string {
	place := find(data, path...)
	if place.found() && data[place.from] != '"' {
		return string(place.of(data))
	}
	return text(data, place)
}

// labelsOf reads the labels of a stored object.
func labelsOf(data []byte) labels.Set {
	out := labels.Set{}
	if place := find(data, "metadata", "labels"); place.found() {
		eachMember(data, place, func(key []byte, value span) bool {
			out[unquote([]byte(`"`+string(key)+`"`))] = text(data, value)
			return true
		})
	}
	return out
}
