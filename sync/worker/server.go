package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/resources"
)

// server is resources.Server over the API, for one namespace. Dashboards and folders may have
// servers of their own.
type server struct {
	namespace  string
	kinds      resources.Kinds // with what the servers say of them
	dashboards *kube.Client
	folders    *kube.Client
	others     *kube.Client
	// last reports whether this is the last attempt of the job.
	last bool
	// dryRun has every write carried out without an effect; off reports that the API cannot do that,
	// and has no part in it.
	dryRun bool
	off    atomic.Bool

	mu      sync.Mutex       // guards written
	written []resources.Item // versions of objects that were created or updated
}

var _ resources.Server = (*server)(nil)

// server returns the servers of the objects of a namespace, and asks them for the kinds. One
// without folders, or without dashboards where they are allowed, is an error: more likely it has
// not started yet.
func (p *Pull) server(ctx context.Context, namespace string, last bool) (*server, error) {
	s := &server{namespace: namespace, kinds: slices.Clone(p.o.Kinds), dashboards: p.o.Dashboards, folders: p.o.Folders, others: p.o.Client,
		last: last}
	if p.o.Client == nil { // there is no API
		s.off.Store(true)
		return s, nil
	}
	for i := range s.kinds {
		k := &s.kinds[i]
		if k.Refused != "" {
			continue
		}
		var err error
		k.Resource, k.Version, err = s.client(k.Group).Kind(ctx, k.Group, k.Kind)
		if own := k.Group == api.FolderGroup || k.Group == api.DashboardGroup && k.Kind == "Dashboard"; own && err == nil && k.Version == "" {
			err = apierrors.NewNotFound(schema.GroupResource{Group: k.Group, Resource: k.Kind}, "")
		}
		if err != nil {
			return nil, fmt.Errorf("discover kind %s of group %s: %w", k.Kind, k.Group, kube.AsUnavailable(err))
		}
		if k.Version == "" {
			k.Refused = "not served by this API"
		}
	}
	return s, nil
}

func (s *server) client(group string) *kube.Client {
	switch group {
	case api.FolderGroup:
		return s.folders
	case api.DashboardGroup:
		return s.dashboards
	}
	return s.others
}

// version returns the version of requests for ref: that of the ref, or the preferred one for none
// and for classic dashboards on a server that has no version without a schema.
func (s *server) version(ctx context.Context, ref resources.Ref) (string, error) {
	preferred := s.kinds.Named(ref.Group, ref.Resource).Version
	if preferred == "" {
		return "", apierrors.NewBadRequest(fmt.Sprintf("%s of group %s are disabled by --resources", ref.Resource, ref.Group))
	}
	if ref.Version == "" || ref.Version == preferred {
		return preferred, nil
	}
	served, err := s.client(ref.Group).Serves(ctx, schema.GroupVersion{Group: ref.Group, Version: ref.Version}, ref.Resource)
	switch {
	case err != nil:
		return "", err
	case served:
		return ref.Version, nil
	case ref.Version == resources.ClassicVersion:
		return preferred, nil
	}
	return "", apierrors.NewBadRequest(fmt.Sprintf("the server has no %s/%s; it prefers %s", ref.Group, ref.Version, preferred))
}

func (s *server) path(version string, ref resources.Ref) string {
	p := fmt.Sprintf("/apis/%s/%s/namespaces/%s/%s", ref.Group, version, s.namespace, ref.Resource)
	if ref.Name != "" {
		p += "/" + ref.Name
	}
	return p
}

// call is a request about one object.
type call struct {
	method string
	query  url.Values
	media  string                      // of the body, or the accepted one of a GET
	body   func(version string) []byte // nil = none
	// idempotent requests are repeated by the client although their method is not.
	idempotent bool
}

// do sends a request. It distinguishes errors of the server, after which the job is retried, from
// errors of an object, after which the others continue. While a job has attempts left, an ambiguous
// error counts as the server's; in the last attempt it is the object's if the server responds at
// all.
func (s *server) do(ctx context.Context, ref resources.Ref, c call) (answer []byte, err error) {
	client := s.client(ref.Group)
	version, err := s.version(ctx, ref)
	if err == nil {
		var body []byte
		if c.body != nil {
			body = c.body(version)
		}
		if c.method == http.MethodPost {
			ref.Name = ""
		}
		send := client.Do
		if c.idempotent {
			send = client.DoIdempotent
		}
		_, answer, err = send(ctx, c.method, s.path(version, ref), c.query, c.media, body)
	}
	if since, _ := client.Down(); err == nil || s.last && since.IsZero() {
		return answer, err
	}
	return answer, kube.AsUnavailable(err)
}

func (s *server) Get(ctx context.Context, ref resources.Ref, whole bool) (*resources.Live, error) {
	if s.kinds == nil || s.off.Load() { // there is no API
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: ref.Group, Resource: ref.Resource}, ref.Name)
	}
	answer, err := s.do(ctx, ref, call{method: http.MethodGet, media: map[bool]string{false: metadataOnly}[whole]})
	if err != nil {
		return nil, err
	}
	live, err := resources.ParseLive(answer)
	if whole && err == nil {
		live.Raw = answer
	}
	return live, err
}

// Create implements resources.Server. A creation whose response was lost appears as AlreadyExists,
// which the caller examines.
func (s *server) Create(ctx context.Context, ref resources.Ref, strict bool, body func(version string) []byte) error {
	return s.write(ctx, "create", ref, call{
		method: http.MethodPost, query: validation(ref, strict), media: "application/json", body: body, idempotent: true,
	})
}

func (s *server) Update(ctx context.Context, ref resources.Ref, strict bool, body func(version string) []byte) error {
	return s.write(ctx, "update", ref, call{method: http.MethodPut, query: validation(ref, strict), media: "application/json", body: body})
}

// stored returns what the server would make of an update.
func (s *server) stored(ctx context.Context, ref resources.Ref, body func(version string) []byte) ([]byte, error) {
	query := url.Values{"dryRun": {metav1.DryRunAll}, "fieldValidation": {metav1.FieldValidationIgnore}}
	answer, err := s.do(ctx, ref, call{method: http.MethodPut, query: query, media: "application/json", body: body})
	if o, failed := resources.ParseLive(answer); err == nil && (failed != nil || o.Name != ref.Name) {
		err = fmt.Errorf("dry run of %s: the answer is no object", ref.Name)
	}
	return answer, err
}

func (s *server) Delete(ctx context.Context, ref resources.Ref, uid, resourceVersion string) error {
	o := metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}}
	if s.dryRun { // servers read the query of a request without a body only
		o.DryRun = []string{metav1.DryRunAll}
	}
	if uid != "" || resourceVersion != "" {
		o.Preconditions = &metav1.Preconditions{}
		if uid != "" {
			o.Preconditions.UID = (*types.UID)(&uid)
		}
		if resourceVersion != "" {
			o.Preconditions.ResourceVersion = &resourceVersion
		}
	}
	return s.write(ctx, "delete", ref, call{method: http.MethodDelete, media: "application/json", body: encoded(o)})
}

// noDryRun matches the error of an API that does not support dry runs, or of an admission plugin of
// it.
var noDryRun = regexp.MustCompile(`(?i)dry ?-?run`)

// probe finds out whether the API supports dry runs, with objects that hold no text of Git: an
// error may quote them.
func (s *server) probe(ctx context.Context) {
	for _, k := range s.kinds {
		if k.Refused != "" || k.Group != api.FolderGroup && (k.Group != api.DashboardGroup || k.Kind != "Dashboard") {
			continue
		}
		err := s.Create(ctx, resources.Ref{Group: k.Group, Resource: k.Resource, Name: "limpet-probe"}, false, func(version string) []byte {
			return fmt.Appendf(nil, `{"apiVersion":"%s/%s","kind":"%s","metadata":{"name":"limpet-probe"},"spec":{"title":"limpet-probe"}}`,
				k.Group, version, k.Kind)
		})
		if apierrors.IsMethodNotSupported(err) || apierrors.IsBadRequest(err) && noDryRun.MatchString(err.Error()) {
			s.off.Store(true)
		}
	}
}

func (s *server) write(ctx context.Context, verb string, ref resources.Ref, c call) error {
	if s.dryRun {
		query := url.Values{"dryRun": {metav1.DryRunAll}}
		maps.Copy(query, c.query)
		c.query = query
	}
	if s.off.Load() {
		return nil
	}
	answer, err := s.do(ctx, ref, c)
	if err != nil {
		return fmt.Errorf("%s %s %s: %w", verb, ref.Resource, ref.Name, err)
	}
	var now struct {
		Metadata struct{ UID, ResourceVersion string } `json:"metadata"`
	}
	if c.method != http.MethodDelete && ref.Group != api.FolderGroup && json.Unmarshal(answer, &now) == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.written = append(s.written, resources.Item{Group: ref.Group, Resource: ref.Resource, Name: ref.Name,
			UID: now.Metadata.UID, ResourceVersion: now.Metadata.ResourceVersion})
	}
	return nil
}

// encoded returns a body that is the same for each version.
func encoded(v any) func(string) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("worker: internal error: " + err.Error()) // plain data
	}
	return func(string) []byte { return data }
}

// validation returns the query for the handling of unknown members.
func validation(ref resources.Ref, strict bool) url.Values {
	switch {
	case ref.Group == api.FolderGroup:
		return nil
	case strict:
		return url.Values{"fieldValidation": {metav1.FieldValidationStrict}}
	}
	return url.Values{"fieldValidation": {metav1.FieldValidationIgnore}}
}

// The objects that a repository manages. Grafana has an index of a whole repository; on other
// servers the objects are listed and selected by their annotations. Only the few fields of
// resources.Item stay in memory.

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

// list lists one kind page by page: what the repository manages, or with "" all. It repeats a list
// that has expired, once.
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
	accept := MetadataList
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
