package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"limpet/sync/api"
)

// Version is the version of the binary. The Makefile sets it from the tag.
var Version = "dev"

// cli is the whole command line: the flags of Globals and one field a command.
type cli struct {
	Globals

	Dashboard dashboardCmd `cmd:"" default:"withargs" hidden:"" help:"The dashboard with the agent inside; off a terminal: status."`
	Demo      demoCmd      `cmd:"" help:"Show everything on this machine: a sample repository, pull jobs, the dashboard."`
	API       apiCmd       `cmd:"" name:"api" help:"Serve the embedded API over TLS, with a token-exchange endpoint."`

	Status  statusCmd  `cmd:"" help:"What runs, what failed, and what to do."`
	Job     jobCmd     `cmd:"" help:"Jobs: list, show, watch, create, cancel, retry."`
	Repo    repoCmd    `cmd:"" help:"Repositories: create, list, show, pull."`
	History historyCmd `cmd:"" help:"Finished jobs: list, show, prune."`
	Store   storeCmd   `cmd:"" help:"The state file: info, check, compact, backup."`

	Apply  applyCmd  `cmd:"" help:"Create or change objects from a file."`
	Get    getCmd    `cmd:"" help:"Show objects of any kind."`
	Delete deleteCmd `cmd:"" help:"Delete an object."`

	Crds    crdsCmd    `cmd:"" name:"crds" help:"Print the CustomResourceDefinitions for a Kubernetes API."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

// run is one call of the program: the parsed flags and the world around it.
type run struct {
	g      *Globals
	config *configFile
	world  World
	log    *slog.Logger
}

// Main parses args, runs the command and returns the exit code.
func Main(args []string, world World) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := execute(ctx, args, world)
	var exit exitNow
	if errors.As(err, &exit) {
		return int(exit)
	}
	return report(world.Err, err)
}

// exitNow ends the program from inside kong, after help was printed.
type exitNow int

func (e exitNow) Error() string { return fmt.Sprintf("exit %d", int(e)) }

func execute(ctx context.Context, args []string, world World) (err error) {
	// Kong has no other way out of --help than its exit function.
	defer func() {
		if code, ok := recover().(exitNow); ok {
			err = code
		}
	}()
	var c cli
	config, err := readConfig(configFlag(args, world.Env), world.Env)
	if err != nil {
		return err
	}
	parser, err := kong.New(&c,
		kong.Name("limpet"),
		kong.Description("An edge agent for Git sync. Without a command: the dashboard on a terminal, the status on a pipe, the agent with --daemon."),
		kong.DefaultEnvars("LIMPET"),
		kong.Resolvers(config.resolver(world.Env)),
		kong.Writers(world.Out, world.Err),
		kong.Exit(func(code int) { panic(exitNow(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}),
	)
	if err != nil {
		return err
	}
	if err := config.check(flagNames(parser)); err != nil {
		return err
	}
	call, err := parser.Parse(args)
	if err != nil {
		return usageError(parser, err)
	}
	r := &run{g: &c.Globals, config: config, world: world, log: newLogger(&c.Globals, world.Err, c.Dashboard.Daemon)}
	for _, secret := range []string{c.Token} {
		api.RegisterSecret([]byte(secret))
	}
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
	}
	call.BindTo(ctx, (*context.Context)(nil))
	return call.Run(r)
}

// configFlag finds --config before the parse proper, since the file takes part
// in it.
func configFlag(args []string, env func(string) string) string {
	for i, a := range args {
		if v, ok := strings.CutPrefix(a, "--config="); ok {
			return v
		}
		if a == "--config" && i+1 < len(args) {
			return args[i+1]
		}
	}
	return env("LIMPET_CONFIG")
}

// flagNames lists the flags of the root and of all commands.
func flagNames(k *kong.Kong) []string {
	var out []string
	var walk func(n *kong.Node)
	walk = func(n *kong.Node) {
		for _, f := range n.Flags {
			out = append(out, f.Name)
		}
		for _, child := range n.Children {
			walk(child)
		}
	}
	walk(k.Model.Node)
	return out
}

// usageError turns kong's complaint into ours: kong exits with 80 and names no
// next command, and of a word that is no command it sees only a surplus
// argument of the default one.
func usageError(k *kong.Kong, err error) error {
	hint, text := "limpet --help", err
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil {
		if words := strings.Fields(parse.Context.Command()); len(words) > 0 && words[0] != "dashboard" {
			hint = "limpet " + words[0] + " --help"
		}
	}
	if word, ok := strings.CutPrefix(err.Error(), "unexpected argument "); ok && hint == "limpet --help" {
		word, _, _ = strings.Cut(word, ",")
		text = fmt.Errorf("unknown command %q", word)
		var names []string
		for _, c := range k.Model.Children {
			names = append(names, c.Name)
		}
		if near := nearest(word, names); near != "" {
			text = fmt.Errorf("unknown command %q, did you mean %q?", word, near)
		}
	}
	return &Failure{Err: text, Hint: hint, Code: ExitUsage}
}

// newLogger logs to w, as JSON for a daemon whose stderr somebody collects and
// as text for a person, unless --log-format decides.
func newLogger(g *Globals, w io.Writer, daemon bool) *slog.Logger {
	var level slog.Level
	// The flag's enum admits only names that UnmarshalText knows.
	_ = level.UnmarshalText([]byte(g.LogLevel))
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: api.RedactAttr}
	if g.LogFormat == "json" || g.LogFormat == "" && daemon && !isTerminal(w) {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	if !daemon {
		opts.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && len(groups) == 0 {
				return slog.Attr{} // the person is there and knows the time
			}
			return api.RedactAttr(groups, a)
		}
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// callTimeout bounds one call to the API. It is shorter than the margin of a
// lease: expiry less renewal, by half.
func (r *run) callTimeout() time.Duration {
	return min(10*time.Second, (r.g.ClaimExpiry-r.g.LeaseRenewalInterval)/2)
}

// note writes a line for the person, unless --quiet.
func (r *run) note(format string, args ...any) {
	if !r.g.Quiet {
		fmt.Fprintf(r.world.Err, format+"\n", args...)
	}
}

type versionCmd struct{}

func (versionCmd) Run(r *run) error {
	v := map[string]string{"version": Version, "go": "unknown"}
	if info, ok := debug.ReadBuildInfo(); ok {
		v["go"] = info.GoVersion
	}
	return r.g.printOne(r.world.Out, v, Version, func(w io.Writer) { fmt.Fprintf(w, "limpet %s (%s)\n", v["version"], v["go"]) })
}

type crdsCmd struct{}

func (crdsCmd) Run(r *run) error {
	_, err := r.world.Out.Write(api.CRDs())
	return err
}
