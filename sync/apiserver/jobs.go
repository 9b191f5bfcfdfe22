package apiserver

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"limpet/sync/api"
	"limpet/sync/api/admission"
)

// repositories/NAME/jobs is how people and user interfaces ask for a job:
//
//	GET  jobs        the finished jobs of the repository (HistoricJobs)
//	POST jobs        the body is a job's spec; 202 with the Job
//	GET  jobs/UID    one job, finished or still queued
//
// The name of the new Job follows from repository and action, so that a second
// request for the same thing is a 409 and not a second job.

func (c *call) serveJobs() error {
	switch read := c.req.Method == http.MethodGet || c.req.Method == http.MethodHead; {
	case c.req.Method == http.MethodPost && len(c.target.rest) > 0:
		return badRequest("a job is created by POST to repositories/%s/jobs, without a UID", c.target.name)
	case c.req.Method == http.MethodPost:
		return c.createJob()
	case !read:
		c.w.Header().Set("Allow", "GET, POST")
		return apierrors.NewMethodNotSupported(c.target.resource(), strings.ToLower(c.req.Method))
	case len(c.target.rest) == 0:
		if _, err := c.repository(); err != nil {
			return err
		}
		page, err := c.finished(nil)
		if err != nil {
			return err
		}
		return c.below("historicjobs").answerPage(page)
	}
	uid := c.target.rest[0]
	records, err := c.finished(labels.Set{api.LabelOriginalUID: uid})
	if err != nil {
		return err
	}
	if len(records.items) == 1 {
		return c.below("historicjobs").answer(http.StatusOK, records.items[0])
	}
	jobs := c.below("jobs")
	queued, err := c.server.page(c.req.Context(), jobs.target, everything())
	if err != nil {
		return err
	}
	for _, job := range queued.items {
		if text(job, find(job, "metadata", "uid")) == uid && text(job, find(job, "spec", "repository")) == c.target.name {
			return jobs.answer(http.StatusOK, job)
		}
	}
	jobs.target.name = uid
	return jobs.target.notFound()
}

// below returns the same call for another kind, whose objects it answers.
func (c *call) below(plural string) *call {
	out := *c
	out.target = c.target.of(plural)
	return &out
}

// finished returns the records of the jobs of the repository with the labels.
func (c *call) finished(more labels.Set) (listPage, error) {
	o := everything()
	o.LabelSelector = labels.SelectorFromSet(labels.Merge(labels.Set{api.LabelRepository: c.target.name}, more))
	return c.server.page(c.req.Context(), c.target.of("historicjobs"), o)
}

func (c *call) createJob() error {
	body, err := c.readBody()
	if err != nil {
		return err
	}
	spec, action, err := readJobSpec(body, c.target.name)
	if err != nil {
		return err
	}
	jobs := c.below("jobs")
	repo, err := c.repositoryFor(action)
	if err != nil {
		return err
	}
	job := jobs.target.empty()
	job.Object["spec"] = spec
	job.SetName(jobName(c.target.name, action))
	job.SetLabels(map[string]string{api.LabelRepository: c.target.name})
	o := writeOptions{manager: processManager, validation: metav1.FieldValidationIgnore, warnings: new([]string)}
	created, err := c.server.add(c.req.Context(), jobs.target, job, o)
	if err == nil && action == "pull" {
		c.markPending(context.WithoutCancel(c.req.Context()), repo)
	}
	return jobs.wrote(http.StatusAccepted, o, created, err)
}

// processManager is the field manager of writes of this process itself.
const processManager = "limpet"

func (c *call) repository() (*unstructured.Unstructured, error) {
	cur, err := c.server.read(c.req.Context(), c.target)
	if err == nil && cur.object == nil {
		err = c.target.notFound()
	}
	return cur.object, err
}

// exportActions create the first branch of an empty Git repository.
var exportActions = []string{"push", "migrate"}

// noBranch reports whether the only fault of a repository is a missing branch.
func noBranch(s api.RepositoryStatus) bool {
	return len(s.FieldErrors) > 0 && !slices.ContainsFunc(s.FieldErrors, func(e api.FieldError) bool {
		return e.Type != string(field.ErrorTypeNotFound) || !strings.HasSuffix(e.Field, ".branch")
	})
}

// checkJob applies the rules between a job and its Repository, if there is one, which owns a new
// job. A clean-up after one that is not being deleted is refused: its next pull would make all
// again.
func (s *Server) checkJob(ctx context.Context, p *plan, spec map[string]any) error {
	action, _ := spec["action"].(string)
	if err := s.checkAction(p.target, action); err != nil {
		return err
	}
	t := p.target.of("repositories")
	t.name, _ = spec["repository"].(string)
	cur, err := s.read(ctx, t)
	if err != nil || cur.object == nil || cur.object.GetDeletionTimestamp() != nil {
		return err
	}
	if slices.Contains(api.OrphanActions, action) {
		return conflict(t, "%s is for repositories that are deleted; delete the repository first", action)
	}
	view, err := api.RepositoryView(cur.object)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if err := admission.CheckWorkflow(view.Spec, spec); err != nil {
		forbidden := apierrors.NewForbidden(t.resource(), t.name, err)
		forbidden.ErrStatus.Details.Causes = []metav1.StatusCause{
			{Type: metav1.CauseTypeForbidden, Field: "spec.workflows", Message: err.Error()},
		}
		return forbidden
	}
	if p.old == nil && len(p.object.GetOwnerReferences()) == 0 {
		owner := metav1.NewControllerRef(cur.object, cur.object.GroupVersionKind())
		p.object.SetOwnerReferences([]metav1.OwnerReference{*owner})
	}
	return nil
}

// repositoryFor returns the repository if it may have a job of this action; nil for those that need
// none.
func (c *call) repositoryFor(action string) (*unstructured.Unstructured, error) {
	if slices.Contains(api.OrphanActions, action) {
		return nil, nil
	}
	repo, err := c.repository()
	if err != nil {
		return nil, err
	}
	if repo.GetDeletionTimestamp() != nil {
		return nil, conflict(c.target, "the repository is being deleted")
	}
	view, err := api.RepositoryView(repo)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	begins := slices.Contains(exportActions, action) && noBranch(view.Status)
	if health := view.Status.Health; health.Checked > 0 && !health.Healthy && !begins {
		text := "the repository is not healthy"
		if len(health.Message) > 0 {
			text += ": " + strings.Join(health.Message, "; ")
		}
		return nil, statusError(http.StatusFailedDependency, "FailedDependency", text)
	}
	return repo, nil
}

// markPending sets the sync state of the repository to pending. The write is dropped when the
// repository has changed since it was read: the job may have been claimed already, and then the
// worker owns the status.
func (c *call) markPending(ctx context.Context, repo *unstructured.Unstructured) {
	t := c.target
	t.subresource = "status"
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": repo.GetUID(), "resourceVersion": repo.GetResourceVersion()},
		"status":   map[string]any{"sync": map[string]any{"state": api.StatePending, "started": 0}},
	})
	if err == nil {
		o := writeOptions{manager: processManager, validation: metav1.FieldValidationIgnore}
		_, _, err = c.server.patch(ctx, t, types.MergePatchType, patch, o)
	}
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		c.server.log.Warn("set sync state to pending", "repository", c.target.namespace+"/"+c.target.name, "err", err)
	}
}

// actionBlocks are the option blocks from which an action can be derived.
var actionBlocks = []string{"migrate", "pull", "push", "pr", "delete", "move", "fixFolderMetadata", "test"}

// readJobSpec reads the body of a request for a job. The repository is that of
// the path; the action may be left out when one option block implies it.
func readJobSpec(body []byte, repository string) (spec map[string]any, action string, err error) {
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &spec); err != nil || spec == nil {
		return nil, "", badRequest(`the body must be the spec of a job, such as {"action":"pull","pull":{"incremental":false}}`)
	}
	if spec["spec"] != nil || spec["kind"] != nil {
		return nil, "", badRequest("the body must be the spec of a job alone, without kind and metadata")
	}
	for _, name := range []string{"action", "repository"} {
		if _, ok := spec[name].(string); spec[name] != nil && !ok {
			return nil, "", badRequest("%s must be a text", name)
		}
	}
	action, _ = spec["action"].(string)
	if given := spec["repository"]; given != nil && given != "" && given != repository {
		return nil, "", badRequest("the body names the repository %q, the path %q", given, repository)
	}
	var blocks []string
	for _, block := range actionBlocks {
		if spec[block] != nil {
			blocks = append(blocks, block)
		}
	}
	switch {
	case len(blocks) > 1:
		return nil, "", badRequest("multiple job types found: %s", strings.Join(blocks, ", "))
	case len(blocks) == 1 && action != "" && blocks[0] != action:
		return nil, "", badRequest("the action is %s, the options are those of %s", action, blocks[0])
	case len(blocks) == 1:
		action = blocks[0]
	}
	if action == "pr" {
		return nil, "", badRequest("jobs for pull requests are made by webhooks only")
	}
	spec["action"], spec["repository"] = action, repository
	return spec, action, nil
}

// jobName returns the name under which Grafana queues a job. Without an action
// the name ends with "job": validation then reports the missing action.
func jobName(repository, action string) string {
	name := api.JobName(repository, cmp.Or(action, "job"))
	if action == "test" {
		name += "-" + strings.ToLower(rand.Text()[:8])
	}
	return name
}
