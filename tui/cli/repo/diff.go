package repo

import (
	"context"
	"fmt"
	"io"
	"strings"

	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/snapshot/diff"
	"limpet/sync/text"
	"limpet/sync/worker"
	"limpet/sync/worker/drift"
	"limpet/tui/cli/command"
)

type diffCmd struct {
	Name string   `arg:"" help:"Name of the repository."`
	Path []string `arg:"" optional:"" help:"Files whose difference is printed, as JSON."`
	Full bool     `help:"Print the difference of all; with -o json both sides of them."`
}

// Help is the long help of the command.
func (diffCmd) Help() string {
	return "Compares the commit that was synced last with the API, or with the sink directory. Nothing is written to either. " +
		"To see what a pull would do, use 'limpet repo pull NAME --dry-run'."
}

func (c diffCmd) Run(ctx context.Context, e *command.Env) error {
	return e.WithTester(ctx, true, func(s *command.Session, who control.Tester) error {
		u, err := e.FindObject(ctx, s, api.Repositories, c.Name)
		if err != nil {
			return err
		}
		report, err := who.Drift(ctx, worker.DriftQuery{Namespace: u.GetNamespace(), Repository: c.Name, Paths: c.Path, Full: c.Full})
		if err != nil {
			return err
		}
		return e.PrintOne(report, "repository/"+c.Name, func(w io.Writer) { c.print(e, w, report) })
	})
}

func (c diffCmd) print(e *command.Env, w io.Writer, report *drift.Report) {
	shown := map[string]bool{}
	for _, path := range c.Path {
		shown[path] = true
	}
	t, rows := command.Table{Columns: []string{"STATE", "KIND", "NAME", "FILE", "DIFFERS IN"}}, 0
	for _, item := range report.Items {
		if len(c.Path) == 0 || shown[item.Path] {
			rows++
			t.Add(report.Namespace, item.Path, item.State, item.Kind, item.Name, text.OrDash(item.Path),
				text.OrDash(strings.Join(item.Pointers, " ")))
		}
	}
	if rows > 0 {
		t.Write(w, e.Flags.Output == "wide", !e.Flags.NoHeaders)
	}
	for _, item := range report.Items {
		if len(item.Git)+len(item.Live) > 0 {
			command.PrintDiff(w, "git/"+item.Path, "live/"+item.Path, diff.Texts(item.Git, item.Live))
		}
	}
	if report.Omitted > 0 {
		fmt.Fprintf(w, "%s not shown: too much at once; name the file\n", text.Plural(report.Omitted, "difference"))
	}
	fmt.Fprintln(w, report.Message())
}
