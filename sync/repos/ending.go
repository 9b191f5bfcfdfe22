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
	"limpet/sync/kube"
	"limpet/sync/text"
)

// Leaver deals with the objects that a Repository has made. Each call may be
// repeated. *workers.Orphans is one.
type Leaver interface {
	// Remove deletes them and Release gives them up; both return how many it were.
	Remove(ctx context.Context, repo *unstructured.Unstructured) (int, error)
	Release(ctx context.Context, repo *unstructured.Unstructured) (int, error)
}

// annoForce on a Repository lets it go although its remote cannot be reached: the
// webhook stays there. Source: Grafana.
const annoForce = "provisioning.grafana.app/force-delete"

const (
	// runLimit is how long a job that runs may hold up the end of its Repository.
	// Source: the default of --max-job-timeout.
	runLimit = 20 * time.Minute
	// runLook is how often it is looked for without an event.
	runLook = 5 * time.Second
	// maxDeleteError bounds status.deleteError, in bytes.
	maxDeleteError = 1024
)

// errBusy says that a job of the Repository still runs: what it made now would
// be left behind.
var errBusy = errors.New("a job of the repository still runs")

// end works off the finalizers of a Repository that is being deleted, in the order
// in which Grafana does, and then takes them away, so that the server can let it
// go. Each step may be repeated: one that was cut off is begun again. What is in
// the way is told in status.deleteError, and tried again.
func (c *Controller) end(ctx context.Context, k Key, obj *unstructured.Unstructured) (next time.Time, period time.Duration, err error) {
	n := c.noteOf(k, string(obj.GetUID()))
	if n.heldUp == obj.GetResourceVersion() && !c.times.next(k).IsZero() {
		return time.Time{}, 0, errWaits // what woke us is our own note of what is in the way
	}
	var done []string
	for _, step := range []struct {
		finalizer string
		able      bool
		do        func(context.Context, Key, *unstructured.Unstructured) error
	}{
		{api.FinalizerRemoveJobs, true, c.dropJobs},
		{api.FinalizerCleanup, true, c.unhook},
		{api.FinalizerRelease, c.o.Leaver != nil, c.release},
		{api.FinalizerRemove, c.o.Leaver != nil, c.remove},
	} {
		if !step.able || !slices.Contains(obj.GetFinalizers(), step.finalizer) {
			continue
		}
		err := step.do(ctx, k, obj)
		switch {
		case errors.Is(err, errBusy):
			return time.Now().Add(runLook), runLook, nil
		case ctx.Err() != nil:
			return time.Time{}, 0, context.Cause(ctx)
		case err != nil:
			err = fmt.Errorf("%s: %w", step.finalizer, err)
			told, failed := c.tellDeleteError(ctx, k, obj, err)
			n.heldUp = told.GetResourceVersion()
			return time.Time{}, 0, errors.Join(err, failed)
		}
		done = append(done, step.finalizer)
	}
	if len(done) == 0 {
		return time.Time{}, 0, nil // the rest is others'
	}
	rest := slices.DeleteFunc(obj.GetFinalizers(), func(f string) bool { return slices.Contains(done, f) })
	ops := append(guard(obj, "metadata"), op{"add", "/metadata/finalizers", rest})
	if len(rest) == 0 {
		ops[len(ops)-1] = op{"remove", "/metadata/finalizers", nil}
	}
	if _, err := c.server.patch(ctx, k, false, ops); err != nil && !apierrors.IsNotFound(err) {
		return time.Time{}, 0, err
	}
	if len(rest) == 0 {
		c.tell(k, "info", "repository is gone")
	}
	return time.Time{}, 0, nil
}

// tellDeleteError notes what is in the way, unless that is what the status says,
// and returns the Repository as it is then.
func (c *Controller) tellDeleteError(ctx context.Context, k Key, obj *unstructured.Unstructured, cause error) (*unstructured.Unstructured, error) {
	text := text.Redact(cause.Error())
	if len(text) > maxDeleteError {
		text = strings.ToValidUTF8(text[:maxDeleteError-len("…")], "") + "…"
	}
	if was, _, _ := unstructured.NestedString(obj.Object, "status", "deleteError"); was == text {
		return obj, nil
	}
	ch := &change{obj: obj, now: c.now()}
	ch.set(text, "deleteError")
	now, err := c.server.patch(ctx, k, true, ch.patch())
	if err != nil {
		return obj, err
	}
	c.tell(k, "warn", "cannot be deleted yet: "+text)
	return now, nil
}

// orphanActions are the jobs that want their Repository to be gone.
var orphanActions = []string{"releaseResources", "deleteResources"}

var pathAction = kube.PathTo("spec", "action")

// dropJobs deletes the jobs that nobody has claimed yet, and waits for the others.
func (c *Controller) dropJobs(ctx context.Context, k Key, obj *unstructured.Unstructured) error {
	busy := false
	for _, s := range c.jobs.Objects() {
		if s.Namespace() != k.Namespace || s.Text(pathRepository) != k.Name || slices.Contains(orphanActions, s.Text(pathAction)) {
			continue
		}
		job := s.Unstructured()
		if job.GetLabels()[api.LabelClaim] != "" {
			busy = true
			continue
		}
		err := c.server.dropJob(ctx, job)
		switch {
		case apierrors.IsConflict(err):
			busy = true // it was claimed, or has changed: the watch tells
		case err != nil && !apierrors.IsNotFound(err):
			return fmt.Errorf("delete job %s: %w", job.GetName(), err)
		}
	}
	since := obj.GetDeletionTimestamp()
	if busy && since != nil && c.now().Sub(since.Time) < runLimit {
		return errBusy
	}
	return nil
}

// unhook removes the webhook.
func (c *Controller) unhook(ctx context.Context, k Key, obj *unstructured.Unstructured) error {
	if c.o.Unhook == nil {
		return nil
	}
	err := c.o.Unhook(ctx, obj)
	if err != nil && obj.GetAnnotations()[annoForce] == "true" {
		c.log.Warn("the webhook stays at its host", "repo", k.Name, "namespace", k.Namespace, "err", err)
		return nil
	}
	return err
}

func (c *Controller) release(ctx context.Context, k Key, obj *unstructured.Unstructured) error {
	n, err := c.o.Leaver.Release(ctx, obj)
	if n > 0 {
		c.tell(k, "info", fmt.Sprintf("%d objects released", n))
	}
	return err
}

func (c *Controller) remove(ctx context.Context, k Key, obj *unstructured.Unstructured) error {
	n, err := c.o.Leaver.Remove(ctx, obj)
	if n > 0 {
		c.tell(k, "info", fmt.Sprintf("%d objects removed", n))
	}
	return err
}
