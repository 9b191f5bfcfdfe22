package jobs

import (
	"context"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/jobs/queue"
	"limpet/sync/kube"
)

// server is the part of an API server that jobs need. Every call has a deadline of
// its own and returns the errors of apimachinery.
type server interface {
	job(ctx context.Context, k queue.Key) (*unstructured.Unstructured, error)
	// putJob replaces the job; the object carries UID and resourceVersion.
	putJob(ctx context.Context, job *unstructured.Unstructured) (*unstructured.Unstructured, error)
	deleteJob(ctx context.Context, k queue.Key, uid, resourceVersion string) error
	// expiredJobs lists one page of the jobs whose claim is older than a time in
	// milliseconds. next is "" at the end.
	expiredJobs(ctx context.Context, namespace string, before int64, page string) (jobs []unstructured.Unstructured, next string, err error)
	repository(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error)
	// archived reports whether there is a HistoricJob of that job.
	archived(ctx context.Context, namespace, uid string) (bool, error)
	archive(ctx context.Context, historic *unstructured.Unstructured) error
	// archivePage lists one page of HistoricJobs.
	archivePage(ctx context.Context, namespace, page string) (historic []unstructured.Unstructured, next string, err error)
	deleteArchived(ctx context.Context, namespace, name, uid, resourceVersion string) error
}

// pageSize is how many objects a list asks for at a time. Source: Grafana's
// cleanup.
const pageSize = 100

// wire is the server behind an kube.Client.
type wire struct {
	client  *kube.Client
	timeout time.Duration // of one call
}

var _ server = wire{}

func (w wire) call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, w.timeout)
}

func (w wire) job(ctx context.Context, k queue.Key) (*unstructured.Unstructured, error) {
	ctx, cancel := w.call(ctx)
	defer cancel()
	return w.client.Resource(api.Jobs).Namespace(k.Namespace).Get(ctx, k.Name, metav1.GetOptions{})
}

func (w wire) putJob(ctx context.Context, job *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if job.GetUID() == "" || job.GetResourceVersion() == "" {
		panic("jobs: internal error: unconditional write of a job")
	}
	ctx, cancel := w.call(ctx)
	defer cancel()
	return w.client.Resource(api.Jobs).Namespace(job.GetNamespace()).Update(ctx, job, metav1.UpdateOptions{})
}

func (w wire) deleteJob(ctx context.Context, k queue.Key, uid, resourceVersion string) error {
	ctx, cancel := w.call(ctx)
	defer cancel()
	id := types.UID(uid)
	return w.client.Resource(api.Jobs).Namespace(k.Namespace).Delete(ctx, k.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &id, ResourceVersion: &resourceVersion}})
}

func (w wire) expiredJobs(ctx context.Context, namespace string, before int64, page string) ([]unstructured.Unstructured, string, error) {
	ctx, cancel := w.call(ctx)
	defer cancel()
	list, err := w.client.Resource(api.Jobs).Namespace(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: api.LabelClaim + "<" + strconv.FormatInt(before, 10), Limit: pageSize, Continue: page})
	if err != nil {
		return nil, "", err
	}
	return list.Items, list.GetContinue(), nil
}

func (w wire) repository(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error) {
	ctx, cancel := w.call(ctx)
	defer cancel()
	return w.client.Resource(api.Repositories).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (w wire) archived(ctx context.Context, namespace, uid string) (bool, error) {
	ctx, cancel := w.call(ctx)
	defer cancel()
	list, err := w.client.Resource(api.HistoricJobs).Namespace(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{api.LabelOriginalUID: uid}.String(), Limit: 1})
	if err != nil {
		return false, err
	}
	return len(list.Items) > 0, nil
}

func (w wire) archive(ctx context.Context, historic *unstructured.Unstructured) error {
	ctx, cancel := w.call(ctx)
	defer cancel()
	_, err := w.client.Resource(api.HistoricJobs).Namespace(historic.GetNamespace()).Create(ctx, historic, metav1.CreateOptions{})
	return err
}

func (w wire) archivePage(ctx context.Context, namespace, page string) ([]unstructured.Unstructured, string, error) {
	ctx, cancel := w.call(ctx)
	defer cancel()
	list, err := w.client.Resource(api.HistoricJobs).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: pageSize, Continue: page})
	if err != nil {
		return nil, "", err
	}
	return list.Items, list.GetContinue(), nil
}

func (w wire) deleteArchived(ctx context.Context, namespace, name, uid, resourceVersion string) error {
	ctx, cancel := w.call(ctx)
	defer cancel()
	id := types.UID(uid)
	return w.client.Resource(api.HistoricJobs).Namespace(namespace).Delete(ctx, name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &id, ResourceVersion: &resourceVersion}})
}
