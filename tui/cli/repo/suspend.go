package repo

import (
	"context"
	"fmt"
	"io"
	"time"

	"limpet/tui/cli/command"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/repos"
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
		text := "was not suspended"
		if was {
			text = "resumed"
		}
		return e.PrintOne(map[string]any{"repository": u.GetName(), "namespace": u.GetNamespace(), "resumed": was},
			"repository/"+u.GetName(), func(w io.Writer) { fmt.Fprintf(w, "repository/%s %s\n", u.GetName(), text) })
	})
}

// withSuspender finds the repository and the store of suspensions: the daemon that holds the state file, or
// the file itself.
func withSuspender(ctx context.Context, e *command.Env, name string, f func(control.Suspender, *unstructured.Unstructured) error) error {
	s, err := e.Open(ctx, command.Needs{API: true, Desk: true})
	if err != nil {
		return err
	}
	defer s.Close()
	u, err := e.FindObject(ctx, s, api.Repositories, name)
	if err != nil {
		return err
	}
	who, err := suspensionStore(ctx, s)
	if err != nil {
		return err
	}
	return f(who, u)
}

// suspensionStore returns the store of suspensions, nil when the session has no state file.
func suspensionStore(ctx context.Context, s *command.Session) (control.Suspender, error) {
	switch {
	case s.Daemon != nil:
		return s.Daemon, nil
	case s.File != nil:
		return repos.OpenSuspensions(ctx, s.File)
	}
	return nil, nil
}

// suspensions are those of the agent on this host, by namespace/name.
type suspensions map[string]repos.Suspension

func readSuspensions(ctx context.Context, s *command.Session) (suspensions, error) {
	who, err := suspensionStore(ctx, s)
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

// word is "suspended" for a suspended repository, "" for any other.
func (s suspensions) word(u *unstructured.Unstructured) string {
	if _, ok := s.of(u); ok {
		return "suspended"
	}
	return ""
}

// text describes the end of a suspension, "" without one.
func (s suspensions) text(e *command.Env, u *unstructured.Unstructured) string {
	one, ok := s.of(u)
	switch {
	case !ok:
		return ""
	case one.Until.IsZero():
		return "on this agent, until: " + e.CommandFor(u.GetNamespace(), "repo resume "+u.GetName())
	}
	return "on this agent, until " + one.Until.UTC().Format(time.RFC3339)
}
