package jobs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"limpet/sync/api"
	"limpet/sync/jobs/queue"
	"limpet/sync/kube"
)

// readyTime bounds Worker.Ready.
const readyTime = 5 * time.Second

// admission decides which jobs this agent runs.
type admission struct {
	env     *env
	jobs    lister
	repos   lister
	workers map[string]Worker
}

// decision is what happens to a job that has no claim. Exactly one of skip, end and worker is set.
type decision struct {
	// skip is why the job is left to another agent or to a later look.
	skip string
	// silent reports that the skip is configured, and not worth an event.
	silent bool
	// end is the outcome of a job that no agent can ever run: it is claimed and ended thus, so that
	// people see it.
	end    *Outcome
	worker Worker
	task   Task
}

func skip(silent bool, format string, args ...any) decision {
	return decision{skip: fmt.Sprintf(format, args...), silent: silent}
}

func endAs(state, format string, args ...any) decision {
	out := Outcome{State: state, Message: fmt.Sprintf(format, args...)}
	if state == api.StateError {
		out.Errors = []string{out.Message}
	} else {
		out.Warnings = []string{out.Message}
	}
	return decision{end: &out}
}

// decide decides about a job. repo is nil when the API says that the repository does not exist; one
// that ends the job is read again, because the watch may be behind, and an error of that is
// returned. It asks the worker whether it can run the job.
func (a *admission) decide(ctx context.Context, job, repo *unstructured.Unstructured) (decision, error) {
	d := a.byAction(job)
	if d.skip == "" {
		d = a.bySelector(job, repo)
	}
	if d.skip == "" {
		d = a.byRepository(job, repo)
	}
	if repo != nil && d.end != nil && !d.end.cancelled {
		now, err := a.fromAPI(ctx, repoOf(job))
		if err != nil {
			return d, err
		}
		d = a.byRepository(job, now) // not bySelector: one that is gone has no labels, and was selected
	}
	if d.worker != nil {
		if err := ready(ctx, d); err != nil {
			return skip(false, "not ready to run it: %s", err), nil
		}
	}
	return d, nil
}

// byAction skips a job whose action this agent does not run.
func (a *admission) byAction(job *unstructured.Unstructured) decision {
	action := api.Spec(job, "action")
	switch {
	case a.handles(action):
		return decision{}
	case len(a.env.o.Actions) > 0:
		return skip(true, "action %q is not among the actions of this agent", action)
	}
	return skip(false, "no agent serves %s", action)
}

// bySelector skips a job whose repository this agent does not select.
func (a *admission) bySelector(job, repo *unstructured.Unstructured) decision {
	switch {
	case repo == nil && !a.env.o.Selector.Empty():
		return skip(true, "repository %q does not exist, so it has no labels for the repository selector", api.Spec(job, "repository"))
	case repo != nil && !a.selects(repo):
		return skip(true, "repository %q is not selected by this agent", repo.GetName())
	}
	return decision{}
}

func (a *admission) byRepository(job, repo *unstructured.Unstructured) decision {
	ref := refOf(job)
	view, err := api.JobView(job)
	if err != nil {
		return skip(false, "%s", err)
	}
	orphan := slices.Contains(api.OrphanActions, ref.action)
	switch {
	case ref.repository == "":
		return endAs(api.StateError, "spec.repository is not set")
	case cancelReason(job) != "":
		when := "before it began"
		if attemptsOf(job) > 0 {
			when = "between two attempts"
		}
		d := endAs(api.StateError, "cancelled %s: %s", when, cancelReason(job))
		d.end.cancelled = true
		return d
	case repo == nil && !orphan:
		return endAs(api.StateError, "repository %q does not exist in namespace %q", ref.repository, ref.Namespace)
	case repo != nil && !orphan && api.Meta(repo, "deletionTimestamp") != "":
		return endAs(api.StateWarning, "repository %q is being deleted: nothing was done", ref.repository)
	case repo != nil && !orphan && api.Label(repo, api.LabelPendingDelete) == "true":
		return endAs(api.StateWarning, "repository %q is about to be deleted: nothing was done", ref.repository)
	case repo != nil && orphan && api.Meta(repo, "deletionTimestamp") == "":
		return endAs(api.StateError, "%s needs repository %q to be deleted first, but it exists", ref.action, ref.repository)
	}
	task := Task{Object: job, Job: view, Repo: repo, Namespace: ref.Namespace, Name: ref.Name, UID: ref.uid, Attempt: ref.attempt}
	if repo != nil {
		if task.Repository, err = api.RepositoryView(repo); err != nil {
			return skip(false, "%s", err)
		}
	}
	return decision{worker: a.workers[ref.action], task: task}
}

// ready asks the worker. A panic is an answer: this agent cannot run the job.
func ready(ctx context.Context, d decision) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("worker panicked: %v", r)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	return d.worker.Ready(ctx, d.task)
}

// skipped reports a job that is skipped.
func (a *admission) skipped(job *unstructured.Unstructured, d decision) {
	if ref := refOf(job); !d.silent {
		a.env.events.once("skipped "+ref.uid+d.skip, EventSkipped, ref, d.skip)
	}
}

// skipFromCache reports, without asking the API, that there is nothing to do for a key: as the
// watch shows it the job is claimed, is gone, or is none for this agent. It returns the job.
func (a *admission) skipFromCache(k queue.Key) (job *unstructured.Unstructured, skip bool) {
	job, ok := a.jobs.Get(k.Namespace, k.Name)
	if !ok || claimed(job) {
		return nil, true
	}
	if d := a.byAction(job); d.skip != "" {
		a.skipped(job, d)
		return job, true
	}
	// With a selector the server shows only what it picks. A Repository that comes later has its jobs
	// scanned again.
	return job, !a.selectsRepo(repoOf(job))
}

// selects reports whether the repository selector picks a repository.
func (a *admission) selects(repo *unstructured.Unstructured) bool {
	return a.env.o.Selector.Matches(labels.Set(repo.GetLabels()))
}

// handles reports whether this agent runs jobs of an action.
func (a *admission) handles(action string) bool {
	return a.workers[action] != nil && (len(a.env.o.Actions) == 0 || slices.Contains(a.env.o.Actions, action))
}

// selectsRepo reports whether this agent runs jobs of a repository, as far as the watch knows it.
func (a *admission) selectsRepo(r queue.RepoKey) bool {
	repo, ok := a.repos.Get(r.Namespace, r.Repository)
	return !ok && a.env.o.Selector.Empty() || ok && a.selects(repo)
}

// current is repository, but asks the API also about one that the job writes to: what is pushed
// stays, and the watch may be behind.
func (a *admission) current(ctx context.Context, job *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if slices.Contains(api.WriteActions, api.Spec(job, "action")) {
		return a.fromAPI(ctx, repoOf(job))
	}
	return a.repository(ctx, job)
}

// repository returns the repository of a job, nil when the API says that it does not exist. The
// watch may be behind, so the API is asked about an absent one.
func (a *admission) repository(ctx context.Context, job *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	r := repoOf(job)
	if r.Repository == "" {
		return nil, nil
	}
	if repo, ok := a.repos.Get(r.Namespace, r.Repository); ok {
		return repo, nil
	}
	return a.fromAPI(ctx, r)
}

func (a *admission) fromAPI(ctx context.Context, r queue.RepoKey) (*unstructured.Unstructured, error) {
	repo, err := a.env.server.get(ctx, api.Repositories, r.Namespace, r.Repository)
	if kube.IsAbsent(err) {
		return nil, nil
	}
	return repo, err
}

// priority is the priority of a job with that annotation limpet/priority: its own, else that of its
// repository as the watch has it, else the ordinary one. What is no digit counts as none.
func (a *admission) priority(text string, r queue.RepoKey) int {
	if repo, known := a.repos.Get(r.Namespace, r.Repository); known && !isPriority(text) {
		text = api.Annotation(repo, api.AnnoPriority)
	}
	if !isPriority(text) {
		return queue.Ordinary
	}
	return int(text[0] - '0')
}

func isPriority(text string) bool {
	return len(text) == 1 && text[0] >= '0' && text[0] <= '0'+queue.Highest
}
