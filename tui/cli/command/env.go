// Package command has what every command works with: streams, flags, settings, sessions, output,
// errors and exit codes.
package command

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/control"
	"limpet/sync/text"
	"limpet/tui"
)

// Version is the version of the binary. The Makefile sets it from the tag.
var Version = "dev"

// Tree is the command line as kong reads it: the flags of every command, and a field for each
// command.
type Tree interface {
	// Common returns the flags that every command takes.
	Common() *Flags
	// Headless reports whether the call runs the agent without a screen.
	Headless() bool
}

// Env is what a command works with: streams, environment, flags and settings.
type Env struct {
	Streams

	Flags  *Flags
	Config *ConfigFile
	// Context is the site that the call concerns; nil = this host.
	Context *Context
	Log     *slog.Logger
	// StopSignals gives the signals that end this call their default effect: the next one kills the
	// process.
	StopSignals func()
	// Invocation is the command line of this call; the hints of its errors repeat its targets.
	Invocation *Invocation
	// WantsSetUp opens the setup instead of the dashboard.
	WantsSetUp bool
	// NewTree returns an empty command line.
	NewTree   func() Tree
	listFlags bool // the call is 'limpet help flags'
	headless  bool // the call runs the agent without a screen
}

// Run parses args, runs the command and returns the exit code.
func Run(args []string, streams Streams, newTree func() Tree) int {
	return RunContext(context.Background(), args, streams, newTree)
}

// RunContext is Run until ctx ends. After the setup it starts over with the new settings.
func RunContext(ctx context.Context, args []string, streams Streams, newTree func() Tree) int {
	for asks := false; ; {
		code, err := once(ctx, args, streams, newTree, asks)
		if err == nil {
			return code
		}
		asks = errors.Is(err, tui.ErrSetUp)
	}
}

// once runs the command one time. It returns tui.ErrSetUp or ErrRestart where it has to run again.
func once(ctx context.Context, args []string, streams Streams, newTree func() Tree, asks bool) (int, error) {
	// A reader that goes away is an error of the write, so that what writes still cleans up.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal kills the process
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := &stdout{w: streams.Out, end: cancel}
	errs := &stderr{w: streams.Err}
	defer errs.end()
	streams.Out, streams.Err = out, errs
	e := &Env{Streams: streams, StopSignals: stop, WantsSetUp: asks, NewTree: newTree}
	err := e.execute(ctx, args)
	if lost := out.failure(); lost != nil {
		err = lost
	}
	if errors.Is(err, tui.ErrSetUp) || errors.Is(err, ErrRestart) {
		return 0, err
	}
	if exit, ok := errors.AsType[exitNow](err); ok {
		return int(exit), nil
	}
	return e.report(streams.Err, outputFlag(args, streams.Getenv), err), nil
}

// ErrRestart reports that the settings may have changed: the call starts over.
var ErrRestart = errors.New("start over with new settings")

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
	args = e.fromHelp(args)
	if ok, err := e.helpTopic(args); ok {
		return err
	}
	e.listFlags = slices.Equal(args, []string{"help", allFlags})
	args = helpWords(args)
	call, err := e.parseNamed(args)
	if err != nil {
		return err
	}
	g, words := e.Flags, CallText(call.Selected())
	if g.FPS < 0 || g.FPS > 60 {
		return Usagef("limpet --fps 10", "--fps %d is not between 0 and 60", g.FPS)
	}
	e.Invocation = newInvocation(call, g, e.Config, args)
	if err := g.settleOutput(); err != nil {
		return err
	}
	n := call.Selected()
	if g.writes = n != nil && n.Tag != nil && n.Tag.Has("writes"); g.writes && g.ReadOnly {
		return Usagef(e.Invocation.without("--read-only", 0)+"    # without --read-only",
			"%s changes things, and --read-only refuses that", words)
	}
	if !e.headless && !signal.Ignored(syscall.SIGHUP) { // it is under nohup; a daemon reloads its config file
		hung, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stop()
		context.AfterFunc(hung, stop)
		ctx = hung
	}
	if n != nil && n.Tag != nil && n.Tag.Has(AloneTag) && e.Getenv(InDashboard) != "" {
		return Usagef(e.Invocation.without("", 0)+"    # in a terminal of its own", "%s does not run in the dashboard", words)
	}
	e.Log = NewLogger(g, e.Err, e.headless)
	if len(e.Config.Ignored) > 0 {
		e.Log.Debug("config file: these settings of Grafana have no meaning here", "keys", e.Config.Ignored)
	}
	errs, out := e.Err.(*stderr), e.Out.(*stdout)
	errs.colors, out.colors, out.accessible = e.Colors(errs), e.Colors(out), e.Accessible(out)
	if e.headless || words == "limpet api" {
		errs.writeInBackground(NewLogger(g, errs.w, e.headless))
	}
	text.RegisterSecret([]byte(g.Token))
	if g.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, g.Timeout, TimeoutError{After: g.Timeout})
		defer cancel()
	}
	call.BindTo(ctx, (*context.Context)(nil))
	return e.finish(ctx, words, call.Run(e))
}

// finish adds what only the caller of a command knows to its error: the signal or timeout that
// ended it, and the command line.
func (e *Env) finish(ctx context.Context, call string, err error) error {
	if err == nil || is[*Error](err) {
		return err
	}
	if path, unknown := e.StatePath(); unknown == nil {
		err = AsUnresponsive(path, err) // it may have stopped answering meanwhile
	}
	cause := context.Cause(ctx)
	if late, ok := errors.AsType[TimeoutError](cause); ok {
		return &Error{Err: late, Hint: e.Invocation.WithFlag("--timeout", (2*late.After).String()) + "    # longer", Code: ExitTimeout}
	}
	if cause != nil && errors.Is(err, context.Canceled) {
		return &Error{Err: errors.New("interrupted"), Code: ExitCancelled}
	}
	if many, ok := errors.AsType[*control.AmbiguousError](err); ok {
		return &Error{Err: err, Hint: e.Invocation.WithFlag("--namespace", many.Namespaces[0]), Code: ExitUsage}
	}
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		code, hint := Classify(err)
		return &Error{Err: err, Hint: cmp.Or(hint, call+" --help"), Code: code}
	}
	return err
}

// TimeoutError is the cause of a context that was ended by --timeout.
type TimeoutError struct{ After time.Duration }

func (t TimeoutError) Error() string { return fmt.Sprintf("gave up after %s (--timeout)", t.After) }

func (t TimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// WaitCode returns the exit code of a wait that ctx has ended.
func WaitCode(ctx context.Context) int {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return ExitTimeout
	}
	return ExitCancelled
}

// Sleep waits for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) { within(d, ctx.Done()) }

// RetryPause is the time between attempts while the API does not answer.
const RetryPause = time.Second

// Timestamp returns the time now, as lines of progress have it.
func Timestamp() string { return time.Now().UTC().Format(time.RFC3339) }

// callTimeout bounds one call to the API. It is shorter than the margin of a lease: half of expiry
// minus renewal.
func (e *Env) callTimeout() time.Duration {
	return min(10*time.Second, (e.Flags.ClaimExpiry-e.Flags.LeaseRenewalInterval)/2)
}

// Notef writes a line to stderr, unless --quiet.
func (e *Env) Notef(format string, args ...any) {
	if !e.Flags.Quiet {
		fmt.Fprintln(e.Err, text.Clean(fmt.Sprintf(format, args...)))
	}
}

const (
	// InDashboard is the variable that the dashboard sets for the commands that it runs: it shows
	// their questions and passes the answers on.
	InDashboard = "LIMPET_IN_DASHBOARD"
	// AloneTag is the tag of the commands that do not run in the dashboard.
	AloneTag = "alone"
)

// Confirm asks on a terminal or in the dashboard whether to go on; any answer but yes ends the
// command with nothing changed. Elsewhere, and with --yes, it does not ask.
func (e *Env) Confirm(ctx context.Context, consequence string) error {
	if e.Flags.Yes || e.Getenv(InDashboard) == "" && (!IsTerminal(e.In) || !IsTerminal(e.Err)) {
		return nil
	}
	fmt.Fprintf(e.Err, "%s Go on? [y/N] ", text.Clean(consequence))
	answer := make(chan string, 1)
	// A read of a terminal cannot be cancelled: after Ctrl-C it ends with the process.
	go func() {
		line, _ := bufio.NewReader(e.In).ReadString('\n') // no answer before the end of input is a no
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(e.Err)
		return context.Cause(ctx)
	case txt := <-answer:
		if txt == "y" || txt == "yes" {
			return nil
		}
	}
	return Errorf(ExitCancelled, e.Invocation.WithFlag("--yes", "")+"    # does not ask", "nothing was changed")
}

// grafanaFlags maps the variables of Grafana's own command line tool to flags.
var grafanaFlags = map[string]string{
	"GRAFANA_SERVER": "provisioning-server-url", "GRAFANA_TOKEN": "token", "GRAFANA_TLS_CERT_FILE": "tls-cert-file",
	"GRAFANA_TLS_KEY_FILE": "tls-key-file", "GRAFANA_TLS_CA_FILE": "tls-ca-file",
}

// ServerFlags are the settings that name a server, a token or a certificate.
var ServerFlags = []string{
	"provisioning-server-url", "kubeconfig", "manifests", "dashboards-server-url", "folders-server-url", "token", "token-file",
	"token-exchange-url", "tls-cert-file", "tls-key-file", "tls-ca-file",
}

// takeGrafana takes the server of Grafana's own tool when none of ServerFlags is set and the
// command is no server itself. It takes all of them or none: a token goes only to the server that
// it was set with, and that server gets no certificate meant for another.
func takeGrafana(env func(string) string, config *ConfigFile, call *kong.Context) {
	words := CallText(call.Selected())
	if env("GRAFANA_SERVER") == "" || config.Context != nil || words == "limpet api" || words == "limpet demo" ||
		slices.ContainsFunc(call.Path, func(p *kong.Path) bool { return p.Flag != nil && slices.Contains(ServerFlags, p.Flag.Name) }) {
		return
	}
	flags := FlagsOf(call.Model.Node)
	for variable, flag := range grafanaFlags {
		if value := env(variable); value != "" {
			flags[flag].Target.SetString(value)
			config.From[flag] = Origin{Kind: FromEnv, Name: variable}
		}
	}
}
