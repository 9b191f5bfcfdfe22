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
	sourceURL      = regexp.MustCompile(`^(http|https|ssh)://.*$`)
	sourceInterval = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`)
	sourceTimeout  = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ms|s|m))+$`)
	verifyModes    = []string{"head", "HEAD", "Tag", "TagAndHEAD"}
)

// validateGitRepository applies the rules of Flux's CRD, with the words of the API server. A spec that was stored
// before the rules can still be kept as it is. The providers are those of limpet, which has more.
func validateGitRepository(obj, old *unstructured.Unstructured, root node) {
	if old != nil && reflect.DeepEqual(obj.Object["spec"], old.Object["spec"]) {
		return
	}
	spec := root.object("spec")
	matches := func(n node, name string, pattern *regexp.Regexp) {
		n.checkHidden(name, func(value string) error { // a URL may hold a password
			if !pattern.MatchString(value) {
				return fmt.Errorf("%s in body should match '%s'", n.child(name), pattern)
			}
			return nil
		})
	}
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
	for _, name := range []string{"url", "interval"} {
		if spec.text(name) == "" {
			spec.required(name, "")
		}
	}
	matches(spec, "url", sourceURL)
	matches(spec, "interval", sourceInterval)
	matches(spec, "timeout", sourceTimeout)
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
