package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

// A repository has one job of a kind at a time, and its agent asks for pulls too. Who
// asks for one that is there, and would wait for it, waits for that one.

// wish is a job that a person asks for.
type wish struct {
	namespace, repository string
	spec                  map[string]any
	notes                 map[string]string // annotations
}

func (w wish) action() string {
	action, _ := w.spec["action"].(string)
	return action
}

// name is that under which the API queues the job.
func (w wish) name() string {
	if pr, ok := w.spec["pr"].(map[string]any); ok && w.action() == "pr" {
		return fmt.Sprintf("%s-%v", api.JobName(w.repository, "pr"), pr["pr"])
	}
	return api.JobName(w.repository, w.action())
}

// submit makes the job, or returns the one that is there when that does for who waits.
// One that has ended between the two looks is in nobody's way any more.
func (r *run) submit(ctx context.Context, s *session, w wish, how following) (*unstructured.Unstructured, error) {
	made, refused := s.Client.Submit(ctx, w.namespace, w.repository, w.spec, w.notes)
	if !apierrors.IsAlreadyExists(refused) {
		return made, refused
	}
	there, err := s.Client.Resource(api.Jobs).Namespace(w.namespace).Get(ctx, w.name(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		made, refused = s.Client.Submit(ctx, w.namespace, w.repository, w.spec, w.notes)
		if !apierrors.IsAlreadyExists(refused) {
			return made, refused
		}
	}
	if err != nil {
		there = nil // what it is is not known
	}
	if there == nil || !how.waits() || !w.metBy(there) {
		return nil, w.refusal(there, refused)
	}
	job, err := api.JobView(there)
	if err != nil {
		return nil, err
	}
	r.note("%s (%s) is %s already; this waits for its end", there.GetName(), actionText(job.Spec), stateText(job.Status.State))
	return there, nil
}

// refusal says why a job is not made beside the one that is there, which is nil where
// nobody knows what it is.
func (w wish) refusal(there *unstructured.Unstructured, err error) error {
	watch := next(w.namespace, "job watch "+w.name())
	then := watch + "    # then this command again"
	switch {
	case there == nil || w.metBy(there):
		return fail(ExitError, watch, "repository %q has a job of this kind already: %w", w.repository, err)
	case w.full() && !isFull(there):
		return fail(ExitError, then, "repository %q has a pull already, an incremental one, and --full asks for everything: %w", w.repository, err)
	}
	return fail(ExitError, then, "repository %q has a job of this kind already, with other options: %w", w.repository, err)
}

// metBy says that a job does what is wished. A full pull does what an incremental one
// would, and the urgency of a job matters to who has named one.
func (w wish) metBy(there *unstructured.Unstructured) bool {
	spec, _, _ := unstructured.NestedMap(there.Object, "spec")
	notes := there.GetAnnotations()
	if p, ok := w.notes[api.AnnoPriority]; ok && notes[api.AnnoPriority] != p {
		return false
	}
	return notes[api.AnnoAllowMassDelete] == w.notes[api.AnnoAllowMassDelete] && (!w.full() || isFull(there)) &&
		reflect.DeepEqual(options(spec), options(w.spec))
}

func (w wish) full() bool { return w.action() == "pull" && !incremental(w.spec) }

// isFull says that a job is a pull of everything.
func isFull(job *unstructured.Unstructured) bool {
	spec, _, _ := unstructured.NestedMap(job.Object, "spec")
	return spec["action"] == "pull" && !incremental(spec)
}

func incremental(spec map[string]any) bool {
	value, _, _ := unstructured.NestedBool(spec, "pull", "incremental")
	return value
}

// options are what a spec says besides how deep a pull goes, in the form that a server
// gives back: without what is empty.
func options(spec map[string]any) map[string]any {
	spec = maps.Clone(spec)
	delete(spec, "repository")
	data, err := json.Marshal(spec)
	var out map[string]any
	if err != nil || json.Unmarshal(data, &out) != nil {
		return nil
	}
	if pull, ok := out["pull"].(map[string]any); ok {
		delete(pull, "incremental")
	}
	return withoutEmpty(out)
}

func withoutEmpty(m map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range m {
		switch v := value.(type) {
		case map[string]any:
			if inner := withoutEmpty(v); len(inner) > 0 {
				out[key] = inner
			}
		case []any:
			if len(v) > 0 {
				out[key] = v
			}
		default:
			if v != nil && !reflect.ValueOf(v).IsZero() {
				out[key] = v
			}
		}
	}
	return out
}
