package resources

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
)

// Plural names in the API of the kinds that are exported.
const (
	DashboardResource = "dashboards"
	FolderResource    = "folders"
)

// Item is what a plan has to know of an object that the repository manages. It
// is kept small: a repository may have ten thousand of them.
type Item struct {
	Group, Kind, Resource, Name string
	Path                        string // of the file, or of the directory with a trailing slash; "" for the root folder
	Hash                        string // git blob hash; for a folder that of its folder file, or ""
	Folder                      string // name of the parent folder, "" at the root
	Title                       string // of folders
	// UID and ResourceVersion are empty when the list lacks them. A change then asks the server before
	// it writes.
	UID, ResourceVersion string
	// Shared reports that the object has finalizers or owners. It is read again before a write, so
	// that they are kept.
	Shared bool
}

// IsFolder reports whether the item is a folder.
func (i Item) IsFolder() bool { return i.Group == api.FolderGroup }

// Identity returns the identity of the item.
func (i Item) Identity() Identity { return Identity{Group: i.Group, Kind: i.Kind, Name: i.Name} }

// normal gives an item the forms that a plan compares: directories end in a
// slash, and the root is "" whatever the server calls it.
func (i Item) normal() Item {
	if i.IsFolder() {
		i.Path = repopath.AsDir(i.Path)
	}
	if i.Folder == generalFolder {
		i.Folder = ""
	}
	return i
}

// generalFolder is what some servers store as the parent of objects at the root.
const generalFolder = "general"

// Live is an object as the server has it, without its content.
type Live struct {
	Meta `json:"metadata"`
	Spec struct {
		Title any `json:"title"`
	} `json:"spec"`
	Raw []byte `json:"-"` // the whole object; kept for folders only
}

// Meta is the metadata of a Live object.
type Meta struct {
	Name            string            `json:"name"`
	UID             string            `json:"uid"`
	ResourceVersion string            `json:"resourceVersion"`
	Annotations     map[string]string `json:"annotations"`
	Finalizers      []string          `json:"finalizers"`
	OwnerReferences []json.RawMessage `json:"ownerReferences"`
}

// ParseLive reads an object that a server answered with.
func ParseLive(data []byte) (*Live, error) { return parseAnswer[Live]("object", data) }

func parseAnswer[T any](what string, data []byte) (*T, error) {
	out := new(T)
	if err := json.Unmarshal(data, out); err != nil {
		return nil, fmt.Errorf("read %s of the server: %w", what, err)
	}
	return out, nil
}

// Page is one page of a list of objects: Live, or whole ones.
type Page[T any] struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []T `json:"items"`
}

// ParsePage reads one page of a list that a server answered with.
func ParsePage[T any](data []byte) (*Page[T], error) { return parseAnswer[Page[T]]("list", data) }

// Item returns what a plan has to know of l.
func (l *Live) Item(k Kind) Item {
	title, _ := l.Spec.Title.(string)
	i := Item{
		Group: k.Group, Kind: k.Kind, Resource: k.Resource, Name: l.Name, Title: title,
		Path: l.Annotations[api.AnnoSourcePath], Hash: l.Annotations[api.AnnoSourceChecksum], Folder: l.Annotations[api.AnnoFolder],
		UID: l.UID, ResourceVersion: l.ResourceVersion, Shared: len(l.Finalizers) > 0 || len(l.OwnerReferences) > 0,
	}
	return i.normal()
}

// live returns the part of an object that an update needs, nil when the list lacks it.
func (i Item) live() *Live {
	if i.Shared || i.UID == "" || i.ResourceVersion == "" {
		return nil
	}
	return &Live{Meta: Meta{Name: i.Name, UID: i.UID, ResourceVersion: i.ResourceVersion}}
}

// ParseManaged reads the answer of repositories/NAME/resources. It leaves objects out whose kind is
// refused.
func ParseManaged(data []byte, kinds Kinds) ([]Item, error) {
	type resource struct{ Path, Group, Resource, Name, Hash, Title, Folder string }
	list, err := parseAnswer[struct {
		Kind  string     `json:"kind"`
		Items []resource `json:"items"`
	}]("list of managed resources", data)
	if err != nil {
		return nil, err
	}
	if list.Kind != "ResourceList" {
		return nil, fmt.Errorf("read list of managed resources: the answer is a %q", list.Kind)
	}
	items := make([]Item, 0, len(list.Items))
	for _, i := range list.Items {
		if k := kinds.Named(i.Group, i.Resource); k.Refused == "" {
			items = append(items, Item{Group: i.Group, Kind: k.Kind, Resource: i.Resource, Name: i.Name, Path: i.Path, Hash: i.Hash,
				Title: i.Title, Folder: i.Folder}.normal())
		}
	}
	return items, nil
}

// Leaving splits what a repository manages into objects and folders, with the folders deepest
// first: in that order everything can be deleted. The other way round, folders from the top and
// then objects, is the order in which they are released. Source: Grafana's orphan clean-up.
func Leaving(items []Item) (objects, folders []Item) {
	for _, item := range items {
		if item.IsFolder() {
			folders = append(folders, item)
		} else {
			objects = append(objects, item)
		}
	}
	slices.SortFunc(folders, func(a, b Item) int { return cmp.Or(deepestFirst(a.Path, b.Path), strings.Compare(a.Name, b.Name)) })
	return objects, folders
}

// managedByRepo is the manager kind of objects that belong to a Repository.
const managedByRepo = "repo"

// OwnershipError reports that an object has another manager. It is a warning: the object is left
// alone.
type OwnershipError struct {
	Object     Identity
	Repository string // that wanted to write it
	Manager    string // kind and name of the owner; "" when it has none
}

func (e *OwnershipError) Error() string {
	if e.Manager == "" {
		return e.Object.String() + " exists and is not managed by a repository; rename it in the file, or delete or migrate it on the server"
	}
	if e.Manager == fmt.Sprintf("%s %q", managedByRepo, e.Repository) {
		return fmt.Sprintf("%s is managed by this repository already", e.Object)
	}
	return fmt.Sprintf("%s is managed by %s, not by repository %q", e.Object, e.Manager, e.Repository)
}

// Manages reports whether the annotations name repository as the manager.
func Manages(repository string, annotations map[string]string) bool {
	return annotations[api.AnnoManagedBy] == managedByRepo && annotations[api.AnnoManagerID] == repository
}

// checkManaged returns an *OwnershipError unless repository manages the object with these
// annotations. A manager that allows edits allows those of users: the object is still its own.
func checkManaged(repository string, id Identity, annotations map[string]string) error {
	if Manages(repository, annotations) {
		return nil
	}
	return &OwnershipError{Object: id, Repository: repository, Manager: manager(annotations)}
}

// CheckUnmanaged returns an *OwnershipError for an object that has a manager.
func CheckUnmanaged(repository string, id Identity, annotations map[string]string) error {
	if m := manager(annotations); m != "" {
		return &OwnershipError{Object: id, Repository: repository, Manager: m}
	}
	return nil
}

// Managed reports whether an object has a manager.
func Managed(annotations map[string]string) bool { return manager(annotations) != "" }

// manager returns kind and name of the manager of an object; "" for none.
func manager(annotations map[string]string) string {
	kind, name := annotations[api.AnnoManagedBy], annotations[api.AnnoManagerID]
	if kind == "" && name == "" {
		return ""
	}
	return fmt.Sprintf("%s %q", kind, name)
}
