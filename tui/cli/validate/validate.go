// Package validate has the command that judges files before they are pushed.
package validate

import (
	"context"

	"limpet/sync/text"
	"limpet/sync/worker"
	"limpet/tui/cli/command"
)

// Command is 'limpet validate'.
type Command struct {
	Path   string `arg:"" help:"A directory, as spec.path of a repository names it, or one file."`
	Target string `enum:"api,directory" default:"api" help:"Where the files are to go: ${enum}; directory is for Grafana's file provisioning."`
}

func (c Command) Run(ctx context.Context, e *command.Env) error {
	kinds, err := e.Flags.Kinds()
	if err != nil {
		return err
	}
	faults, err := worker.Validator{Namespace: e.Flags.OneNamespace(), Kinds: kinds, Sink: c.Target == "directory", Log: e.Log}.
		Validate(ctx, c.Path)
	if err != nil {
		return command.WithHint(err, "limpet validate --help")
	}
	t := command.Table{Columns: []string{"FILE", "SEVERITY", "CODE", "MESSAGE"}}
	bad := map[string]bool{}
	for _, f := range faults {
		t.Add("", f.File, f.File, f.Severity, f.Code, f.Message)
		bad[f.File] = true
	}
	if err := e.PrintList(command.List(faults), t); err != nil || len(bad) == 0 {
		return err
	}
	return command.Errorf(command.ExitError, "limpet validate "+text.ShellWord(c.Path)+"    # after correcting it", "%s in %s", text.Plural(len(faults), "fault"),
		text.Plural(len(bad), "file"))
}
