package repo

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/repos"
	"limpet/tui/cli/command"
	"limpet/tui/cli/job"
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
		return e.PrintDone(one, "repository/"+one.Repository, "repository/%s suspended on this agent %s", one.Repository, text)
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
		return e.PrintDone(map[string]any{"repository": u.GetName(), "namespace": u.GetNamespace(), "resumed": was},
			"repository/"+u.GetName(), "repository/%s %s", u.GetName(), text)
	})
}

// withSuspender calls f with the repository and the store of suspensions.
func withSuspender(ctx context.Context, e *command.Env, name string, f func(control.Suspender, *unstructured.Unstructured) error) error {
	needs := command.Needs{API: true, Store: true}
	return e.WithObject(ctx, needs, api.Repositories, name, func(s *command.Session, u *unstructured.Unstructured) error {
		who, err := job.SuspensionStore(ctx, s)
		if err != nil {
			return err
		}
		return f(who, u)
	})
}
