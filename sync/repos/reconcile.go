package repos

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"limpet/sync/api"
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

// attempt is one reconcile of a Repository. Each step reads what the steps before it have found, and adds its own.
type attempt struct {
	key     Key
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
}

// step is a part of a reconcile. A result that is not nil ends it.
type step func(ctx context.Context, a *attempt) (*Result, error)

// reporter emits the events of Repositories.
type reporter struct {
	observe func(Event)
	log     *slog.Logger
}

// logOf returns a logger that names the Repository.
func (r reporter) logOf(a *attempt) *slog.Logger {
	return r.log.With("repo", a.key.Name, "namespace", a.key.Namespace)
}

// report emits an event.
func (r reporter) report(k Key, level, text string) {
	r.observe(Event{At: time.Now(), Level: level, Namespace: k.Namespace, Repository: k.Name, Text: text})
}

// Event is a step that a person may want to know of.
type Event struct {
	At         time.Time
	Level      string // info, warn
	Namespace  string
	Repository string
	Text       string
}

// Meter counts what a controller does.
type Meter interface {
	// Worked counts one key off the queue and how long it took.
	Worked(took time.Duration)
	// Checked counts a health check and its result.
	Checked(healthy bool, took time.Duration)
	// Triggered counts a reconcile with something to do, and why.
	Triggered(why string)
	// Failed counts a reconcile that failed in a phase, by a user's doing or not.
	Failed(phase string, user bool)
}

// noMeter counts nothing.
type noMeter struct{}

func (noMeter) Worked(time.Duration)        {}
func (noMeter) Checked(bool, time.Duration) {}
func (noMeter) Triggered(string)            {}
func (noMeter) Failed(string, bool)         {}

// reconcile reconciles one Repository.
func (c *Controller) reconcile(ctx context.Context, k Key) (Result, error) {
	obj, ok := c.repos.Get(k.Namespace, k.Name)
	if !ok {
		c.mu.Lock()
		known := c.memories[k] != nil
		delete(c.memories, k)
		c.mu.Unlock()
		if known {
			c.o.Logger.Info("repository deleted", "repo", k.Name, "namespace", k.Namespace)
		}
		c.uses(k, nil)
		return Result{}, c.gone(ctx, k, "")
	}
	if obj.GetLabels()[api.LabelPendingDelete] != "" || c.o.Selector != nil && !c.o.Selector.Matches(labels.Set(obj.GetLabels())) {
		c.uses(k, nil)
		return Result{}, nil
	}
	c.uses(k, obj)
	m := c.memoryOf(k, string(obj.GetUID()))
	a := &attempt{key: k, obj: m.newest(obj), memory: m}
	defer func() {
		if a.leave != nil {
			a.leave()
		}
	}()
	for _, step := range c.steps {
		result, err := step(ctx, a)
		if err != nil {
			if a.recheck {
				c.wantRecheck(k)
			}
			return Result{}, err
		}
		if result != nil {
			return *result, nil
		}
	}
	repo, err := a.memory.decode(a.obj)
	if err != nil {
		return Result{}, nil
	}
	c.facts.gather(a, repo) // from the object as the steps have left it
	return c.next(a), nil
}
