package job

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"

	"limpet/tui/cli/command"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

// A repository has one job of a kind at a time, and its agent creates pulls too. A call that waits for a
// pending job of the same kind waits for that one. One that is running may have read older commits: a new one
// is created after its end.

// request is a job that a person requests.
type request struct {
	namespace, repository string
	spec                  map[string]any
	notes                 map[string]string // annotations
}

func (w request) action() string {
	action, _ := w.spec["action"].(string)
	return action
}

// name returns the name under which the API queues the job.
func (w request) name() string {
	if pr, ok := w.spec["pr"].(map[string]any); ok && w.action() == "pr" {
		return fmt.Sprintf("%s-%v", api.JobName(w.repository, "pr"), pr["pr"])
	}
	return api.JobName(w.repository, w.action())
}

// submit creates the job. When how waits, it returns an equal pending job instead of an error.
func submit(ctx context.Context, e *command.Env, s *command.Session, w request, how WaitFlags) (*unstructured.Unstructured, error) {
	for gone := false; ; {
		made, refused := s.Client.Submit(ctx, w.namespace, w.repository, w.spec, w.notes)
		if !apierrors.IsAlreadyExists(refused) {
			return made, refused
		}
		there, err := s.Client.Resource(api.Jobs).Namespace(w.namespace).Get(ctx, w.name(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) && !gone: // it ended between the two requests
			gone = true
			continue
		case err != nil: // its spec is unknown
			return nil, w.refusal(nil, refused)
		case !how.Waits() || !w.satisfiedBy(there):
			return nil, w.refusal(there, refused)
		case isPending(there):
			e.Notef("%s (%s) is there already; this waits for its end", there.GetName(), actionText(jobSpecOf(there)))
			return there, nil
		}
		e.Notef("%s has begun already; this asks again after its end", there.GetName())
		if err := newFollower(e, s, there, "none").watch(ctx); err != nil {
			return nil, err
		}
		gone = false
	}
}

// isPending reports whether a job is pending and not being cancelled.
func isPending(job *unstructured.Unstructured) bool {
	view, err := api.JobView(job)
	return err == nil && job.GetDeletionTimestamp() == nil && job.GetLabels()[api.LabelClaim] == "" &&
		api.Annotation(job, api.AnnoCancel) == "" &&
		(view.Status.State == "" || view.Status.State == api.StatePending)
}

func jobSpecOf(job *unstructured.Unstructured) api.JobSpec {
	view, _ := api.JobView(job)
	return view.Spec
}

// existsError explains why a job is not created beside an existing one; there is nil when that is unknown.
func (w request) refusal(there *unstructured.Unstructured, err error) error {
	watch := command.CommandFor(w.namespace, "job watch "+w.name())
	then := watch + "    # then this command again"
	switch {
	case there == nil || w.satisfiedBy(there):
		return command.Errorf(command.ExitError, watch, "repository %q has a job of this kind already: %w", w.repository, err)
	case w.full() && !isFull(there):
		return command.Errorf(command.ExitError, then,
			"repository %q has a pull already, an incremental one, and --full asks for everything: %w", w.repository, err)
	}
	return command.Errorf(command.ExitError, then, "repository %q has a job of this kind already, with other options: %w", w.repository,
		err)
}

// satisfiedBy reports whether a job does what is requested. A full pull includes an incremental one. A
// priority matters only to a request that names one.
func (w request) satisfiedBy(there *unstructured.Unstructured) bool {
	spec, _, _ := unstructured.NestedMap(there.Object, "spec")
	notes := there.GetAnnotations()
	if p, ok := w.notes[api.AnnoPriority]; ok && notes[api.AnnoPriority] != p {
		return false
	}
	return spec["repository"] == w.repository && notes[api.AnnoAllowMassDelete] == w.notes[api.AnnoAllowMassDelete] &&
		(!w.full() || isFull(there)) &&
		reflect.DeepEqual(options(spec), options(w.spec))
}

func (w request) full() bool { return w.action() == "pull" && !incremental(w.spec) }

// isFull reports whether a job is a full pull.
func isFull(job *unstructured.Unstructured) bool {
	spec, _, _ := unstructured.NestedMap(job.Object, "spec")
	return spec["action"] == "pull" && !incremental(spec)
}

func incremental(spec map[string]any) bool {
	value, _, _ := unstructured.NestedBool(spec, "pull", "incremental")
	return value
}

// options returns the options of a spec without the depth of a pull, in the form that a server returns:
// without empty values.
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
