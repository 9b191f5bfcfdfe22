// Package command has what every command works with: streams, flags, settings, sessions, output, errors and exit codes.
package command

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

// Tree is the command line as kong reads it: the flags of every command, and a field for each command.
type Tree interface {
	// Common returns the flags that every command takes.
	Common() *Flags
	// Headless reports whether the call runs the agent without a screen.
	Headless() bool
}

// Env is what a command works with: streams, environment, flags and settings.
type Env struct {
	World

	Flags  *Flags
	Config *ConfigFile
	Log    *slog.Logger
	// signals are those that end this call.
	Signals *signals
	// Invocation is the command line of this call; the hints of its errors repeat its targets.
	Invocation *Invocation
	// WantsSetUp opens the set-up form instead of the dashboard.
	WantsSetUp bool
	// newTree returns an empty command line.
	newTree func() Tree
}

// Run parses args, runs the command and returns the exit code.
func Run(args []string, world World, newTree func() Tree) int {
	return RunContext(context.Background(), args, world, newTree)
}

// RunContext is Run until ctx ends. After the set-up form it starts over with the new settings.
func RunContext(ctx context.Context, args []string, world World, newTree func() Tree) int {
	for asks := false; ; {
		code, err := once(ctx, args, world, newTree, asks)
		switch {
		case errors.Is(err, tui.ErrSetUp):
			asks = true
		case errors.Is(err, ErrAgain):
			asks = false
		default:
			return code
		}
	}
}

// once runs the command one time. It returns tui.ErrSetUp or ErrAgain where it has to run again.
func once(ctx context.Context, args []string, world World, newTree func() Tree, asks bool) (int, error) {
	ctx, signals := untilSignal(ctx)
	defer signals.Stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := &stdout{w: world.Out, end: cancel}
	errs := &stderr{w: world.Err, colors: errorColors(world.Err, args, world.Getenv)}
	defer errs.end()
	world.Out, world.Err = out, errs
	e := &Env{World: world, Signals: signals, WantsSetUp: asks, newTree: newTree}
	err := e.execute(ctx, helpWords(args))
	if lost := out.failure(); lost != nil {
		err = lost
	}
	if errors.Is(err, tui.ErrSetUp) || errors.Is(err, ErrAgain) {
		return 0, err
	}
	var exit exitNow
	if errors.As(err, &exit) {
		return int(exit), nil
	}
	return e.report(world.Err, outputFlag(args, world.Getenv), err), nil
}

// ErrAgain reports that the settings may have changed: the call starts over.
var ErrAgain = errors.New("begin anew")

// exitNow ends the program with a code and without output of its own.
type exitNow int

func (e exitNow) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// execute parses args and runs the command.
func (e *Env) execute(ctx context.Context, args []string) (err error) {
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
		_, err := io.WriteString(e.Out, ExitCodes)
		return err
	}
	call, headless, err := e.parse(args)
	if err != nil {
		return err
	}
	g := e.Flags
	if g.FPS < 0 || g.FPS > 60 {
		return Usagef("limpet --fps 10", "--fps %d is not between 0 and 60", g.FPS)
	}
	e.Invocation = newInvocation(call, g, args)
	if err := g.settleOutput(e.Err); err != nil {
		return err
	}
	if err := e.mayRun(call.Selected()); err != nil {
		return err
	}
	e.Log = NewLogger(g, e.Err, headless)
	if errs, ok := e.Err.(*stderr); ok {
		errs.colors = e.Colors(errs)
		if headless || CallText(call.Selected()) == "limpet api" {
			errs.aside(lostLines(g, logFormat(g, errs, headless)))
		}
	}
	if out, ok := e.Out.(*stdout); ok {
		out.accessible, out.colors = e.Accessible(out), e.Colors(out)
	}
	text.RegisterSecret([]byte(g.Token))
	e.noteGrafana(call)
	if g.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, g.Timeout, TimeoutError{After: g.Timeout})
		defer cancel()
	}
	call.BindTo(ctx, (*context.Context)(nil))
	return e.finish(ctx, CallText(call.Selected()), call.Run(e))
}

// parse reads the config file, the environment and the arguments into e, and reports whether the call runs the
// agent without a screen.
func (e *Env) parse(args []string) (call *kong.Context, headless bool, err error) {
	config, unread := ReadConfig(configFlag(args, e.Getenv), e.Getenv)
	if unread != nil {
		config = noConfig()
	}
	t := e.newTree()
	parser, err := kong.New(t,
		kong.Name("limpet"),
		kong.Description(Description),
		kong.Resolvers(config.resolver(e.Lookup)),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(mapDuration)),
		kong.Writers(e.Out, e.Err),
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
		unread = config.check(FlagsOf(parser.Model.Node))
	}
	switch {
	case untraced == nil && (fileless(traced.Selected()) || unread != nil && helped(traced)):
		*config = *noConfig()
	case untraced == nil && CallText(traced.Selected()) == "limpet doctor" && unread != nil: // it reports the error
		*config = *noConfig()
		config.Bad = unread
	case unread != nil:
		return nil, false, unread
	}
	if call, err = parser.Parse(args); err != nil {
		return nil, false, usageError(parser, config, err)
	}
	takeGrafana(e.Getenv, config, call)
	e.Flags, e.Config = t.Common(), config
	return call, t.Headless(), nil
}

// Parse parses another call with the same tree. Its Env prints nothing.
func (e *Env) Parse(world World, args ...string) (*Env, *kong.Context, error) {
	return Parse(world, e.newTree, args...)
}

// Parse parses a call. Its Env prints nothing.
func Parse(world World, newTree func() Tree, args ...string) (*Env, *kong.Context, error) {
	world.Out, world.Err = io.Discard, io.Discard
	other := &Env{World: world, newTree: newTree, Log: slog.New(slog.DiscardHandler)}
	call, _, err := other.parse(args)
	return other, call, err
}

// finish adds what only the caller of a command knows to its error: the signal or timeout that ended it, and
// the command line.
func (e *Env) finish(ctx context.Context, call string, err error) error {
	var own *Error
	if err == nil || errors.As(err, &own) {
		return err
	}
	if path, unknown := e.StatePath(); unknown == nil {
		err = AsUnresponsive(path, err) // it may have stopped answering meanwhile
	}
	var late TimeoutError
	switch cause := context.Cause(ctx); {
	case errors.As(cause, &late):
		return &Error{Err: late, Hint: e.Invocation.Again("--timeout", (2*late.After).String()) + "    # longer", Code: ExitTimeout}
	case cause != nil && errors.Is(err, context.Canceled):
		return &Error{Err: errors.New("interrupted"), Code: ExitCancelled}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		code, hint := Classify(err)
		return &Error{Err: err, Hint: cmp.Or(hint, call+" --help"), Code: code}
	}
	var many *AmbiguousError
	if errors.As(err, &many) {
		return &Error{Err: err, Hint: e.Invocation.Again("--namespace", many.Namespaces[0]), Code: ExitUsage}
	}
	return err
}

// configFlag finds --config before the parse, which needs the file.
func configFlag(args []string, env func(string) string) string {
	return flagValue(args, "config", env)
}

// flagValue returns the value of a flag before the parse, from the arguments or the environment; "" means
// none.
func flagValue(args []string, name string, env func(string) string) string {
	for i, a := range args {
		if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			return v
		}
		if a == "--"+name && i+1 < len(args) {
			return args[i+1]
		}
	}
	return env(Variable(name))
}

// fileless reports whether a command works without the config file, so that it runs when that is invalid.
func fileless(n *kong.Node) bool {
	switch CallText(n) {
	case "limpet config path", "limpet config init", "limpet config validate", "limpet completion", "limpet man", "limpet version":
		return true
	}
	return false
}

// helped reports whether the call asks for help.
func helped(c *kong.Context) bool {
	return slices.ContainsFunc(c.Path, func(p *kong.Path) bool { return p.Flag != nil && p.Flag.Name == "help" })
}

// FlagsOf collects the flags of a node and of all commands below it by name. Flags of one name are alike for a
// config file.
func FlagsOf(n *kong.Node) map[string]*kong.Flag {
	out := map[string]*kong.Flag{}
	for _, child := range n.Children {
		maps.Copy(out, FlagsOf(child))
	}
	for _, f := range n.Flags {
		out[f.Name] = f
	}
	return out
}

// HasFlag reports whether a node itself has a flag of that name.
func HasFlag(n *kong.Node, name string) bool {
	return slices.ContainsFunc(n.Flags, func(f *kong.Flag) bool { return f.Name == name })
}

// usageError turns kong's error into one with our exit code and a next command. Of an unknown command kong
// sees only a surplus argument of the default one.
func usageError(k *kong.Kong, config *ConfigFile, err error) error {
	call, txt := "limpet", config.blame(err)
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil {
		call = CallText(parse.Context.Selected())
	}
	if word, ok := strings.CutPrefix(err.Error(), "unexpected argument "); ok && call == "limpet" {
		word, _, _ = strings.Cut(word, ",")
		txt = fmt.Errorf("unknown command %q", word)
		var names []string
		for _, c := range k.Model.Children {
			names = append(names, c.Name)
		}
		if near := Nearest(word, names); near != "" {
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
	return &Error{Err: txt, Hint: hint, Code: ExitUsage}
}

// deletable maps nouns to the kind that 'limpet delete' takes for them.
var deletable = map[string]string{"limpet repo": "repository", "limpet connection": "connection", "limpet job": "job",
	"limpet source": "gitrepository"}

// OnScreen reports whether a dashboard can be shown: input and output are a terminal with cursor control.
func (e *Env) OnScreen() bool {
	return !e.Flags.Accessible && IsTerminal(e.Out) && IsTerminal(e.In) && !PrintsOnly(e.Getenv)
}

// callTimeout bounds one call to the API. It is shorter than the margin of a lease: half of expiry minus
// renewal.
func (e *Env) callTimeout() time.Duration {
	return min(10*time.Second, (e.Flags.ClaimExpiry-e.Flags.LeaseRenewalInterval)/2)
}

// Notef writes a line to stderr, unless --quiet.
func (e *Env) Notef(format string, args ...any) {
	if !e.Flags.Quiet {
		fmt.Fprintln(e.Err, text.Clean(fmt.Sprintf(format, args...)))
	}
}
