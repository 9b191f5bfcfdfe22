package source

import (
	"context"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/source"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

const (
	// reconcileTimeout bounds --wait without --timeout. Source: flux.
	reconcileTimeout = 5 * time.Minute
	// reconcileInterval is the polling interval meanwhile.
	reconcileInterval = time.Second
)

type reconcileCmd struct {
	Name string `arg:"" help:"Name of the source."`
	Wait bool   `help:"Wait until its controller has reconciled it, at most 5m or --timeout."`
}

// Help is the long help of the command.
func (reconcileCmd) Help() string {
	return "It writes the annotation reconcile.fluxcd.io/requestedAt, as flux does. With --wait it ends with 1 when the source is not ready afterwards."
}

func (c reconcileCmd) Run(ctx context.Context, e *command.Env) error {
	return onSource(ctx, e, c.Name, func(s *command.Session, u *unstructured.Unstructured) error {
		if from := source.FromObject(u); from.Suspended {
			return command.Errorf(command.ExitError, command.CommandFor(u.GetNamespace(), "source resume "+c.Name),
				"%s is suspended: its controller would not reconcile it", c.Name)
		}
		asked, err := source.Reconcile(ctx, s.Client, u.GetNamespace(), u.GetName(), string(u.GetUID()))
		if err != nil {
			return withMissingRight(err)
		}
		txt := "requested"
		if c.Wait {
			e.Notef("waiting for the controller of %s", c.Name)
			if asked, err = awaitReconcile(ctx, s, asked); err != nil {
				return err
			}
			from := source.FromObject(asked)
			if from.State != source.Ready {
				return command.Errorf(command.ExitError, command.CommandFor(u.GetNamespace(), "source show "+c.Name), "%s is %s: %s",
					c.Name, from.State, SourceMessage(from))
			}
			txt = "done: " + text.OrDash(artifactOf(from).Revision)
		}
		return e.PrintOne(source.Redacted(asked), "gitrepository/"+u.GetName(),
			func(w io.Writer) { fmt.Fprintf(w, "gitrepository/%s reconciliation %s\n", u.GetName(), txt) })
	})
}

// awaitReconcile waits until the controller has handled the request and is done.
func awaitReconcile(ctx context.Context, s *command.Session, asked *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	request, name := source.Asked(asked), asked.GetName()
	for end := time.Now().Add(reconcileTimeout); ctx.Err() == nil; command.Sleep(ctx, reconcileInterval) {
		u, err := s.Client.Resource(api.GitRepositories).Namespace(asked.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && u.GetUID() != asked.GetUID():
			return nil, command.Errorf(command.ExitError, "limpet source list", "%s is gone", name)
		case err != nil && !kube.Retryable(err):
			return nil, err
		case err == nil && source.Handled(u, request):
			if from := source.FromObject(u); from.State != source.Working && from.State != source.Pending {
				u.SetManagedFields(nil)
				return u, nil
			}
		}
		if time.Now().After(end) {
			return nil, command.Errorf(command.ExitTimeout,
				command.CommandFor(asked.GetNamespace(), "source show "+name)+"    # is source-controller running?",
				"the controller of %s has not reconciled it for %s; the request stays", name, reconcileTimeout)
		}
	}
	return nil, context.Cause(ctx)
}

type suspendCmd struct {
	Name string `arg:"" help:"Name of the source."`
}

func (c suspendCmd) Run(ctx context.Context, e *command.Env) error {
	return suspendSource(ctx, e, c.Name, true)
}

type resumeCmd struct {
	Name string `arg:"" help:"Name of the source."`
}

func (c resumeCmd) Run(ctx context.Context, e *command.Env) error {
	return suspendSource(ctx, e, c.Name, false)
}

func suspendSource(ctx context.Context, e *command.Env, name string, on bool) error {
	return onSource(ctx, e, name, func(s *command.Session, u *unstructured.Unstructured) (err error) {
		txt := "resumed"
		if on {
			txt = "suspended for all controllers, until: " + e.CommandFor(u.GetNamespace(), "source resume "+name)
		}
		if source.FromObject(u).Suspended == on {
			txt = map[bool]string{true: "was suspended already", false: "was not suspended"}[on]
		} else if u, err = source.Suspend(ctx, s.Client, u.GetNamespace(), u.GetName(), string(u.GetUID()), on); err != nil {
			return withMissingRight(err)
		}
		return e.PrintOne(source.Redacted(u), "gitrepository/"+name, func(w io.Writer) { fmt.Fprintf(w, "gitrepository/%s %s\n", name, txt) })
	})
}

// withMissingRight adds the missing right to a refused write.
func withMissingRight(err error) error {
	if apierrors.IsForbidden(err) {
		return command.WithHint(err, "give the token the right to patch gitrepositories."+api.GitRepositories.Group)
	}
	return err
}
