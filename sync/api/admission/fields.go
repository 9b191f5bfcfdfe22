package admission

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/text"
)

var (
	metadataMembers = []string{"name", "namespace", "labels", "annotations", "generateName", "finalizers", "ownerReferences", "uid",
		"resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink"}
	exportedMembers = []string{"message", "folder", "branch", "path", "resources"}
	resourceMembers = []string{"name", "kind", "group"}
	selectedMembers = []string{"ref", "paths", "resources", "targetPath"}
	nameMember      = []string{"name"}
)

// knownMembers are the members of each kind that limpet, Grafana or Flux reads, by the path of their object; "" is the
// top level. Those of spec are the ones of Grafana's and Flux's types. An object without an entry is open.
var knownMembers = map[schema.GroupKind]map[string][]string{
	{Kind: "Secret"}: {"": {"data", "stringData", "type", "immutable"}},
	{Group: api.ProvisioningGroup, Kind: "Repository"}: {
		"": {"spec", "secure", "status"},
		// and all of auth.Keys, which are too many to list
		"secure": {"token", "webhookSecret", "commitSigningKey", "commitSigningPassphrase", "verify"},
		"spec": append([]string{"title", "description", "type", "workflows", "sync", "connection", "webhook", "branch", "commit",
			"pullRequest"}, repositoryTypes...),
		"spec.sync":              {"enabled", "target", "intervalSeconds"},
		"spec.local":             {"path"},
		"spec.github":            {"url", "branch", "path", "generateDashboardPreviews", "repoID"},
		"spec.githubEnterprise":  {"serverUrl", "url", "branch", "path", "generateDashboardPreviews", "repoID"},
		"spec.git":               {"url", "branch", "tokenUser", "path", "requestLimits"},
		"spec.git.requestLimits": {"maxConcurrent", "requestsPerSecond", "burst"},
		"spec.bitbucket":         {"url", "branch", "tokenUser", "email", "path"},
		"spec.gitlab":            {"url", "branch", "path"},
		"spec.connection":        nameMember,
		"spec.commit": {"singleResourceMessageTemplate", "enforceTemplate", "authorName", "authorEmail", "signerName", "signerEmail",
			"signingMethod", "signerIsAuthor", "smimeCertificate"},
		"spec.webhook": {"baseUrl", "disabled"},
	},
	{Group: api.ProvisioningGroup, Kind: "Connection"}: {
		"":       {"spec", "secure", "status"},
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
	{Group: api.ProvisioningGroup, Kind: "Job"}: {
		"":                       {"spec", "status"},
		"spec":                   append([]string{"action", "repository", "message"}, JobActions...),
		"spec.pull":              {"incremental"},
		"spec.push":              exportedMembers,
		"spec.push.resources":    resourceMembers,
		"spec.migrate":           append([]string{"history", "generateNewFolderIDs", "skipResourceDeletion"}, exportedMembers...),
		"spec.delete":            selectedMembers,
		"spec.delete.resources":  resourceMembers,
		"spec.move":              selectedMembers,
		"spec.move.resources":    resourceMembers,
		"spec.fixFolderMetadata": {"ref"},
		"spec.pr":                {"ref", "pr", "hash", "url"},
		"spec.test":              {"duration", "progressUpdates"},
	},
	{Group: api.GitRepositories.Group, Kind: "GitRepository"}: {
		"": {"spec", "status"},
		"spec": {"url", "interval", "ref", "secretRef", "timeout", "suspend", "provider", "serviceAccountName", "verify", "proxySecretRef",
			"ignore", "recurseSubmodules", "include", "sparseCheckout"},
		"spec.ref":                {"branch", "tag", "semver", "name", "commit"},
		"spec.secretRef":          nameMember,
		"spec.proxySecretRef":     nameMember,
		"spec.verify":             {"mode", "secretRef"},
		"spec.verify.secretRef":   nameMember,
		"spec.include":            {"repository", "fromPath", "toPath"},
		"spec.include.repository": nameMember,
	},
}

// UnknownField is a member of an object that has no effect.
type UnknownField struct {
	Path  []string // names of members, indexes of lists
	known []string // its siblings
}

func (f UnknownField) Field() string { return strings.Join(f.Path, ".") }

// Detail names the field that was meant.
func (f UnknownField) Detail() string {
	near := append(slices.Clip(f.known), auth.Keys()...)
	if f.Path[0] != "secure" {
		near = f.known
	}
	if near := text.Nearest(f.Path[len(f.Path)-1], near); near != "" {
		return fmt.Sprintf("unknown field (did you mean %q?)", near)
	}
	return "unknown field; known here are " + strings.Join(f.known, ", ")
}

func (f UnknownField) String() string { return f.Field() + ": " + f.Detail() }

// UnknownFields returns the members of obj that have no effect, in the order of their names.
func UnknownFields(obj *unstructured.Unstructured) (out []UnknownField) {
	known, ours := knownMembers[obj.GroupVersionKind().GroupKind()]
	if !ours {
		return nil
	}
	var walk func(value any, at string, path []string)
	walk = func(value any, at string, path []string) {
		if list, ok := value.([]any); ok {
			for i := range list {
				walk(list[i], at, append(slices.Clip(path), strconv.Itoa(i)))
			}
		}
		names, closed := known[at]
		switch at {
		case "":
			names = append([]string{"apiVersion", "kind", "metadata"}, names...)
		case "metadata":
			names, closed = metadataMembers, true
		}
		members, ok := value.(map[string]any)
		if !ok || !closed {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(members)) {
			below := append(slices.Clip(path), name)
			if slices.Contains(names, name) || at == "secure" && slices.Contains(auth.Keys(), name) {
				walk(members[name], strings.TrimPrefix(at+"."+name, "."), below)
			} else {
				out = append(out, UnknownField{below, names})
			}
		}
	}
	walk(obj.Object, "", nil)
	return out
}
