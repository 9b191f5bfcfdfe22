// Package target is where the files of a commit go. A target knows neither Git nor jobs.
//
//	api.go    the objects of an API, in one namespace: requests about one object
//	list.go   lists of objects, page by page
package target

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/api/patch"
	"limpet/sync/kube"
	"limpet/sync/resources"
)

// API is resources.Server over the servers of the objects, for one namespace. Dashboards and folders
// may have servers of their own.
type API struct {
	Kinds resources.Kinds // with what the servers say of them

	namespace string
	servers   Servers
	last      bool // this is the last attempt of the job
	// dryRun has every write carried out without an effect; off reports that the API cannot do that,
	// and has no part in it.
	dryRun bool
	off    atomic.Bool

	mu      sync.Mutex       // guards written
	written []resources.Item // versions of objects that were created or updated
}

var _ resources.Server = (*API)(nil)

// Servers are the API servers of the objects of Repositories.
type Servers struct {
	Dashboards, Folders *kube.Client // of those groups
	Others              *kube.Client // of all other groups, and of Repositories; nil = there is no API
}

// Open returns the servers of the objects of a namespace, and asks them for the kinds. One without
// folders, or without dashboards where they are allowed, is an error: more likely it has not
// started yet. last reports whether this is the last attempt of the job.
func Open(ctx context.Context, servers Servers, kinds resources.Kinds, namespace string, last bool) (*API, error) {
	s := &API{Kinds: slices.Clone(kinds), namespace: namespace, servers: servers, last: last}
	if servers.Others == nil {
		s.off.Store(true)
		return s, nil
	}
	for i := range s.Kinds {
		k := &s.Kinds[i]
		if k.Refused != "" {
			continue
		}
		var err error
		k.Resource, k.Version, err = s.client(k.Group).Kind(ctx, k.Group, k.Kind)
		own := k.Group == api.FolderGroup || k.Group == api.DashboardGroup && k.Kind == "Dashboard"
		if own && err == nil && k.Version == "" {
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

func (s *API) client(group string) *kube.Client {
	switch group {
	case api.FolderGroup:
		return s.servers.Folders
	case api.DashboardGroup:
		return s.servers.Dashboards
	}
	return s.servers.Others
}

// version returns the version of requests for ref: that of the ref, or the preferred one for none
// and for classic dashboards on a server that has no version without a schema.
func (s *API) version(ctx context.Context, ref resources.Ref) (string, error) {
	preferred := s.Kinds.Named(ref.Group, ref.Resource).Version
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

func (s *API) path(version string, ref resources.Ref) string {
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
func (s *API) do(ctx context.Context, ref resources.Ref, c call) (answer []byte, err error) {
	client := s.client(ref.Group)
	version, err := s.version(ctx, ref)
	if err == nil {
		var body []byte
		if c.body != nil {
			body = c.body(version)
			if strict, is := api.StrictBodyOf(ctx); is {
				strict.Text = body
				ctx = api.WithStrictBody(ctx, strict)
			}
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

// Get implements resources.Server.
func (s *API) Get(ctx context.Context, ref resources.Ref, whole bool) (*resources.Live, error) {
	if s.off.Load() { // there is no API
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
func (s *API) Create(ctx context.Context, ref resources.Ref, strict bool, body func(version string) []byte) error {
	return s.write(ctx, "create", ref, call{
		method: http.MethodPost, query: validation(ref, strict), media: "application/json", body: body, idempotent: true,
	})
}

// Update implements resources.Server.
func (s *API) Update(ctx context.Context, ref resources.Ref, strict bool, body func(version string) []byte) error {
	return s.write(ctx, "update", ref, call{method: http.MethodPut, query: validation(ref, strict), media: "application/json", body: body})
}

// Stored returns what the server would make of an update.
func (s *API) Stored(ctx context.Context, ref resources.Ref, body func(version string) []byte) ([]byte, error) {
	query := url.Values{"dryRun": {metav1.DryRunAll}, "fieldValidation": {metav1.FieldValidationIgnore}}
	answer, err := s.do(ctx, ref, call{method: http.MethodPut, query: query, media: "application/json", body: body})
	if o, failed := resources.ParseLive(answer); err == nil && (failed != nil || o.Name != ref.Name) {
		err = fmt.Errorf("dry run of %s: the answer is no object", ref.Name)
	}
	return answer, err
}

// Delete implements resources.Server.
func (s *API) Delete(ctx context.Context, ref resources.Ref, uid, resourceVersion string) error {
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

// Patch sends a JSON patch of an object.
func (s *API) Patch(ctx context.Context, ref resources.Ref, ops []patch.Op) error {
	return s.write(ctx, "patch", ref, call{
		method: http.MethodPatch, media: patch.MediaType, body: encoded(ops), idempotent: true,
	})
}

// Written returns the versions of the objects that were created or updated.
func (s *API) Written() []resources.Item {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written
}

func (s *API) write(ctx context.Context, verb string, ref resources.Ref, c call) error {
	if s.dryRun {
		query := url.Values{"dryRun": {metav1.DryRunAll}}
		maps.Copy(query, c.query)
		c.query = query
	}
	if s.off.Load() {
		return nil
	}
	if c.method != http.MethodDelete { // whose answer may be no object
		ctx = kube.Accepting(ctx, metadataOnly) // the content is known
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
		panic("target: internal error: " + err.Error()) // plain data
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
