package repo

import (
	"context"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/repos"
	"limpet/tui/cli/command"
)

type suspendCmd struct {
	Name string        `arg:"" help:"Name of the repository."`
	For  time.Duration `help:"How long; 0 = until 'limpet repo resume'." default:"24h"`
}

func (c suspendCmd) Run(ctx context.Context, e *command.Env) error {
	if c.For < 0 {
		return command.Usagef("limpet repo suspend NAME --for 2h", "--for is %s: it must not be negative", c.For)
	}
	return withSuspender(ctx, e, c.Name, func(who control.Suspender, u *unstructured.Unstructured) error {
		one := repos.Suspension{Namespace: u.GetNamespace(), Repository: u.GetName(), UID: string(u.GetUID()), Since: time.Now().Round(0)}
		text := "until it is resumed: " + e.CommandFor(u.GetNamespace(), "repo resume "+u.GetName())
		if c.For > 0 {
			one.Until = one.Since.Add(c.For)
			text = "until " + one.Until.Format(time.RFC3339)
		}
		if err := who.Suspend(ctx, one); err != nil {
			return err
		}
		return e.PrintOne(one, "repository/"+one.Repository, func(w io.Writer) {
			fmt.Fprintf(w, "repository/%s suspended on this agent %s\n", one.Repository, text)
		})
	})
}

type resumeCmd struct {
	Name string `arg:"" help:"Name of the repository."`
}

func (c resumeCmd) Run(ctx context.Context, e *command.Env) error {
	return withSuspender(ctx, e, c.Name, func(who control.Suspender, u *unstructured.Unstructured) error {
		was, err := who.Resume(ctx, u.GetNamespace(), u.GetName())
		if err != nil {
			return err
		}
		text := map[bool]string{true: "resumed", false: "was not suspended"}[was]
		return e.PrintOne(map[string]any{"repository": u.GetName(), "namespace": u.GetNamespace(), "resumed": was},
			"repository/"+u.GetName(), func(w io.Writer) { fmt.Fprintf(w, "repository/%s %s\n", u.GetName(), text) })
	})
}

// withSuspender calls f with the repository and the store of suspensions.
func withSuspender(ctx context.Context, e *command.Env, name string, f func(control.Suspender, *unstructured.Unstructured) error) error {
	needs := command.Needs{API: true, Desk: true}
	return e.WithObject(ctx, needs, api.Repositories, name, func(s *command.Session, u *unstructured.Unstructured) error {
		who, err := suspensionStore(ctx, s)
		if err != nil {
			return err
		}
		return f(who, u)
	})
}

// suspensionStore returns the daemon that holds the state file, or the store of suspensions in the file; nil when
// the session has none.
func suspensionStore(ctx context.Context, s *command.Session) (control.Suspender, error) {
	switch {
	case s.Daemon != nil:
		return s.Daemon, nil
	case s.File != nil:
		return repos.OpenSuspensions(ctx, s.File)
	}
	return nil, nil
}

// suspensions are those of the agent on this host.
type suspensions []repos.Suspension

func readSuspensions(ctx context.Context, s *command.Session) (suspensions, error) {
	who, err := suspensionStore(ctx, s)
	if who == nil || err != nil {
		return nil, err
	}
	return who.Suspended(ctx)
}

// of returns the suspension of a repository.
func (s suspensions) of(u *unstructured.Unstructured) (repos.Suspension, bool) {
	for _, one := range s {
		if one.Namespace == u.GetNamespace() && one.Repository == u.GetName() && one.UID == string(u.GetUID()) {
			return one, true
		}
	}
	return repos.Suspension{}, false
}
