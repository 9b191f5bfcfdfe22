package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/repos"
)

type repoSuspendCmd struct {
	Name string        `arg:"" help:"Name of the repository."`
	For  time.Duration `help:"How long; 0 = until 'limpet repo resume'." default:"24h"`
}

func (c repoSuspendCmd) Run(ctx context.Context, r *run) error {
	if c.For < 0 {
		return usage("limpet repo suspend NAME --for 2h", "--for is %s: it must not be negative", c.For)
	}
	return r.withSuspender(ctx, c.Name, func(who control.Suspender, u *unstructured.Unstructured) error {
		one := repos.Suspension{Namespace: u.GetNamespace(), Repository: u.GetName(), UID: string(u.GetUID()), Since: time.Now().Round(0)}
		text := "until it is resumed: " + r.next(u.GetNamespace(), "repo resume "+u.GetName())
		if c.For > 0 {
			one.Until = one.Since.Add(c.For)
			text = "until " + one.Until.Format(time.RFC3339)
		}
		if err := who.Suspend(ctx, one); err != nil {
			return err
		}
		return r.printOne(one, "repository/"+one.Repository, func(w io.Writer) {
			fmt.Fprintf(w, "repository/%s suspended on this agent %s\n", one.Repository, text)
		})
	})
}

type repoResumeCmd struct {
	Name string `arg:"" help:"Name of the repository."`
}

func (c repoResumeCmd) Run(ctx context.Context, r *run) error {
	return r.withSuspender(ctx, c.Name, func(who control.Suspender, u *unstructured.Unstructured) error {
		was, err := who.Resume(ctx, u.GetNamespace(), u.GetName())
		if err != nil {
			return err
		}
		text := "was not suspended"
		if was {
			text = "resumed"
		}
		return r.printOne(map[string]any{"repository": u.GetName(), "namespace": u.GetNamespace(), "resumed": was},
			"repository/"+u.GetName(), func(w io.Writer) { fmt.Fprintf(w, "repository/%s %s\n", u.GetName(), text) })
	})
}

// withSuspender finds the repository and who keeps suspensions: the daemon that
// holds the state file, or the file itself.
func (r *run) withSuspender(ctx context.Context, name string, f func(control.Suspender, *unstructured.Unstructured) error) error {
	s, err := r.open(ctx, need{API: true, Desk: true})
	if err != nil {
		return err
	}
	defer s.Close()
	u, err := s.find(ctx, api.Repositories, r.g.listNamespace(), name)
	if apierrors.IsNotFound(err) {
		return fail(ExitError, "limpet repo list", "repository %q not found", name)
	}
	if err != nil {
		return err
	}
	who, err := s.suspender(ctx)
	if err != nil {
		return err
	}
	return f(who, u)
}

// suspender is who keeps suspensions; nil when the command has no use for the file.
func (s *session) suspender(ctx context.Context) (control.Suspender, error) {
	switch {
	case s.Daemon != nil:
		return s.Daemon, nil
	case s.store != nil:
		return repos.OpenSuspensions(ctx, s.store)
	}
	return nil, nil
}

// suspensions are those of the agent on this host, by namespace/name.
type suspensions map[string]repos.Suspension

func (s *session) suspended(ctx context.Context) (suspensions, error) {
	who, err := s.suspender(ctx)
	if who == nil || err != nil {
		return nil, err
	}
	all, err := who.Suspended(ctx)
	out := suspensions{}
	for _, one := range all {
		out[one.Namespace+"/"+one.Repository] = one
	}
	return out, err
}

func (s suspensions) of(u *unstructured.Unstructured) (repos.Suspension, bool) {
	one, ok := s[u.GetNamespace()+"/"+u.GetName()]
	return one, ok && one.UID == string(u.GetUID())
}

// word is what a list says of a suspended repository, "" of any other.
func (s suspensions) word(u *unstructured.Unstructured) string {
	if _, ok := s.of(u); ok {
		return "suspended"
	}
	return ""
}

// text says until when a repository is suspended, "" when it is not.
func (s suspensions) text(r *run, u *unstructured.Unstructured) string {
	one, ok := s.of(u)
	switch {
	case !ok:
		return ""
	case one.Until.IsZero():
		return "on this agent, until: " + r.next(u.GetNamespace(), "repo resume "+u.GetName())
	}
	return "on this agent, until " + one.Until.UTC().Format(time.RFC3339)
}
