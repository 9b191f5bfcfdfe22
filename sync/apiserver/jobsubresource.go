package apiserver

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"limpet/sync/api"
)

// repositories/NAME/jobs is how people and user interfaces ask for a job:
//
//	GET  jobs        the finished jobs of the repository (HistoricJobs)
//	POST jobs        the body is a job's spec; 202 with the Job
//	GET  jobs/UID    one job, finished or still queued
//
// The name of the new Job follows from repository and action, so that a second
// request for the same thing is a 409 and not a second job.

// serveSubresource serves the routes below one object that the core does not
// know. It returns false, and writes nothing, for any other route.
func (s *Server) serveSubresource(w http.ResponseWriter, req *http.Request, info requestInfo) bool {
	k := info.Kind
	if k.Group != api.ProvisioningGroup || k.Plural != "repositories" || info.Subresource != "jobs" || len(info.Rest) > 1 {
		return false
	}
	r := jobRequest{Server: s, version: info.Version, namespace: info.Namespace, repository: info.Name, repositories: k}
	uid := ""
	if len(info.Rest) == 1 {
		uid = info.Rest[0]
	}
	var err error
	switch {
	case req.Method == http.MethodPost && uid != "":
		err = badRequest("a job is created by POST to repositories/%s/jobs, without a UID", info.Name)
	case req.Method == http.MethodPost:
		err = r.create(w, req)
	case req.Method != http.MethodGet && req.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, POST")
		err = apierrors.NewMethodNotSupported(groupResource(k), strings.ToLower(req.Method))
	case uid == "":
		err = r.list(w, req)
	default:
		err = r.get(w, req, uid)
	}
	if err != nil {
		s.answerError(w, req, err)
	}
	return true
}

// jobRequest is one request below repositories/NAME/jobs.
type jobRequest struct {
	*Server
	version      string
	namespace    string
	repository   string
	repositories api.Kind
}

func (r jobRequest) list(w http.ResponseWriter, req *http.Request) error {
	if _, err := r.getObject(req.Context(), r.repositories, r.namespace, r.repository); err != nil {
		return err
	}
	history, _ := kindOf(api.ProvisioningGroup, "historicjobs")
	ofRepository := labels.SelectorFromSet(labels.Set{api.LabelRepository: r.repository})
	finished, err := r.listObjects(req.Context(), history, r.namespace, ofRepository)
	if err != nil {
		return err
	}
	r.answerList(w, req, history, r.version, finished)
	return nil
}

var uidLetters = regexp.MustCompile(`^[A-Za-z0-9-]+$`)

// get returns the record of a job by its UID or, while the job is not finished,
// the job itself.
func (r jobRequest) get(w http.ResponseWriter, req *http.Request, uid string) error {
	if !uidLetters.MatchString(uid) {
		return badRequest("the UID of a job has letters, digits and dashes only")
	}
	history, _ := kindOf(api.ProvisioningGroup, "historicjobs")
	found, err := r.listObjects(req.Context(), history, r.namespace,
		labels.SelectorFromSet(labels.Set{api.LabelRepository: r.repository, api.LabelOriginalUID: uid}))
	if err != nil {
		return err
	}
	if len(found) == 1 {
		r.answerObject(w, req, http.StatusOK, history, r.version, found[0])
		return nil
	}
	jobs, _ := kindOf(api.ProvisioningGroup, "jobs")
	queued, err := r.listObjects(req.Context(), jobs, r.namespace, labels.Everything())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(queued, func(job *unstructured.Unstructured) bool {
		repository, _, _ := unstructured.NestedString(job.Object, "spec", "repository")
		return string(job.GetUID()) == uid && repository == r.repository
	})
	if i < 0 || len(found) > 1 {
		return notFound(jobs, uid)
	}
	r.answerObject(w, req, http.StatusOK, jobs, r.version, queued[i])
	return nil
}

func (r jobRequest) create(w http.ResponseWriter, req *http.Request) error {
	body, err := readBody(req)
	if err != nil {
		return err
	}
	spec, action, err := readJobSpec(body, r.repository)
	if err != nil {
		return err
	}
	repo, err := r.repositoryFor(req.Context(), action)
	if err != nil {
		return err
	}
	jobs, _ := kindOf(api.ProvisioningGroup, "jobs")
	job := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	job.SetAPIVersion(apiVersionOf(jobs, r.version))
	job.SetKind(jobs.Kind)
	job.SetNamespace(r.namespace)
	job.SetName(jobName(r.repository, action))
	job.SetLabels(map[string]string{api.LabelRepository: r.repository})
	var warnings []string
	created, err := r.createObject(req.Context(), jobs, job, writeOptions{Version: r.version, Warnings: &warnings})
	if err != nil {
		return err
	}
	if action == "pull" {
		r.markPending(context.WithoutCancel(req.Context()), repo)
	}
	warn(w, warnings)
	r.answerObject(w, req, http.StatusAccepted, jobs, r.version, created)
	return nil
}

// orphanActions clean up the resources of a deleted repository.
var orphanActions = []string{"releaseResources", "deleteResources"}

// repositoryFor returns the repository if it may have a job of this action.
func (r jobRequest) repositoryFor(ctx context.Context, action string) (*unstructured.Unstructured, error) {
	repo, err := r.getObject(ctx, r.repositories, r.namespace, r.repository)
	if slices.Contains(orphanActions, action) {
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil
		case err == nil && repo.GetDeletionTimestamp() == nil:
			return nil, apierrors.NewConflict(groupResource(r.repositories), r.repository,
				fmt.Errorf("%s is for repositories that are deleted; delete the repository first", action))
		}
		return repo, err
	}
	if err != nil {
		return nil, err
	}
	if repo.GetDeletionTimestamp() != nil {
		return nil, apierrors.NewConflict(groupResource(r.repositories), r.repository, fmt.Errorf("the repository is being deleted"))
	}
	view, err := api.RepositoryView(repo)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if health := view.Status.Health; health.Checked > 0 && !health.Healthy {
		text := "the repository is not healthy"
		if len(health.Message) > 0 {
			text += ": " + strings.Join(health.Message, "; ")
		}
		return nil, statusError(http.StatusFailedDependency, "FailedDependency", text)
	}
	return repo, nil
}

// markPending sets the sync state of the repository to pending. The write is
// dropped when the repository has changed since it was read: the job may have
// been claimed already, and then the worker owns the status.
func (r jobRequest) markPending(ctx context.Context, repo *unstructured.Unstructured) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": repo.GetUID(), "resourceVersion": repo.GetResourceVersion()},
		"status":   map[string]any{"sync": map[string]any{"state": api.StatePending, "started": 0}},
	})
	if err == nil {
		_, err = r.patchObject(ctx, r.repositories, r.namespace, r.repository, types.MergePatchType, patch,
			writeOptions{Subresource: "status"})
	}
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		r.log.Warn("set sync state to pending", "repository", r.namespace+"/"+r.repository, "err", err)
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
	if given, _ := spec["repository"].(string); given != "" && given != repository {
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
// it returns a placeholder: validation then reports the missing action.
func jobName(repository, action string) string {
	name := api.JobName(repository, cmp.Or(action, "job"))
	if action == "test" {
		name += "-" + strings.ToLower(rand.Text()[:8])
	}
	return name
}
