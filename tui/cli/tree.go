package cli

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"

	"limpet/sync/api"
	"limpet/tui/cli/command"
	"limpet/tui/cli/complete"
	"limpet/tui/cli/config"
	"limpet/tui/cli/daemon"
	"limpet/tui/cli/doctor"
	"limpet/tui/cli/history"
	"limpet/tui/cli/job"
	"limpet/tui/cli/object"
	"limpet/tui/cli/repo"
	"limpet/tui/cli/service"
	"limpet/tui/cli/source"
	"limpet/tui/cli/status"
	"limpet/tui/cli/store"
)

// cli is the whole command line: the flags of Globals and one field a command.
type cli struct {
	command.Flags

	Dashboard daemon.Command     `cmd:"" default:"withargs" hidden:"" help:"The dashboard with the agent inside; off a terminal: status."`
	Demo      daemon.DemoCommand `cmd:"" writes:"" help:"Show everything on this machine: a sample repository, pull jobs, the dashboard."`
	API       daemon.APICommand  `cmd:"" writes:"" name:"api" help:"Serve the embedded API over TLS, with a token-exchange endpoint."`

	Doctor     doctor.Command         `cmd:"" help:"Check host, state file, API and Git hosts, and suggest what to do next."`
	Status     status.Command         `cmd:"" help:"Show what runs, what failed and what to do next."`
	Job        job.Command            `cmd:"" help:"Jobs: list, show, watch, create, cancel, retry."`
	Repo       repo.Command           `cmd:"" help:"Repositories: create, list, show, pull, test, open, suspend, validate."`
	Connection repo.ConnectionCommand `cmd:"" help:"Connections to Git hosts: list, show, test."`
	Source     source.Command         `cmd:"" help:"Sources of Flux: list, show, get, test, reconcile, suspend, resume."`
	Drain      status.DrainCommand    `cmd:"" writes:"" help:"Stop claiming new jobs; finish running ones."`
	History    history.Command        `cmd:"" help:"Finished jobs: list, show, prune."`
	Store      store.Command          `cmd:"" help:"The state file: info, check, compact, backup."`

	Settings config.Command  `cmd:"" name:"config" help:"The config file and the settings: show, path, init, validate."`
	Service  service.Command `cmd:"" help:"The daemon under systemd: print, install, uninstall, status."`

	Apply  object.ApplyCommand  `cmd:"" writes:"" help:"Create or change objects from a file."`
	Get    object.GetCommand    `cmd:"" help:"Show objects of any kind."`
	Delete object.DeleteCommand `cmd:"" writes:"" help:"Delete an object."`

	Completion complete.ScriptCommand `cmd:"" help:"Print the completion script of a shell."`
	Man        complete.ManCommand    `cmd:"" help:"Print the manual as a man page."`

	Crds    crdsCmd    `cmd:"" name:"crds" help:"Print the CustomResourceDefinitions for a Kubernetes API."`
	Version versionCmd `cmd:"" help:"Print the version; --version does too."`
}

type versionCmd struct{}

func (versionCmd) Run(e *command.Env) error {
	v := map[string]string{"version": command.Version, "go": "unknown"}
	if info, ok := debug.ReadBuildInfo(); ok {
		v["go"] = info.GoVersion
	}
	return e.PrintOne(v, command.Version, func(w io.Writer) { fmt.Fprintf(w, "limpet %s (%s)\n", v["version"], v["go"]) })
}

type crdsCmd struct{}

func (crdsCmd) Run(e *command.Env) error {
	if e.Flags.Output == "table" || e.Flags.Output == "wide" {
		_, err := e.Out.Write(api.CRDs()) // the form that kubectl apply takes
		return err
	}
	documents, err := object.ReadDocuments("crds", api.CRDs())
	if err != nil {
		return err
	}
	var items []any
	var t command.Table
	for _, d := range documents {
		items = append(items, d.Object.Object)
		t.Add("", "customresourcedefinition/"+d.Object.GetName())
	}
	return e.PrintList(items, t)
}

func (c *cli) Headless() bool { return c.Dashboard.Daemon }

// Main parses args, runs the command and returns the exit code.
func Main(args []string, world command.World) int {
	newTree := func() command.Tree { return new(cli) }
	if len(args) > 0 && args[0] == complete.Word {
		complete.Run(context.Background(), args[1:], world, newTree)
		return command.ExitOK
	}
	return command.Run(args, world, newTree)
}
