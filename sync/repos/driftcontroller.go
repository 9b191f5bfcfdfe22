package repos

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/api/patch"
	"limpet/sync/kube"
	"limpet/sync/reconcile"
	"limpet/sync/text"
	"limpet/sync/worker"
	"limpet/sync/worker/drift"
)

// driftEvery is the period of the checks of one Repository; driftRetry is the pause after one that
// failed, or could not be made because of a pull.
const (
	driftEvery = time.Hour
	driftRetry = 10 * time.Minute
)

// maxDriftText bounds the message of the condition. Unit: bytes.
const maxDriftText = 500

// PulledOptions of Drifts and Sinks, which look at what a pull has written. All but Selector must
// be set.
type PulledOptions struct {
	Pull        *worker.Pull
	Store       *state.Store // of Drifts alone
	Suspensions *Suspensions
	Selector    labels.Selector       // of Repositories; nil = all
	Resync      time.Duration         // longest pause after failures
	Observe     func(reconcile.Event) // must not block
	Logger      *slog.Logger
}

// Drifts compares what Repositories have on the server with Git, each once an hour, and earlier
// after a pull that may have corrected what was found. It reports the result, and corrects it with
// a full pull where the Repository says so.
type Drifts struct {
	*reconcile.Loop
	reporter reporter
	o        PulledOptions
	repos    *kube.Informer
	server   server
	now      func() time.Time
	start    time.Time
}

// NewDrifts registers its handlers with the informer, which must not run yet. It starts nothing.
func NewDrifts(c *kube.Client, repos *kube.Informer, o PulledOptions) *Drifts {
	d := &Drifts{o: o, reporter: reporter{o.Observe, o.Logger}, repos: repos, server: serverOf(c, api.Repositories), now: c.Now}
	d.Loop = reconcile.NewLoop(reconcile.Options{
		Kind: "drift", Reconcile: d.reconcile, Client: c, MaxRetry: o.Resync, Logger: o.Logger,
	})
	wake := func(repo kube.Object) { d.Wake(repo.Namespace(), repo.Name()) }
	repos.AddHandler(kube.Handler{Add: wake, Update: func(old, repo kube.Object) {
		if old.Number(pathFinished) != repo.Number(pathFinished) || old.Text(pathDrift) != repo.Text(pathDrift) ||
			old.Text(pathDriftIgnore) != repo.Text(pathDriftIgnore) {
			wake(repo)
		}
	}})
	return d
}

var (
	pathDrift       = kube.PathTo("metadata", "annotations", api.AnnoDrift)
	pathDriftIgnore = kube.PathTo("metadata", "annotations", api.AnnoDriftIgnore)
)

// Run works until ctx ends.
func (d *Drifts) Run(ctx context.Context) error {
	if d.repos.WaitSynced(ctx) != nil {
		return nil
	}
	d.start = d.now()
	return d.Work(ctx, keysOf(d.repos))
}

func (d *Drifts) reconcile(ctx context.Context, k reconcile.Key) (reconcile.Result, error) {
	obj, ok := d.repos.Get(k.Namespace, k.Name)
	if !ok || obj.GetDeletionTimestamp() != nil || d.o.Selector != nil && !d.o.Selector.Matches(labels.Set(obj.GetLabels())) {
		return reconcile.Result{}, nil
	}
	view, err := api.RepositoryView(obj)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("%w: %w", reconcile.ErrInvalid, err)
	}
	last, err := d.o.Store.Drift(ctx, k.Namespace, k.Name, string(obj.GetUID()))
	if err != nil {
		return reconcile.Result{}, err
	}
	mode, now := api.DriftMode(obj), d.now()
	if mode == api.DriftOff {
		if last.At.IsZero() {
			return reconcile.Result{}, nil
		}
		if err := d.condition(ctx, k, obj, api.Condition{Type: api.ConditionDrifted}); err != nil {
			return reconcile.Result{}, err
		}
		return reconcile.Result{}, d.o.Store.PutDrift(ctx, k.Namespace, k.Name, new(state.Drift))
	}
	if due := driftDue(obj, view, last, d.start, now); now.Before(due) {
		return reconcile.Result{Next: time.Now().Add(due.Sub(now))}, nil
	}
	next := reconcile.Result{Next: time.Now().Add(driftRetry)}
	if _, suspended := d.o.Suspensions.Of(k, string(obj.GetUID())); suspended || !settled(obj, view) {
		return next, nil
	}
	report, err := d.o.Pull.DriftOf(ctx, obj, worker.DriftQuery{})
	switch {
	case ctx.Err() != nil || !d.unchanged(k, view):
		return next, nil
	case err != nil:
		d.reporter.log.Info("cannot look for drift", "repo", k.Name, "namespace", k.Namespace, "err", err, "retry_in", driftRetry)
		return next, nil
	}
	return reconcile.Result{Next: time.Now().Add(driftEvery)}, d.record(ctx, k, obj, report, last, mode == api.DriftCorrect, pulledSince(view, last))
}

// unchanged reports whether no pull has begun or ended since.
func (d *Drifts) unchanged(k reconcile.Key, before api.Repository) bool {
	obj, ok := d.repos.Get(k.Namespace, k.Name)
	if !ok {
		return false
	}
	view, err := api.RepositoryView(obj)
	return err == nil && view.Status.Sync.State == before.Status.Sync.State && view.Status.Sync.Finished == before.Status.Sync.Finished
}

// driftDue returns when a Repository is compared next. The first time is some time after the first
// hour of this process.
func driftDue(obj *unstructured.Unstructured, view api.Repository, last *state.Drift, start, now time.Time) time.Time {
	uid := string(obj.GetUID())
	switch {
	case last.At.IsZero():
		return reconcile.Slot(uid, driftEvery, start.Add(driftEvery))
	case last.At.After(now): // by a clock that was wrong
		return now
	case last.Count > 0 && pulledSince(view, last):
		return last.At // what was found may be corrected
	}
	return reconcile.Slot(uid, driftEvery, later(last.At.Add(driftEvery*3/4), start))
}

// pulledSince reports whether the last pull was a full one and ended after a comparison.
func pulledSince(view api.Repository, last *state.Drift) bool {
	return !view.Status.Sync.Incremental && time.UnixMilli(view.Status.Sync.Finished).After(last.At)
}

// settled reports whether the server should have what the last pull has synced.
func settled(obj *unstructured.Unstructured, view api.Repository) bool {
	sync, seen := view.Status.Sync, view.Status.ObservedGeneration
	return view.Spec.Sync.Enabled && sync.LastRef != "" && (sync.State == api.StateSuccess || sync.State == api.StateWarning) &&
		(seen == 0 || seen == obj.GetGeneration())
}

// record reports the result of a comparison, and queues a pull that corrects it unless one has left
// the same. The result is kept first, so that what fails afterwards queues no second pull at once:
// the next comparison does.
func (d *Drifts) record(ctx context.Context, k reconcile.Key, obj *unstructured.Unstructured, r *drift.Report, last *state.Drift,
	correct, pulled bool) error {
	found, message := len(r.Items), r.Message()
	now := &state.Drift{UID: string(obj.GetUID()), Ref: r.Commit, At: r.Checked, Count: found}
	for _, item := range r.Items[:min(found, state.MaxDrift)] {
		now.Items = append(now.Items, state.DriftItem{State: item.State, Path: item.Path, Version: item.Version})
	}
	if correct && found > 0 {
		now.Correction = "queued"
		again := last.Correction == "queued" && pulled && found == last.Count && now.Ref == last.Ref &&
			slices.EqualFunc(now.Items, last.Items, func(a, b state.DriftItem) bool { return a.State == b.State && a.Path == b.Path })
		switch same := found == last.Count && now.Ref == last.Ref && slices.Equal(now.Items, last.Items); {
		case same && (again || last.Correction == "failed"):
			now.Correction, message = "failed", "a full pull could not correct it: "+message
		case again: // some have other versions: the next check queues another pull
			now.Correction, message = "undone", "changed again since a full pull: "+message
		}
	}
	c := api.Condition{Type: api.ConditionDrifted, Status: "False", Reason: "InSync", Message: "The server has what Git says"}
	if r.NotCompared > 0 {
		c.Message += "; " + text.Plural(r.NotCompared, "object") + " not compared"
	}
	message = text.Line(message, maxDriftText)
	if found > 0 {
		c.Status = "True"
		c.Reason = "Drifted"
		c.Message = message
	}
	if err := d.condition(ctx, k, obj, c); err != nil {
		return err
	}
	if err := d.o.Store.PutDrift(ctx, k.Namespace, k.Name, now); err != nil {
		return err
	}
	if found != last.Count || (now.Correction == "failed") != (last.Correction == "failed") {
		level := map[bool]string{true: "warn", false: "info"}[found > 0]
		d.reporter.report(k, level, message)
		d.reporter.log.Info("drift", "repo", k.Name, "namespace", k.Namespace, "objects", found, "message", message)
	}
	if now.Correction != "queued" {
		return nil
	}
	if err := d.server.pull(ctx, k, false); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	d.reporter.report(k, "info", "pull queued: drift is corrected")
	return nil
}

// condition writes a condition where it differs.
func (d *Drifts) condition(ctx context.Context, k reconcile.Key, obj *unstructured.Unstructured, c api.Condition) error {
	list, changed := api.SetConditions(obj, d.now(), c)
	if !changed {
		return nil
	}
	_, err := d.server.PatchStatus(ctx, k, append(patch.Guard(obj, "status"), patch.Add("/status/conditions", list)))
	return err
}
