package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"limpet/sync/text"
)

// discovery remembers what the server has answered to discovery, for a minute: it
// changes when the server becomes another version of itself.
type discovery struct {
	mu    sync.Mutex // guards known
	known map[string]discovered
}

// discovered holds the versions of a group, the resources of a group version, or resource and
// version of a kind.
type discovered struct {
	names []string
	at    time.Time // of the answer
}

const discoveredFor = time.Minute

// discovered returns what the server has answered to a path, or asks it.
func (c *Client) discovered(path string, ask func() ([]string, error)) ([]string, error) {
	d := &c.shared.discovery
	d.mu.Lock()
	known := d.known[path]
	d.mu.Unlock()
	if time.Since(known.at) < discoveredFor {
		return known.names, nil
	}
	names, err := ask()
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil {
		d.known = map[string]discovered{}
	}
	d.known[path] = discovered{names, time.Now()}
	return names, nil
}

// PreferredVersion returns the version of the group that the server prefers. A group that
// is not served gives an error for which apierrors.IsNotFound holds.
func (c *Client) PreferredVersion(ctx context.Context, group string) (string, error) {
	versions, err := c.versions(ctx, group)
	if err != nil {
		return "", err
	}
	return versions[0], nil
}

// versions returns the versions of a group, the preferred one first.
func (c *Client) versions(ctx context.Context, group string) ([]string, error) {
	path := "/apis/" + url.PathEscape(group)
	return c.discovered(path, func() ([]string, error) {
		var found metav1.APIGroup
		if err := c.discover(ctx, path, "APIGroup", &found); err != nil {
			return nil, err
		}
		if found.PreferredVersion.Version == "" {
			return nil, fmt.Errorf("discover group %s: no preferred version", group)
		}
		out := []string{found.PreferredVersion.Version}
		for _, v := range found.Versions {
			if v.Version != out[0] {
				out = append(out, v.Version)
			}
		}
		return out, nil
	})
}

// StoredVersion returns the version that a server stores of an object which it has converted; ""
// for the one it was read in. Source: Grafana's DashboardStatus.
func StoredVersion(u *unstructured.Unstructured) string {
	version, _, _ := unstructured.NestedString(u.Object, "status", "conversion", "storedVersion")
	if version == u.GroupVersionKind().Version {
		return ""
	}
	return version
}

// Stored returns an object in the version that the server stores, without managedFields, and the
// resource in it: what was converted may have lost something. An object whose version the server
// does not serve stays as it was read.
func (c *Client) Stored(ctx context.Context, res schema.GroupVersionResource, u *unstructured.Unstructured) (
	*unstructured.Unstructured, schema.GroupVersionResource, error) {
	version := StoredVersion(u)
	if version == "" {
		return u, res, nil
	}
	stored := res.GroupResource().WithVersion(version)
	whole, err := c.Resource(stored).Namespace(u.GetNamespace()).Get(ctx, u.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return u, res, nil
	case err != nil:
		return nil, res, err
	}
	whole.SetManagedFields(nil)
	return whole, stored, nil
}

// Kind returns the plural name of a kind and the version that the server prefers of those that have
// it. Both are empty for a kind that the server lacks, or that is in no namespace; it is asked
// again after a minute.
func (c *Client) Kind(ctx context.Context, group, kind string) (resource, version string, err error) {
	found, err := c.discovered("kind "+group+"/"+kind, func() ([]string, error) {
		versions, err := c.versions(ctx, group)
		for _, v := range versions {
			var list metav1.APIResourceList
			if err = c.discover(ctx, "/apis/"+group+"/"+v, "APIResourceList", &list); err != nil && !apierrors.IsNotFound(err) {
				return nil, err
			}
			for _, r := range list.APIResources {
				if r.Kind == kind && r.Namespaced && !strings.Contains(r.Name, "/") {
					return []string{r.Name, v}, nil
				}
			}
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		return []string{"", ""}, nil
	})
	if err != nil {
		return "", "", err
	}
	return found[0], found[1], nil
}

// Serves reports whether the server has a resource or a subresource of a group version, named as in
// discovery: "repositories/webhook" is there on Grafana's own API server, and neither on a plain
// Kubernetes API with the definitions of limpet nor on the embedded API. It asks each time while
// the group version is missing.
func (c *Client) Serves(ctx context.Context, group schema.GroupVersion, resource string) (bool, error) {
	path := "/apis/" + group.String()
	names, err := c.discovered(path, func() (names []string, err error) {
		var list metav1.APIResourceList
		err = c.discover(ctx, path, "APIResourceList", &list)
		for _, r := range list.APIResources {
			names = append(names, r.Name)
		}
		return names, err
	})
	if apierrors.IsNotFound(err) {
		return false, nil // it may come at any time
	}
	return slices.Contains(names, resource), err
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

// Check asks the server whether it is a Kubernetes-style API. Its errors tell apart:
// *UnreachableError (no answer), *NotKubernetesError (something else answers), *ExchangeError (no
// access token), and API status errors (apierrors.IsUnauthorized, IsForbidden). Hint has a sentence
// for each.
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
	if strings.HasPrefix(strings.TrimSpace(string(answer)), "<") {
		return "an HTML page"
	}
	return "no discovery answer"
}

// explain gives an error of the transport its type.
func (c *Client) explain(err error) error {
	if e, ok := errors.AsType[*NotKubernetesError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*ExchangeError](err); ok {
		return e
	}
	if redirect, ok := errors.AsType[*redirectError](err); ok {
		return &NotKubernetesError{URL: redirect.from, Got: "a redirect to " + redirect.to}
	}
	if statusOf(err) != nil || errors.Is(err, context.Canceled) {
		return err
	}
	return &UnreachableError{Server: c.url(), Err: text.RedactError(transportCause(err))}
}

const (
	// versionsFor is how long a stream of WatchVersions lasts, up to twice it.
	versionsFor = 10 * time.Minute
	// metadataOnly asks a server to leave out all but the metadata.
	metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
)

// brokenStream is client-go's mark of errors that arose on this side of a watch. Their text may
// hold the object.
const brokenStream metav1.CauseType = "ClientWatchDecoding"

var errBrokenStream = errors.New("an event of the watch cannot be decoded")

// ObjectVersion identifies a version of an object without its content.
type ObjectVersion struct {
	Namespace, Name string
	Version         string // changes with every write of the object; "" = it is gone
	Labels          map[string]string
}

// ObjectVersionOf is the version of an object that was read.
func ObjectVersionOf(u *unstructured.Unstructured) ObjectVersion {
	return ObjectVersion{u.GetNamespace(), u.GetName(), versionText(string(u.GetUID()), u.GetResourceVersion()), u.GetLabels()}
}

func versionText(uid, resource string) string { return uid + " " + resource }

// WatchVersions watches the versions of the objects of a namespace, or of the one of that name, and
// keeps nothing. It calls see for the existing ones, then whole, when the server marks the end of
// these, and then see for every change. It returns nil when the stream has ended, every 10 to 20
// minutes, and otherwise an error. Objects may change between two streams, so each begins with all
// of them.
func (c *Client) WatchVersions(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, see func(ObjectVersion),
	whole func()) error {
	lasts, initial := int64((versionsFor+rand.N(versionsFor))/time.Second), true
	o := metav1.ListOptions{TimeoutSeconds: &lasts, AllowWatchBookmarks: true, SendInitialEvents: &initial,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
	if name != "" {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
	}
	w, err := c.watch(ctx, gvr, namespace, o, metadataOnly)
	if isRefusal(err) {
		// It sends those that there are all the same, but no end of them.
		o.SendInitialEvents, o.ResourceVersionMatch = nil, ""
		w, err = c.watch(ctx, gvr, namespace, o, metadataOnly)
	}
	if err != nil {
		return text.RedactError(err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if event.Type == watch.Error && ctx.Err() == nil {
			err := apierrors.FromObject(event.Object)
			if apierrors.HasStatusCause(err, brokenStream) {
				err = errBrokenStream
			}
			return text.RedactError(err)
		}
		u, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		version := ObjectVersionOf(u)
		switch event.Type {
		case watch.Bookmark:
			if u.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
				whole()
			}
			continue
		case watch.Deleted:
			version.Version = ""
		}
		see(version)
	}
	return nil
}

// watch opens a watch. accept replaces the form in which the objects are wanted, "" = JSON.
func (c *Client) watch(ctx context.Context, gvr schema.GroupVersionResource, namespace string, o metav1.ListOptions,
	accept string) (watch.Interface, error) {
	note := &call{accept: accept}
	w, err := c.Resource(gvr).Namespace(namespace).Watch(withCall(ctx, note), o)
	if err == nil && note.err != nil { // client-go makes an empty watch of some errors
		w.Stop()
		err = note.err
	}
	return w, err
}

// isRefusal reports whether a server rejects a watch with initial events for good.
func isRefusal(err error) bool {
	status := statusOf(err)
	if status == nil || isExpired(err) {
		return false
	}
	return slices.Contains([]int32{http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotAcceptable,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusNotImplemented}, status.Code)
}
