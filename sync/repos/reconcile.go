package repos

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"limpet/sync/api"
	"limpet/sync/reconcile"
)

// Phases of a reconcile, as Grafana's metrics name them.
const (
	phaseFetch  = "fetch"
	phaseBuild  = "build"
	phaseBranch = "branch"
	phaseStatus = "status"
	phaseSync   = "sync"
	phaseToken  = "token"
)

// attempt is one reconcile of a Repository. Each step reads what the steps before it have found,
// and adds its own.
type attempt struct {
	key     reconcile.Key
	obj     *unstructured.Unstructured
	memory  *memory
	recheck bool
	leave   func() // of the host; nil = not entered

	facts   facts // observe
	due     dueSteps
	webhook webhookPlan

	checked bool         // the health was checked
	health  healthResult // if it was
	healthy bool         // by that, or else by the status
	probe   *probe       // nil = the remote is not to be asked

	pull *pullRequest // nil = none

	began  time.Time // of the requests
	change *change   // to the status
	result reconcile.Result
}

// reconcile reconciles one Repository.
func (c *Controller) reconcile(ctx context.Context, k reconcile.Key) (reconcile.Result, error) {
	obj, ok := c.repos.Get(k.Namespace, k.Name)
	if !ok {
		c.mu.Lock()
		known := c.memories[k] != nil
		delete(c.memories, k)
		c.mu.Unlock()
		if known {
			c.o.Logger.Info("repository deleted", "repo", k.Name, "namespace", k.Namespace)
		}
		c.Uses(k, nil)
		return reconcile.Result{}, c.gone(ctx, k, "")
	}
	if obj.GetLabels()[api.LabelPendingDelete] != "" || c.o.Selector != nil && !c.o.Selector.Matches(labels.Set(obj.GetLabels())) {
		c.Uses(k, nil)
		return reconcile.Result{}, nil
	}
	c.Uses(k, obj)
	m := c.memoryOf(k, string(obj.GetUID()))
	a := &attempt{key: k, obj: m.newest(obj), memory: m}
	defer func() {
		if a.leave != nil {
			a.leave()
		}
	}()
	done, err := reconcile.Run(ctx, a, c.steps)
	if err != nil && a.recheck {
		c.WantRecheck(k)
	}
	if done || err != nil {
		return a.result, err
	}
	repo, err := a.memory.decode(a.obj)
	if err != nil {
		return reconcile.Result{}, nil
	}
	c.facts.gather(a, repo) // from the object as the steps have left it
	return c.next(a), nil
}

type reporter struct {
	observe func(reconcile.Event)
	log     *slog.Logger
}

func (r reporter) logOf(a *attempt) *slog.Logger {
	return r.log.With("repo", a.key.Name, "namespace", a.key.Namespace)
}

func (r reporter) report(k reconcile.Key, level, text string) {
	r.observe(reconcile.Event{At: time.Now(), Level: level, Namespace: k.Namespace, Repository: k.Name, Text: text})
}

// Meter counts what a controller does.
type Meter interface {
	// Worked counts one key off the queue.
	Worked(reconcile.Done)
	// Checked counts a health check and its result.
	Checked(healthy bool, took time.Duration)
	// Triggered counts a reconcile with something to do, and why.
	Triggered(why string)
	// Failed counts a reconcile that failed in a phase, by a user's doing or not.
	Failed(phase string, user bool)
}

// noMeter counts nothing.
type noMeter struct{}

func (noMeter) Worked(reconcile.Done) {}

func (noMeter) Checked(bool, time.Duration) {}

func (noMeter) Triggered(string) {}

func (noMeter) Failed(string, bool) {}
