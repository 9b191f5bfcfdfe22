package apiserver

import (
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"limpet/sync/api"
)

// selection picks objects by namespace, labels and fields. It works on stored
// bytes and looks only at the members that it needs.
type selection struct {
	Namespace string // "" = all
	Labels    labels.Selector
	Fields    fields.Selector
}

// everything says that the selection leaves no object of its namespace out.
func (s selection) everything() bool { return s.Labels.Empty() && s.Fields.Empty() }

// parseSelection reads the selectors of a request. name is that of the path, for
// watches of one object. It returns a 400 status error for selectors that
// cannot be read and for fields that the kind does not select by.
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

// fieldPath answers the members behind a field that may be selected by, or nil.
// Sources: Grafana's register.go for repositories, the core API for events and
// secrets (kubectl describe asks for events by their object).
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

// exactName answers the one name that the selection asks for.
func (s selection) exactName() (string, bool) { return s.Fields.RequiresExactMatch("metadata.name") }

// matches looks at the stored form of an object of the kind.
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

// fieldText is the value as text; values that are no strings have their JSON.
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
