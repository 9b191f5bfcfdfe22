package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"limpet/sync/api"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// servesFor is how long it is remembered what a server serves: it changes when the
// server becomes another version of itself.
const servesFor = 10 * time.Minute

// served remembers the resources of the provisioning group.
type served struct {
	mu    sync.Mutex // guards names and at
	names []string   // sorted
	at    time.Time  // of the answer; zero = there was none yet
}

func (s *served) get() ([]string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names, !s.at.IsZero() && time.Since(s.at) < servesFor
}

func (s *served) put(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names, s.at = names, time.Now()
}

// Serves says whether the provisioning group of the server has a resource or a
// subresource, named as in discovery: "repositories/webhook" is there on Grafana's
// own API server, and neither on a plain Kubernetes API with the definitions of
// limpet nor on the embedded API. It asks once in ten minutes. A server without the
// group has none of them. An error is of the moment.
func (c *Client) Serves(ctx context.Context, resource string) (bool, error) {
	names, fresh := c.shared.served.get()
	if !fresh {
		_, answer, err := c.Do(ctx, http.MethodGet, "/apis/"+api.ProvisioningGroup+"/"+api.Repositories.Version, nil, "", nil)
		if apierrors.IsNotFound(err) {
			return false, nil // it may come at any time
		}
		if err != nil {
			return false, fmt.Errorf("discover what the API serves: %w", err)
		}
		if names, err = resourcesIn(answer); err != nil {
			return false, fmt.Errorf("discover what the API serves: %w", err)
		}
		c.shared.served.put(names)
	}
	_, found := slices.BinarySearch(names, resource)
	return found, nil
}

// Has asks the server whether it has a resource in that version. It asks each time.
// A server without the group has none of it. An error is of the moment.
func (c *Client) Has(ctx context.Context, gvr schema.GroupVersionResource) (bool, error) {
	_, answer, err := c.Do(ctx, http.MethodGet, "/apis/"+gvr.Group+"/"+gvr.Version, nil, "", nil)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	var names []string
	if err == nil {
		names, err = resourcesIn(answer)
	}
	if err != nil {
		return false, fmt.Errorf("discover what the API serves: %w", err)
	}
	_, found := slices.BinarySearch(names, gvr.Resource)
	return found, nil
}

// resourcesIn reads an answer of discovery.
func resourcesIn(answer []byte) ([]string, error) {
	var list metav1.APIResourceList
	if err := json.Unmarshal(answer, &list); err != nil || list.Kind != "APIResourceList" {
		return nil, fmt.Errorf("the answer is %s", describe(answer))
	}
	names := make([]string, 0, len(list.APIResources))
	for _, r := range list.APIResources {
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return names, nil
}
