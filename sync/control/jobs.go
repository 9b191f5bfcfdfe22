package control

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/kube"
)

// RefusedError says why something is not done with a job, and what a person can do next.
type RefusedError struct {
	Text      string
	Namespace string // of Next; "" = none
	Next      string // words of a limpet command
}

func (e *RefusedError) Error() string { return e.Text }

func refused(namespace, next, format string, args ...any) error {
	return &RefusedError{Text: fmt.Sprintf(format, args...), Namespace: namespace, Next: next}
}

// cancelTries is how often a job may change hands while it is being cancelled.
const cancelTries = 3

// Cancel deletes a job without a claim. The owner of a claimed one is asked to stop; so is any
// agent for one in backoff, because its attempts belong into the history. Without an agent, and
// when it was cancelled before, that one is deleted too. Cancel returns what was done, or a
// NotFound error when the job of that UID is gone.
func Cancel(ctx context.Context, client *kube.Client, u *unstructured.Unstructured, hasAgent bool) (done string, err error) {
	jobs := client.Resource(api.Jobs).Namespace(u.GetNamespace())
	uid := u.GetUID()
	for try := 1; ; try++ {
		notes := u.GetAnnotations()
		if u.GetLabels()[api.LabelClaim] != "" || hasAgent && notes[api.AnnoAttempts] != "" && notes[api.AnnoCancel] == "" {
			host, _ := os.Hostname()
			done = "asked to stop"
			_, err = patchJob(ctx, client, u, map[string]any{"uid": uid,
				"annotations": map[string]any{api.AnnoCancel: "requested by the user on " + host}})
		} else {
			rv := u.GetResourceVersion()
			done = "deleted before it was claimed"
			err = jobs.Delete(ctx, u.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &rv}})
		}
		if !apierrors.IsConflict(err) || try == cancelTries {
			return done, err
		}
		// It was claimed, released or replaced meanwhile.
		if u, err = jobs.Get(ctx, u.GetName(), metav1.GetOptions{}); err != nil {
			return "", err
		}
		if u.GetUID() != uid {
			return "", apierrors.NewNotFound(api.Jobs.GroupResource(), u.GetName())
		}
	}
}

// patchJob merges metadata into a job. A UID or a resourceVersion in it is a precondition.
func patchJob(ctx context.Context, client *kube.Client, u *unstructured.Unstructured, metadata map[string]any) (*unstructured.Unstructured,
	error) {
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, err
	}
	return client.Resource(api.Jobs).Namespace(u.GetNamespace()).Patch(ctx, u.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
}

// EndBackoff ends the backoff of a job between two attempts.
func EndBackoff(ctx context.Context, client *kube.Client, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	watch := "job watch " + u.GetName()
	switch {
	case u.GetLabels()[api.LabelClaim] != "":
		return nil, refused(u.GetNamespace(), watch, "job %q runs now; it can be tried again when it has ended", u.GetName())
	case u.GetAnnotations()[api.AnnoNotBefore] == "":
		return nil, refused(u.GetNamespace(), watch, "job %q is queued already", u.GetName())
	}
	// The resourceVersion protects a concurrent claim.
	out, err := patchJob(ctx, client, u, map[string]any{"uid": u.GetUID(), "resourceVersion": u.GetResourceVersion(),
		"annotations": map[string]any{api.AnnoNotBefore: nil}})
	switch {
	case apierrors.IsConflict(err):
		return nil, refused(u.GetNamespace(), watch, "job %q has just been taken up by itself", u.GetName())
	case apierrors.IsNotFound(err):
		return nil, refused("", "history show "+string(u.GetUID()), "job %q has just ended", u.GetName())
	}
	return out, err
}

// RunAgain creates a new job from a finished one. It is created directly, because the route of the
// repository takes no annotations; without the right to create jobs the route is used, and the job
// does not name the one that it repeats.
func RunAgain(ctx context.Context, client *kube.Client, rec state.Record) (*unstructured.Unstructured, error) {
	var spec map[string]any
	if err := json.Unmarshal(rec.Spec, &spec); err != nil || spec == nil {
		return nil, fmt.Errorf("the history has no spec of job %s (%s)", rec.Name, rec.UID)
	}
	if !slices.Contains(api.OrphanActions, rec.Action) {
		repo, err := client.Resource(api.Repositories).Namespace(rec.Namespace).Get(ctx, rec.Repository, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil, refused("", "repo list", "repository %q of job %q is gone", rec.Repository, rec.Name)
		case err != nil:
			return nil, err
		case repo.GetDeletionTimestamp() != nil:
			return nil, refused("", "repo list", "repository %q of job %q is being deleted", rec.Repository, rec.Name)
		}
	}
	u, err := client.Submit(ctx, rec.Namespace, rec.Repository, spec, map[string]string{api.AnnoRetryOf: rec.UID})
	if apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) {
		spec = maps.Clone(spec)
		delete(spec, "repository")
		if made, routeErr := client.Submit(ctx, rec.Namespace, rec.Repository, spec, nil); !apierrors.IsForbidden(routeErr) {
			u, err = made, routeErr
		}
	}
	if apierrors.IsAlreadyExists(err) {
		name := api.JobName(rec.Repository, rec.Action)
		if rec.Action == "pr" {
			name = rec.Name
		}
		return nil, refused(rec.Namespace, "job watch "+name, "a job named %q is queued already", name)
	}
	return u, err
}
