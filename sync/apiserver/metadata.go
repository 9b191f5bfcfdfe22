package apiserver

import (
	"maps"
	"regexp"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
)

// The members that the server sets, and the validation that all kinds share.

// topLevel returns the members that objects of a kind may have beside apiVersion, kind and
// metadata. Others are reported to the client and dropped, as with a structural schema. Those of
// objects must be objects.
func topLevel(k api.Kind) (objects, others []string) {
	switch {
	case k.Group == "" && k.Plural == "secrets":
		return []string{"data", "stringData"}, []string{"immutable", "type"}
	case k.Group == "" && k.Plural == "events":
		return []string{"involvedObject", "related", "series", "source"}, []string{"action", "count", "eventTime",
			"firstTimestamp", "lastTimestamp", "message", "reason", "reportingComponent", "reportingInstance", "type"}
	case k.Group == api.CoordinationGroup:
		return []string{"spec"}, nil
	case hasSecure(k):
		return []string{"secure", "spec", "status"}, nil
	}
	return []string{"spec", "status"}, nil
}

// clearServerFields removes the members that only the server may set.
func clearServerFields(obj *unstructured.Unstructured) {
	obj.SetCreationTimestamp(metav1.Time{})
	obj.SetUID("")
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
}

// countChange sets the generation, which counts changes outside of the metadata
// and, where it is written apart, the status.
func countChange(t target, obj, old *unstructured.Unstructured) {
	generation := old.GetGeneration()
	if t.kind.Generation && t.subresource == "" && !sameContent(obj, old) {
		generation++
	}
	obj.SetGeneration(generation)
}

// onlyStatus replaces obj by old, except for the status, the new secure values and the managed
// fields of obj.
func onlyStatus(k api.Kind, obj, old *unstructured.Unstructured) {
	out := old.DeepCopy()
	moveMember(out, obj, "status")
	out.SetManagedFields(obj.GetManagedFields())
	if values := statusValues(k, obj); len(values) > 0 {
		secure := map[string]any{}
		maps.Copy(secure, asMap(out.Object["secure"]))
		maps.Copy(secure, values)
		out.Object["secure"] = secure
	}
	*obj = *out
}

// moveMember gives obj the member of from, or none.
func moveMember(obj, from *unstructured.Unstructured, name string) {
	delete(obj.Object, name)
	if value, ok := from.Object[name]; ok {
		obj.Object[name] = value
	}
}

// sameContent reports whether two objects are equal apart from their metadata.
func sameContent(a, b *unstructured.Unstructured) bool {
	x, y := maps.Clone(a.Object), maps.Clone(b.Object)
	delete(x, "metadata")
	delete(y, "metadata")
	return sameValue(x, y)
}

// validate applies the rules for all kinds to an object that is going to be stored; old is nil for
// a new one.
func validate(t target, obj, old *unstructured.Unstructured) error {
	var errs field.ErrorList
	if obj.GetKind() != t.kind.Kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), obj.GetKind(), "must be "+t.kind.Kind))
	}
	if obj.GetAPIVersion() != t.apiVersion() {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), obj.GetAPIVersion(), "must be "+t.apiVersion()))
	}
	if len(errs) == 0 {
		if path := field.NewPath("metadata"); old == nil {
			errs = apivalidation.ValidateObjectMetaAccessor(obj, true, nameRule(t.kind), path)
		} else {
			errs = apivalidation.ValidateObjectMetaAccessorUpdate(obj, old, path)
		}
		errs = append(errs, validateContent(t, obj)...)
	}
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: t.kind.Group, Kind: obj.GetKind()}, obj.GetName(), errs)
}

// validateContent checks the types of the top-level members that are written.
func validateContent(t target, obj *unstructured.Unstructured) (errs field.ErrorList) {
	objects, _ := topLevel(t.kind)
	for _, name := range objects {
		value, given := obj.Object[name]
		if _, ok := value.(map[string]any); !given || ok || t.subresource == "status" && name != "status" {
			continue
		}
		errs = append(errs, field.TypeInvalid(field.NewPath(name), field.OmitValueType{}, "must be of type object"))
	}
	return errs
}

var grafanaName = regexp.MustCompile(`^[a-zA-Z0-9:\-_.]*$`)

// nameRule returns the rule for the names of a kind. Grafana's names may have capitals, colons and
// underscores: the uids of dashboards and folders are older than the API, and a job is named after
// its action (r1-fixFolderMetadata). A Secret has no name of a sealed value, which it would stand
// in for.
func nameRule(k api.Kind) apivalidation.ValidateNameFunc {
	if isSecret(k) {
		return func(name string, prefix bool) []string {
			if IsSealed(name) {
				return []string{"names that begin with " + inlinePrefix + " are those of sealed values"}
			}
			return apivalidation.NameIsDNSSubdomain(name, prefix)
		}
	}
	isJob := k.Group == api.ProvisioningGroup && (k.Plural == "jobs" || k.Plural == "historicjobs")
	if !isJob && !k.Provisioned() {
		return apivalidation.NameIsDNSSubdomain
	}
	return func(name string, _ bool) []string {
		switch {
		case len(name) > validation.DNS1123SubdomainMaxLength:
			return []string{validation.MaxLenError(validation.DNS1123SubdomainMaxLength)}
		case !grafanaName.MatchString(name) || name == "." || name == "..":
			return []string{"must consist of alphanumeric characters, '-', '_', ':' or '.'"}
		}
		return nil
	}
}

// sameName compares the names of an object from a body with those of the path.
func sameName(obj *unstructured.Unstructured, t target) error {
	switch got := obj.GetName(); {
	case got == "":
		return badRequest("the name of the object (%s based on URL) was undeterminable: name must be provided", t.name)
	case got != t.name:
		return badRequest("the name of the object (%s) does not match the name on the URL (%s)", got, t.name)
	}
	return sameNamespace(obj, t.namespace)
}

// sameNamespace sets the namespace of the path on an object without one. It
// returns a 400 status error if the object has another.
func sameNamespace(obj *unstructured.Unstructured, namespace string) error {
	switch obj.GetNamespace() {
	case namespace:
	case "":
		obj.SetNamespace(namespace)
	default:
		return badRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// parseRevision reads a resourceVersion. It returns a 400 status error for anything but a decimal
// number.
func parseRevision(text string) (uint64, error) {
	revision, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, badRequest("invalid resource version %q", text)
	}
	return revision, nil
}
