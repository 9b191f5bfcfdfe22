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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/text"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// discovery remembers what the server has answered to discovery.
type discovery struct {
	mu        sync.Mutex                 // guards the fields below
	preferred map[string]string          // version by group
	served    map[string]servedResources // by group and version
}

type servedResources struct {
	names []string
	at    time.Time // of the answer
}

// servesFor is how long it is remembered what a server serves: it changes when the
// server becomes another version of itself.
const servesFor = 10 * time.Minute

// missing forgets the version of a group when the server does not know the
// path of a call. A missing object is reported by a Status in JSON.
func (d *discovery) missing(req *http.Request, resp *http.Response) {
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
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.preferred, parts[0])
}

// PreferredVersion returns the version of the group that the server prefers. It asks
// once and again after a call to the group was answered with 404. A group that
// is not served gives an error for which apierrors.IsNotFound holds.
func (c *Client) PreferredVersion(ctx context.Context, group string) (string, error) {
	d := &c.shared.discovery
	d.mu.Lock()
	version := d.preferred[group]
	d.mu.Unlock()
	if version != "" {
		return version, nil
	}
	var found metav1.APIGroup
	if err := c.discover(ctx, "/apis/"+url.PathEscape(group), "APIGroup", &found); err != nil {
		return "", err
	}
	if version = found.PreferredVersion.Version; version == "" {
		return "", fmt.Errorf("discover group %s: no preferred version", group)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.preferred == nil {
		d.preferred = map[string]string{}
	}
	d.preferred[group] = version
	return version, nil
}

// Serves reports whether the server has a resource or a subresource of a group version,
// named as in discovery: "repositories/webhook" is there on Grafana's own API server, and
// neither on a plain Kubernetes API with the definitions of limpet nor on the embedded
// API. It asks once in ten minutes, and each time while the group version is missing.
func (c *Client) Serves(ctx context.Context, group schema.GroupVersion, resource string) (bool, error) {
	d, path := &c.shared.discovery, "/apis/"+group.String()
	d.mu.Lock()
	known := d.served[path]
	d.mu.Unlock()
	if time.Since(known.at) < servesFor {
		return slices.Contains(known.names, resource), nil
	}
	var list metav1.APIResourceList
	err := c.discover(ctx, path, "APIResourceList", &list)
	if apierrors.IsNotFound(err) {
		return false, nil // it may come at any time
	}
	if err != nil {
		return false, err
	}
	known = servedResources{at: time.Now()}
	for _, r := range list.APIResources {
		known.names = append(known.names, r.Name)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.served == nil {
		d.served = map[string]servedResources{}
	}
	d.served[path] = known
	return slices.Contains(known.names, resource), nil
}

// discover reads an answer of discovery, which has to be of a kind.
func (c *Client) discover(ctx context.Context, path, kind string, into runtime.Object) error {
	status, answer, err := c.Do(ctx, http.MethodGet, path, nil, "", nil)
	if err != nil {
		return fmt.Errorf("discover %s: %w", path, err)
	}
	if json.Unmarshal(answer, into) != nil || into.GetObjectKind().GroupVersionKind().Kind != kind {
		return fmt.Errorf("discover %s: %w", path, &NotKubernetesError{URL: c.url() + path, Status: status, Got: describe(answer)})
	}
	return nil
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
