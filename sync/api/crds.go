package api

import (
	"bytes"
	_ "embed" // the schemas
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// CRDs returns CustomResourceDefinitions for the kinds of Kinds that have CRD set, as one YAML text
// of several documents, the same bytes each time. The schemas of Grafana's are open: its types move
// every month, and unknown fields survive.
func CRDs() []byte {
	var out bytes.Buffer
	for _, k := range Kinds {
		if !k.CRD {
			continue
		}
		doc, err := yaml.Marshal(definition(k))
		if err != nil {
			panic(fmt.Sprintf("api: internal error: CRD of %s: %v", k.Kind, err))
		}
		out.WriteString("---\n")
		out.Write(doc)
	}
	return out.Bytes()
}

func definition(k Kind) map[string]any {
	versions := make([]any, 0, len(k.Versions))
	for n, v := range k.Versions {
		versions = append(versions, version(k, v, n == 0))
	}
	names := map[string]any{"kind": k.Kind, "listKind": k.Kind + "List", "plural": k.Plural, "singular": k.Singular}
	if len(k.Short) > 0 {
		names["shortNames"] = k.Short
	}
	if len(k.Categories) > 0 {
		names["categories"] = k.Categories
	}
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": k.Plural + "." + k.Group},
		"spec": map[string]any{
			"group": k.Group, "names": names, "scope": "Namespaced", "versions": versions,
			"conversion": map[string]any{"strategy": "None"},
		},
	}
}

//go:embed schemas.yaml
var schemasFile []byte

// schemas are those of the file, by the names of kinds.
var schemas = sync.OnceValue(func() (out map[string]map[string]any) {
	if err := yaml.Unmarshal(schemasFile, &out); err != nil {
		panic(fmt.Sprintf("api: internal error: schemas: %v", err))
	}
	return out
})

// Schema returns what an object of the kind may hold: an OpenAPI v3 schema with descriptions. It is
// shared by all callers, who must not change it.
func (k Kind) Schema() map[string]any {
	if s, ok := schemas()[k.Kind]; ok {
		return s
	}
	return schemas()[""]
}

func version(k Kind, name string, storage bool) map[string]any {
	v := map[string]any{"name": name, "served": true, "storage": storage, "schema": map[string]any{"openAPIV3Schema": k.Schema()}}
	if k.Status {
		v["subresources"] = map[string]any{"status": map[string]any{}}
	}
	var columns []any
	for _, c := range k.Columns {
		if c.Path != "" { // the name begins every table
			columns = append(columns, map[string]any{"name": c.Name, "type": c.Type, "jsonPath": c.Path})
		}
	}
	if len(columns) > 0 {
		v["additionalPrinterColumns"] = columns
	}
	return v
}

// Value returns what stands in the column of an object; nil when it is not there.
func (c Column) Value(object map[string]any) any {
	if c.Path == "" {
		return valueAt(object, ".metadata.name")
	}
	return valueAt(object, c.Path)
}

// Text returns the Value as text; "" when it is not there.
func (c Column) Text(object map[string]any) string {
	value := c.Value(object)
	if value == nil {
		return ""
	}
	return strings.TrimSpace(fmt.Sprint(value))
}

// valueAt reads the subset of JSONPath that columns are written in: members and one filter for list
// elements, as in
//
//	.status.conditions[?(@.type=="Ready")].status
//
// It answers nil for what is not there.
func valueAt(value any, path string) any {
	for path != "" && value != nil {
		switch {
		case strings.HasPrefix(path, "[?(@."):
			filter, rest, _ := strings.Cut(path[len("[?(@."):], ")]")
			name, wanted, _ := strings.Cut(filter, "==")
			value, path = elementWhere(value, name, strings.Trim(wanted, `"`)), rest
		default:
			path = strings.TrimPrefix(path, ".")
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			object, ok := value.(map[string]any)
			if !ok {
				return nil
			}
			value, path = object[path[:end]], path[end:]
		}
	}
	return value
}

// elementWhere is the first element of a list with a member of a value.
func elementWhere(list any, name, wanted string) any {
	elements, ok := list.([]any)
	if !ok {
		return nil
	}
	for _, e := range elements {
		if object, ok := e.(map[string]any); ok && object[name] == wanted {
			return e
		}
	}
	return nil
}

// Group names that limpet reads or writes.
const (
	ProvisioningGroup = "provisioning.grafana.app"
	DashboardGroup    = "dashboard.grafana.app"
	FolderGroup       = "folder.grafana.app"
	fluxSourceGroup   = "source.toolkit.fluxcd.io"
	CoordinationGroup = "coordination.k8s.io"
)

// Resources that limpet addresses by a fixed version. Dashboards and folders
// are addressed by the version that the server prefers.
var (
	Repositories = schema.GroupVersionResource{Group: ProvisioningGroup, Version: "v0alpha1", Resource: "repositories"}
	Jobs         = schema.GroupVersionResource{Group: ProvisioningGroup, Version: "v0alpha1", Resource: "jobs"}
	HistoricJobs = schema.GroupVersionResource{Group: ProvisioningGroup, Version: "v0alpha1", Resource: "historicjobs"}
	Secrets      = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	// ServiceAccounts name Secrets of container registries.
	ServiceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	// GitRepositories are the sources of Flux.
	GitRepositories   = schema.GroupVersionResource{Group: fluxSourceGroup, Version: "v1", Resource: "gitrepositories"}
	OCIRepositories   = schema.GroupVersionResource{Group: fluxSourceGroup, Version: "v1", Resource: "ocirepositories"}
	Buckets           = schema.GroupVersionResource{Group: fluxSourceGroup, Version: "v1", Resource: "buckets"}
	HelmRepositories  = schema.GroupVersionResource{Group: fluxSourceGroup, Version: "v1", Resource: "helmrepositories"}
	HelmCharts        = schema.GroupVersionResource{Group: fluxSourceGroup, Version: "v1", Resource: "helmcharts"}
	ExternalArtifacts = schema.GroupVersionResource{Group: fluxSourceGroup, Version: "v1", Resource: "externalartifacts"}
)

// Column is one printer column of a Table answer and of a CRD.
type Column struct {
	Name string
	Type string // OpenAPI type: string, date
	Path string // JSONPath below the object, beginning with a dot; "" = metadata.name
}

// Kind is all that the embedded API, the CRDs and the commands have to know of
// one resource type. The table Kinds is the one place where it is written.
type Kind struct {
	Group    string
	Versions []string // served; the first is the preferred and the stored one
	Kind     string
	Plural   string
	Singular string
	Short    []string
	// Noun is the word for it in the commands of limpet, "" where those of any kind are all.
	Noun string
	// Categories are names under which kubectl lists it with others.
	Categories []string
	// Status means that spec and status are written apart, status only through the status subresource.
	// Jobs and historic jobs have none: Grafana stores them whole, and so do the CRDs of limpet.
	Status bool
	// Generation means that metadata.generation counts changes of the spec. It stays 1 for kinds that
	// are stored whole.
	Generation bool
	Columns    []Column
	// VersionedSpec means that the versions differ in their spec, so that an object stays in the
	// version it was written in.
	VersionedSpec bool
	// CRD means that "limpet crds" prints a definition for this kind.
	CRD bool
}

// Resource returns the kind in its preferred version, as an API addresses it.
func (k Kind) Resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.Group, Version: k.Versions[0], Resource: k.Plural}
}

// APIVersion returns the apiVersion of objects of the kind.
func (k Kind) APIVersion() string { return k.Resource().GroupVersion().String() }

// SourceKinds are the kinds of sources of Flux that limpet reconciles, in the order of discovery.
func SourceKinds() []Kind {
	return slices.DeleteFunc(slices.Clone(Kinds), func(k Kind) bool { return k.Group != fluxSourceGroup })
}

// SourceKind returns the kind of sources of a name: its own, its plural, singular or short one.
func SourceKind(name string) (Kind, bool) {
	all := SourceKinds()
	i := slices.IndexFunc(all, func(k Kind) bool {
		return k.Kind == name || k.Plural == name || k.Singular == name || slices.Contains(k.Short, name)
	})
	if i < 0 {
		return Kind{}, false
	}
	return all[i], true
}

// Provisioned reports whether repositories may hold objects of the kind.
func (k Kind) Provisioned() bool {
	return strings.HasSuffix(k.Group, ".grafana.app") && k.Group != ProvisioningGroup
}

func text(name, path string) Column { return Column{Name: name, Type: "string", Path: path} }

var (
	colName    = text("Name", "")
	colCreated = text("Created At", ".metadata.creationTimestamp")
	colAge     = Column{Name: "Age", Type: "date", Path: ".metadata.creationTimestamp"}
	// jobColumns are those of Jobs and HistoricJobs.
	jobColumns = []Column{colName, colCreated, text("Action", ".spec.action"), text("State", ".status.state"),
		text("Message", ".status.message")}

	// titleColumns are those of kinds that repositories may hold.
	titleColumns = []Column{colName, text("Title", ".spec.title"), colAge}

	provisioningVersions = []string{"v0alpha1", "v1beta1"}
	dashboardVersions    = []string{"v1", "v1beta1", "v2", "v2beta1", "v2alpha1", "v0alpha1"}
)

// Kinds lists the resource types in the order of discovery. The printer
// columns of the provisioning group are those of Grafana's own server.
var Kinds = []Kind{
	{Group: ProvisioningGroup, Versions: provisioningVersions, Kind: "Repository", Plural: "repositories", Singular: "repository", Noun: "repo",
		Status: true, Generation: true, CRD: true, Columns: []Column{colName, colCreated,
			text("Title", ".spec.title"), text("Type", ".spec.type"), text("Target", ".spec.sync.target")}},
	{Group: ProvisioningGroup, Versions: provisioningVersions, Kind: "Job", Plural: "jobs", Singular: "job", Noun: "job", CRD: true,
		Columns: jobColumns},
	{Group: ProvisioningGroup, Versions: provisioningVersions, Kind: "HistoricJob", Plural: "historicjobs", Singular: "historicjob",
		CRD: true, Columns: jobColumns},
	{Group: ProvisioningGroup, Versions: provisioningVersions, Kind: "Connection", Plural: "connections", Singular: "connection", Noun: "connection",
		Status: true, Generation: true, CRD: true, Columns: []Column{colName, colCreated, text("Type", ".spec.type"),
			text("AppID", ".spec.github.appID"), text("InstallationID", ".spec.github.installationID")}},
	{Group: DashboardGroup, Versions: dashboardVersions, Kind: "Dashboard", Plural: "dashboards", Singular: "dashboard",
		Generation: true, CRD: true, VersionedSpec: true, Columns: titleColumns},
	{Group: FolderGroup, Versions: []string{"v1", "v1beta1"}, Kind: "Folder", Plural: "folders", Singular: "folder",
		Generation: true, CRD: true, Columns: titleColumns},
	{Group: DashboardGroup, Versions: []string{"v0alpha1"}, Kind: "LibraryPanel", Plural: "librarypanels", Singular: "librarypanel",
		Generation: true, CRD: true, Columns: titleColumns},
	{Group: "playlist.grafana.app", Versions: []string{"v1", "v0alpha1"}, Kind: "Playlist", Plural: "playlists", Singular: "playlist",
		Generation: true, CRD: true, Columns: titleColumns},
	{Group: "rules.alerting.grafana.app", Versions: []string{"v0alpha1"}, Kind: "AlertRule", Plural: "alertrules", Singular: "alertrule",
		Generation: true, CRD: true, Columns: titleColumns},
	{Group: fluxSourceGroup, Versions: []string{"v1"}, Kind: "GitRepository", Plural: "gitrepositories", Singular: "gitrepository",
		Short: []string{"gitrepo"}, Noun: "source", Categories: []string{"all", "fluxcd", "fluxcd-sources"}, Status: true, Generation: true, CRD: true,
		Columns: []Column{colName, text("URL", ".spec.url"), colAge,
			text("Ready", `.status.conditions[?(@.type=="Ready")].status`), text("Status", `.status.conditions[?(@.type=="Ready")].message`)}},
	{Group: fluxSourceGroup, Versions: []string{"v1"}, Kind: "OCIRepository", Plural: "ocirepositories", Singular: "ocirepository",
		Short: []string{"ocirepo"}, Noun: "source", Categories: []string{"all", "fluxcd", "fluxcd-sources"}, Status: true, Generation: true, CRD: true,
		Columns: []Column{colName, text("URL", ".spec.url"), text("Ready", `.status.conditions[?(@.type=="Ready")].status`),
			text("Status", `.status.conditions[?(@.type=="Ready")].message`), colAge}},
	{Group: fluxSourceGroup, Versions: []string{"v1"}, Kind: "Bucket", Plural: "buckets", Singular: "bucket",
		Noun: "source", Categories: []string{"all", "fluxcd", "fluxcd-sources"}, Status: true, Generation: true, CRD: true,
		Columns: []Column{colName, text("Endpoint", ".spec.endpoint"), colAge,
			text("Ready", `.status.conditions[?(@.type=="Ready")].status`), text("Status", `.status.conditions[?(@.type=="Ready")].message`)}},
	{Group: fluxSourceGroup, Versions: []string{"v1"}, Kind: "HelmRepository", Plural: "helmrepositories", Singular: "helmrepository",
		Short: []string{"helmrepo"}, Noun: "source", Categories: []string{"all", "fluxcd", "fluxcd-sources"}, Status: true, Generation: true, CRD: true,
		Columns: []Column{colName, text("URL", ".spec.url"), colAge, text("Ready", `.status.conditions[?(@.type=="Ready")].status`),
			text("Status", `.status.conditions[?(@.type=="Ready")].message`)}},
	{Group: fluxSourceGroup, Versions: []string{"v1"}, Kind: "HelmChart", Plural: "helmcharts", Singular: "helmchart",
		Short: []string{"hc"}, Noun: "source", Categories: []string{"all", "fluxcd", "fluxcd-sources"}, Status: true, Generation: true, CRD: true,
		Columns: []Column{colName, text("Chart", ".spec.chart"), text("Version", ".spec.version"), text("Source Kind", ".spec.sourceRef.kind"),
			text("Source Name", ".spec.sourceRef.name"), colAge, text("Ready", `.status.conditions[?(@.type=="Ready")].status`),
			text("Status", `.status.conditions[?(@.type=="Ready")].message`)}},
	{Group: fluxSourceGroup, Versions: []string{"v1"}, Kind: "ExternalArtifact", Plural: "externalartifacts", Singular: "externalartifact",
		Short: []string{"ea"}, Noun: "source", Categories: []string{"all", "fluxcd", "fluxcd-sources"}, Status: true, Generation: true, CRD: true,
		Columns: []Column{colName, text("Source", ".spec.sourceRef.name"), colAge, text("Ready", `.status.conditions[?(@.type=="Ready")].status`),
			text("Status", `.status.conditions[?(@.type=="Ready")].message`)}},
	{Versions: []string{"v1"}, Kind: "Secret", Plural: "secrets", Singular: "secret", Columns: []Column{colName, text("Type", ".type"),
		colAge}},
	{Versions: []string{"v1"}, Kind: "Event", Plural: "events", Singular: "event", Short: []string{"ev"},
		Columns: []Column{colName, text("Type", ".type"), text("Reason", ".reason"), text("Message", ".message"), colAge}},
	{Group: CoordinationGroup, Versions: []string{"v1"}, Kind: "Lease", Plural: "leases", Singular: "lease",
		Columns: []Column{colName, text("Holder", ".spec.holderIdentity"), colAge}},
}
