package cli

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
	"limpet/sync/snapshot"
	"limpet/sync/source"
	"limpet/sync/text"
)

const (
	// lookFor is how long --wait waits where --timeout does not say. Source: flux.
	lookFor = 5 * time.Minute
	// lookEvery is how often it looks at the source meanwhile.
	lookEvery = time.Second
)

type sourceReconcileCmd struct {
	Name string `arg:"" help:"Name of the source."`
	Wait bool   `help:"Stay until its controller has looked, at most 5m or --timeout."`
}

// Help is the long help of the command.
func (sourceReconcileCmd) Help() string {
	return "It writes the annotation reconcile.fluxcd.io/requestedAt, as flux does. With --wait it ends with 1 when the source is not ready afterwards."
}

func (c sourceReconcileCmd) Run(ctx context.Context, r *run) error {
	return r.onSource(ctx, c.Name, func(s *session, u *unstructured.Unstructured) error {
		if from := source.Picture(u); from.Suspended {
			return fail(ExitError, next(u.GetNamespace(), "source resume "+c.Name), "%s is suspended: its controller would not look", c.Name)
		}
		asked, err := source.Reconcile(ctx, s.Client, u.GetNamespace(), u.GetName(), string(u.GetUID()))
		if err != nil {
			return mayNot(err)
		}
		txt := "is asked for; its controller looks when it comes to it"
		if c.Wait {
			r.note("waiting for the controller of %s", c.Name)
			if asked, err = s.looked(ctx, asked); err != nil {
				return err
			}
			from := source.Picture(asked)
			if from.State != snapshot.SourceReady {
				return fail(ExitError, next(u.GetNamespace(), "source show "+c.Name), "%s is %s: %s", c.Name, from.State, sourceMessage(from))
			}
			txt = "has ended well: " + text.OrDash(artifactOf(from).Revision)
		}
		return r.printOne(source.Shown(asked), "gitrepository/"+u.GetName(), func(w io.Writer) { fmt.Fprintf(w, "gitrepository/%s a look %s\n", u.GetName(), txt) })
	})
}

// looked waits until the controller has done what was asked of it, and has come to an
// end with it.
func (s *session) looked(ctx context.Context, asked *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	request, name := source.Asked(asked), asked.GetName()
	end := time.NewTimer(lookFor)
	defer end.Stop()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		u, err := s.Client.Resource(api.GitRepositories).Namespace(asked.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && u.GetUID() != asked.GetUID():
			return nil, fail(ExitError, "limpet source list", "%s is gone", name)
		case err != nil && !kube.Retryable(err):
			return nil, err
		case err == nil && source.Handled(u, request):
			if from := source.Picture(u); from.State != snapshot.SourceWorking && from.State != snapshot.SourcePending {
				u.SetManagedFields(nil)
				return u, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-end.C:
			return nil, fail(ExitTimeout, next(asked.GetNamespace(), "source show "+name)+"    # is source-controller at work?", "the controller of %s has not looked for %s; it is still asked to", name, lookFor)
		case <-tick.C:
		}
	}
}

type sourceSuspendCmd struct {
	Name string `arg:"" help:"Name of the source."`
}

func (c sourceSuspendCmd) Run(ctx context.Context, r *run) error {
	return r.suspendSource(ctx, c.Name, true)
}

type sourceResumeCmd struct {
	Name string `arg:"" help:"Name of the source."`
}

func (c sourceResumeCmd) Run(ctx context.Context, r *run) error {
	return r.suspendSource(ctx, c.Name, false)
}

func (r *run) suspendSource(ctx context.Context, name string, on bool) error {
	return r.onSource(ctx, name, func(s *session, u *unstructured.Unstructured) error {
		txt := map[bool]string{true: "suspended for everybody, until: " + r.next(u.GetNamespace(), "source resume "+name), false: "resumed"}[on]
		if source.Picture(u).Suspended == on {
			txt = map[bool]string{true: "was suspended already", false: "was not suspended"}[on]
		} else {
			var err error
			if u, err = source.Suspend(ctx, s.Client, u.GetNamespace(), u.GetName(), string(u.GetUID()), on); err != nil {
				return mayNot(err)
			}
		}
		return r.printOne(source.Shown(u), "gitrepository/"+name, func(w io.Writer) { fmt.Fprintf(w, "gitrepository/%s %s\n", name, txt) })
	})
}

// onSource does something with the source of a name.
func (r *run) onSource(ctx context.Context, name string, f func(*session, *unstructured.Unstructured) error) error {
	s, err := r.open(ctx, need{API: true})
	if err != nil {
		return err
	}
	defer s.Close()
	u, err := r.findSource(ctx, s, name)
	if err != nil {
		return err
	}
	return f(s, u)
}

// mayNot says which right is missing for a write.
func mayNot(err error) error {
	if apierrors.IsForbidden(err) {
		return hinted(err, "give the token the right to patch gitrepositories."+api.GitRepositories.Group)
	}
	return err
}
