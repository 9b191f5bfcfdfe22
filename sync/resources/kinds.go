package resources

import (
	"fmt"
	"slices"
	"strings"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
)

// Kind is one kind of resource that the files of repositories may hold.
type Kind struct {
	Group, Kind string
	// Resource is its plural name in the API, and Version the one that the API prefers; both by discovery.
	Resource, Version string
	Folder            bool   // its objects are in folders
	SkipValidation    bool   // unknown fields of its objects are no error
	Refused           string // why its files are left out; "" = they are not
}

// Kinds are those of a setting. Of those that are not refused, an API serves Resource.
type Kinds []Kind

// DefaultKinds is the setting of an agent without another. Source: Grafana's [provisioning] resources.
const DefaultKinds = "folder.grafana.app/Folder:folder,dashboard.grafana.app/Dashboard:folder," +
	"dashboard.grafana.app/LibraryPanel:folder:disabled,playlist.grafana.app/Playlist:disabled"

// ParseKinds reads a list of GROUP/KIND, each with :folder, :skipvalidation or :disabled behind it. Folders are always
// among the kinds: a directory has one. No list is DefaultKinds.
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

// Named returns the kind whose plural name in the API is resource. One that is not among them is refused.
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
