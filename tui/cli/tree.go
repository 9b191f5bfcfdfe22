// Package cli is the command line of limpet: the tree of its commands. Each noun has a package
// below it.
//
// Stdout carries data and nothing else; progress, warnings, questions and errors go to stderr. Each
// error says what failed, why, and one command to run next. Input is validated whole before
// anything is written. The exit codes in package command never change their meaning.
package cli

import (
	"context"
	"runtime/debug"

	"limpet/sync/api"
	"limpet/tui/cli/command"
	"limpet/tui/cli/complete"
	"limpet/tui/cli/config"
	"limpet/tui/cli/daemon"
	"limpet/tui/cli/doctor"
	"limpet/tui/cli/fleet"
	"limpet/tui/cli/history"
	"limpet/tui/cli/job"
	"limpet/tui/cli/logs"
	"limpet/tui/cli/manifests"
	"limpet/tui/cli/monitoring"
	"limpet/tui/cli/object"
	"limpet/tui/cli/repo"
	"limpet/tui/cli/service"
	"limpet/tui/cli/source"
	"limpet/tui/cli/status"
	"limpet/tui/cli/store"
	"limpet/tui/cli/validate"
)

// cli is the whole command line: the flags of Globals and one field a command.
type cli struct {
	command.Flags

	Dashboard daemon.Command `cmd:"" alone:"" default:"withargs" hidden:"" help:"The dashboard with the agent inside; off a terminal: status."`

	Status  status.Command    `cmd:"" group:"Look" help:"What runs, what failed and what to do next."`
	Logs    logs.Command      `cmd:"" group:"Look" help:"The log of the agent."`
	Fleet   fleet.Command     `cmd:"" group:"Look" help:"Several sites: their status side by side."`
	Doctor  doctor.Command    `cmd:"" whole:"" group:"Look" help:"Check host, state file, API, Git hosts and credentials."`
	History history.Command   `cmd:"" group:"Look" help:"Finished jobs: list, show, export, prune."`
	Get     object.GetCommand `cmd:"" group:"Look" help:"Show objects of any kind."`

	Validate validate.Command `cmd:"" group:"Look" help:"Judge dashboards and folders as a pull would, without a server."`

	Repo       repo.Command           `cmd:"" group:"Do" help:"Repositories: create, list, show, pull, test, suspend."`
	Job        job.Command            `cmd:"" group:"Do" help:"Jobs: list, show, watch, logs, create, cancel, retry."`
	Connection repo.ConnectionCommand `cmd:"" group:"Do" help:"Connections to Git hosts: list, show, test."`
	Source     source.Command         `cmd:"" group:"Do" help:"Sources of Flux: list, show, get, test, reconcile."`
	Notify     status.NotifyCommand   `cmd:"" group:"Do" help:"Notifications: send a test."`
	Drain      status.DrainCommand    `cmd:"" group:"Do" writes:"" help:"Stop claiming new jobs; finish running ones."`

	Apply    object.ApplyCommand  `cmd:"" group:"Set up" writes:"" help:"Create or change objects from a file."`
	Edit     object.EditCommand   `cmd:"" alone:"" group:"Set up" writes:"" help:"Change an object in your editor."`
	Delete   object.DeleteCommand `cmd:"" group:"Set up" writes:"" help:"Delete an object."`
	Settings config.Command       `cmd:"" whole:"" group:"Set up" name:"config" help:"The settings: show, path, init, validate."`
	Service  service.Command      `cmd:"" group:"Set up" help:"The daemon under systemd: print, install, uninstall."`
	Crds     crdsCmd              `cmd:"" group:"Set up" name:"crds" help:"Print the CRDs for a Kubernetes API."`

	Deployment manifests.Command  `cmd:"" alone:"" group:"Set up" name:"manifests" help:"Print a Deployment for Kubernetes, with the rights that it needs."`
	Monitoring monitoring.Command `cmd:"" group:"Set up" help:"Boards, alert rules and scrape jobs for Prometheus and Grafana."`

	Demo daemon.DemoCommand `cmd:"" alone:"" group:"Serve" writes:"" help:"See everything at work on this machine, offline."`
	API  daemon.APICommand  `cmd:"" alone:"" group:"Serve" writes:"" name:"api" help:"Serve the embedded API over TLS, for curl and kubectl."`

	Store      store.Command          `cmd:"" group:"More" help:"The state file: info, check, compact, backup."`
	Relay      fleet.RelayCommand     `cmd:"" alone:"" group:"More" writes:"" help:"Connect stdin and stdout to the agent: ssh HOST limpet relay."`
	Completion complete.ScriptCommand `cmd:"" alone:"" whole:"" group:"More" help:"Print the completion script of a shell."`
	Man        complete.ManCommand    `cmd:"" whole:"" group:"More" help:"Print the manual as a man page."`
	Version    versionCmd             `cmd:"" group:"More" help:"Print the version; --version does too."`
}

type versionCmd struct{}

func (versionCmd) Run(e *command.Env) error {
	v := map[string]string{"version": command.Version, "go": "unknown"}
	if info, ok := debug.ReadBuildInfo(); ok {
		v["go"] = info.GoVersion
	}
	return e.PrintDone(v, command.Version, "limpet %s (%s)", v["version"], v["go"])
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
func Main(args []string, streams command.Streams) int {
	newTree := func() command.Tree { return new(cli) }
	if len(args) > 0 && args[0] == complete.Word {
		complete.Run(context.Background(), args[1:], streams, newTree)
		return command.ExitOK
	}
	return command.Run(args, streams, newTree)
}
