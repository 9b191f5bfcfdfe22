package resources

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/api/repopath"
)

// File is one file of a repository on its way to a resource.
type File struct {
	Repository string // name of the Repository
	Namespace  string // of the Repository; a file may not name another one
	Path       string // relative to spec.path
	Kinds      Kinds
	// Known is the name that the server has for the object of this path, or "".
	// It gives a file with generateName the same name again.
	Known string
	// Directory has it judged as Grafana's file provisioning reads it, which loads old dashboards too.
	Directory bool
}

// ParseError reports why a file is no resource. It is a warning: the file is left out and the rest
// goes on.
type ParseError struct {
	Path string
	Err  error
}

func (e *ParseError) Error() string {
	return state.UnreadFile{Path: e.Path, Reason: e.Err.Error()}.String()
}

// Unwrap returns the cause.
func (e *ParseError) Unwrap() error { return e.Err }

// Object is a resource as its file describes it. What the sync adds is in Stamp.
type Object struct {
	GVK  schema.GroupVersionKind // an empty version means the server's preferred one
	Name string

	meta   map[string]any  // metadata of the file
	spec   json.RawMessage // nil when the file has none, and for a directory, which gets the file
	title  string          // in the spec; "" = none
	fields []field         // further members of the object, in order
	strict bool            // see members
	end    state.Tail      // from the spec on, if it is known in its stored form
	packed json.RawMessage // metadata between Detach and Attach
}

// Identity says which object of a server a file is about.
type Identity struct{ Group, Kind, Name string }

func (id Identity) String() string { return id.Kind + " " + id.Name }

// Identity returns the identity of the object.
func (o *Object) Identity() Identity {
	return Identity{Group: o.GVK.Group, Kind: o.GVK.Kind, Name: o.Name}
}

func (o *Object) isDashboard() bool {
	return o.GVK.Group == api.DashboardGroup && o.GVK.Kind == dashboardKind
}

// Title returns the title in the spec, "" when there is none.
func (o *Object) Title() string { return o.title }

const dashboardKind, folderKind = "Dashboard", "Folder"

// ClassicVersion is the API version of a dashboard whose file has none. Source:
// Grafana; it is the version without a schema.
const ClassicVersion = "v0alpha1"

// Parse reads the resource in data: an object with apiVersion, kind and metadata in JSON or YAML,
// or a classic dashboard. Errors are a *ParseError, around a *TooLargeError where a limit was the
// reason, and around Faults where there are more than one.
func Parse(f File, data []byte) (*Object, error) {
	o, err := parse(f, data)
	if err != nil {
		return nil, &ParseError{Path: f.Path, Err: err}
	}
	return o, nil
}

// Judge is Parse, and returns an error as well for a dashboard that Grafana refuses. Where the
// object can be told in spite of its faults, it comes with the error.
func Judge(f File, data []byte) (*Object, error) {
	o, err := parse(f, data)
	if o != nil && o.isDashboard() {
		err = faultsOf(err, o.checkLength(), o.checkTitle())
	}
	if err != nil {
		err = &ParseError{Path: f.Path, Err: err}
	}
	return o, err
}

// fault is a fault that has a code of its own.
type fault struct{ code, text string }

func (f *fault) Error() string { return f.text }

// FaultCode returns the code of one of Faults, "" for one that Reason names as well as can be.
func FaultCode(err error) string {
	if f, is := errors.AsType[*fault](err); is {
		return f.code
	}
	return ""
}

// Faults are all that is wrong with one file.
type Faults []error

func (f Faults) Error() string {
	texts := make([]string, len(f))
	for i, err := range f {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the faults.
func (f Faults) Unwrap() []error { return f }

// faultsOf returns one error for several, each of which may be nil or Faults.
func faultsOf(errs ...error) error {
	var all Faults
	for _, err := range errs {
		if some, are := err.(Faults); are {
			all = append(all, some...)
		} else if err != nil {
			all = append(all, err)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return all
}

// checkLength and checkTitle return what Grafana refuses, whatever a dashboard came from.
func (o *Object) checkLength() error {
	if len(o.Name) > MaxUID {
		return &fault{"uid_length", fmt.Sprintf("the uid has %d characters, Grafana takes at most %d", len(o.Name), MaxUID)}
	}
	return nil
}

func (o *Object) checkTitle() error {
	if strings.TrimSpace(o.Title()) == "" {
		return &fault{"title", "the dashboard has no title, which Grafana refuses"}
	}
	return nil
}

func parse(f File, data []byte) (*Object, error) {
	doc, all, strict, err := f.members(data)
	if err != nil {
		return nil, err
	}
	apiVersion, kind := value(all, "apiVersion"), value(all, "kind")
	if apiVersion == nil && kind == nil {
		return parseClassic(f, doc, all, strict)
	}
	o := &Object{strict: strict}
	var version string
	if json.Unmarshal(apiVersion, &version) != nil || version == "" {
		return nil, errors.New("apiVersion is missing or not text, so the file is neither a resource nor a dashboard")
	}
	if json.Unmarshal(kind, &o.GVK.Kind) != nil || o.GVK.Kind == "" {
		return nil, errors.New("kind is missing or not text")
	}
	// A group without a version asks for the one that the server prefers.
	var more bool
	if o.GVK.Group, o.GVK.Version, more = strings.Cut(version, "/"); !more && !strings.Contains(version, ".") {
		o.GVK.Group, o.GVK.Version = "", version
	}
	if strings.Contains(o.GVK.Version, "/") {
		return nil, fmt.Errorf("apiVersion %q is not of the form group/version", version)
	}
	if err := f.Kinds.Of(o.GVK.Group, o.GVK.Kind).Check(); err != nil {
		return nil, err
	}
	faults := o.readMetadata(f, value(all, "metadata"))
	for _, m := range all {
		switch m.name {
		case "apiVersion", "kind", "metadata", "status":
		case "spec":
			if f.Directory {
				inner, _ := fieldsOf(m.value)
				o.title = textOf(inner, "title")
				continue
			}
			inner, _, _ := split(m.value) // it is no deeper than the object
			o.title = textOf(inner, "title")
			if o.spec = m.value; m.value[0] == '{' && o.isDashboard() {
				o.spec = cleanSpec(m.value, inner)
			}
		default:
			o.fields = append(o.fields, m)
		}
	}
	return o, faults
}

// parseClassic reads a dashboard as Grafana's "JSON model" has it.
func parseClassic(f File, doc []byte, all []field, strict bool) (*Object, error) {
	has := func(name string) bool { v := value(all, name); return v != nil && string(v) != "null" }
	var faults Faults
	switch inner := value(all, "dashboard"); {
	case !has("panels") && len(inner) > 0 && inner[0] == '{':
		return nil, errors.New(`the file holds an answer of Grafana's HTTP API; keep only the value of "dashboard"`)
	case !has("panels") && !has("rows"):
		return nil, &fault{"no_dashboard", "the file is neither a resource (no apiVersion and kind) nor a dashboard (no panels)"}
	case f.Directory:
	case !has("panels"):
		faults = append(faults, &fault{"old_format", "the file is a dashboard of an old format (rows instead of panels); " + resave})
	default:
		if !has("schemaVersion") {
			faults = append(faults, &fault{"old_format", "the file is a dashboard with no schemaVersion; " + resave})
		}
		if !has("tags") {
			faults = append(faults, &fault{"tags", `the file is a dashboard with no tags; add "tags": []`})
		}
	}
	o := &Object{GVK: schema.GroupVersionKind{Group: api.DashboardGroup, Version: ClassicVersion, Kind: dashboardKind}, strict: strict}
	if uid := value(all, "uid"); uid != nil && json.Unmarshal(uid, &o.Name) != nil {
		faults = append(faults, errors.New("uid is not text"))
	}
	o.Name = cmp.Or(o.Name, FileID(f.Repository, f.Path))
	if o.title = textOf(all, "title"); !f.Directory {
		o.spec = cleanSpec(doc, all)
	}
	return o, faultsOf(f.Kinds.Of(api.DashboardGroup, dashboardKind).Check(), faults, checkName("uid", o.Name))
}

const resave = "open and save it once in a newer Grafana"

func (o *Object) readMetadata(f File, data json.RawMessage) error {
	if data == nil {
		return errMissingName
	}
	if err := json.Unmarshal(data, &o.meta); err != nil {
		return errors.New("metadata is not an object")
	}
	texts := map[string]string{}
	for _, key := range []string{"namespace", "generateName", "name"} {
		s, ok := o.meta[key].(string)
		if !ok && o.meta[key] != nil {
			return fmt.Errorf("metadata.%s is not text", key)
		}
		texts[key] = s
	}
	var faults Faults
	if namespace := texts["namespace"]; namespace != "" && namespace != f.Namespace {
		faults = append(faults, fmt.Errorf("metadata.namespace is %q, the repository is in %q", namespace, f.Namespace))
	}
	var generate string
	if o.Name, generate = texts["name"], texts["generateName"]; o.Name == "" && generate != "" {
		if o.Name = f.Known; o.Name == "" || !strings.HasPrefix(o.Name, generate) {
			id := FileID(f.Repository, f.Path)
			o.Name = generate + strings.Trim(id[max(0, len(id)-minHash):], "-.")
		}
	}
	for _, key := range []string{"annotations", "labels"} {
		faults = append(faults, stringMap(o.meta, key))
	}
	named := checkName("metadata.name", o.Name)
	if o.Name == "" {
		named = errMissingName
	}
	return faultsOf(append(faults, named)...)
}

// errMissingName begins with the words of Grafana, which its users search for.
var errMissingName = errors.New("missing name in resource: metadata.name is missing")

// stringMap checks that meta[key] is absent or a map of text to text.
func stringMap(meta map[string]any, key string) error {
	if meta[key] == nil {
		delete(meta, key)
		return nil
	}
	values, ok := meta[key].(map[string]any)
	if !ok {
		return fmt.Errorf("metadata.%s is not an object", key)
	}
	for name, v := range values {
		if _, ok := v.(string); !ok {
			return fmt.Errorf("metadata.%s[%s] is not text", key, name)
		}
	}
	return nil
}

// checkName refuses names that could not be a segment of a URL. What else a server wants of a name
// it says itself.
func checkName(member, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s is missing", member)
	case len(name) > 253:
		return fmt.Errorf("%s is longer than 253 bytes", member)
	case name == "." || name == "..":
		return fmt.Errorf("%s %q is not a name", member, name)
	}
	for _, r := range name {
		if r >= 0x80 || r == ' ' || r == '/' || !repopath.AllowedByte(byte(r)) {
			return fmt.Errorf("%s %q has %q, which is not one of letters, digits, '-', '_', '.'", member, name, r)
		}
	}
	return nil
}

// Kind is one kind of resource that the files of repositories may hold.
type Kind struct {
	Group, Kind string
	// Resource is its plural name in the API, and Version the one that the API prefers; both by
	// discovery.
	Resource, Version string
	Folder            bool   // its objects are in folders
	SkipValidation    bool   // unknown fields of its objects are no error
	Refused           string // why its files are left out; "" = they are not
}

// Kinds are those of a setting. Of those that are not refused, an API serves Resource.
type Kinds []Kind

// DefaultKinds is the setting of an agent without another. Source: Grafana's [provisioning]
// resources.
const DefaultKinds = "folder.grafana.app/Folder:folder,dashboard.grafana.app/Dashboard:folder," +
	"dashboard.grafana.app/LibraryPanel:folder:disabled,playlist.grafana.app/Playlist:disabled"

// ParseKinds reads a list of GROUP/KIND, each with :folder, :skipvalidation or :disabled behind it.
// Folders are always among the kinds: a directory has one. No list is DefaultKinds.
func ParseKinds(list []string) (Kinds, error) {
	if len(list) == 0 {
		list = strings.Split(DefaultKinds, ",")
	}
	folder := Kind{Group: api.FolderGroup, Kind: folderKind, Resource: FolderResource, Folder: true}
	out := Kinds{folder}
	for _, entry := range list {
		parts := strings.Split(strings.TrimSpace(entry), ":")
		if parts[0] == "" && len(parts) == 1 {
			continue
		}
		slash := strings.LastIndexByte(parts[0], '/')
		k := Kind{Group: parts[0][:max(slash, 0)], Kind: parts[0][slash+1:]}
		if !strings.Contains(k.Group, ".") || strings.ContainsAny(k.Group, "/ ") || k.Kind == "" {
			return nil, fmt.Errorf("%q is not of the form GROUP/KIND, such as playlist.grafana.app/Playlist", entry)
		}
		for i, word := range parts[1:] {
			if slices.Contains(parts[1:1+i], word) {
				return nil, fmt.Errorf("%q has :%s twice", entry, word)
			}
			switch word {
			case "folder":
				k.Folder = true
			case "skipvalidation":
				k.SkipValidation = true
			case "disabled":
				k.Refused = "disabled by --resources"
			default:
				return nil, fmt.Errorf("%q has :%s; known are :folder, :skipvalidation and :disabled", entry, word)
			}
		}
		at := out.index(k.Group, k.Kind)
		switch {
		case at == 0 && k.Refused != "":
			return nil, fmt.Errorf("%q: folders cannot be disabled, because each directory has one", entry)
		case at == 0 && out[0] == folder:
			k.Folder, k.Resource, out[0] = true, FolderResource, k
		case at >= 0:
			return nil, fmt.Errorf("%s/%s is there twice", k.Group, k.Kind)
		default:
			out = append(out, k)
		}
	}
	return out, nil
}

func (ks Kinds) index(group, kind string) int {
	return slices.IndexFunc(ks, func(k Kind) bool { return k.Group == group && k.Kind == kind })
}

// Of returns a kind. One that is not among them is refused.
func (ks Kinds) Of(group, kind string) Kind {
	if i := ks.index(group, kind); i >= 0 {
		return ks[i]
	}
	return Kind{Group: group, Kind: kind, Refused: "not in --resources"}
}

// Named returns the kind whose plural name in the API is resource. One that is not among them is
// refused.
func (ks Kinds) Named(group, resource string) Kind {
	i := slices.IndexFunc(ks, func(k Kind) bool { return k.Group == group && k.Resource == resource && k.Refused == "" })
	if i < 0 {
		return Kind{Refused: "not in --resources"}
	}
	return ks[i]
}

// Check returns why the files of a kind are left out.
func (k Kind) Check() error {
	switch {
	case k.Group == api.FolderGroup:
		return fmt.Errorf("a folder is a directory; give it a name and a title with a %s inside", repopath.FolderFile)
	case k.Refused != "":
		of := k.Kind
		if k.Group != "" {
			of += " of group " + k.Group
		}
		return fmt.Errorf("kind %s is %s; try: limpet help kinds", of, k.Refused)
	}
	return nil
}
