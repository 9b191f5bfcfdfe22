package admission

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/auth"
)

// The patterns and enums of a GitRepository. Source: fluxcd/source-controller, api/v1/gitrepository_types.go.
var (
	sourcePatterns = []struct {
		name     string
		pattern  *regexp.Regexp
		required bool
	}{
		{"url", regexp.MustCompile(`^(http|https|ssh)://.*$`), true},
		{"interval", regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`), true},
		{"timeout", regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ms|s|m))+$`), false},
	}
	verifyModes = []string{"head", "HEAD", "Tag", "TagAndHEAD"}
)

// validateGitRepository applies the rules of Flux's CRD, with the words of the API server. A spec that was stored
// before the rules can still be kept as it is. The providers and the schemes are those of limpet, which has more.
func validateGitRepository(obj, old *unstructured.Unstructured, root node) {
	validateSink(obj, root)
	if old != nil && reflect.DeepEqual(obj.Object["spec"], old.Object["spec"]) {
		return
	}
	spec := root.object("spec")
	oneOf := func(n node, name string, known []string) {
		if value := n.text(name); n.has(name) && !slices.Contains(known, value) {
			n.add(field.NotSupported(n.child(name), value, known))
		}
	}
	named := func(n node, name string) {
		if ref := n.object(name); n.has(name) && ref.text("name") == "" {
			ref.required("name", "")
		}
	}
	for _, f := range sourcePatterns {
		if f.required && spec.text(f.name) == "" {
			spec.required(f.name, "")
		}
		spec.checkHidden(f.name, func(value string) error { // a URL may hold a password
			a, err := auth.ParseAddress(value)
			if own := f.name == "url" && err == nil && a.Own(); !own && !f.pattern.MatchString(value) {
				return fmt.Errorf("%s in body should match '%s'", spec.child(f.name), f.pattern)
			}
			return nil
		})
	}
	oneOf(spec, "provider", auth.Providers)
	named(spec, "secretRef")
	named(spec, "proxySecretRef")
	if verify := spec.object("verify"); spec.has("verify") {
		oneOf(verify, "mode", verifyModes)
		if named(verify, "secretRef"); !verify.has("secretRef") {
			verify.required("secretRef", "")
		}
	}
	for _, include := range spec.objects("include") {
		if named(include, "repository"); !include.has("repository") {
			include.required("repository", "")
		}
	}
	spec.texts("sparseCheckout")
	if provider := spec.text("provider"); spec.has("serviceAccountName") && provider != "azure" && provider != "aws" {
		spec.add(field.Invalid(spec.path, omitted{}, "serviceAccountName can only be set when provider is 'azure' or 'aws'"))
	}
}
