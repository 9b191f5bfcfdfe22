package admission

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/signature"
)

// Warnings returns what is valid in obj but will not have the effect that it suggests.
func Warnings(obj *unstructured.Unstructured) []string {
	if !isRepository(obj) {
		return nil
	}
	var out []string
	if err := auth.CheckProvider(api.Annotation(obj, api.AnnoGitProvider)); err != nil {
		out = append(out, fmt.Sprintf("annotation %s: %v", api.AnnoGitProvider, err))
	}
	for _, s := range []struct{ name, otherwise string }{{api.AnnoGitLFS, "true"}, {api.AnnoGitSubmodules, "false"}} {
		if v := api.Annotation(obj, s.name); v != "" && v != "true" && v != "false" {
			out = append(out, fmt.Sprintf("annotation %s: %q is neither true nor false, so it is %s", s.name, v, s.otherwise))
		}
	}
	if _, err := signature.ParseMode(api.Annotation(obj, api.AnnoGitVerify)); err != nil {
		out = append(out, fmt.Sprintf("annotation %s: %v; nothing will be pulled", api.AnnoGitVerify, err))
	}
	workflows, _, _ := unstructured.NestedSlice(obj.Object, "spec", "workflows")
	if len(workflows) > 0 && api.Annotation(obj, api.AnnoGitRef) != "" {
		out = append(out, "annotation "+api.AnnoGitRef+": it names no branch, so jobs that write are refused while it is set")
	}
	if method, _, _ := unstructured.NestedString(obj.Object, "spec", "commit", "signingMethod"); method != "" {
		if _, err := signature.ParseMethod(method); err != nil {
			out = append(out, fmt.Sprintf("spec.commit.signingMethod: %v; jobs will commit nothing", err))
		}
	}
	return out
}
