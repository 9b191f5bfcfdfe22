package members

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/kube"
)

// wire is the API as a store.
type wire struct {
	client    *kube.Client
	namespace string
}

func (w wire) get(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	return w.client.Resource(leases).Namespace(w.namespace).Get(ctx, name, metav1.GetOptions{})
}

func (w wire) create(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return w.client.Resource(leases).Namespace(w.namespace).Create(ctx, u, metav1.CreateOptions{})
}

func (w wire) update(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return w.client.Resource(leases).Namespace(w.namespace).Update(ctx, u, metav1.UpdateOptions{})
}

func (w wire) remove(ctx context.Context, u *unstructured.Unstructured) error {
	uid, version := u.GetUID(), u.GetResourceVersion()
	return w.client.Resource(leases).Namespace(w.namespace).Delete(ctx, u.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
}

func (w wire) watch(ctx context.Context, seen, gone func(*unstructured.Unstructured), synced func()) error {
	i := w.client.Informer(leases, w.namespace, kube.InformerOptions{LabelSelector: selectRole})
	i.AddHandler(kube.Handler{Add: seen, Update: func(_, u *unstructured.Unstructured) { seen(u) }, Delete: gone})
	told := make(chan struct{})
	go func() {
		defer close(told)
		if i.WaitSynced(ctx) == nil {
			synced()
		}
	}()
	err := i.Run(ctx)
	<-told
	return err
}
