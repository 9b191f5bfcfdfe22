package resources

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"limpet/state"
	"limpet/sync/api"
)

// Stamp is what the sync adds to an object: whose it is, where it came from and which folder it is
// in. On an update it carries the identity of the object that is replaced, so that a write never
// lands on another one.
type Stamp struct {
	Namespace  string
	Repository string
	Path       string
	Checksum   string // git blob hash of the file
	Folder     string // name of the parent folder, "" at the root
	Replaces   *Live  // nil on a create
}

// Metadata members of a file that only a server may write.
var serverOwned = []string{
	"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
	"deletionGracePeriodSeconds", "managedFields", "selfLink", "generateName", "finalizers", "ownerReferences",
}

// Annotations that the sync alone decides on. A file cannot hand its object to another manager or
// open it to edits.
var syncOwned = []string{
	api.AnnoManagedBy, api.AnnoManagerID, api.AnnoManagerAllowsEdits, annoManagerSuspended,
	api.AnnoSourcePath, api.AnnoSourceChecksum, annoSourceTimestamp, api.AnnoFolder,
}

const (
	annoManagerSuspended = "grafana.app/managerSuspended"
	annoSourceTimestamp  = "grafana.app/sourceTimestamp"
)

// Body returns the object as the server gets it, in the given API version.
func (o *Object) Body(version string, s Stamp) []byte {
	meta := maps.Clone(o.meta)
	if meta == nil {
		meta = map[string]any{}
	}
	for _, key := range serverOwned {
		delete(meta, key)
	}
	annotations := map[string]any{}
	if own, ok := meta["annotations"].(map[string]any); ok {
		maps.Copy(annotations, own)
	}
	for _, key := range syncOwned {
		delete(annotations, key)
	}
	for key, value := range s.annotations() {
		annotations[key] = value
	}
	meta["annotations"] = annotations
	if labels, ok := meta["labels"].(map[string]any); ok {
		// The label is a database number of the Grafana that exported the file.
		labels = maps.Clone(labels)
		delete(labels, api.LabelDeprecatedID)
		meta["labels"] = labels
		if len(labels) == 0 {
			delete(meta, "labels")
		}
	}
	meta["name"], meta["namespace"] = o.Name, s.Namespace
	if old := s.Replaces; old != nil { // finalizers and owners are agreements between others, so they stay
		for key, value := range map[string]string{"uid": old.UID, "resourceVersion": old.ResourceVersion} {
			if value != "" {
				meta[key] = value
			}
		}
		if len(old.Finalizers) > 0 {
			meta["finalizers"] = old.Finalizers
		}
		if len(old.OwnerReferences) > 0 {
			meta["ownerReferences"] = old.OwnerReferences
		}
	}
	return o.body(version, meta)
}

// endsInSpec reports whether the body is an api.StrictBody.
func (o *Object) endsInSpec() bool {
	return o.strict && len(o.fields) == 0 && bytes.HasPrefix(o.spec, []byte{'{'})
}

// specMember is what is before the spec of a body.
const specMember = `,"spec":`

// besideTexts is about what an object holds beside the texts of its file, in bytes.
const besideTexts = 512

// Detach takes the spec and the metadata apart for an object that waits. It returns the end of its
// body, from the spec on, and about how many bytes the object still holds. ok is false for one with
// more behind the spec.
func (o *Object) Detach() (end []byte, held int, ok bool) {
	if !o.endsInSpec() {
		return nil, 0, false
	}
	end = slices.Concat([]byte(specMember), o.spec, []byte{'}'})
	o.packed = marshal(o.meta) // read, a few bytes of it may need many times the memory
	o.spec, o.meta = nil, nil
	return end, len(o.packed) + len(o.title) + len(o.GVK.Version) + besideTexts, true
}

// Attach puts back what Detach has taken apart. stored is the stored form of the end.
func (o *Object) Attach(end []byte, stored state.Tail) {
	_ = json.Unmarshal(o.packed, &o.meta) // it was JSON
	o.packed = nil
	o.spec = end[len(specMember) : len(end)-len("}")]
	o.end = stored
}

// Source returns the object as a file of a repository has it: indented, unless that would be too
// large, with no metadata but a name.
func (o *Object) Source(name string) []byte {
	body := append(o.body(o.GVK.Version, map[string]any{"name": name}), '\n')
	var out bytes.Buffer
	if _ = json.Indent(&out, body, "", "  "); out.Len() > MaxFile { // it was made here, so it is JSON
		return body
	}
	return out.Bytes()
}

// envelope is about as much as an object has beside its spec, in bytes.
const envelope = 1 << 10

func (o *Object) body(version string, meta map[string]any) []byte {
	gv := o.GVK.GroupVersion()
	gv.Version = version
	body := append(make([]byte, 0, len(o.spec)+envelope), '{')
	body = appendMember(body, "apiVersion", marshal(gv.String()))
	body = appendMember(body, "kind", marshal(o.GVK.Kind))
	body = appendMember(body, "metadata", marshal(meta))
	if o.spec != nil {
		body = appendMember(body, "spec", o.spec)
	}
	for _, f := range o.fields {
		body = appendMember(body, f.name, f.value)
	}
	return append(body, '}')
}

// annotations are those that a sync writes. Empty values are left out, as Grafana leaves them out.
func (s Stamp) annotations() map[string]string {
	out := map[string]string{api.AnnoManagedBy: managedByRepo, api.AnnoManagerID: s.Repository}
	for key, value := range map[string]string{
		api.AnnoSourcePath: strings.TrimSuffix(s.Path, "/"), api.AnnoSourceChecksum: s.Checksum, api.AnnoFolder: s.Folder,
	} {
		if value != "" {
			out[key] = value
		}
	}
	return out
}

// marshal writes a value that came out of JSON, or text, which always works.
func marshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("resources: internal error: " + err.Error())
	}
	return data
}

// cleanSpec leaves out the members of a dashboard that belong to one server's
// database, and escapes in names that need none. Nothing else changes, not even the order. The rest
// moves up in the text that was split.
func cleanSpec(spec json.RawMessage, fields []field) json.RawMessage {
	out := spec[:1]
	for _, f := range fields {
		switch f.name {
		case "uid", "version", "id":
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		if name := f.text[:len(f.text)-len(f.value)]; bytes.IndexByte(name, '\\') < 0 {
			out = append(out, f.text...)
			continue
		}
		out, _ = jsontext.AppendQuote(out, f.name) // at most as long as it was
		out = append(append(out, ':'), f.value...)
	}
	return append(out, '}')
}

// appendMember appends a member to an object whose brace is still open.
func appendMember(out []byte, name string, value []byte) []byte {
	if out[len(out)-1] != '{' {
		out = append(out, ',')
	}
	quoted, _ := json.Marshal(name) // text always marshals
	return append(append(append(out, quoted...), ':'), value...)
}
