package repos

import (
	"context"
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
