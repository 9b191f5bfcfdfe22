package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
)

type jobCancelCmd struct {
	Job string `arg:"" help:"Name or UID of a live job."`
}

func (c jobCancelCmd) Run(ctx context.Context, r *run) error {
	s, err := r.open(ctx, need{API: true})
	if err != nil {
		return err
	}
	defer s.Close()
	u, err := s.liveJob(ctx, r.g.listNamespace(), c.Job)
	if err != nil {
		return err
	}
	if u == nil {
		return fail(ExitError, "limpet job list", "no live job %q", c.Job)
	}
	done, err := s.cancel(ctx, u)
	if apierrors.IsNotFound(err) {
		return fail(ExitError, "limpet history show "+string(u.GetUID()), "job %q has just ended", c.Job)
	}
	if err != nil {
		return err
	}
	return r.printOne(map[string]string{"namespace": u.GetNamespace(), "name": u.GetName(), "uid": string(u.GetUID()), "result": done}, "job/"+u.GetName(), func(w io.Writer) {
		fmt.Fprintf(w, "job/%s in namespace %s %s\n", u.GetName(), u.GetNamespace(), done)
	})
}

// cancelTries is how often a job may change hands while it is being cancelled.
const cancelTries = 3

// cancel deletes a job that nobody has claimed; the owner of a claimed one is
// asked to stop, and so is any agent for one that rests. It returns what was done, or a NotFound error when the job of
// that UID is gone.
func (s *session) cancel(ctx context.Context, u *unstructured.Unstructured) (done string, err error) {
	jobs := s.Client.Resource(api.Jobs).Namespace(u.GetNamespace())
	uid := u.GetUID()
	for try := 1; ; try++ {
		if u.GetLabels()[api.LabelClaim] == "" && !s.leaveToAgent(u) {
			rv := u.GetResourceVersion()
			done, err = "deleted before it was claimed", jobs.Delete(ctx, u.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &rv}})
		} else {
			done, err = "asked to stop", s.requestCancel(ctx, u)
		}
		if !apierrors.IsConflict(err) || try == cancelTries {
			return done, err
		}
		// It was claimed or given back meanwhile, or has made place for another
		// job of its name.
		if u, err = jobs.Get(ctx, u.GetName(), metav1.GetOptions{}); err != nil {
			return "", err
		}
		if u.GetUID() != uid {
			return "", apierrors.NewNotFound(api.Jobs.GroupResource(), u.GetName())
		}
	}
}

// leaveToAgent says whether an agent is to end a job that nobody has claimed: one
// that rests between two attempts has something to tell in the history. Where no
// agent is there, and when it was asked before, the job is deleted.
func (s *session) leaveToAgent(u *unstructured.Unstructured) bool {
	notes := u.GetAnnotations()
	return s.server == nil && notes[api.AnnoAttempts] != "" && notes[api.AnnoCancel] == ""
}

// requestCancel asks the owner of a claimed job to stop, with an annotation
// that its agent sees through the watch. The UID is a precondition.
func (s *session) requestCancel(ctx context.Context, u *unstructured.Unstructured) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         u.GetUID(),
		"annotations": map[string]string{api.AnnoCancel: "the user on " + hostname() + " asked for it"},
	}})
	if err != nil {
		return err
	}
	_, err = s.Client.Resource(api.Jobs).Namespace(u.GetNamespace()).Patch(ctx, u.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
