// Package doctor checks this host, the state file, the API and the Git hosts.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/control"
	"limpet/sync/kube"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

// Command is 'limpet doctor'.
type Command struct {
	Fix bool `help:"Apply safe fixes: file permissions, stale socket."`
}

// Results of a check.
const (
	checkOK      = "ok"
	checkWarn    = "warn"
	checkFail    = "fail"
	checkSkipped = "skipped" // a check that it depends on has failed, or there is nothing to check
)

// check is the result of one check.
type check struct {
	Name   string `json:"name"`
	Result string `json:"result"`
	Found  string `json:"found"`
	Next   string `json:"next"` // the next command; "" where nothing is to do
}

func passed(format string, args ...any) check {
	return check{Result: checkOK, Found: fmt.Sprintf(format, args...)}
}

func skipped(found string) check { return check{Result: checkSkipped, Found: found} }

func warned(next, format string, args ...any) check {
	return check{Result: checkWarn, Found: fmt.Sprintf(format, args...), Next: next}
}

func failed(next, format string, args ...any) check {
	return check{Result: checkFail, Found: fmt.Sprintf(format, args...), Next: next}
}

// but makes a result a warning and adds the reason.
func (c check) but(next, found string) check { return warned(next, "%s%s", c.Found, found) }

// usable reports whether the checks that depend on this one can be made.
func (c check) usable() bool { return c.Result == checkOK || c.Result == checkWarn }

// diagnosis is the output of 'limpet doctor -o json'.
type diagnosis struct {
	OK     bool    `json:"ok"` // no check has failed
	Checks []check `json:"checks"`
	Fixes  []fix   `json:"fixes,omitempty"` // what --fix has done, or could not do
}

// checkTimeout bounds one check. In parallel, and two in a row, they stay below half a minute.
const checkTimeout = 6 * time.Second

// openTimeout bounds the opening of the state file, which is verified first after an unclean stop,
// at about 100 MB/s.
const openTimeout = 15 * time.Second

var errSlowOpen = fmt.Errorf("it was not closed last time, and checking it takes longer than %s", openTimeout)

func (c Command) Run(ctx context.Context, e *command.Env) error {
	if c.Fix && e.Flags.ReadOnly {
		return command.Usagef("limpet doctor    # without --fix", "--fix changes things, and --read-only refuses that")
	}
	d, err := examine(ctx, e, c.Fix)
	if err != nil {
		return err
	}
	var bad []check
	for i := range d.Checks {
		c := &d.Checks[i]
		c.Next = e.Invocation.Complete(c.Next)
		if c.Result == checkFail {
			bad = append(bad, *c)
		}
	}
	d.OK = len(bad) == 0
	if err = e.PrintOne(d, "", d.write); err != nil || d.OK {
		return err
	}
	return command.Errorf(command.ExitError, bad[0].Next, "%s failed, the first is %s: %s", text.Plural(len(bad), "check"), bad[0].Name,
		bad[0].Found)
}

// write prints each check on a line, and its next command on another.
func (d *diagnosis) write(w io.Writer) {
	t := command.Table{Columns: []string{"RESULT", "CHECK", "FOUND"}}
	for _, c := range d.Checks {
		t.Add("", "", c.Result, c.Name, c.Found)
		if c.Next != "" {
			t.Add("", "", "", "", "try: "+c.Next)
		}
	}
	t.Write(w, false, false)
}

// examination is one run of the doctor.
type examination struct {
	env  *command.Env
	now  time.Time
	path string // of the state file

	fix   bool
	mu    sync.Mutex // guards fixes
	fixes []fix

	daemon       *control.Client            // nil without a daemon
	snap         *snapshot.Snapshot         // of the daemon, nil without an answer
	exists       bool                       // the state file exists
	report       state.Report               // of opening the file, without a daemon
	openErr      error                      // why the file could not be opened
	unresponsive *command.UnresponsiveError // the agent does not answer
	info         state.Info                 // zero where it is not known

	s         *command.Session
	client    *kube.Client // nil when there is no API to check
	direct    bool         // the client uses a server, and not the daemon
	clientErr error        // why there is no client

	api    check           // the result of checkAPI
	listed check           // the result of listing the repositories
	repos  []snapshot.Repo // nil = unknown
}

// checks are all checks, in the order of the output. A check is skipped without what it needs: the
// API, or the list of repositories.
var checks = []struct {
	name, needs string
	run         func(*examination, context.Context) check
}{
	{"config", "", (*examination).checkConfig},
	{"state", "", (*examination).checkState},
	{"disk", "", (*examination).checkDisk},
	{"writes", "", (*examination).checkWrites},
	{"daemon", "", (*examination).checkDaemon},
	{"api", "", func(p *examination, _ context.Context) check { return p.api }},
	{"tls", "", (*examination).checkTLS},
	{"token", "", (*examination).checkToken},
	{"clock", "api", (*examination).checkClock},
	{"resources", "api", (*examination).checkResources},
	{"permissions", "api", (*examination).checkPermissions},
	{"repositories", "", func(p *examination, _ context.Context) check { return p.listed }},
	{"orphans", "api", (*examination).checkOrphans},
	{"git hosts", "repositories", (*examination).checkGitHosts},
	{"credentials", "", (*examination).checkCredentials},
	{"controllers", "repositories", (*examination).checkControllers},
	{"sources", "", (*examination).checkSources},
	{"notifications", "", (*examination).checkNotifications},
	{"programs", "", (*examination).checkPrograms},
	{"terminal", "", (*examination).checkTerminal},
	{"service", "", (*examination).checkService},
}

// noAnswer is the reason why checks of the API are skipped.
const noAnswer = "the API does not answer"

// examine makes all checks. It fails only for invalid usage and when ctx ends.
func examine(ctx context.Context, e *command.Env, mend bool) (*diagnosis, error) {
	p := &examination{env: e, now: time.Now(), s: new(command.Session), fix: mend}
	defer p.s.Close()
	if err := p.connect(ctx); err != nil {
		return nil, err
	}
	p.api = p.checkAPI(ctx)
	p.repos, p.listed = p.repositories(ctx)
	d := &diagnosis{Checks: make([]check, len(checks))}
	var g sync.WaitGroup
	for i, part := range checks {
		g.Go(func() {
			limited, cancel := context.WithTimeout(ctx, checkTimeout)
			defer cancel()
			var c check
			switch {
			case part.needs == "api" && !p.api.usable():
				c = skipped(noAnswer)
			case part.needs == "repositories" && p.repos == nil:
				c = skipped("repositories are not known")
			default:
				c = part.run(p, limited)
			}
			d.Checks[i] = check{part.name, c.Result, text.Clean(text.Redact(c.Found)), text.Clean(c.Next)}
		})
	}
	g.Wait()
	d.Fixes = p.fixes
	return d, context.Cause(ctx)
}

// connect opens the daemon, else the existing state file, and a client of the API.
func (p *examination) connect(ctx context.Context) (err error) {
	if p.path, err = p.env.StatePath(); err != nil {
		return err
	}
	_, err = os.Stat(p.path)
	p.exists = !errors.Is(err, os.ErrNotExist)
	if p.fix && state.Foreign(p.path) == nil {
		p.fixPermissions(p.places()...)
	}
	p.daemon, err = command.Attach(ctx, p.path)
	if err != nil && !errors.Is(err, control.ErrNoDaemon) {
		return err
	}
	p.s.Daemon = p.daemon
	switch {
	case p.daemon != nil:
		limited, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		p.snap, _ = p.daemon.Snapshot(limited) // checkDaemon reports that there is none
		p.info, _ = p.daemon.Info(limited)
	case errors.As(err, &p.unresponsive):
		p.openErr = p.unresponsive
	case p.exists:
		p.openFile(ctx)
	}
	if p.daemon == nil && p.env.Embedded() && p.s.File == nil {
		return ctx.Err() // the embedded API is in the file
	}
	p.client, p.clientErr = p.env.Connect(ctx, p.s, "")
	p.s.Client, p.direct = p.client, !p.env.Embedded()
	if p.daemon != nil && p.client != nil {
		base, _ := p.client.Endpoint()
		p.direct = base.String() != control.BaseURL
	}
	return ctx.Err()
}

// openFile opens the state file and reads what it holds.
func (p *examination) openFile(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, errSlowOpen)
	defer cancel()
	p.s.File, p.report, p.openErr = state.Open(ctx, state.Options{Path: p.path, Version: command.Version, Logger: p.env.Log,
		MaxSize: int64(p.env.Flags.StateMaxSize), ReadOnly: p.env.Flags.ReadOnly})
	if p.openErr != nil {
		return
	}
	if p.fix { // the file is held, so no agent is about to listen
		p.fixSocket(agent.SocketPath(p.path))
	}
	p.info, _ = p.s.File.Info(ctx)
}

// TryServer checks the API behind a client: that it answers, serves the resources, and lets them be
// listed.
func TryServer(ctx context.Context, e *command.Env, client *kube.Client, began time.Time) (string, error) {
	p := &examination{env: e, now: began, client: client, direct: true}
	var found []string
	for _, run := range []func(context.Context) check{p.checkAPI, p.checkResources, p.checkPermissions} {
		c := run(ctx)
		if c.Result == checkFail {
			return "", errors.New(c.Found)
		}
		found = append(found, c.Found+".")
	}
	return strings.Join(found, " "), nil
}
