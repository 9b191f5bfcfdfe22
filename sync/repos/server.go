package repos

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/reconcile"
)

// server is the API for one kind of object.
type server struct {
	reconcile.Objects
}

func serverOf(c *kube.Client, of schema.GroupVersionResource) server {
	return server{reconcile.Objects{Client: c, Resource: of}}
}

// pull queues a pull job. An AlreadyExists error says that one is there.
func (s server) pull(ctx context.Context, k reconcile.Key, incremental bool) error {
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel()
	spec := map[string]any{"action": "pull", "pull": map[string]any{"incremental": incremental}}
	if _, err := s.Client.Submit(ctx, k.Namespace, k.Name, spec, nil); err != nil {
		return fmt.Errorf("queue a pull: %w", err)
	}
	return nil
}

// deleteJob deletes a job as it is given; a Conflict error says that it has changed.
func (s server) deleteJob(ctx context.Context, job *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel()
	uid, version := job.GetUID(), job.GetResourceVersion()
	return s.Client.Resource(api.Jobs).Namespace(job.GetNamespace()).Delete(ctx, job.GetName(),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
}

// seals reports whether the API takes secure values and seals them, as Grafana's own
// does. A plain Kubernetes API would store them as they are.
func (s server) seals(ctx context.Context) (bool, error) {
	return s.Client.Serves(ctx, api.Repositories.GroupVersion(), "repositories/webhook")
}
