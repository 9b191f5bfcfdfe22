package apiserver

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
)

// The members that the server sets, and the validation that all kinds share.

// Limits of generated names. Source: apiserver's SimpleNameGenerator: a name
// must also fit where only 63 characters are taken.
const (
	randomLength    = 5
	generatedLength = 63
	// nameAttempts is the number of attempts to generate a free name.
	nameAttempts = 8
)

// clearServerFields removes the members that only the server may set.
func clearServerFields(obj *unstructured.Unstructured) {
	obj.SetCreationTimestamp(metav1.Time{})
	obj.SetUID("")
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
}

// initMetadata sets the metadata of a new object of a kind.
func initMetadata(k api.Kind, obj *unstructured.Unstructured) {
	clearServerFields(obj)
	obj.SetCreationTimestamp(metav1.Now())
	obj.SetUID(types.UID(uuid.NewUUID()))
	if k.Status {
		delete(obj.Object, "status")
	}
	obj.SetGeneration(0)
	if counted(k) {
		obj.SetGeneration(1)
	}
}

// counted reports whether objects of a kind have a generation. The kinds of the
// core API have none.
func counted(k api.Kind) bool { return k.Generation || k.CRD }

// generateName sets a name made of the prefix generateName.
func generateName(obj *unstructured.Unstructured) {
	base := obj.GetGenerateName()
	obj.SetName(base[:min(len(base), generatedLength-randomLength)] + rand.String(randomLength))
}

// carryOver copies the members that a write cannot change from old to obj, and
// increments the generation. old is the stored object.
func carryOver(t target, obj, old *unstructured.Unstructured) {
	obj.SetGeneration(old.GetGeneration())
	obj.SetSelfLink("")
	if t.subresource == "status" {
		onlyStatus(t.kind, obj, old)
	} else {
		if t.kind.Status {
			keepMember(obj, old, "status")
		}
		if t.kind.Generation && !sameContent(obj, old) {
			obj.SetGeneration(old.GetGeneration() + 1)
		}
	}
	if obj.GetUID() == "" {
		obj.SetUID(old.GetUID())
	}
	if at := old.GetCreationTimestamp(); !at.IsZero() {
		obj.SetCreationTimestamp(at)
	}
	if at := old.GetDeletionTimestamp(); at != nil {
		obj.SetDeletionTimestamp(at)
	}
	if grace := old.GetDeletionGracePeriodSeconds(); grace != nil && obj.GetDeletionGracePeriodSeconds() == nil {
		obj.SetDeletionGracePeriodSeconds(grace)
	}
}

// onlyStatus replaces obj by old, except for the status, the new secure values and
// the managed fields of obj.
func onlyStatus(k api.Kind, obj, old *unstructured.Unstructured) {
	status, ok := obj.Object["status"]
	managed := obj.GetManagedFields()
	brought := statusValues(k, obj)
	*obj = *old.DeepCopy()
	obj.SetManagedFields(managed)
	delete(obj.Object, "status")
	if ok {
		obj.Object["status"] = status
	}
	addStatusValues(obj, brought)
}

func keepMember(obj, old *unstructured.Unstructured, name string) {
	delete(obj.Object, name)
	if value, ok := old.Object[name]; ok {
		obj.Object[name] = value
	}
}

// sameContent reports whether two objects are equal apart from their metadata.
func sameContent(a, b *unstructured.Unstructured) bool {
	for _, pair := range [][2]map[string]any{{a.Object, b.Object}, {b.Object, a.Object}} {
		for name, value := range pair[0] {
			other, ok := pair[1][name]
			if name != "metadata" && (!ok || !sameValue(value, other)) {
				return false
			}
		}
	}
	return true
}

// validate applies the rules for all kinds to an object that is going to be
// stored; old is nil for a new one.
func validate(t target, obj, old *unstructured.Unstructured) error {
	var errs field.ErrorList
	if obj.GetKind() != t.kind.Kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), obj.GetKind(), "must be "+t.kind.Kind))
	}
	if obj.GetAPIVersion() != t.apiVersion() {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), obj.GetAPIVersion(), "must be "+t.apiVersion()))
	}
	if len(errs) == 0 {
		errs = validateContent(t, obj)
		path := field.NewPath("metadata")
		if old == nil {
			errs = append(apivalidation.ValidateObjectMetaAccessor(obj, true, nameRule(t.kind), path), errs...)
		} else {
			errs = append(apivalidation.ValidateObjectMetaAccessorUpdate(obj, old, path), errs...)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: t.kind.Group, Kind: obj.GetKind()}, obj.GetName(), errs)
}

// validateContent checks the types of the top-level members that are written.
func validateContent(t target, obj *unstructured.Unstructured) (errs field.ErrorList) {
	for _, name := range objectMembers(t.kind) {
		value, given := obj.Object[name]
		if _, ok := value.(map[string]any); !given || ok || t.subresource == "status" && name != "status" {
			continue
		}
		within := name
		if t.subresource != "" {
			within = ""
		}
		detail := fmt.Sprintf("%s in body must be of type object: %q", within, typeOf(value))
		errs = append(errs, field.TypeInvalid(field.NewPath(name), typeOf(value), detail))
	}
	return errs
}

// typeOf returns the JSON type of a value, as errors name it.
func typeOf(value any) string {
	switch value.(type) {
	case string:
		return "string"
	case bool:
		return "boolean"
	case int64:
		return "integer"
	case float64:
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

var grafanaName = regexp.MustCompile(`^[a-zA-Z0-9:\-_.]*$`)

// nameRule returns the rule for the names of a kind.
func nameRule(k api.Kind) apivalidation.ValidateNameFunc {
	if !grafanaNames(k) {
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

// finalizerWarnings returns a warning for each new finalizer whose name may clash.
func finalizerWarnings(obj, old *unstructured.Unstructured) (out []string) {
	var before []string
	if old != nil {
		before = old.GetFinalizers()
	}
	after := obj.GetFinalizers()
	slices.Sort(after)
	for _, name := range slices.Compact(after) {
		standard := name == metav1.FinalizerOrphanDependents || name == metav1.FinalizerDeleteDependents || name == "kubernetes"
		switch {
		case slices.Contains(before, name) || standard || strings.Contains(name, "/"):
		case strings.Contains(name, "."):
			out = append(out, fmt.Sprintf("metadata.finalizers: %q: prefer a domain-qualified finalizer name including a path (/) "+
				"to avoid accidental conflicts with other finalizer writers", name))
		default:
			out = append(out, fmt.Sprintf("metadata.finalizers: %q: prefer a domain-qualified finalizer name "+
				"to avoid accidental conflicts with other finalizer writers", name))
		}
	}
	return out
}

// uniqueOwners removes duplicate owner references and returns a warning for them.
func uniqueOwners(obj *unstructured.Unstructured) (warnings []string) {
	refs := obj.GetOwnerReferences()
	if len(refs) < 2 {
		return nil
	}
	var unique []metav1.OwnerReference
	var twice []string
	for _, ref := range refs {
		if slices.ContainsFunc(unique, func(u metav1.OwnerReference) bool { return sameValue(u, ref) }) {
			twice = append(twice, string(ref.UID))
			continue
		}
		unique = append(unique, ref)
	}
	if len(twice) == 0 {
		return nil
	}
	obj.SetOwnerReferences(unique)
	return []string{".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, " +
		"and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: " + strings.Join(twice, ", ")}
}

// parseRevision reads a resourceVersion. It returns a 400 status error for
// anything but a decimal number.
func parseRevision(text string) (uint64, error) {
	revision, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, badRequest("invalid resource version %q", text)
	}
	return revision, nil
}
