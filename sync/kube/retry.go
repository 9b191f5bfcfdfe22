package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"limpet/sync/api"
	"limpet/sync/text"
)

// The schedule of retry: 100 ms, doubled up to 5 s, each up to a tenth longer;
// 8 attempts take about 13 s in all, less than the expiry of a lease.
const (
	retryAttempts = 8
	retryFirst    = 100 * time.Millisecond
	retryLast     = 5 * time.Second
)

// retry calls fn until it succeeds, up to 8 times, and returns its last error. It tries again when
// again says so, and then waits as long as the server asked for, if it did. It returns at once when
// ctx ends or would end before the next attempt. fn must be harmless when done twice.
func retry(ctx context.Context, again func(error) bool, fn func(ctx context.Context) error) error {
	pause := retryFirst
	for n := 1; ; n++ {
		err := fn(ctx)
		if err == nil || n == retryAttempts || ctx.Err() != nil || !again(err) {
			return err
		}
		wait := pause
		if after, ok := RetryAfter(err); ok {
			wait = max(wait, after)
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
			return err
		}
		if Sleep(ctx, wait+rand.N(wait/10+1)) != nil {
			return err
		}
		pause = min(2*pause, retryLast)
	}
}

// Sleep waits for d. It returns the cause of ctx when that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Do makes a raw call: path is below the base URL and begins with a slash, body may be nil.
// contentType is that of the body; without a body it is the form in which the answer is wanted (""
// = JSON). Calls that fail are repeated; a POST only when the server says that it did not take it
// (429, 503) or was not reached. A PATCH must be harmless when it is carried out twice.
//
// When the server answers with 400 or more, err is an API status error (see apierrors), and status
// and answer are filled in as well. status is 0 when there was no answer.
func (c *Client) Do(ctx context.Context, method, path string, query url.Values, contentType string, body []byte) (status int,
	answer []byte, err error) {
	return c.do(ctx, method, path, query, contentType, body, func(err error) bool {
		return Retryable(err) && (method != http.MethodPost || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) ||
			neverSent(err))
	})
}

// DoIdempotent is Do for a POST that is harmless when it is carried out twice: it is repeated like
// the others.
func (c *Client) DoIdempotent(ctx context.Context, method, path string, query url.Values, contentType string, body []byte) (status int,
	answer []byte, err error) {
	return c.do(ctx, method, path, query, contentType, body, Retryable)
}

func (c *Client) do(ctx context.Context, method, path string, query url.Values, contentType string, body []byte,
	again func(error) bool) (status int, answer []byte, err error) {
	err = retry(ctx, again, func(ctx context.Context) error {
		status, answer, err = c.once(ctx, method, path, query, contentType, body)
		return err
	})
	return status, answer, err
}

func (c *Client) once(ctx context.Context, method, path string, query url.Values, contentType string, body []byte) (status int,
	answer []byte, err error) {
	req := c.rest.Verb(method).AbsPath(path).SetHeader("Accept", "application/json")
	for key, values := range query {
		for _, value := range values {
			req.Param(key, value)
		}
	}
	switch {
	case contentType == "":
	case body == nil:
		req.SetHeader("Accept", contentType)
	default:
		req.SetHeader("Content-Type", contentType)
	}
	if body != nil {
		req.Body(body)
	}
	result := req.Do(ctx).StatusCode(&status)
	answer, _ = result.Raw() // Error knows more
	err = result.Error()
	if failure := statusOf(err); failure != nil {
		status = int(failure.Code)
	}
	return status, answer, text.RedactError(err)
}

// neverSent reports whether a call cannot have reached the server.
func neverSent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return errors.Is(err, syscall.ECONNREFUSED) || is[*net.DNSError](err) || is[*ExchangeError](err) || ok && op.Op == "dial"
}

// Submit queues a job of a Repository and returns it. spec is the job's own, with its action and
// without the repository. It goes through the Repository's own route, which names the job so that a
// repeat is refused (see apierrors.IsAlreadyExists). A plain Kubernetes API has no such route, and
// the route takes neither annotations nor jobs for pull requests: then the job is made directly,
// under the same name. A pull whose name is taken by a job that no agent serves gets the one of
// api.JobBeside.
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
	var owner []metav1.OwnerReference // Grafana's jobs have none, and it collects nothing
	below := fmt.Sprintf("/apis/%s/%s/namespaces/%s", api.ProvisioningGroup, api.Jobs.Version, namespace)
	if len(notes) == 0 && action != "pr" && name == "" {
		job, err := c.post(ctx, below+"/repositories/"+repository+"/jobs", spec)
		orphans := slices.Contains(api.OrphanActions, action) && apierrors.IsNotFound(err) // of a Repository that is gone
		if err == nil {
			return job, nil
		}
		if !orphans {
			repo, without := c.noSuchRoute(ctx, namespace, repository, err)
			if !without {
				return nil, err
			}
			if repo != nil && repo.GetDeletionTimestamp() == nil {
				owner = append(owner, *metav1.NewControllerRef(repo, repo.GroupVersionKind()))
			}
		}
	}
	spec = maps.Clone(spec)
	spec["repository"] = repository
	job := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	job.SetAPIVersion(api.Jobs.GroupVersion().String())
	job.SetKind("Job")
	job.SetName(cmp.Or(name, api.JobName(repository, action)))
	if action == "test" {
		job.SetName(job.GetName() + "-" + utilrand.String(8))
	}
	if pr, ok := spec["pr"].(map[string]any); ok && action == "pr" {
		job.SetName(fmt.Sprintf("%s-%v", api.JobName(repository, action), pr["pr"]))
	}
	job.SetLabels(map[string]string{api.LabelRepository: repository})
	job.SetOwnerReferences(owner)
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

// noSuchRoute distinguishes the 404 or 405 of a server without the route from that of a missing
// Repository: some servers answer both alike. It returns the Repository too, nil where it cannot be
// read.
func (c *Client) noSuchRoute(ctx context.Context, namespace, repository string, err error) (*unstructured.Unstructured, bool) {
	if !apierrors.IsMethodNotSupported(err) && !apierrors.IsNotFound(err) {
		return nil, false
	}
	repo, missing := c.Resource(api.Repositories).Namespace(namespace).Get(ctx, repository, metav1.GetOptions{})
	if missing != nil {
		return nil, apierrors.IsMethodNotSupported(err)
	}
	return repo, true
}
