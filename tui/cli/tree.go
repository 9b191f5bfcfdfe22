package cli

import (
	"fmt"
	"io"
	"runtime/debug"

	"limpet/sync/api"
)

// cli is the whole command line: the flags of Globals and one field a command.
type cli struct {
	Globals

	Dashboard dashboardCmd `cmd:"" default:"withargs" hidden:"" help:"The dashboard with the agent inside; off a terminal: status."`
	Demo      demoCmd      `cmd:"" writes:"" help:"Show everything on this machine: a sample repository, pull jobs, the dashboard."`
	API       apiCmd       `cmd:"" writes:"" name:"api" help:"Serve the embedded API over TLS, with a token-exchange endpoint."`

	Doctor     doctorCmd     `cmd:"" help:"Look at host, state file, API and Git hosts, and say what to do next."`
	Status     statusCmd     `cmd:"" help:"What runs, what failed, and what to do."`
	Job        jobCmd        `cmd:"" help:"Jobs: list, show, watch, create, cancel, retry."`
	Repo       repoCmd       `cmd:"" help:"Repositories: create, list, show, pull, test, open, suspend, validate."`
	Connection connectionCmd `cmd:"" help:"Connections to Git hosts: list, show, test."`
	Source     sourceCmd     `cmd:"" help:"Sources of Flux: list, show, get, test, reconcile, suspend, resume."`
	Drain      drainCmd      `cmd:"" writes:"" help:"Have the agent finish what runs and claim nothing new."`
	History    historyCmd    `cmd:"" help:"Finished jobs: list, show, prune."`
	Store      storeCmd      `cmd:"" help:"The state file: info, check, compact, backup."`

	Settings configCmd  `cmd:"" name:"config" help:"The config file and the settings: show, path, init, validate."`
	Service  serviceCmd `cmd:"" help:"The daemon under systemd: print, install, uninstall, status."`

	Apply  applyCmd  `cmd:"" writes:"" help:"Create or change objects from a file."`
	Get    getCmd    `cmd:"" help:"Show objects of any kind."`
	Delete deleteCmd `cmd:"" writes:"" help:"Delete an object."`

	Completion completionCmd `cmd:"" help:"Print the completion script of a shell."`
	Man        manCmd        `cmd:"" help:"Print the manual as a man page."`

	Crds    crdsCmd    `cmd:"" name:"crds" help:"Print the CustomResourceDefinitions for a Kubernetes API."`
	Version versionCmd `cmd:"" help:"Print the version; --version does too."`
}

type versionCmd struct{}

func (versionCmd) Run(r *run) error {
	v := map[string]string{"version": Version, "go": "unknown"}
	if info, ok := debug.ReadBuildInfo(); ok {
		v["go"] = info.GoVersion
	}
	return r.printOne(v, Version, func(w io.Writer) { fmt.Fprintf(w, "limpet %s (%s)\n", v["version"], v["go"]) })
}

type crdsCmd struct{}

func (crdsCmd) Run(r *run) error {
	if r.g.Output == "table" || r.g.Output == "wide" {
		_, err := r.Out.Write(api.CRDs()) // the form that kubectl apply takes
		return err
	}
	documents, err := readDocuments("crds", api.CRDs())
	if err != nil {
		return err
	}
	var items []any
	var t table
	for _, d := range documents {
		items = append(items, d.u.Object)
		t.add("", "customresourcedefinition/"+d.u.GetName())
	}
	return r.printList(items, t)
}

func (c *cli) headless() bool { return c.Dashboard.Daemon }

// Main parses args, runs the command and returns the exit code.
func Main(args []string, world World) int {
	return mainOf(args, world, func() tree { return new(cli) })
}
