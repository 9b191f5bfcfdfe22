package resources

import (
	"encoding/json"
	"fmt"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
)

// Resource names of the kinds that a repository holds.
const (
	DashboardResource = "dashboards"
	FolderResource    = "folders"
)

// Item is what a plan has to know of an object that the repository manages. It
// is kept small: a repository may have ten thousand of them.
type Item struct {
	Group, Resource, Name string
	Path                  string // of the file, or of the directory with a trailing slash; "" for the root folder
	Hash                  string // git blob hash; for a folder that of its folder file, or ""
	Folder                string // name of the parent folder, "" at the root
	Title                 string // of folders
	// UID and ResourceVersion are empty when the list lacks them. A
	// change then asks the server before it writes.
	UID, ResourceVersion string
}

// IsFolder reports whether the item is a folder.
func (i Item) IsFolder() bool { return i.Group == api.FolderGroup }

// Kind returns the kind of the item.
func (i Item) Kind() string {
	if i.IsFolder() {
		return folderKind
	}
	return dashboardKind
}

// Identity returns the identity of the item.
func (i Item) Identity() Identity { return Identity{Group: i.Group, Kind: i.Kind(), Name: i.Name} }

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
	Name, UID, ResourceVersion string
	Annotations                map[string]string
	Finalizers                 []string
	OwnerReferences            []json.RawMessage
	Title                      string
	Raw                        []byte // the whole object; kept for folders only
}

type liveJSON struct {
	Metadata struct {
		Name            string            `json:"name"`
		UID             string            `json:"uid"`
		ResourceVersion string            `json:"resourceVersion"`
		Annotations     map[string]string `json:"annotations"`
		Finalizers      []string          `json:"finalizers"`
		OwnerReferences []json.RawMessage `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		Title any `json:"title"`
	} `json:"spec"`
}

func (l liveJSON) live() *Live {
	title, _ := l.Spec.Title.(string)
	m := l.Metadata
	return &Live{Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Annotations: m.Annotations,
		Finalizers: m.Finalizers, OwnerReferences: m.OwnerReferences, Title: title}
}

// ParseLive reads an object that a server answered with.
func ParseLive(data []byte) (*Live, error) {
	var l liveJSON
	if err := json.Unmarshal(data, &l); err != nil {
		return nil, fmt.Errorf("read object of the server: %w", err)
	}
	return l.live(), nil
}

// Page is one page of a list.
type Page struct {
	Items    []*Live
	Continue string
}

// ParsePage reads one page of a list that a server answered with.
func ParsePage(data []byte) (Page, error) {
	var list struct {
		Metadata struct {
			Continue string `json:"continue"`
		} `json:"metadata"`
		Items []liveJSON `json:"items"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return Page{}, fmt.Errorf("read list of the server: %w", err)
	}
	p := Page{Continue: list.Metadata.Continue, Items: make([]*Live, len(list.Items))}
	for i, item := range list.Items {
		p.Items[i] = item.live()
	}
	return p, nil
}

// Item returns what a plan has to know of l. An object with finalizers or
// owners is read again before a write, so that they are kept.
func (l *Live) Item(group, resource string) Item {
	i := Item{
		Group: group, Resource: resource, Name: l.Name, Title: l.Title,
		Path: l.Annotations[api.AnnoSourcePath], Hash: l.Annotations[api.AnnoSourceChecksum], Folder: l.Annotations[api.AnnoFolder],
	}
	if len(l.Finalizers) == 0 && len(l.OwnerReferences) == 0 {
		i.UID, i.ResourceVersion = l.UID, l.ResourceVersion
	}
	return i.normal()
}

// live returns the part of an object that an update needs, nil when the list lacks
// it.
func (i Item) live() *Live {
	if i.UID == "" || i.ResourceVersion == "" {
		return nil
	}
	return &Live{Name: i.Name, UID: i.UID, ResourceVersion: i.ResourceVersion}
}

// ParseManaged reads the answer of repositories/NAME/resources.
func ParseManaged(data []byte) ([]Item, error) {
	var list struct {
		Kind  string `json:"kind"`
		Items []struct {
			Path, Group, Resource, Name, Hash, Title, Folder string
		} `json:"items"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("read list of managed resources: %w", err)
	}
	if list.Kind != "ResourceList" {
		return nil, fmt.Errorf("read list of managed resources: the answer is a %q", list.Kind)
	}
	items := make([]Item, 0, len(list.Items))
	for _, i := range list.Items {
		items = append(items, Item{Group: i.Group, Resource: i.Resource, Name: i.Name, Path: i.Path, Hash: i.Hash,
			Title: i.Title, Folder: i.Folder}.normal())
	}
	return items, nil
}
