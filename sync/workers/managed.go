package workers

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/api"
	"limpet/sync/resources"
)

// What a repository manages. A Grafana has an index that answers for the whole
// repository at once; elsewhere the objects are listed and their annotations
// tell. Only the few fields of resources.Item stay in memory.

// pageSize is the number of objects asked for at a time. Objects are at most
// 1.5 MiB, so that a page stays below what the client reads of one answer.
const pageSize = 40

// managed lists everything that the repository manages.
func (s *server) managed(ctx context.Context, client *api.Client, repository string) ([]resources.Item, error) {
	path := fmt.Sprintf("/apis/%s/%s/namespaces/%s/repositories/%s/resources", api.ProvisioningGroup, api.Repositories.Version, s.namespace, repository)
	_, answer, err := client.Do(ctx, http.MethodGet, path, nil, "", nil)
	if err == nil {
		if items, err := resources.ParseManaged(answer); err == nil {
			return items, nil
		}
	} else if !absent(err) {
		return nil, fmt.Errorf("list resources of repository %s: %w", repository, err)
	}
	folders, err := s.managedFolders(ctx, repository)
	if err != nil {
		return nil, err
	}
	dashboards, err := s.list(ctx, repository, resources.Ref{Group: api.DashboardGroup, Resource: resources.DashboardResource})
	return append(folders, dashboards...), err
}

// managedFolders lists the folders that the repository manages.
func (s *server) managedFolders(ctx context.Context, repository string) ([]resources.Item, error) {
	return s.list(ctx, repository, resources.Ref{Group: api.FolderGroup, Resource: resources.FolderResource})
}

// absent reports whether the server does not have a route.
func absent(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsNotAcceptable(err)
}

// list lists one kind page by page. A list that expired on its way begins
// again, once.
func (s *server) list(ctx context.Context, repository string, ref resources.Ref) ([]resources.Item, error) {
	items, err := s.pages(ctx, repository, ref)
	if apierrors.IsResourceExpired(err) {
		items, err = s.pages(ctx, repository, ref)
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", ref.Resource, err)
	}
	return items, nil
}

func (s *server) pages(ctx context.Context, repository string, ref resources.Ref) ([]resources.Item, error) {
	version, err := s.version(ctx, ref)
	if err != nil {
		return nil, err
	}
	var items []resources.Item
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for {
		_, answer, err := s.client(ref.Group).Do(ctx, http.MethodGet, s.path(version, ref), query, "", nil)
		if err != nil {
			return nil, err
		}
		page, err := resources.ParsePage(answer)
		if err != nil {
			return nil, err
		}
		for _, live := range page.Items {
			if resources.Manages(repository, live.Annotations) {
				items = append(items, live.Item(ref.Group, ref.Resource))
			}
		}
		if page.Continue == "" {
			return items, nil
		}
		query.Set("continue", page.Continue)
	}
}
