package admission

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

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

// knownMembers are the members of each kind that limpet, Grafana or Flux reads, by the path of
// their object; "" is the top level. Those of spec are the ones of Grafana's and Flux's types. An
// object without an entry is open.
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
	{Group: api.OCIRepositories.Group, Kind: "OCIRepository"}: {
		"": {"spec", "status"},
		"spec": {"url", "interval", "ref", "layerSelector", "secretRef", "certSecretRef", "proxySecretRef", "timeout", "suspend", "provider",
			"serviceAccountName", "verify", "ignore", "insecure"},
		"spec.ref":                         {"digest", "semver", "semverFilter", "tag"},
		"spec.layerSelector":               {"mediaType", "operation"},
		"spec.secretRef":                   nameMember,
		"spec.certSecretRef":               nameMember,
		"spec.proxySecretRef":              nameMember,
		"spec.verify":                      {"provider", "secretRef", "matchOIDCIdentity", "trustedRootSecretRef"},
		"spec.verify.secretRef":            nameMember,
		"spec.verify.trustedRootSecretRef": nameMember,
		"spec.verify.matchOIDCIdentity":    {"issuer", "subject"},
	},
	{Group: api.Buckets.Group, Kind: "Bucket"}: {
		"": {"spec", "status"},
		"spec": {"provider", "bucketName", "endpoint", "sts", "insecure", "region", "prefix", "secretRef", "serviceAccountName",
			"certSecretRef", "proxySecretRef", "interval", "timeout", "ignore", "suspend"},
		"spec.secretRef":         nameMember,
		"spec.certSecretRef":     nameMember,
		"spec.proxySecretRef":    nameMember,
		"spec.sts":               {"provider", "endpoint", "secretRef", "certSecretRef"},
		"spec.sts.secretRef":     nameMember,
		"spec.sts.certSecretRef": nameMember,
	},
	{Group: api.HelmRepositories.Group, Kind: "HelmRepository"}: {
		"": {"spec", "status"},
		"spec": {"url", "type", "interval", "secretRef", "certSecretRef", "passCredentials", "timeout", "suspend", "provider", "insecure",
			"accessFrom"},
		"spec.secretRef":     nameMember,
		"spec.certSecretRef": nameMember,
	},
	{Group: api.HelmCharts.Group, Kind: "HelmChart"}: {
		"": {"spec", "status"},
		"spec": {"chart", "version", "sourceRef", "interval", "reconcileStrategy", "valuesFiles", "ignoreMissingValuesFiles", "suspend",
			"verify"},
		"spec.sourceRef":                {"apiVersion", "kind", "name"},
		"spec.verify":                   {"provider", "secretRef", "matchOIDCIdentity"},
		"spec.verify.secretRef":         nameMember,
		"spec.verify.matchOIDCIdentity": {"issuer", "subject"},
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

// node is one JSON object of a request with the path that leads to it. Reading a member of the
// wrong type records an error and returns the zero value, so that the rules need no checks of their
// own.
type node struct {
	path *field.Path // nil for the root
	data map[string]any
	errs *field.ErrorList
}

func rootNode(obj *unstructured.Unstructured, errs *field.ErrorList) node {
	return node{data: obj.Object, errs: errs}
}

func (n node) child(name string) *field.Path {
	switch {
	case name == "":
		return n.path
	case n.path == nil:
		return field.NewPath(name)
	}
	return n.path.Child(name)
}

// has reports whether the member is there and not null.
func (n node) has(name string) bool { return n.data[name] != nil }

// names returns the names of the members, sorted.
func (n node) names() []string {
	return slices.Sorted(maps.Keys(n.data))
}

// read returns a member, the zero value when it is absent or of another type.
func read[T any](n node, name, want string) T {
	value, ok := n.data[name].(T)
	if !ok && n.has(name) {
		n.typed(name, want)
	}
	return value
}

func (n node) object(name string) node {
	return node{path: n.child(name), data: read[map[string]any](n, name, "object"), errs: n.errs}
}

func (n node) text(name string) string { return read[string](n, name, "string") }
func (n node) flag(name string) bool   { return read[bool](n, name, "boolean") }
func (n node) list(name string) []any  { return read[[]any](n, name, "array") }

func (n node) integer(name string) int64 {
	switch v := n.data[name].(type) {
	case int64:
		return v
	case int:
		return int64(v)
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int64(v)
		}
	case nil:
		return 0
	}
	n.typed(name, "integer")
	return 0
}

func (n node) texts(name string) []string {
	var out []string
	for i, item := range n.list(name) {
		s, ok := item.(string)
		if !ok {
			n.add(field.TypeInvalid(n.child(name).Index(i), omitted{}, "must be of type string"))
		}
		out = append(out, s)
	}
	return out
}

func (n node) objects(name string) []node {
	var out []node
	for i, item := range n.list(name) {
		data, ok := item.(map[string]any)
		if !ok {
			n.add(field.TypeInvalid(n.child(name).Index(i), omitted{}, "must be of type object"))
		}
		out = append(out, node{path: n.child(name).Index(i), data: data, errs: n.errs})
	}
	return out
}

// enum requires a member to be one of the known values.
func (n node) enum(name string, known []string) (value string, ok bool) {
	switch value = n.text(name); {
	case value == "":
		n.required(name, "one of "+strings.Join(known, ", "))
	case !slices.Contains(known, value):
		n.add(field.NotSupported(n.child(name), value, known))
	default:
		return value, true
	}
	return value, false
}

// check records why a text may not be used; an absent or empty one may.
func (n node) check(name string, rule func(string) error) { n.checkAs(name, n.data[name], rule) }

// checkHidden is check for a value that may hold a secret, which is not repeated.
func (n node) checkHidden(name string, rule func(string) error) { n.checkAs(name, omitted{}, rule) }

func (n node) checkAs(name string, shown any, rule func(string) error) {
	if value := n.text(name); value != "" {
		if err := rule(value); err != nil {
			n.add(field.Invalid(n.child(name), shown, err.Error()))
		}
	}
}

func (n node) add(err *field.Error) { *n.errs = append(*n.errs, err) }

// typed records a wrong type, once for a member that several rules read.
func (n node) typed(name, want string) {
	err := field.TypeInvalid(n.child(name), omitted{}, "must be of type "+want)
	if !slices.ContainsFunc(*n.errs, func(known *field.Error) bool { return known.Error() == err.Error() }) {
		n.add(err)
	}
}

// required records that a member is absent or empty. One of a wrong type is reported already.
func (n node) required(name, detail string) {
	if _, isText := n.data[name].(string); name == "" || isText || !n.has(name) {
		n.add(field.Required(n.child(name), detail))
	}
}

// invalid records a bad value; name "" means the object itself, whose value is not repeated.
func (n node) invalid(name, detail string) {
	if name == "" {
		n.add(field.Invalid(n.path, omitted{}, detail))
		return
	}
	n.add(field.Invalid(n.child(name), n.data[name], detail))
}

// omitted stands in an error for a value that may hold a secret: the message goes without one.
type omitted = field.OmitValueType
