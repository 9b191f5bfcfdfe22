package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/resources"
)

// server is resources.Server over the API, for one namespace. Each group may
// have a server of its own.
type server struct {
	namespace  string
	dashboards *kube.Client
	folders    *kube.Client
	served     *served
	// last reports whether this is the last attempt of the job.
	last bool
}

var _ resources.Server = (*server)(nil)

// server returns the servers of the objects of a namespace. last reports whether this is
// the last attempt of the job.
func (p *Pull) server(namespace string, last bool) *server {
	return &server{namespace: namespace, dashboards: p.o.Dashboards, folders: p.o.Folders, served: &p.served, last: last}
}

// served caches the versions of a group on a server. All pulls share it.
type served struct {
	mu       sync.Mutex // guards versions
	versions map[*kube.Client]map[string][]string
}

func (s *server) client(group string) *kube.Client {
	if group == api.FolderGroup {
		return s.folders
	}
	return s.dashboards
}

// judged distinguishes errors of the server, after which the job is retried, from
// errors of an object, after which the others continue. While a job has attempts
// left, an ambiguous error counts as the server's; in the last attempt it is the
// object's if the server responds at all.
func (s *server) judged(group string, err error) error {
	if since, _ := s.client(group).Down(); s.last && since.IsZero() {
		return err
	}
	return kube.AsUnavailable(err)
}

// version returns the version of requests for ref: that of the ref, or the
// preferred one for none and for classic dashboards on a server that has no
// version without a schema.
func (s *server) version(ctx context.Context, ref resources.Ref) (string, error) {
	client := s.client(ref.Group)
	preferred, err := client.PreferredVersion(ctx, ref.Group)
	if err != nil || ref.Version == "" || ref.Version == preferred {
		return preferred, err
	}
	versions, err := s.served.of(ctx, client, ref.Group, ref.Version)
	switch {
	case err != nil:
		return "", err
	case slices.Contains(versions, ref.Version):
		return ref.Version, nil
	case ref.Version == resources.ClassicVersion:
		return preferred, nil
	}
	return "", apierrors.NewBadRequest(fmt.Sprintf("the server has no %s/%s; it has %s",
		ref.Group, ref.Version, strings.Join(versions, ", ")))
}

// of returns the versions of a group. It asks the server when want is not among
// the cached ones.
func (s *served) of(ctx context.Context, client *kube.Client, group, want string) ([]string, error) {
	s.mu.Lock()
	known := s.versions[client][group]
	s.mu.Unlock()
	if slices.Contains(known, want) {
		return known, nil
	}
	_, answer, err := client.Do(ctx, http.MethodGet, "/apis/"+group, nil, "", nil)
	if err != nil {
		return nil, fmt.Errorf("discover group %s: %w", group, err)
	}
	var found metav1.APIGroup
	if err := json.Unmarshal(answer, &found); err != nil {
		return nil, fmt.Errorf("discover group %s: %w", group, err)
	}
	known = nil
	for _, v := range found.Versions {
		known = append(known, v.Version)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.versions == nil {
		s.versions = map[*kube.Client]map[string][]string{}
	}
	if s.versions[client] == nil {
		s.versions[client] = map[string][]string{}
	}
	s.versions[client][group] = known
	return known, nil
}

func (s *server) path(version string, ref resources.Ref) string {
	p := fmt.Sprintf("/apis/%s/%s/namespaces/%s/%s", ref.Group, version, s.namespace, ref.Resource)
	if ref.Name != "" {
		p += "/" + ref.Name
	}
	return p
}

// Get implements resources.Server.
func (s *server) Get(ctx context.Context, ref resources.Ref, whole bool) (*resources.Live, error) {
	version, err := s.version(ctx, ref)
	if err != nil {
		return nil, s.judged(ref.Group, err)
	}
	accept := metadataOnly
	if whole {
		accept = ""
	}
	_, answer, err := s.client(ref.Group).Do(ctx, http.MethodGet, s.path(version, ref), nil, accept, nil)
	if err != nil {
		return nil, s.judged(ref.Group, err)
	}
	live, err := resources.ParseLive(answer)
	if whole && err == nil {
		live.Raw = answer
	}
	return live, err
}

// Create implements resources.Server. A creation whose response was lost appears
// as AlreadyExists, which the caller examines.
func (s *server) Create(ctx context.Context, ref resources.Ref, strict bool, body func(version string) []byte) error {
	version, err := s.version(ctx, ref)
	if err != nil {
		return s.judged(ref.Group, err)
	}
	collection := ref
	collection.Name = ""
	path, data := s.path(version, collection), body(version)
	_, _, err = s.client(ref.Group).DoIdempotent(ctx, http.MethodPost, path, validation(ref, strict), "application/json", data)
	if err != nil {
		return s.judged(ref.Group, fmt.Errorf("create %s %s: %w", ref.Resource, ref.Name, err))
	}
	return nil
}

// Update implements resources.Server.
func (s *server) Update(ctx context.Context, ref resources.Ref, strict bool, body func(version string) []byte) error {
	version, err := s.version(ctx, ref)
	if err != nil {
		return s.judged(ref.Group, err)
	}
	path, data := s.path(version, ref), body(version)
	_, _, err = s.client(ref.Group).Do(ctx, http.MethodPut, path, validation(ref, strict), "application/json", data)
	if err != nil {
		return s.judged(ref.Group, fmt.Errorf("update %s %s: %w", ref.Resource, ref.Name, err))
	}
	return nil
}

// validation returns the query for the handling of unknown members.
func validation(ref resources.Ref, strict bool) url.Values {
	if ref.Group == api.FolderGroup {
		return nil
	}
	if strict {
		return url.Values{"fieldValidation": {metav1.FieldValidationStrict}}
	}
	return url.Values{"fieldValidation": {metav1.FieldValidationIgnore}}
}

// Delete implements resources.Server.
func (s *server) Delete(ctx context.Context, ref resources.Ref, uid, resourceVersion string) error {
	version, err := s.version(ctx, ref)
	if err != nil {
		return s.judged(ref.Group, err)
	}
	options := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions"}
	preconditions := map[string]string{}
	if uid != "" {
		preconditions["uid"] = uid
	}
	if resourceVersion != "" {
		preconditions["resourceVersion"] = resourceVersion
	}
	if len(preconditions) > 0 {
		options["preconditions"] = preconditions
	}
	data, err := json.Marshal(options)
	if err != nil {
		return fmt.Errorf("encode delete options: %w", err)
	}
	_, _, err = s.client(ref.Group).Do(ctx, http.MethodDelete, s.path(version, ref), nil, "application/json", data)
	if err != nil {
		return s.judged(ref.Group, fmt.Errorf("delete %s %s: %w", ref.Resource, ref.Name, err))
	}
	return nil
}
