package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api/patch"
	"limpet/sync/kube"
)

// ErrConflict says that the object is not the version any more that a patch was made for.
var ErrConflict = errors.New("the object has changed")

// CallTimeout bounds one call with its repeats, so that one object cannot hold up the others.
const CallTimeout = 5 * time.Second

// Objects are the objects of one resource on the server, not in a cache. Each call takes
// CallTimeout at most.
type Objects struct {
	Client   *kube.Client
	Resource schema.GroupVersionResource
}

// Get reads an object.
func (o Objects) Get(ctx context.Context, k Key) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	return o.Client.Resource(o.Resource).Namespace(k.Namespace).Get(ctx, k.Name, metav1.GetOptions{})
}

// Patch carries out a JSON patch and returns the object after it; ErrConflict when the patch does
// not fit any more.
func (o Objects) Patch(ctx context.Context, k Key, ops []patch.Op) (*unstructured.Unstructured, error) {
	return o.patch(ctx, k, "", ops)
}

// PatchStatus is Patch of the status.
func (o Objects) PatchStatus(ctx context.Context, k Key, ops []patch.Op) (*unstructured.Unstructured, error) {
	return o.patch(ctx, k, "/status", ops)
}

func (o Objects) patch(
	ctx context.Context, k Key, subresource string, ops []patch.Op,
) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()

	body, err := json.Marshal(ops)
	if err != nil {
		return nil, fmt.Errorf("encode the patch: %w", err)
	}
	at := fmt.Sprintf("/apis/%s/namespaces/%s/%s/%s%s", o.Resource.GroupVersion(), k.Namespace, o.Resource.Resource, k.Name,
		subresource)
	// A patch that was carried out although its answer was lost does not fit again: it names the
	// version that it was made for.
	code, answer, err := o.Client.DoIdempotent(ctx, http.MethodPatch, at, nil, patch.MediaType, body)
	switch {
	case code == http.StatusConflict || code == http.StatusUnprocessableEntity && misfits(err):
		return nil, fmt.Errorf("%w: %w", ErrConflict, err)
	case err != nil:
		return nil, fmt.Errorf("patch the object: %w", err)
	}
	u := new(unstructured.Unstructured)
	if err := u.UnmarshalJSON(answer); err != nil {
		return nil, fmt.Errorf("read the object: %w", err)
	}
	return u, nil
}

// misfits reports whether a patch does not fit, rather than make an object that the server does not
// take: that has causes.
func misfits(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0
}
