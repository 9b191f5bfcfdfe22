// The objects that a repository manages. Grafana has an index of a whole repository; on other
// servers the objects are listed and selected by their annotations. Only the few fields of
// resources.Item stay in memory.

package target

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/resources"
)

// The page sizes of lists. Objects have at most 1.5 MiB, so the first page stays below the client's
// limit for a response; the following ones grow up to pageBytes if the objects are small. The
// objects of the next page may be larger than those of the last: a page of whole objects is at most
// twice as long as the one before, and never above wholePage.
const (
	firstPage = 40
	wholePage = 160
	mostPage  = 2000
	pageBytes = 4 << 20
)

// nextPage returns the length of the page that follows one of so many objects and bytes.
func nextPage(objects, bytes int, whole bool) int {
	each := bytes/max(objects, 1) + 1
	if whole {
		return min(max(pageBytes/each, firstPage), max(2*objects, firstPage), wholePage)
	}
	return min(max(pageBytes/each, firstPage), mostPage)
}

// MetadataList and metadataOnly request objects without their content. A server without support for
// that sends them whole.
const (
	MetadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
)

// Managed returns the objects that a repository manages.
func (s *API) Managed(ctx context.Context, repository string) ([]resources.Item, error) {
	path := fmt.Sprintf("/apis/%s/%s/namespaces/%s/repositories/%s/resources",
		api.ProvisioningGroup, api.Repositories.Version, s.namespace, repository)
	_, answer, err := s.servers.Others.Do(ctx, http.MethodGet, path, nil, "", nil)
	if err == nil {
		if items, err := resources.ParseManaged(answer, s.Kinds); err == nil {
			return items, nil
		}
	} else if !Absent(err) {
		return nil, fmt.Errorf("list resources of repository %s: %w", repository, kube.AsUnavailable(err))
	}
	return s.Listed(ctx, repository)
}

// Listed is Managed with the versions of all objects.
func (s *API) Listed(ctx context.Context, repository string) ([]resources.Item, error) {
	var all []resources.Item
	for _, k := range s.Kinds {
		if k.Refused != "" {
			continue
		}
		items, err := s.list(ctx, repository, k)
		if err != nil {
			return nil, err
		}
		all = append(all, items...)
	}
	return all, nil
}

// ManagedFolders returns the folders of Listed.
func (s *API) ManagedFolders(ctx context.Context, repository string) ([]resources.Item, error) {
	return s.list(ctx, repository, s.Kinds.Named(api.FolderGroup, resources.FolderResource))
}

// ManagedFolder returns one folder, the zero Item where the repository has none of that name.
func (s *API) ManagedFolder(ctx context.Context, repository, name string) (i resources.Item, err error) {
	k := s.Kinds.Named(api.FolderGroup, resources.FolderResource)
	live, err := s.Get(ctx, resources.Ref{Group: k.Group, Resource: k.Resource, Name: name}, true)
	switch {
	case apierrors.IsNotFound(err):
		return i, nil
	case err != nil:
		return i, fmt.Errorf("get folder %s: %w", name, err)
	case resources.Manages(repository, live.Annotations):
		i = live.Item(k)
	}
	return i, nil
}

// Absent reports whether the error means that the server lacks a route.
func Absent(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsNotAcceptable(err)
}

// list lists one kind page by page: what the repository manages, or with "" all. It repeats a list
// that has expired, once.
func (s *API) list(ctx context.Context, repository string, k resources.Kind) (items []resources.Item, err error) {
	if s.off.Load() {
		return nil, nil
	}
	accept := MetadataList
	if k.Group == api.FolderGroup {
		accept = ""
	}
	for range 2 {
		items = nil
		err = Each(ctx, s, resources.Ref{Group: k.Group, Resource: k.Resource}, accept, func(_ string, page []resources.Live) error {
			for _, live := range page {
				if repository == "" || resources.Manages(repository, live.Annotations) {
					items = append(items, live.Item(k))
				}
			}
			return nil
		})
		if !apierrors.IsResourceExpired(err) {
			break
		}
	}
	if s.dryRun && Absent(err) {
		s.off.Store(true)
		return nil, nil
	}
	return items, err
}

// Folders returns all folders. It returns an error if there are more than most.
func (s *API) Folders(ctx context.Context, most int) (all []*resources.Live, err error) {
	ref := resources.Ref{Group: api.FolderGroup, Resource: resources.FolderResource}
	err = Each(ctx, s, ref, "", func(_ string, page []*resources.Live) error {
		if all = append(all, page...); len(all) > most {
			return fmt.Errorf("there are more than %d folders", most)
		}
		return nil
	})
	return all, err
}

// Each calls use for each page of the list of one kind, with the version of its objects. accept may
// be MetadataList; "" = whole objects.
func Each[T any](
	ctx context.Context, s *API, ref resources.Ref, accept string, use func(version string, items []T) error,
) error {
	version, err := s.version(ctx, ref)
	if err != nil {
		return fmt.Errorf("list %s: %w", ref.Resource, kube.AsUnavailable(err))
	}
	return Pages(ctx, s.client(ref.Group), s.path(version, ref), accept, func(items []T) error { return use(version, items) })
}

// Pages calls use for each page of the list at a path of an API. accept may be MetadataList; "" =
// whole objects.
func Pages[T any](ctx context.Context, c *kube.Client, at, accept string, use func([]T) error) error {
	query := url.Values{"limit": {strconv.Itoa(firstPage)}}
	for {
		_, answer, err := c.Do(ctx, http.MethodGet, at, query, accept, nil)
		if err != nil {
			return fmt.Errorf("list %s: %w", path.Base(at), kube.AsUnavailable(err))
		}
		page, err := resources.ParsePage[T](answer)
		if err != nil {
			return err
		}
		if err := use(page.Items); err != nil || page.Metadata.Continue == "" {
			return err
		}
		query.Set("limit", strconv.Itoa(nextPage(len(page.Items), len(answer), page.Kind != "PartialObjectMetadataList")))
		query.Set("continue", page.Metadata.Continue)
	}
}
