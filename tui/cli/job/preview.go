package job

import (
	"cmp"
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

// missing returns an error for the paths of a plan that the branch does not have.
func missing(plan *worker.Preview) error {
	if len(plan.Missing) == 0 {
		return nil
	}
	return command.Errorf(command.ExitError, command.CommandFor(plan.Namespace, "repo files "+plan.Repository),
		"branch %s does not have %s", plan.Branch, strings.Join(plan.Missing, ", "))
}

// Preview prints what a job of a repository would do now, in its namespace. Nothing is written.
func Preview(ctx context.Context, e *command.Env, q worker.PreviewQuery) error {
	return e.WithTester(ctx, true, func(s *command.Session, who control.Tester) error {
		u, err := e.FindObject(ctx, s, api.Repositories, q.Repository)
		if err != nil {
			return err
		}
		q.Namespace = u.GetNamespace()
		plan, err := who.Preview(ctx, q)
		if err != nil {
			return err
		}
		err = e.PrintOne(plan, "repository/"+q.Repository, func(w io.Writer) { printPreview(e, w, plan) })
		return cmp.Or(err, missing(plan))
	})
}

func printPreview(e *command.Env, w io.Writer, plan *worker.Preview) {
	t := command.Table{Columns: []string{"ACTION", "KIND", "NAME", "FILE", "REASON"}, Wide: []string{"FROM"}}
	if plan.Action == "move" { // without it the plan does not name the files
		t.Columns, t.Wide = append(t.Columns, t.Wide...), nil
	}
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
	head := fmt.Sprintf("%s of %s on %s, after %s", plan.Action, plan.Repository, plan.Branch, text.OrDash(text.ShortRef(plan.To)))
	if plan.Action == "pull" {
		head = fmt.Sprintf("%s pull of %s, %s to %s", map[bool]string{true: "incremental", false: "full"}[plan.Incremental],
			plan.Repository, text.OrDash(text.ShortRef(plan.From)), text.ShortRef(plan.To))
	}
	fmt.Fprintf(w, "%s: %s\n", head, strings.Join(actions, ", "))
	for _, more := range []string{plan.Guarded, plan.Message} {
		if more != "" {
			fmt.Fprintln(w, more)
		}
	}
}
