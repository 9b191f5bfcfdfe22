package job

import (
	"context"
	"fmt"
	"io"
	"strings"

	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/text"
	"limpet/sync/worker"
	"limpet/tui/cli/command"
)

// Preview prints what a pull of a repository would do now. Nothing is written.
func Preview(ctx context.Context, e *command.Env, repository string, full, massDelete bool) error {
	return e.WithTester(ctx, true, func(s *command.Session, who control.Tester) error {
		u, err := e.FindObject(ctx, s, api.Repositories, repository)
		if err != nil {
			return err
		}
		plan, err := who.Preview(ctx, worker.PreviewQuery{Namespace: u.GetNamespace(), Repository: repository, Incremental: !full,
			AllowMassDelete: massDelete})
		if err != nil {
			return err
		}
		return e.PrintOne(plan, "repository/"+repository, func(w io.Writer) { printPreview(e, w, plan) })
	})
}

func printPreview(e *command.Env, w io.Writer, plan *worker.Preview) {
	t := command.Table{Columns: []string{"ACTION", "KIND", "NAME", "FILE", "REASON"}, Wide: []string{"FROM"}}
	counts, actions, rows := map[string]int{}, []string{}, 0
	for _, c := range plan.Changes {
		if counts[c.Action]++; counts[c.Action] == 1 {
			actions = append(actions, c.Action)
		}
		if c.Action == worker.PreviewNoop && e.Flags.Output != "wide" {
			continue
		}
		rows++
		t.Add(plan.Namespace, c.Path, c.Action, text.OrDash(c.Kind), text.OrDash(c.Name), text.OrDash(c.Path), text.OrDash(c.Reason),
			text.OrDash(c.From))
	}
	if rows > 0 {
		t.Write(w, e.Flags.Output == "wide", !e.Flags.NoHeaders)
	}
	for i, action := range actions {
		actions[i] = fmt.Sprintf("%d %s", counts[action], action)
	}
	if len(actions) == 0 {
		actions = []string{"nothing to do"}
	}
	kind := map[bool]string{true: "incremental", false: "full"}[plan.Incremental]
	fmt.Fprintf(w, "%s pull of %s, %s to %s: %s\n", kind, plan.Repository, text.OrDash(text.ShortRef(plan.From)), text.ShortRef(plan.To),
		strings.Join(actions, ", "))
	for _, more := range []string{plan.Guarded, plan.Message} {
		if more != "" {
			fmt.Fprintln(w, more)
		}
	}
}
