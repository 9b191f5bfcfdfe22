package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"

	"limpet/sync/text"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// versions remembers the preferred version of each group.
type versions struct {
	mu    sync.Mutex // guards known
	known map[string]string
}

func (v *versions) get(group string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.known[group]
}

func (v *versions) put(group, version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.known == nil {
		v.known = map[string]string{}
	}
	v.known[group] = version
}

// missing forgets the version of a group when the server does not know the
// path of a call. A missing object is reported by a Status in JSON.
func (v *versions) missing(req *http.Request, resp *http.Response) {
	_, path, found := strings.Cut(req.URL.Path, "/apis/")
	if !found {
		return
	}
	parts := strings.Split(strings.Trim(path, "/"), "/") // GROUP VERSION [namespaces NS] RESOURCE [NAME ...]
	collection := 3
	if len(parts) > 4 && parts[2] == "namespaces" {
		collection = 5
	}
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if len(parts) > collection && err == nil && media == "application/json" {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.known, parts[0])
}

// PreferredVersion returns the version of the group that the server prefers. It asks
// once and again after a call to the group was answered with 404. A group that
// is not served gives an error for which apierrors.IsNotFound holds.
func (c *Client) PreferredVersion(ctx context.Context, group string) (version string, err error) {
	if version := c.shared.versions.get(group); version != "" {
		return version, nil
	}
	path := "/apis/" + url.PathEscape(group)
	_, answer, err := c.Do(ctx, http.MethodGet, path, nil, "", nil)
	if err != nil {
		return "", fmt.Errorf("discover group %s: %w", group, err)
	}
	var found metav1.APIGroup
	if json.Unmarshal(answer, &found) != nil || found.Kind != "APIGroup" || found.PreferredVersion.Version == "" {
		return "", fmt.Errorf("discover group %s: %w", group, &NotKubernetesError{URL: c.url() + path, Status: http.StatusOK, Got: "no APIGroup"})
	}
	c.shared.versions.put(group, found.PreferredVersion.Version)
	return found.PreferredVersion.Version, nil
}

// Check asks the server whether it is a Kubernetes-style API. Its errors tell
// apart: *UnreachableError (no answer), *NotKubernetesError (something else
// answers), *ExchangeError (no access token), and API status errors
// (apierrors.IsUnauthorized, IsForbidden). Hint has a sentence for each.
func (c *Client) Check(ctx context.Context) error {
	status, answer, err := c.once(ctx, http.MethodGet, "/apis", nil, "", nil)
	foreign := &NotKubernetesError{URL: c.url() + "/apis", Status: status, Got: describe(answer)}
	var groups metav1.APIGroupList
	switch {
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		foreign.Got = fmt.Sprintf("status %d", status)
		return foreign
	case err != nil:
		return c.explain(err)
	case json.Unmarshal(answer, &groups) != nil || groups.Kind != "APIGroupList":
		return foreign
	}
	return nil
}

// describe says in a few words what a foreign answer is.
func describe(answer []byte) string {
	var object map[string]any
	switch {
	case len(answer) == 0:
		return "an empty answer"
	case json.Unmarshal(answer, &object) == nil:
		if kind, ok := object["kind"].(string); ok && len(kind) < 64 {
			return fmt.Sprintf("a JSON object of kind %q", text.Redact(kind))
		}
		return "a JSON object that is no discovery answer"
	case strings.HasPrefix(strings.TrimSpace(string(answer)), "<"):
		return "a web page"
	}
	return "text that is no JSON"
}

// explain gives an error of the transport its type.
func (c *Client) explain(err error) error {
	var (
		notKubernetes *NotKubernetesError
		exchange      *ExchangeError
		redirect      *redirectError
	)
	switch {
	case errors.As(err, &notKubernetes):
		return notKubernetes
	case errors.As(err, &exchange):
		return exchange
	case errors.As(err, &redirect):
		return &NotKubernetesError{URL: redirect.from, Got: "a redirect to " + redirect.to}
	case statusOf(err) != nil, errors.Is(err, context.Canceled):
		return err
	}
	return &UnreachableError{Server: c.url(), Err: text.RedactError(transportCause(err))}
}

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

// Serves reports whether the provisioning group of the server has a resource or a
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
