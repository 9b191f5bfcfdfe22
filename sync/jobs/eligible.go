package jobs

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

// judgement is what this agent makes of a job that nobody holds. Exactly one of
// leave, end and worker is set.
type judgement struct {
	// leave says why the job is left alone, for another agent or for later.
	leave string
	// quiet says that leaving is nothing to tell a person: it is configured so.
	quiet bool
	// end is the outcome of a job that no agent can ever run: it is claimed and
	// ended thus, so that people see it.
	end    *Outcome
	worker Worker
	task   Task
}

func leave(format string, args ...any) judgement {
	return judgement{leave: fmt.Sprintf(format, args...)}
}

func leaveQuietly(format string, args ...any) judgement {
	return judgement{leave: fmt.Sprintf(format, args...), quiet: true}
}

func endAs(state, format string, args ...any) judgement {
	out := Outcome{State: state, Message: fmt.Sprintf(format, args...)}
	if state == api.StateError {
		out.Errors = []string{out.Message}
	} else {
		out.Warnings = []string{out.Message}
	}
	return judgement{end: &out}
}

// route judges by the job alone: what it says holds whatever its repository is.
// nil = look at the repository too.
func (c *Controller) route(job *unstructured.Unstructured) *judgement {
	a := aboutOf(job)
	var j judgement
	switch {
	case len(c.o.Actions) > 0 && !slices.Contains(c.o.Actions, a.action):
		j = leaveQuietly("action %q is not among the actions of this agent", a.action)
	case c.workers[a.action] == nil:
		j = leave("no worker for action %q in this agent", a.action)
	default:
		return nil
	}
	return &j
}

// judge decides what happens to a job. repo is nil when the API says that the
// repository does not exist.
func (c *Controller) judge(job, repo *unstructured.Unstructured) judgement {
	if j := c.route(job); j != nil {
		return *j
	}
	a := aboutOf(job)
	view, err := api.JobView(job)
	if err != nil {
		return leave("%s", err)
	}
	if repo == nil && !c.o.Selector.Empty() {
		return leaveQuietly("repository %q does not exist, so the repository selector cannot be asked", a.repository)
	}
	if repo != nil && !c.selected(repo) {
		return leaveQuietly("repository %q is not selected by this agent", a.repository)
	}
	orphan := orphanActions[a.action]
	switch {
	case a.repository == "":
		return endAs(api.StateError, "spec.repository is not set")
	case cancelReason(job) != "":
		when := "before it began"
		if attemptsOf(job) > 0 {
			when = "between two attempts"
		}
		j := endAs(api.StateError, "cancelled %s: %s", when, cancelReason(job))
		j.end.cancelled = true
		return j
	case repo == nil && !orphan:
		return endAs(api.StateError, "repository %q does not exist in namespace %q", a.repository, a.Namespace)
	case repo != nil && !orphan && api.Meta(repo, "deletionTimestamp") != "":
		return endAs(api.StateWarning, "repository %q is being deleted: nothing was done", a.repository)
	case repo != nil && !orphan && api.Label(repo, api.LabelPendingDelete) == "true":
		return endAs(api.StateWarning, "repository %q is about to be deleted: nothing was done", a.repository)
	case repo != nil && orphan && api.Meta(repo, "deletionTimestamp") == "":
		return endAs(api.StateError, "%s needs repository %q to be deleted first, but it exists", a.action, a.repository)
	}
	task := Task{Object: job, Job: view, Repo: repo, Namespace: a.Namespace, Name: a.Name, UID: a.uid, Attempt: a.attempt}
	if repo != nil {
		if task.Repository, err = api.RepositoryView(repo); err != nil {
			return leave("%s", err)
		}
	}
	return judgement{worker: c.workers[a.action], task: task}
}
