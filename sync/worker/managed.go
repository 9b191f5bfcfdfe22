package worker

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/resources"
)

// The objects that a repository manages. Grafana has an index of a whole repository; on other servers the objects are
// listed and selected by their annotations. Only the few fields of resources.Item stay in memory.

// The page sizes of lists. Objects have at most 1.5 MiB, so the first page stays below the client's limit for a
// response; the following ones grow up to pageBytes if the objects are small. The objects of the next page may be larger
// than those of the last: a page of whole objects is at most twice as long as the one before, and never above wholePage.
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

// metadataList and metadataOnly request objects without their content. A server without support for that sends them
// whole.
const (
	metadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
)

func (s *server) managed(ctx context.Context, client *kube.Client, repository string) ([]resources.Item, error) {
	path := fmt.Sprintf("/apis/%s/%s/namespaces/%s/repositories/%s/resources",
		api.ProvisioningGroup, api.Repositories.Version, s.namespace, repository)
	_, answer, err := client.Do(ctx, http.MethodGet, path, nil, "", nil)
	if err == nil {
		if items, err := resources.ParseManaged(answer, s.kinds); err == nil {
			return items, nil
		}
	} else if !absent(err) {
		return nil, fmt.Errorf("list resources of repository %s: %w", repository, kube.AsUnavailable(err))
	}
	return s.listed(ctx, repository)
}

// listed is managed with the versions of all objects.
func (s *server) listed(ctx context.Context, repository string) ([]resources.Item, error) {
	var all []resources.Item
	for _, k := range s.kinds {
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

func (s *server) managedFolders(ctx context.Context, repository string) ([]resources.Item, error) {
	return s.list(ctx, repository, s.kinds.Named(api.FolderGroup, resources.FolderResource))
}

// absent reports whether the error means that the server lacks a route.
func absent(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsNotAcceptable(err)
}

// list lists one kind page by page: what the repository manages, or with "" all. It repeats a list that has expired, once.
func (s *server) list(ctx context.Context, repository string, k resources.Kind) ([]resources.Item, error) {
	if s.off.Load() {
		return nil, nil
	}
	items, err := s.pages(ctx, repository, k)
	if apierrors.IsResourceExpired(err) {
		items, err = s.pages(ctx, repository, k)
	}
	if s.dryRun && absent(err) {
		s.off.Store(true)
		return nil, nil
	}
	return items, err
}

func (s *server) folderList(ctx context.Context) (all []*resources.Live, err error) {
	ref := resources.Ref{Group: api.FolderGroup, Resource: resources.FolderResource}
	err = pages(ctx, s, ref, "", func(_ string, page []*resources.Live) error {
		if all = append(all, page...); len(all) > maxFolders {
			return fmt.Errorf("there are more than %d folders", maxFolders)
		}
		return nil
	})
	return all, err
}

func (s *server) pages(ctx context.Context, repository string, k resources.Kind) (items []resources.Item, err error) {
	accept := metadataList
	if k.Group == api.FolderGroup {
		accept = ""
	}
	err = pages(ctx, s, resources.Ref{Group: k.Group, Resource: k.Resource}, accept, func(_ string, page []resources.Live) error {
		for _, live := range page {
			if repository == "" || resources.Manages(repository, live.Annotations) {
				items = append(items, live.Item(k))
			}
		}
		return nil
	})
	return items, err
}

// pages calls use for each page of a list of one kind, with the version of its objects.
func pages[T any](ctx context.Context, s *server, ref resources.Ref, accept string, use func(version string, items []T) error) error {
	version, err := s.version(ctx, ref)
	if err != nil {
		return fmt.Errorf("list %s: %w", ref.Resource, kube.AsUnavailable(err))
	}
	query := url.Values{"limit": {strconv.Itoa(firstPage)}}
	for {
		_, answer, err := s.client(ref.Group).Do(ctx, http.MethodGet, s.path(version, ref), query, accept, nil)
		if err != nil {
			return fmt.Errorf("list %s: %w", ref.Resource, kube.AsUnavailable(err))
		}
		page, err := resources.ParsePage[T](answer)
		if err != nil {
			return err
		}
		if err := use(version, page.Items); err != nil || page.Metadata.Continue == "" {
			return err
		}
		query.Set("limit", strconv.Itoa(nextPage(len(page.Items), len(answer), page.Kind != "PartialObjectMetadataList")))
		query.Set("continue", page.Metadata.Continue)
	}
}
