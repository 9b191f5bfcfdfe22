package job

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"limpet/tui/cli/command"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
)

type cancelCmd struct {
	Job string `arg:"" help:"Name or UID of a live job."`
}

func (c cancelCmd) Run(ctx context.Context, e *command.Env) error {
	s, err := e.Open(ctx, command.Needs{API: true})
	if err != nil {
		return err
	}
	defer s.Close()
	u, err := liveJob(ctx, s, e.Flags.ListNamespace(), c.Job)
	if err != nil {
		return err
	}
	if u == nil {
		return command.Errorf(command.ExitError, "limpet job list", "no live job %q", c.Job)
	}
	done, err := Cancel(ctx, s, u)
	if apierrors.IsNotFound(err) {
		return command.Errorf(command.ExitError, "limpet history show "+string(u.GetUID()), "job %q has just ended", c.Job)
	}
	if err != nil {
		return err
	}
	return e.PrintOne(map[string]string{"namespace": u.GetNamespace(), "name": u.GetName(), "uid": string(u.GetUID()), "result": done},
		"job/"+u.GetName(), func(w io.Writer) {
			fmt.Fprintf(w, "job/%s in namespace %s %s\n", u.GetName(), u.GetNamespace(), done)
		})
}

// cancelTries is how often a job may change hands while it is being cancelled.
const cancelTries = 3

// Cancel deletes a job without a claim. The owner of a claimed one is asked to stop, as is any agent for one
// in backoff. It returns what was done, or a NotFound error when the job of that UID is gone.
func Cancel(ctx context.Context, s *command.Session, u *unstructured.Unstructured) (done string, err error) {
	jobs := s.Client.Resource(api.Jobs).Namespace(u.GetNamespace())
	uid := u.GetUID()
	for try := 1; ; try++ {
		if u.GetLabels()[api.LabelClaim] == "" && !leaveToAgent(s, u) {
			rv := u.GetResourceVersion()
			done, err = "deleted before it was claimed", jobs.Delete(ctx, u.GetName(),
				metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &rv}})
		} else {
			done, err = "asked to stop", requestCancel(ctx, s, u)
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

// leaveToAgent reports whether an agent has to end an unclaimed job: one in backoff has attempts for the
// history. Without an agent, and when it was cancelled before, the job is deleted.
func leaveToAgent(s *command.Session, u *unstructured.Unstructured) bool {
	notes := u.GetAnnotations()
	return s.Embedded == nil && notes[api.AnnoAttempts] != "" && notes[api.AnnoCancel] == ""
}

// requestCancel sets the annotation by which the agent of a claimed job stops it. The UID is a precondition.
func requestCancel(ctx context.Context, s *command.Session, u *unstructured.Unstructured) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         u.GetUID(),
		"annotations": map[string]string{api.AnnoCancel: "the user on " + command.Hostname() + " asked for it"},
	}})
	if err != nil {
		return err
	}
	_, err = s.Client.Resource(api.Jobs).Namespace(u.GetNamespace()).Patch(ctx, u.GetName(), types.MergePatchType, patch,
		metav1.PatchOptions{})
	return err
}
