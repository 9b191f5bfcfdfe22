package admission

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/signature"
)

// knownMembers are the members of each kind that limpet or Grafana reads. Those of spec
// are the ones of Grafana's types.
var knownMembers = map[string]map[string][]string{
	"Repository": {
		// and all of auth.Keys, which are too many to list
		"secure": {"token", "webhookSecret", "commitSigningKey", "commitSigningPassphrase", "verify"},
		"spec": append([]string{"title", "description", "type", "workflows", "sync", "connection", "webhook", "branch", "commit",
			"pullRequest"}, repositoryTypes...),
		"spec.sync":             {"enabled", "target", "intervalSeconds"},
		"spec.local":            {"path"},
		"spec.github":           {"url", "branch", "path", "generateDashboardPreviews", "repoID"},
		"spec.githubEnterprise": {"serverUrl", "url", "branch", "path", "generateDashboardPreviews", "repoID"},
		"spec.git":              {"url", "branch", "tokenUser", "path"},
		"spec.bitbucket":        {"url", "branch", "tokenUser", "email", "path"},
		"spec.gitlab":           {"url", "branch", "path"},
		"spec.connection":       {"name"},
		"spec.commit": {"singleResourceMessageTemplate", "enforceTemplate", "authorName", "authorEmail", "signerName", "signerEmail",
			"signingMethod", "signerIsAuthor", "smimeCertificate"},
		"spec.webhook": {"baseUrl", "disabled"},
	},
	"Connection": {
		"secure": {"privateKey", "clientSecret", "token"},
		"spec": {"title", "description", "type", "url", "github", "githubEnterprise", "githubEnterpriseOAuth", "oauth", "bitbucket",
			"webhook"},
		"spec.github":                {"appID", "installationID"},
		"spec.githubEnterprise":      {"appID", "installationID", "serverUrl"},
		"spec.githubEnterpriseOAuth": {"serverUrl"},
		"spec.oauth":                 {"clientID"},
		"spec.bitbucket":             {"workspace"},
		"spec.webhook":               {"disabled"},
	},
}

// Warnings returns what is valid in obj but will not have the effect that it suggests.
func Warnings(obj *unstructured.Unstructured) []string {
	known, ours := knownMembers[obj.GetKind()]
	if !ours || obj.GroupVersionKind().Group != api.ProvisioningGroup {
		return nil
	}
	var out []string
	var errs field.ErrorList // Check reports wrong types
	root := rootNode(obj, &errs)
	spec := root.object("spec")
	out = appendUnknown(out, root.object("secure"), known["secure"])
	out = appendUnknown(out, spec, known["spec"])
	for _, name := range spec.names() {
		if names, ok := known["spec."+name]; ok {
			out = appendUnknown(out, spec.object(name), names)
		}
	}
	if !isRepository(obj) {
		return out
	}
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
	if method, _, _ := unstructured.NestedString(obj.Object, "spec", "commit", "signingMethod"); method != "" {
		if _, err := signature.ParseMethod(method); err != nil {
			out = append(out, fmt.Sprintf("spec.commit.signingMethod: %v; jobs will commit nothing", err))
		}
	}
	return out
}

// appendUnknown adds a warning for each unknown member. The members are kept: a newer server may know them.
func appendUnknown(out []string, n node, known []string) []string {
	for _, name := range n.names() {
		if !slices.Contains(known, name) && !(n.path.String() == "secure" && slices.Contains(auth.Keys(), name)) {
			out = append(out, fmt.Sprintf("%s: unknown; known here are %s", n.child(name), strings.Join(known, ", ")))
		}
	}
	return out
}
