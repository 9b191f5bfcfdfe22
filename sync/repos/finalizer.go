package repos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/api/admission"
	"limpet/sync/api/patch"
	"limpet/sync/kube"
	"limpet/sync/reconcile"
	"limpet/sync/text"
	"limpet/sync/worker"
)

// finalizer is the step that gives Repositories their finalizers, and works off those of deleted
// ones.
type finalizer struct {
	reporter     reporter
	server       server
	jobs         lister
	orphans      *worker.Orphans // nil = these finalizers are left to others
	cleanWebhook func(ctx context.Context, k reconcile.Key, repo *unstructured.Unstructured) error
	next         func(namespace, name string) time.Time // see Loop.Next
	now          func() time.Time
}

// annoForce on a Repository, with the value true, removes a finalizer although its work fails: the
// webhook stays at its host, or objects stay. Source: Grafana.
const annoForce = "provisioning.grafana.app/force-delete"

const (
	// jobLimit is how long a job that runs may hold up the deletion of its Repository.
	// Source: the default of --max-job-timeout.
	jobLimit = 20 * time.Minute
	// jobPoll is how often it is checked without an event.
	jobPoll = 5 * time.Second
	// maxDeleteError bounds status.deleteError and each detail of status.deletion, in bytes.
	maxDeleteError = 1024
	// maxDeletionErrors bounds status.deletion.errors.
	maxDeletionErrors = 20
)

// errJobRuns says that a job of the Repository still runs: what it made now would be left behind.
var errJobRuns = errors.New("a job of the repository still runs")

// finalize works off the finalizers of a Repository that is being deleted, and then removes them, so
// that the server can delete it. Each part may be repeated: one that was cut off begins again. What
// is in the way is written to status.deleteError, and retried.
func (f *finalizer) finalize(ctx context.Context, a *attempt) (bool, error) {
	if a.obj.GetDeletionTimestamp() == nil {
		return false, f.hold(ctx, a)
	}
	if a.memory.deleteErr == a.obj.GetResourceVersion() && !f.next(a.key.Namespace, a.key.Name).IsZero() {
		return false, reconcile.ErrWait // our own patch of deleteError woke us
	}
	parts := f.parts(a.obj)
	if len(parts) == 0 {
		return true, nil // the others belong to other controllers
	}
	// The watch may be behind, and the objects may be those of another Repository of that name now.
	now, err := f.server.Get(ctx, a.key)
	switch {
	case kube.IsAbsent(err) || err == nil && now.GetUID() != a.obj.GetUID():
		a.result.Next = time.Now().Add(jobPoll)
		return true, nil
	case err != nil:
		return false, errors.Join(fmt.Errorf("read the repository: %w", err), f.writeDeleteError(ctx, a, parts[0].finalizer, err))
	}
	var done []string
	for _, part := range parts {
		err := part.run(ctx, a)
		switch {
		case errors.Is(err, errJobRuns):
			a.result.Next = time.Now().Add(jobPoll)
			return true, nil
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case err != nil && !forced(a.obj, part.finalizer, err):
			return false, errors.Join(fmt.Errorf("%s: %w", part.finalizer, err), f.writeDeleteError(ctx, a, part.finalizer, err))
		case err != nil:
			f.reporter.report(a.key, "warn", "finalizer "+part.finalizer+" removed by force: "+text.Redact(err.Error()))
			f.reporter.logOf(a).Warn("finalizer removed by force", "finalizer", part.finalizer, "err", err)
		}
		done = append(done, part.finalizer)
	}
	rest := slices.DeleteFunc(a.obj.GetFinalizers(), func(name string) bool { return slices.Contains(done, name) })
	ops := append(patch.Guard(a.obj, "metadata"), patch.Add("/metadata/finalizers", rest))
	if len(rest) == 0 {
		ops[len(ops)-1] = patch.Op{Op: "remove", Path: "/metadata/finalizers"}
	}
	if _, err := f.server.Patch(ctx, a.key, ops); err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	if len(rest) == 0 {
		f.reporter.report(a.key, "info", "repository deleted")
	}
	return true, nil
}

// part works off one finalizer.
type part struct {
	finalizer string
	able      bool
	run       func(context.Context, *attempt) error
}

// parts returns those that are to be worked off for a Repository, in the order of Grafana.
func (f *finalizer) parts(repo *unstructured.Unstructured) []part {
	return slices.DeleteFunc([]part{
		{api.FinalizerRemoveJobs, true, f.deleteJobs},
		{api.FinalizerCleanup, true, f.cleanUp},
		{api.FinalizerRelease, f.orphans != nil, f.objects("released", (*worker.Orphans).Release)},
		{api.FinalizerRemove, f.orphans != nil, f.objects("removed", (*worker.Orphans).Remove)},
	}, func(p part) bool { return !p.able || !slices.Contains(repo.GetFinalizers(), p.finalizer) })
}

// hold gives a living Repository without finalizers those of Grafana's admission, which another API
// does not have: without them a deletion would leave objects with a manager that does not exist.
// Where that may not be written, the Repository goes on without.
func (f *finalizer) hold(ctx context.Context, a *attempt) error {
	if f.orphans == nil || len(a.obj.GetFinalizers()) > 0 || pauseLeft(a.memory.holdAfter, f.now()) > 0 {
		return nil
	}
	now, err := f.server.Patch(ctx, a.key, append(patch.Guard(a.obj, "metadata"), patch.Add("/metadata/finalizers", admission.Finalizers)))
	switch {
	case apierrors.IsForbidden(err):
		a.memory.holdAfter = f.now().Add(refusedCooldown)
		return nil
	case err != nil:
		return err
	}
	a.wrote(now)
	return nil
}

// forced reports whether a finalizer whose work has failed is removed: the annotation asks for it,
// and where objects would stay, the status names the finalizer already. A server that is away is no
// failure.
func forced(repo *unstructured.Unstructured, finalizer string, err error) bool {
	if repo.GetAnnotations()[annoForce] != "true" || errors.As(err, new(*kube.UnavailableError)) {
		return false
	}
	view, _ := api.RepositoryView(repo)
	return finalizer == api.FinalizerCleanup ||
		slices.ContainsFunc(view.Status.Blocked(), func(e api.DeletionError) bool { return e.Finalizer == finalizer })
}

func deletionErrors(a *attempt, finalizer string, cause error) (out []api.DeletionError) {
	var left *worker.RemainingError
	if !errors.As(cause, &left) {
		e := api.DeletionError{Detail: deletionText(cause), Finalizer: finalizer,
			Target: &api.DeletionTarget{Group: api.ProvisioningGroup, Resource: api.Repositories.Resource, Name: a.key.Name}}
		if finalizer == api.FinalizerCleanup {
			e.Code = api.DeletionWebhookRemovalError
		}
		return []api.DeletionError{e}
	}
	for _, l := range left.Remaining[:min(len(left.Remaining), maxDeletionErrors)] {
		out = append(out, api.DeletionError{Detail: deletionText(errors.New(l.String())), Finalizer: finalizer,
			Target: &api.DeletionTarget{Group: l.Item.Group, Resource: l.Item.Resource, Name: l.Item.Name}})
	}
	return out
}

func deletionText(err error) string {
	message := text.Redact(err.Error())
	if len(message) > maxDeleteError {
		message = strings.ToValidUTF8(message[:maxDeleteError-len("…")], "") + "…"
	}
	return message
}

// writeDeleteError writes what is in the way, unless that is what the status says.
func (f *finalizer) writeDeleteError(ctx context.Context, a *attempt, finalizer string, cause error) error {
	message := deletionText(fmt.Errorf("%s: %w", finalizer, cause))
	if was, _, _ := unstructured.NestedString(a.obj.Object, "status", "deleteError"); was == message {
		return nil
	}
	ch := &change{obj: a.obj, now: f.now()}
	ch.set(message, "deleteError")
	ch.set(api.DeletionStatus{State: api.DeletionBlocked, Errors: deletionErrors(a, finalizer, cause)}, "deletion")
	now, err := f.server.PatchStatus(ctx, a.key, ch.patch())
	if err != nil {
		return err
	}
	a.wrote(now) // the watch may show it later than the next try
	a.memory.deleteErr = now.GetResourceVersion()
	f.reporter.report(a.key, "warn", "cannot be deleted yet: "+message)
	return nil
}

var pathAction = kube.PathTo("spec", "action")

// deleteJobs deletes the jobs that are not claimed, and waits for the others.
func (f *finalizer) deleteJobs(ctx context.Context, a *attempt) error {
	running := false
	for _, o := range f.jobs.Objects() {
		if o.Namespace() != a.key.Namespace || o.Text(pathRepository) != a.key.Name || slices.Contains(api.OrphanActions, o.Text(pathAction)) {
			continue
		}
		job := o.Unstructured()
		if job.GetLabels()[api.LabelClaim] != "" {
			running = true
			continue
		}
		err := f.server.deleteJob(ctx, job)
		switch {
		case apierrors.IsConflict(err):
			running = true // it was claimed, or has changed: the watch shows it
		case err != nil && !apierrors.IsNotFound(err):
			return fmt.Errorf("delete job %s: %w", job.GetName(), err)
		}
	}
	since := a.obj.GetDeletionTimestamp()
	if running && since != nil && f.now().Sub(since.Time) < jobLimit {
		return errJobRuns
	}
	return nil
}

func (f *finalizer) cleanUp(ctx context.Context, a *attempt) error {
	return f.cleanWebhook(ctx, a.key, a.obj)
}

// objects deals with the objects that the Repository has made, and reports their number.
func (f *finalizer) objects(
	how string, do func(o *worker.Orphans, ctx context.Context, repo *unstructured.Unstructured) (int, error),
) func(context.Context, *attempt) error {
	return func(ctx context.Context, a *attempt) error {
		n, err := do(f.orphans, ctx, a.obj)
		if n > 0 {
			f.reporter.report(a.key, "info", fmt.Sprintf("%d objects %s", n, how))
		}
		return err
	}
}
