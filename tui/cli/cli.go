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
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/text"
	"limpet/tui"
)

// Version is the version of the binary. The Makefile sets it from the tag.
var Version = "dev"

// tree is the command line as kong reads it: the flags of every command, and a field a command.
type tree interface {
	// common returns the flags that every command takes.
	common() *Globals
	// headless reports whether the call runs the agent without a screen.
	headless() bool
}

// run is what a command works with: the streams and the environment of the call, its flags and settings.
type run struct {
	World

	g      *Globals
	config *configFile
	log    *slog.Logger
	// signals are those that end this call.
	signals *signals
	// aim is what this call refers to; the hints of its errors refer to the same.
	aim *aim
	// asks has the dashboard open the set-up form.
	asks bool
	// newTree returns an empty command line.
	newTree func() tree
}

// Main parses args, runs the command and returns the exit code. After the set-up form it starts
// over with the settings that were written.
func mainOf(args []string, world World, newTree func() tree) int {
	for asks := false; ; {
		code, err := once(args, world, newTree, asks)
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

// once runs the command one time. It returns tui.ErrSetUp or errAgain where it has to run again.
func once(args []string, world World, newTree func() tree, asks bool) (int, error) {
	ctx, signals := untilSignal(context.Background())
	defer signals.stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := &stdout{w: world.Out, end: cancel}
	errs := &stderr{w: world.Err, ink: errorInk(world.Err, args, world.Getenv)}
	defer errs.end()
	world.Out, world.Err = out, errs
	r := &run{World: world, signals: signals, asks: asks, newTree: newTree}
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
	return r.report(world.Err, outputFlag(args, world.Getenv), err), nil
}

// errAgain reports that the settings have changed, or may have: the call starts over.
var errAgain = errors.New("begin anew")

// exitNow ends the program with a code and without a word: help was printed, or
// nobody listens any more.
type exitNow int

func (e exitNow) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// execute parses args and runs the command.
func (r *run) execute(ctx context.Context, args []string) (err error) {
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
	if slices.Equal(args, []string{"exit-codes", "--help"}) {
		_, err := io.WriteString(r.Out, exitCodes)
		return err
	}
	call, headless, err := r.parse(args)
	if err != nil {
		return err
	}
	g := r.g
	if g.FPS < 0 || g.FPS > 60 {
		return usage("limpet --fps 10", "--fps %d is not between 0 and 60", g.FPS)
	}
	r.aim = aimOf(call, g, args)
	if err := g.settleOutput(r.Err); err != nil {
		return err
	}
	if err := r.mayRun(call.Selected()); err != nil {
		return err
	}
	r.log = newLogger(g, r.Err, headless)
	if errs, ok := r.Err.(*stderr); ok {
		errs.ink = r.ink(errs)
		if headless || callText(call.Selected()) == "limpet api" {
			errs.aside(lostLines(g, logFormat(g, errs, headless)))
		}
	}
	if out, ok := r.Out.(*stdout); ok {
		out.labels, out.ink = r.readOut(out), r.ink(out)
	}
	text.RegisterSecret([]byte(g.Token))
	r.noteGrafana(call)
	if g.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, g.Timeout, timedOut{g.Timeout})
		defer cancel()
	}
	call.BindTo(ctx, (*context.Context)(nil))
	return r.settle(ctx, callText(call.Selected()), call.Run(r))
}

// parse reads the config file, the environment and the arguments into r, and reports whether the
// call runs the agent without a screen.
func (r *run) parse(args []string) (call *kong.Context, headless bool, err error) {
	config, unread := readConfig(configFlag(args, r.Getenv), r.Getenv)
	if unread != nil {
		config = noConfig()
	}
	t := r.newTree()
	parser, err := kong.New(t,
		kong.Name("limpet"),
		kong.Description(description),
		kong.Resolvers(config.resolver(r.Lookup)),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(mapDuration)),
		kong.Writers(r.Out, r.Err),
		kong.Exit(func(code int) { panic(exitNow(code)) }),
		kong.Help(printHelp),
		kong.ValueFormatter(func(v *kong.Value) string { return v.Help }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}),
	)
	if err != nil {
		return nil, false, err
	}
	traced, untraced := kong.Trace(parser, args)
	if unread == nil {
		unread = config.check(flagsOf(parser.Model.Node))
	}
	switch {
	case untraced == nil && (fileless(traced.Selected()) || unread != nil && helped(traced)):
		*config = *noConfig()
	case untraced == nil && callText(traced.Selected()) == "limpet doctor" && unread != nil: // it reports the error
		*config = *noConfig()
		config.bad = unread
	case unread != nil:
		return nil, false, unread
	}
	if call, err = parser.Parse(args); err != nil {
		return nil, false, usageError(parser, config, err)
	}
	t.common().takeGrafana(r.Getenv, config, call)
	r.g, r.config = t.common(), config
	return call, t.headless(), nil
}

// parsed returns the run of a call with the same tree, which prints nothing and does nothing.
func (r *run) parsed(world World, args ...string) (*run, *kong.Context, error) {
	return parsed(world, r.newTree, args...)
}

// parsed parses a call. Its run prints nothing.
func parsed(world World, newTree func() tree, args ...string) (*run, *kong.Context, error) {
	world.Out, world.Err = io.Discard, io.Discard
	other := &run{World: world, newTree: newTree, log: slog.New(slog.DiscardHandler)}
	call, _, err := other.parse(args)
	return other, call, err
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

// onScreen says that a dashboard can be shown: both ends are a terminal, and it
// is one that can move its cursor. One that is read out needs neither.
func (r *run) onScreen() bool {
	return r.g.Accessible || isTerminal(r.Out) && isTerminal(r.In) && !printsOnly(r.Getenv)
}

// callTimeout bounds one call to the API. It is shorter than the margin of a
// lease: expiry less renewal, by half.
func (r *run) callTimeout() time.Duration {
	return min(10*time.Second, (r.g.ClaimExpiry-r.g.LeaseRenewalInterval)/2)
}

// note writes a line for the person, unless --quiet.
func (r *run) note(format string, args ...any) {
	if !r.g.Quiet {
		fmt.Fprintln(r.Err, text.Clean(fmt.Sprintf(format, args...)))
	}
}
