package target

import (
	"context"
	"fmt"
	"regexp"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/resources"
)

// noDryRun matches the error of an API that does not support dry runs, or of an admission plugin of
// it.
var noDryRun = regexp.MustCompile(`(?i)dry ?-?run`)

// DryRun has every write carried out without an effect. It finds out whether the API can do that,
// with objects that hold no text of Git: an error may quote them. Where the API cannot, Off reports
// so, and no write is sent.
func (s *API) DryRun(ctx context.Context) {
	s.dryRun = true
	for _, k := range s.Kinds {
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

// NoAPI returns the API of a host that has none: it is empty, and takes every write.
func NoAPI() *API {
	s := &API{dryRun: true}
	s.off.Store(true)
	return s
}

// Off reports that no write has been sent.
func (s *API) Off() bool { return s.off.Load() }

// ReadOnly is an API that gets no write. It answers a creation as the API would.
type ReadOnly struct {
	*API
	mu    sync.Mutex                 // guards there
	there map[string]map[string]bool // names of objects by resource, read when the first one is created
}

// ReadOnly returns the API without writes.
func (s *API) ReadOnly() *ReadOnly { return &ReadOnly{API: s, there: map[string]map[string]bool{}} }

// Create implements resources.Server.
func (d *ReadOnly) Create(ctx context.Context, ref resources.Ref, _ bool, _ func(string) []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := d.there[ref.Resource]
	if names == nil {
		all, err := d.list(ctx, "", d.Kinds.Named(ref.Group, ref.Resource))
		if err != nil {
			return err
		}
		names = map[string]bool{}
		for _, item := range all {
			names[item.Name] = true
		}
		d.there[ref.Resource] = names
	}
	if names[ref.Name] {
		return apierrors.NewAlreadyExists(schema.GroupResource{Group: ref.Group, Resource: ref.Resource}, ref.Name)
	}
	return nil
}

// Update implements resources.Server.
func (d *ReadOnly) Update(context.Context, resources.Ref, bool, func(string) []byte) error {
	return nil
}

// Delete implements resources.Server.
func (d *ReadOnly) Delete(context.Context, resources.Ref, string, string) error { return nil }
