package kube

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"limpet/sync/text"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// versionsFor is how long a stream of WatchVersions lasts, up to twice it.
	versionsFor = 10 * time.Minute
	// metadataOnly asks a server to leave out all but the metadata.
	metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
)

// brokenStream is client-go's mark of errors that arose on this side of a watch. Their text may hold the object.
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

// WatchVersions watches the versions of the objects of a namespace, or of the one of that name, and keeps
// nothing. It calls see for the existing ones, then whole, when the server marks the end of these, and then
// see for every change. It returns nil when the stream has ended, every 10 to 20 minutes, and otherwise an
// error. Objects may change between two streams, so each begins with all of them.
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
