package admission

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
	"limpet/sync/auth"
)

// pattern is the rule of a text in the spec of a source.
type pattern struct {
	name     string
	pattern  *regexp.Regexp
	required bool
}

// The patterns and enums of sources. Source: fluxcd/source-controller, api/v1.
var (
	gitURL       = pattern{"url", regexp.MustCompile(`^(http|https|ssh)://.*$`), true}
	helmURL      = pattern{"url", regexp.MustCompile(`^(http|https|oci|file)://.*$`), true}
	ociURL       = pattern{"url", regexp.MustCompile(`^(oci|oci-layout)://.*$`), true}
	timePatterns = []pattern{
		{"interval", regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`), true},
		{"timeout", regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ms|s|m))+$`), false},
	}
	verifyModes     = []string{"head", "HEAD", "Tag", "TagAndHEAD"}
	cloudProviders  = []string{auth.Generic, "aws", "azure", "gcp"}
	ociVerifiers    = []string{"cosign", "notation"}
	layerOperations = []string{"extract", "copy"}
	helmTypes       = []string{"default", "oci"}
	chartSources    = []string{"HelmRepository", "GitRepository", "Bucket"}
	chartStrategies = []string{"ChartVersion", "Revision"}
)

// validateSource applies the rules of Flux's CRDs, with the words of the API server. A spec that
// was stored before the rules can still be kept as it is. The providers and the schemes are those
// of limpet, which has more.
func validateSource(obj, old *unstructured.Unstructured, root node) {
	validateSink(obj, root)
	if dir, set := obj.GetAnnotations()[api.AnnoSinkDir]; set && obj.GetKind() == "HelmRepository" && root.object("spec").text("type") == "oci" {
		root.add(field.Invalid(annotationPath(api.AnnoSinkDir), dir, "a HelmRepository of type oci has no artifact; set it on a HelmChart"))
	}
	if old != nil && reflect.DeepEqual(obj.Object["spec"], old.Object["spec"]) {
		return
	}
	spec := root.object("spec")
	switch obj.GetKind() {
	case "GitRepository":
		validateGitRepository(spec)
	case "OCIRepository":
		validateOCIRepository(spec)
	case "Bucket":
		validateBucket(spec)
	case "HelmRepository":
		validateHelmRepository(spec)
	case "HelmChart":
		validateHelmChart(spec)
	case "ExternalArtifact":
		spec.named("sourceRef")
	}
}

func validateGitRepository(spec node) {
	spec.pattern(gitURL)
	spec.times()
	spec.oneOf("provider", auth.Providers)
	spec.named("secretRef", "proxySecretRef")
	if verify := spec.object("verify"); spec.has("verify") {
		verify.oneOf("mode", verifyModes)
		if verify.named("secretRef"); !verify.has("secretRef") {
			verify.required("secretRef", "")
		}
	}
	for _, include := range spec.objects("include") {
		if include.named("repository"); !include.has("repository") {
			include.required("repository", "")
		}
	}
	spec.texts("sparseCheckout")
	if provider := spec.text("provider"); spec.has("serviceAccountName") && provider != "azure" && provider != "aws" {
		spec.add(field.Invalid(spec.path, omitted{}, "serviceAccountName can only be set when provider is 'azure' or 'aws'"))
	}
}

func validateOCIRepository(spec node) {
	spec.pattern(ociURL)
	spec.times()
	spec.oneOf("provider", cloudProviders)
	spec.named("secretRef", "certSecretRef", "proxySecretRef")
	spec.object("layerSelector").oneOf("operation", layerOperations)
	spec.flag("insecure")
	if verify := spec.object("verify"); spec.has("verify") {
		verify.oneOf("provider", ociVerifiers)
		verify.named("secretRef", "trustedRootSecretRef")
	}
}

func validateBucket(spec node) {
	for _, name := range []string{"bucketName", "endpoint"} {
		if spec.text(name) == "" {
			spec.required(name, "")
		}
	}
	spec.times()
	spec.oneOf("provider", cloudProviders)
	spec.named("secretRef", "certSecretRef", "proxySecretRef")
	spec.flag("insecure")
	if of := spec.text("provider"); spec.has("serviceAccountName") && (of == "" || of == auth.Generic) {
		spec.add(field.Invalid(spec.path, omitted{}, "ServiceAccountName is not supported for the 'generic' Bucket provider"))
	}
	if spec.has("secretRef") && spec.has("serviceAccountName") {
		spec.add(field.Invalid(spec.path, omitted{}, "cannot set both .spec.secretRef and .spec.serviceAccountName"))
	}
}

func validateHelmRepository(spec node) {
	spec.pattern(helmURL)
	for _, p := range timePatterns {
		p.required = false
		spec.pattern(p)
	}
	spec.oneOf("type", helmTypes)
	spec.oneOf("provider", cloudProviders)
	spec.named("secretRef", "certSecretRef")
	spec.flag("insecure")
	spec.flag("passCredentials")
}

func validateHelmChart(spec node) {
	spec.times()
	if spec.text("chart") == "" {
		spec.required("chart", "")
	}
	if spec.named("sourceRef"); !spec.has("sourceRef") {
		spec.required("sourceRef", "")
	}
	spec.object("sourceRef").oneOf("kind", chartSources)
	spec.oneOf("reconcileStrategy", chartStrategies)
	spec.texts("valuesFiles")
	spec.flag("ignoreMissingValuesFiles")
	if verify := spec.object("verify"); spec.has("verify") {
		verify.oneOf("provider", ociVerifiers)
		verify.named("secretRef")
		if kind := spec.object("sourceRef").text("kind"); kind != "HelmRepository" {
			spec.add(field.Invalid(spec.path, omitted{}, "spec.verify is only supported when spec.sourceRef.kind is 'HelmRepository'"))
		}
	}
}

// times checks interval and timeout.
func (n node) times() {
	for _, p := range timePatterns {
		n.pattern(p)
	}
}

func (n node) pattern(f pattern) {
	if f.required && n.text(f.name) == "" {
		n.required(f.name, "")
	}
	n.checkHidden(f.name, func(value string) error { // a URL may hold a password
		a, err := auth.ParseAddress(value)
		if own := f == gitURL && err == nil && a.Own(); !own && !f.pattern.MatchString(value) {
			return fmt.Errorf("%s in body should match '%s'", n.child(f.name), f.pattern)
		}
		return nil
	})
}

func (n node) oneOf(name string, known []string) {
	if value := n.text(name); n.has(name) && !slices.Contains(known, value) {
		n.add(field.NotSupported(n.child(name), value, known))
	}
}

// named checks references to objects by their names.
func (n node) named(names ...string) {
	for _, name := range names {
		if ref := n.object(name); n.has(name) && ref.text("name") == "" {
			ref.required("name", "")
		}
	}
}

// defaultSource sets the defaults of Flux's definitions.
func defaultSource(obj *unstructured.Unstructured) {
	spec, ok := obj.Object["spec"].(map[string]any)
	if !ok {
		return
	}
	set := func(m map[string]any, name, value string) {
		if m != nil && m[name] == nil {
			m[name] = value
		}
	}
	if obj.GetKind() == "ExternalArtifact" {
		return
	}
	if !strings.HasPrefix(obj.GetKind(), "Helm") { // a chart takes as long as its repository may
		set(spec, "timeout", "60s")
	}
	verify, _ := spec["verify"].(map[string]any)
	switch obj.GetKind() {
	case "OCIRepository":
		set(spec, "provider", auth.Generic)
		set(verify, "provider", "cosign")
	case "Bucket", "HelmRepository":
		set(spec, "provider", auth.Generic)
	case "HelmChart":
		set(spec, "version", "*")
		set(spec, "reconcileStrategy", "ChartVersion")
		set(verify, "provider", "cosign")
	default:
		set(verify, "mode", "HEAD")
	}
}
