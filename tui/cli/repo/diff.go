package repo

import (
	"context"
	"fmt"
	"io"
	"slices"
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
	Exit bool     `name:"exit-code" help:"Exit with 1 if something differs."`
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
		err = e.PrintOne(report, "repository/"+c.Name, func(w io.Writer) { c.print(e, w, report) })
		found := len(slices.DeleteFunc(slices.Clone(report.Items), func(item drift.Item) bool { return !c.shows(item) }))
		if err != nil || found == 0 {
			return err
		}
		next := e.CommandFor(u.GetNamespace(), "repo pull "+c.Name+" --full")
		if c.Exit {
			return command.Errorf(command.ExitError, next, "%s not what Git says", text.Plural(found, "object"))
		}
		e.Notef("  try: %s", next)
		return nil
	})
}

// shows reports whether an item is among the files that are named.
func (c diffCmd) shows(item drift.Item) bool {
	return len(c.Path) == 0 || slices.Contains(c.Path, item.Path)
}

func (c diffCmd) print(e *command.Env, w io.Writer, report *drift.Report) {
	t, rows := command.Table{Columns: []string{"STATE", "KIND", "NAME", "FILE", "DIFFERS IN"}}, 0
	for _, item := range report.Items {
		if c.shows(item) {
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
