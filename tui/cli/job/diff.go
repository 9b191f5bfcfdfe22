package job

import (
	"context"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

type diffCmd struct {
	Job  string `arg:"" help:"Name or UID of a finished job."`
	Path string `arg:"" optional:"" help:"File whose difference is printed. Without it the changed files are listed."`
}

func (c diffCmd) Run(ctx context.Context, e *command.Env) error {
	var rec state.Record
	err := e.With(ctx, command.Needs{API: true}, func(s *command.Session) (err error) {
		rec, err = finishedJob(ctx, e, s, c.Job, true)
		return err
	})
	if err != nil {
		return err
	}
	show := command.CommandFor(rec.Namespace, "job show "+rec.Name)
	if rec.RefTo == "" || rec.RefTo == rec.RefFrom {
		return command.Errorf(command.ExitError, show, "job %q has no changes to compare: it synced no new commit", c.Job)
	}
	q := snapshot.CompareQuery{Namespace: rec.Namespace, Repository: rec.Repository, From: rec.RefFrom, To: rec.RefTo, Path: c.Path}
	needs := command.Needs{API: true, Store: true}
	return e.WithObject(ctx, needs, api.Repositories, rec.Repository, func(s *command.Session, u *unstructured.Unstructured) error {
		out, err := compare(ctx, e, s, u, q)
		if err != nil {
			return command.WithHint(err, show)
		}
		out.From, out.To = q.From, q.To
		out.Files = command.List(out.Files)
		return e.PrintOne(out, "job/"+rec.Name, func(w io.Writer) { c.print(e, w, rec, out) })
	})
}

// compare asks the daemon that holds the state file, else reads the mirrors beside the file.
func compare(ctx context.Context, e *command.Env, s *command.Session, u *unstructured.Unstructured,
	q snapshot.CompareQuery) (snapshot.Comparison, error) {
	if s.Daemon != nil {
		return s.Daemon.Compare(ctx, q)
	}
	comparer, err := e.Comparer(s.File)
	if err != nil {
		return snapshot.Comparison{}, err
	}
	defer comparer.Mirrors.Close()
	return comparer.CompareOf(ctx, u, q)
}

func (c diffCmd) print(e *command.Env, w io.Writer, rec state.Record, out snapshot.Comparison) {
	if out.Text != nil {
		command.PrintDiff(w, "a/"+c.Path, "b/"+c.Path, *out.Text)
		return
	}
	t := command.Table{Columns: []string{"CHANGE", "FILE", "FROM"}}
	for _, f := range out.Files {
		t.Add(rec.Namespace, f.Path, f.Type, f.Path, text.OrDash(f.From))
	}
	if len(out.Files) > 0 {
		t.Write(w, false, !e.Flags.NoHeaders)
	}
	fmt.Fprintf(w, "%s from %s to %s\n", text.Plural(out.All, "changed file"), text.OrDash(text.ShortRef(out.From)), text.ShortRef(out.To))
	if more := out.All - len(out.Files); more > 0 {
		fmt.Fprintf(w, "the first %d are listed\n", len(out.Files))
	}
}
