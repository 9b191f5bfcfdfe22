package repos

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

	"limpet/sync/api"
	"limpet/sync/kube"
)

// errConflict says that the object is not the version any more that a patch was made for.
var errConflict = errors.New("the object has changed")

// callTimeout bounds one call with its repeats, so that one Repository cannot hold up the others.
const callTimeout = 5 * time.Second

// server is the API for one kind of object.
type server struct {
	client *kube.Client
	plural string
}

// get reads a Repository from the server, not from a cache.
func (s server) get(ctx context.Context, k Key) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.client.Resource(api.Repositories).Namespace(k.Namespace).Get(ctx, k.Name, metav1.GetOptions{})
}

// patch carries out a JSON patch of an object, or of its status, and returns the object
// after it; errConflict when the patch does not fit any more.
func (s server) patch(ctx context.Context, k Key, status bool, ops []op) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	at := fmt.Sprintf("/apis/%s/namespaces/%s/%s/%s", api.Repositories.GroupVersion(), k.Namespace, s.plural, k.Name)
	if status {
		at += "/status"
	}
	body, err := json.Marshal(ops)
	if err != nil {
		return nil, fmt.Errorf("encode the patch: %w", err)
	}
	// A patch that was carried out although its answer was lost does not fit
	// again: it names the version that it was made for.
	code, answer, err := s.client.DoIdempotent(ctx, http.MethodPatch, at, nil, "application/json-patch+json", body)
	switch {
	case code == http.StatusConflict || code == http.StatusUnprocessableEntity && misfits(err):
		return nil, fmt.Errorf("%w: %w", errConflict, err)
	case err != nil:
		return nil, fmt.Errorf("patch the object: %w", err)
	}
	u := new(unstructured.Unstructured)
	if err := u.UnmarshalJSON(answer); err != nil {
		return nil, fmt.Errorf("read the object: %w", err)
	}
	return u, nil
}

// misfits reports whether a patch does not fit, rather than make an object that the server
// does not take: that has causes.
func misfits(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0
}

// pull queues a pull job. An AlreadyExists error says that one is there.
func (s server) pull(ctx context.Context, k Key, incremental bool) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	spec := map[string]any{"action": "pull", "pull": map[string]any{"incremental": incremental}}
	if _, err := s.client.Submit(ctx, k.Namespace, k.Name, spec, nil); err != nil {
		return fmt.Errorf("queue a pull: %w", err)
	}
	return nil
}

// deleteJob deletes a job as it is given; a Conflict error says that it has changed.
func (s server) deleteJob(ctx context.Context, job *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	uid, version := job.GetUID(), job.GetResourceVersion()
	return s.client.Resource(api.Jobs).Namespace(job.GetNamespace()).Delete(ctx, job.GetName(),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
}

// seals reports whether the API takes secure values and seals them, as Grafana's own
// does. A plain Kubernetes API would store them as they are.
func (s server) seals(ctx context.Context) (bool, error) {
	return s.client.Serves(ctx, api.Repositories.GroupVersion(), "repositories/webhook")
}
