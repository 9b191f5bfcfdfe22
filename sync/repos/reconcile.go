package repos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"limpet/sync/api"
	"limpet/sync/kube"
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

type reporter struct {
	observe func(Event)
	log     *slog.Logger
}

func (r reporter) logOf(a *attempt) *slog.Logger {
	return r.log.With("repo", a.key.Name, "namespace", a.key.Namespace)
}

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

// errConflict says that the object is not the version any more that a patch was made for.
var errConflict = errors.New("the object has changed")

// callTimeout bounds one call with its repeats, so that one Repository cannot hold up the others.
const callTimeout = 5 * time.Second

// server is the API for one kind of object.
type server struct {
	client *kube.Client
	plural string
}

// get reads a Repository from the server, not from a cache.
func (s server) get(ctx context.Context, k Key) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.client.Resource(api.Repositories).Namespace(k.Namespace).Get(ctx, k.Name, metav1.GetOptions{})
}

// patch carries out a JSON patch of an object, or of its status, and returns the object
// after it; errConflict when the patch does not fit any more.
func (s server) patch(ctx context.Context, k Key, status bool, ops []op) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	at := fmt.Sprintf("/apis/%s/namespaces/%s/%s/%s", api.Repositories.GroupVersion(), k.Namespace, s.plural, k.Name)
	if status {
		at += "/status"
	}
	body, err := json.Marshal(ops)
	if err != nil {
		return nil, fmt.Errorf("encode the patch: %w", err)
	}
	// A patch that was carried out although its answer was lost does not fit
	// again: it names the version that it was made for.
	code, answer, err := s.client.DoIdempotent(ctx, http.MethodPatch, at, nil, "application/json-patch+json", body)
	switch {
	case code == http.StatusConflict || code == http.StatusUnprocessableEntity && misfits(err):
		return nil, fmt.Errorf("%w: %w", errConflict, err)
	case err != nil:
		return nil, fmt.Errorf("patch the object: %w", err)
	}
	u := new(unstructured.Unstructured)
	if err := u.UnmarshalJSON(answer); err != nil {
		return nil, fmt.Errorf("read the object: %w", err)
	}
	return u, nil
}

// misfits reports whether a patch does not fit, rather than make an object that the server
// does not take: that has causes.
func misfits(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0
}

// pull queues a pull job. An AlreadyExists error says that one is there.
func (s server) pull(ctx context.Context, k Key, incremental bool) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	spec := map[string]any{"action": "pull", "pull": map[string]any{"incremental": incremental}}
	if _, err := s.client.Submit(ctx, k.Namespace, k.Name, spec, nil); err != nil {
		return fmt.Errorf("queue a pull: %w", err)
	}
	return nil
}

// deleteJob deletes a job as it is given; a Conflict error says that it has changed.
func (s server) deleteJob(ctx context.Context, job *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	uid, version := job.GetUID(), job.GetResourceVersion()
	return s.client.Resource(api.Jobs).Namespace(job.GetNamespace()).Delete(ctx, job.GetName(),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
}

// seals reports whether the API takes secure values and seals them, as Grafana's own
// does. A plain Kubernetes API would store them as they are.
func (s server) seals(ctx context.Context) (bool, error) {
	return s.client.Serves(ctx, api.Repositories.GroupVersion(), "repositories/webhook")
}
