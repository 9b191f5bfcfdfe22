package job

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/tui/cli/command"
)

// A repository has one job of a kind at a time, and its agent creates pulls too. A call that waits
// for a pending job of the same kind waits for that one. One that is running may have read older
// commits: a new one is created after its end.

type request struct {
	namespace, repository string
	spec                  map[string]any
	notes                 map[string]string // annotations
}

// name returns the name under which the API queues the job.
func (r request) name() string {
	action, _ := r.spec["action"].(string)
	name := api.JobName(r.repository, action)
	if pr, ok := r.spec["pr"].(map[string]any); ok && action == "pr" {
		name = fmt.Sprintf("%s-%v", name, pr["pr"])
	}
	return name
}

// submit creates the job. When how waits, it returns an equal pending job instead of an error.
func submit(ctx context.Context, e *command.Env, s *command.Session, r request, how WaitFlags) (*unstructured.Unstructured, error) {
	for gone := false; ; {
		made, refused := s.Client.Submit(ctx, r.namespace, r.repository, r.spec, r.notes)
		if !apierrors.IsAlreadyExists(refused) {
			return made, refused
		}
		there, err := s.Client.Resource(api.Jobs).Namespace(r.namespace).Get(ctx, r.name(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) && !gone: // it ended between the two requests
			gone = true
			continue
		case err != nil: // its spec is unknown
			return nil, r.refusal(nil, refused)
		case !how.Waits() || !r.satisfiedBy(there):
			return nil, r.refusal(there, refused)
		case isPending(there):
			view, _ := api.JobView(there)
			e.Notef("%s (%s) is there already; this waits for its end", there.GetName(), actionText(view.Spec))
			return there, nil
		}
		e.Notef("%s has begun already; this asks again after its end", there.GetName())
		f := newFollower(e, s, there, how.Progress)
		err = f.watch(ctx)
		if f.bar.erase(); err != nil {
			return nil, err
		}
		gone = false
	}
}

// isPending reports whether a job is pending and not being cancelled.
func isPending(job *unstructured.Unstructured) bool {
	view, err := api.JobView(job)
	return err == nil && job.GetDeletionTimestamp() == nil && job.GetLabels()[api.LabelClaim] == "" &&
		api.Annotation(job, api.AnnoCancel) == "" && stateText(view.Status.State) == api.StatePending
}

// refusal explains why a job is not created beside an existing one; there is nil when that is
// unknown.
func (r request) refusal(there *unstructured.Unstructured, err error) error {
	watch, options := command.CommandFor(r.namespace, "job watch "+r.name()), ""
	if there != nil && !r.satisfiedBy(there) {
		watch, options = watch+"    # then this command again", ", with other options"
	}
	return command.Errorf(command.ExitError, watch, "repository %q has a job of this kind already%s: %w", r.repository, options, err)
}

func specOf(job *unstructured.Unstructured) map[string]any {
	spec, _, _ := unstructured.NestedMap(job.Object, "spec")
	return spec
}

// satisfiedBy reports whether a job does what is requested. A full pull includes an incremental
// one.
func (r request) satisfiedBy(there *unstructured.Unstructured) bool {
	spec, notes := specOf(there), there.GetAnnotations()
	if p, ok := r.notes[api.AnnoPriority]; ok && notes[api.AnnoPriority] != p {
		return false
	}
	return spec["repository"] == r.repository && notes[api.AnnoAllowMassDelete] == r.notes[api.AnnoAllowMassDelete] &&
		(!isFullPull(r.spec) || isFullPull(spec)) && reflect.DeepEqual(options(spec), options(r.spec))
}

func isFullPull(spec map[string]any) bool {
	incremental, _, _ := unstructured.NestedBool(spec, "pull", "incremental")
	return spec["action"] == "pull" && !incremental
}

// options returns the options of a spec without the depth of a pull, with the types of JSON.
func options(spec map[string]any) (out map[string]any) {
	if data, err := json.Marshal(spec); err != nil || json.Unmarshal(data, &out) != nil {
		return nil
	}
	delete(out, "repository")
	if pull, ok := out["pull"].(map[string]any); ok {
		if delete(pull, "incremental"); len(pull) == 0 {
			delete(out, "pull")
		}
	}
	return out
}
