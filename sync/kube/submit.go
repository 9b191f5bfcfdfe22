package kube

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

// Submit queues a job of a Repository and returns it. spec is the job's own, with its action and without the
// repository. It goes through the Repository's own route, which names the job so that a repeat is refused
// (see apierrors.IsAlreadyExists). A plain Kubernetes API has no such route, and the route takes neither
// annotations nor jobs for pull requests: then the job is made directly, under the same name. A pull whose name is
// taken by a job that no agent serves gets the one of api.JobBeside.
func (c *Client) Submit(ctx context.Context, namespace, repository string, spec map[string]any,
	notes map[string]string) (*unstructured.Unstructured, error) {
	action, _ := spec["action"].(string)
	made, err := c.submit(ctx, namespace, repository, spec, notes, "")
	if action != "pull" || !apierrors.IsAlreadyExists(err) {
		return made, err
	}
	there, gone := c.Resource(api.Jobs).Namespace(namespace).Get(ctx, api.JobName(repository, action), metav1.GetOptions{})
	if gone != nil {
		return nil, err
	}
	now, _, known := c.Clock().Now()
	if !known {
		now = time.Now()
	}
	if at := api.UnservedAt(there); at.IsZero() || now.Before(at) {
		return nil, err
	}
	return c.submit(ctx, namespace, repository, spec, notes, api.JobBeside(repository))
}

// submit makes a job; name is "" for the ordinary one.
func (c *Client) submit(ctx context.Context, namespace, repository string, spec map[string]any, notes map[string]string,
	name string) (*unstructured.Unstructured, error) {
	action, _ := spec["action"].(string)
	below := fmt.Sprintf("/apis/%s/%s/namespaces/%s", api.ProvisioningGroup, api.Jobs.Version, namespace)
	if len(notes) == 0 && action != "pr" && name == "" {
		job, err := c.post(ctx, below+"/repositories/"+repository+"/jobs", spec)
		orphans := slices.Contains(api.OrphanActions, action) && apierrors.IsNotFound(err) // of a Repository that is gone
		if err == nil || !orphans && !c.noSuchRoute(ctx, namespace, repository, err) {
			return job, err
		}
	}
	spec = maps.Clone(spec)
	spec["repository"] = repository
	job := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	job.SetAPIVersion(api.Jobs.GroupVersion().String())
	job.SetKind("Job")
	job.SetName(cmp.Or(name, api.JobName(repository, action)))
	if action == "test" {
		job.SetName(job.GetName() + "-" + strings.ToLower(rand.Text()[:8]))
	}
	if pr, ok := spec["pr"].(map[string]any); ok && action == "pr" {
		job.SetName(fmt.Sprintf("%s-%v", api.JobName(repository, action), pr["pr"]))
	}
	job.SetLabels(map[string]string{api.LabelRepository: repository})
	if len(notes) > 0 {
		job.SetAnnotations(notes)
	}
	return c.post(ctx, below+"/jobs", job.Object)
}

func (c *Client) post(ctx context.Context, path string, body map[string]any) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	_, answer, err := c.Do(ctx, http.MethodPost, path, nil, "application/json", data)
	if err != nil {
		return nil, err
	}
	u := new(unstructured.Unstructured)
	return u, u.UnmarshalJSON(answer)
}

// noSuchRoute distinguishes the 404 or 405 of a server without the route from that of a
// missing Repository: some servers answer both alike.
func (c *Client) noSuchRoute(ctx context.Context, namespace, repository string, err error) bool {
	if apierrors.IsMethodNotSupported(err) {
		return true
	}
	if !apierrors.IsNotFound(err) {
		return false
	}
	_, err = c.Resource(api.Repositories).Namespace(namespace).Get(ctx, repository, metav1.GetOptions{})
	return err == nil
}
