package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"limpet/sync/text"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// versionsFor is how long a stream of Follow lasts, up to twice it.
	versionsFor = 10 * time.Minute
	// mostEvent bounds one event of it, in bytes: metadata of Kubernetes is at most
	// 256 KiB of annotations and as much again of the rest, and a server that knows
	// no metadata alone sends all of an object.
	mostEvent = 4 << 20
	// metadataOnly asks a server to leave out all but the metadata.
	metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
)

// ObjectVersion identifies a version of an object without its content.
type ObjectVersion struct {
	Namespace, Name string
	Version         string // changes with every write of the object; "" = it is gone
	Labels          map[string]string
}

// ObjectVersionOf is the Mark of an object that was read.
func ObjectVersionOf(u *unstructured.Unstructured) ObjectVersion {
	return ObjectVersion{u.GetNamespace(), u.GetName(), versionText(string(u.GetUID()), u.GetResourceVersion()), u.GetLabels()}
}

func versionText(uid, resource string) string { return uid + " " + resource }

// WatchVersions watches the versions of the objects of a namespace, or of the one of that
// name, and keeps nothing. It calls see for the existing ones, then whole, when the server
// marks the end of these, and then see for every change. It returns nil when the stream
// has ended, every 10 to 20 minutes, and otherwise an error. Objects may change between
// two streams, so each begins with all of them.
func (c *Client) WatchVersions(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, see func(ObjectVersion),
	whole func()) error {
	lasts := versionsFor + rand.N(versionsFor)
	ctx, cancel := context.WithTimeout(ctx, lasts+watchOvertime)
	defer cancel()
	query := url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"}, "timeoutSeconds": {strconv.Itoa(int(lasts / time.Second))}}
	if name != "" {
		query.Set("fieldSelector", "metadata.name="+name)
	}
	initial := url.Values{"sendInitialEvents": {"true"}, "resourceVersionMatch": {string(metav1.ResourceVersionMatchNotOlderThan)}}
	for key, value := range query {
		initial[key] = value
	}
	path := "/api/" + gvr.Version
	if gvr.Group != "" {
		path = "/apis/" + gvr.Group + "/" + gvr.Version
	}
	path += "/namespaces/" + namespace + "/" + gvr.Resource
	body, err := c.stream(ctx, path, initial)
	if isRefusal(err) {
		// It sends those that there are all the same, but no end of them.
		body, err = c.stream(ctx, path, query)
	}
	if err != nil {
		return err
	}
	defer body.Close()
	err = readVersions(body, see, whole)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// stream opens a watch of metadata.
func (c *Client) stream(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	u := *c.shared.target.base
	u.Path += path
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("make a request for %s: %w", path, err)
	}
	req.Header.Set("Accept", metadataOnly)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, text.RedactError(err)
	}
	if resp.StatusCode < 400 {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, mostStatus))
	if err != nil {
		return nil, fmt.Errorf("read the answer to GET %s: %w", path, err)
	}
	return nil, statusError(resp, http.MethodGet, answer)
}

// readVersions reads the events of a watch to its end.
func readVersions(body io.Reader, see func(ObjectVersion), whole func()) error {
	bounded := &bounded{Reader: body}
	in := json.NewDecoder(bounded)
	for {
		var event struct {
			Type   watch.EventType `json:"type"`
			Object struct {
				Metadata struct {
					Namespace       string            `json:"namespace"`
					Name            string            `json:"name"`
					UID             string            `json:"uid"`
					ResourceVersion string            `json:"resourceVersion"`
					Labels          map[string]string `json:"labels"`
					Annotations     map[string]string `json:"annotations"`
				} `json:"metadata"`
				Code    int32               `json:"code"`
				Reason  metav1.StatusReason `json:"reason"`
				Message string              `json:"message"`
			} `json:"object"`
		}
		bounded.left = mostEvent
		switch err := in.Decode(&event); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read a watch: %w", text.RedactError(err))
		}
		o, meta := &event.Object, &event.Object.Metadata
		mark := ObjectVersion{meta.Namespace, meta.Name, versionText(meta.UID, meta.ResourceVersion), meta.Labels}
		switch event.Type {
		case watch.Error:
			return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: o.Code, Reason: o.Reason,
				Message: text.Redact(o.Message)}}
		case watch.Bookmark:
			if meta.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
				whole()
			}
			continue
		case watch.Deleted:
			mark.Version = ""
		}
		see(mark)
	}
}

// bounded ends a stream one of whose events is too large.
type bounded struct {
	io.Reader
	left int // bytes until the next event
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

// isRefusal reports whether a server rejects a watch with initial events for good.
func isRefusal(err error) bool {
	status := statusOf(err)
	if status == nil || isExpired(err) {
		return false
	}
	switch status.Code {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotAcceptable,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusNotImplemented:
		return true
	}
	return false
}
