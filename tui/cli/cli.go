package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/api"
	"limpet/sync/text"
	"limpet/tui"
)

// Version is the version of the binary. The Makefile sets it from the tag.
var Version = "dev"

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

// run is one call of the program: the parsed flags and the world around it.
type run struct {
	g      *Globals
	config *configFile
	world  World
	log    *slog.Logger
	// signals are those that end this call.
	signals *signals
	// aim is what this call means; what a person is told to run next means it too.
	aim *aim
	// asks has the dashboard ask for the settings instead of showing anything.
	asks bool
}

// Main parses args, runs the command and returns the exit code. Around the set-up
// it does so again, with the settings as they are then.
func Main(args []string, world World) int {
	for asks := false; ; {
		code, err := once(args, world, asks)
		switch {
		case errors.Is(err, tui.ErrSetUp):
			asks = true
		case errors.Is(err, errAgain):
			asks = false
		default:
			return code
		}
	}
}

// once is Main without set-up. The error is one of those that have it called again.
func once(args []string, world World, asks bool) (int, error) {
	ctx, signals := untilSignal(context.Background())
	defer signals.stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := &stdout{w: world.Out, end: cancel}
	errs := &stderr{w: world.Err, ink: errorInk(world.Err, args, world.Env)}
	defer errs.end()
	world.Out, world.Err = out, errs
	r := &run{world: world, signals: signals, asks: asks}
	err := r.execute(ctx, helpWords(args))
	if lost := out.failure(); lost != nil {
		err = lost
	}
	if errors.Is(err, tui.ErrSetUp) || errors.Is(err, errAgain) {
		return 0, err
	}
	var exit exitNow
	if errors.As(err, &exit) {
		return int(exit), nil
	}
	return r.report(world.Err, outputFlag(args, world.Env), err), nil
}

// exitNow ends the program with a code and without a word: help was printed, or
// nobody listens any more.
type exitNow int

func (e exitNow) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// execute parses args and runs the command.
func (r *run) execute(ctx context.Context, args []string) (err error) {
	world := r.world
	// Kong has no other way out of --help than its exit function.
	defer func() {
		switch r := recover().(type) {
		case nil:
		case exitNow:
			err = r
		default:
			panic(r)
		}
	}()
	if len(args) > 1 && args[0] == completeWord {
		offerNames(ctx, args[1:], world)
		return nil
	}
	if slices.Equal(args, []string{"exit-codes", "--help"}) {
		_, err := io.WriteString(world.Out, exitCodes)
		return err
	}
	c, config, call, err := parse(args, world)
	if err != nil {
		return err
	}
	if c.FPS < 0 || c.FPS > 60 {
		return usage("limpet --fps 10", "--fps %d is not between 0 and 60", c.FPS)
	}
	r.aim = aimOf(call, &c.Globals, args)
	if err := c.settleOutput(world.Err); err != nil {
		return err
	}
	if err := c.mayRun(call.Selected(), r.aim); err != nil {
		return err
	}
	r.g, r.config, r.log = &c.Globals, config, newLogger(&c.Globals, world.Err, c.Dashboard.Daemon)
	if errs, ok := world.Err.(*stderr); ok {
		errs.ink = r.ink(errs)
		if c.Dashboard.Daemon || callText(call.Selected()) == "limpet api" {
			errs.aside(lostLines(&c.Globals, logFormat(&c.Globals, errs, c.Dashboard.Daemon)))
		}
	}
	if out, ok := world.Out.(*stdout); ok {
		out.labels, out.ink = r.readOut(out), r.ink(out)
	}
	text.RegisterSecret([]byte(c.Token))
	r.noteGrafana(call)
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.Timeout, timedOut{c.Timeout})
		defer cancel()
	}
	call.BindTo(ctx, (*context.Context)(nil))
	return r.settle(ctx, callText(call.Selected()), call.Run(r))
}

// parse reads the config file, the environment and the arguments.
func parse(args []string, world World) (*cli, *configFile, *kong.Context, error) {
	config, unread := readConfig(configFlag(args, world.Env), world.Env)
	if unread != nil {
		config = noConfig()
	}
	c := new(cli)
	parser, err := kong.New(c,
		kong.Name("limpet"),
		kong.Description(description),
		kong.Resolvers(config.resolver(world.Lookup)),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(mapDuration)),
		kong.Writers(world.Out, world.Err),
		kong.Exit(func(code int) { panic(exitNow(code)) }),
		kong.Help(printHelp),
		kong.ValueFormatter(func(v *kong.Value) string { return v.Help }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}),
	)
	if err != nil {
		return nil, nil, nil, err
	}
	traced, untraced := kong.Trace(parser, args)
	if unread == nil {
		unread = config.check(flagsOf(parser.Model.Node))
	}
	switch {
	case untraced == nil && (fileless(traced.Selected()) || unread != nil && helped(traced)):
		*config = *noConfig()
	case untraced == nil && callText(traced.Selected()) == "limpet doctor" && unread != nil: // it tells of the file
		*config = *noConfig()
		config.bad = unread
	case unread != nil:
		return nil, nil, nil, unread
	}
	call, err := parser.Parse(args)
	if err != nil {
		return nil, nil, nil, usageError(parser, config, err)
	}
	c.takeGrafana(world.Env, config, call)
	return c, config, call, nil
}

// settle gives the error of a command what only its caller knows: that the
// person or --timeout has ended it, and how the call was written.
func (r *run) settle(ctx context.Context, call string, err error) error {
	var own *Failure
	if err == nil || errors.As(err, &own) {
		return err
	}
	if path, unknown := r.statePath(); unknown == nil {
		err = heldBack(path, err) // it has stopped to answer meanwhile
	}
	var late timedOut
	switch cause := context.Cause(ctx); {
	case errors.As(cause, &late):
		return &Failure{Err: late, Hint: r.aim.again("--timeout", (2*late.after).String()) + "    # longer", Code: ExitTimeout}
	case cause != nil && errors.Is(err, context.Canceled):
		return &Failure{Err: errors.New("interrupted"), Code: ExitCancelled}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		code, hint := classify(err)
		return &Failure{Err: err, Hint: cmp.Or(hint, call+" --help"), Code: code}
	}
	var many *severalError
	if errors.As(err, &many) {
		return &Failure{Err: err, Hint: r.aim.again("--namespace", many.in[0]), Code: ExitUsage}
	}
	return err
}

// configFlag finds --config before the parse proper, since the file takes part
// in it.
func configFlag(args []string, env func(string) string) string {
	return flagValue(args, "config", env)
}

// flagValue is the value of a flag as the arguments have it, or the environment,
// before they are parsed. "" = there is none.
func flagValue(args []string, name string, env func(string) string) string {
	for i, a := range args {
		if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			return v
		}
		if a == "--"+name && i+1 < len(args) {
			return args[i+1]
		}
	}
	return env(variable(name))
}

// fileless says that a command does its work also where the config file is bad, or
// because it is, and so does not read it.
func fileless(n *kong.Node) bool {
	switch callText(n) {
	case "limpet config path", "limpet config init", "limpet config validate", "limpet completion", "limpet man", "limpet version":
		return true
	}
	return false
}

// helped says that a call asks for help.
func helped(c *kong.Context) bool {
	return slices.ContainsFunc(c.Path, func(p *kong.Path) bool { return p.Flag != nil && p.Flag.Name == "help" })
}

// flagsOf collects the flags of a node and of all commands below it by name. Those
// of one name are alike as far as a config file is concerned.
func flagsOf(n *kong.Node) map[string]*kong.Flag {
	out := map[string]*kong.Flag{}
	for _, child := range n.Children {
		maps.Copy(out, flagsOf(child))
	}
	for _, f := range n.Flags {
		out[f.Name] = f
	}
	return out
}

// hasFlag says that a node itself has a flag of that name.
func hasFlag(n *kong.Node, name string) bool {
	return slices.ContainsFunc(n.Flags, func(f *kong.Flag) bool { return f.Name == name })
}

// usageError turns kong's complaint into ours: kong exits with 80 and names no
// next command, and of a word that is no command it sees only a surplus
// argument of the default one.
func usageError(k *kong.Kong, config *configFile, err error) error {
	call, txt := "limpet", config.blame(err)
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil {
		call = callText(parse.Context.Selected())
	}
	if word, ok := strings.CutPrefix(err.Error(), "unexpected argument "); ok && call == "limpet" {
		word, _, _ = strings.Cut(word, ",")
		txt = fmt.Errorf("unknown command %q", word)
		var names []string
		for _, c := range k.Model.Children {
			names = append(names, c.Name)
		}
		if near := nearest(word, names); near != "" {
			txt = fmt.Errorf("unknown command %q, did you mean %q?", word, near)
		}
	}
	if near := nearestChoice(err.Error()); near != "" {
		txt = fmt.Errorf("%w, did you mean %q?", txt, near)
	}
	hint := call + " --help"
	if kind := deletable[call]; kind != "" && strings.HasPrefix(err.Error(), "unexpected argument delete") {
		hint = "limpet delete " + kind + " NAME"
	}
	return &Failure{Err: txt, Hint: hint, Code: ExitUsage}
}

// deletable are the nouns whose objects 'limpet delete' deletes by a kind.
var deletable = map[string]string{"limpet repo": "repository", "limpet connection": "connection", "limpet job": "job", "limpet source": "gitrepository"}

func isTerminal(w any) bool {
	f, ok := outFile(w)
	return ok && term.IsTerminal(int(f.Fd()))
}

// onScreen says that a dashboard can be shown: both ends are a terminal, and it
// is one that can move its cursor. One that is read out needs neither.
func (r *run) onScreen() bool {
	return r.g.Accessible || isTerminal(r.world.Out) && isTerminal(r.world.In) && !printsOnly(r.world.Env)
}

// callTimeout bounds one call to the API. It is shorter than the margin of a
// lease: expiry less renewal, by half.
func (r *run) callTimeout() time.Duration {
	return min(10*time.Second, (r.g.ClaimExpiry-r.g.LeaseRenewalInterval)/2)
}

// note writes a line for the person, unless --quiet.
func (r *run) note(format string, args ...any) {
	if !r.g.Quiet {
		fmt.Fprintln(r.world.Err, text.Clean(fmt.Sprintf(format, args...)))
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
	if r.g.Output == "table" || r.g.Output == "wide" {
		_, err := r.world.Out.Write(api.CRDs()) // the form that kubectl apply takes
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
	return r.g.printList(r.world.Out, items, t)
}
