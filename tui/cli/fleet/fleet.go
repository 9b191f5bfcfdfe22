// Package fleet has the commands about the contexts of the config file, and the relay that lets
// another host reach this one.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

// Command has the commands of 'limpet fleet'.
type Command struct {
	Status statusCmd `cmd:"" help:"Ask all sites side by side; one table."`
}

const (
	maxWhy   = 120 // bytes of the reasons in a row
	maxAsked = 64  // sites at once: each may be a process of ssh
)

type statusCmd struct {
	Site []string      `arg:"" optional:"" help:"Names of sites, or patterns such as 'site-*'. Default: all."`
	Wait time.Duration `help:"How long a site may take to answer." default:"3s"`
}

// Site is a row of 'limpet fleet status'. Its counts are zero while it is unreachable.
type Site struct {
	command.Context
	State        string          `json:"state"` // ok, drained, degraded, offline or unreachable
	OK           bool            `json:"ok"`
	Host         string          `json:"host,omitempty"`    // of its agent
	Version      string          `json:"version,omitempty"` // of its agent
	Repositories int             `json:"repositories"`
	Failing      int             `json:"failing"` // of the repositories
	Jobs         snapshot.Counts `json:"jobs"`
	Oldest       time.Time       `json:"oldest,omitzero"` // when the repository was synced that waits longest for it
	Why          []string        `json:"why"`             // reasons why OK is false
}

func (c statusCmd) Run(ctx context.Context, e *command.Env) error {
	if c.Wait <= 0 {
		return command.Usagef("limpet fleet status --wait 10s", "--wait %s is not more than 0", c.Wait)
	}
	contexts, err := c.chosen(e)
	if err != nil {
		return err
	}
	sites := make([]Site, len(contexts))
	var g errgroup.Group
	g.SetLimit(maxAsked)
	for i, one := range contexts {
		g.Go(func() error {
			limited, cancel := context.WithTimeoutCause(ctx, c.Wait, fmt.Errorf("no answer within %s", c.Wait))
			defer cancel()
			sites[i] = ask(limited, e, one)
			return nil
		})
	}
	_ = g.Wait() // a site that fails is a row
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	good := 0
	for _, s := range sites {
		if s.OK {
			good++
		}
	}
	if err := e.PrintList(sites, table(sites, time.Now())); err != nil || good == len(sites) {
		return err
	}
	return command.Errorf(command.ExitError, "limpet --context NAME status    # of one of them", "sites that need attention: %d of %d",
		len(sites)-good, len(sites))
}

// chosen returns the contexts that the patterns match.
func (c statusCmd) chosen(e *command.Env) (out []command.Context, err error) {
	if len(c.Site) == 0 {
		out = e.Config.Contexts
	}
	for _, pattern := range c.Site {
		found := false
		for _, one := range e.Config.Contexts {
			if ok, err := path.Match(pattern, one.Name); err == nil && ok {
				out, found = append(out, one), true
			}
		}
		if !found {
			return nil, command.Usagef("limpet fleet status    # all of them", "the config file names no site %q", pattern)
		}
	}
	if len(out) == 0 {
		err = command.Usagef("limpet help contexts", "the config file names no site")
	}
	return out, err
}

// ask returns the row of a site, whatever it answers.
func ask(ctx context.Context, e *command.Env, of command.Context) Site {
	s := Site{Context: of, Why: []string{}}
	s.Target = text.Redact(of.Target)
	snap, err := look(ctx, e, of)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		why := strings.TrimPrefix(command.ErrorText(err), "context "+of.Name+": ")
		s.State, s.Why = "unreachable", []string{text.Redact(why)}
		return s
	}
	s.Host, s.Version, s.Jobs = snap.Agent.Host, snap.Agent.Version, snap.Counts
	s.Repositories = len(snap.Repos)
	for _, r := range snap.Repos {
		if slices.ContainsFunc(r.Issues(), func(i snapshot.Issue) bool { return i.Failing }) {
			s.Failing++
		}
		if r.Enabled && !r.Suspended && !r.Synced.IsZero() && (s.Oldest.IsZero() || r.Synced.Before(s.Oldest)) {
			s.Oldest = r.Synced
		}
	}
	for _, i := range snap.Issues() {
		if i.Failing {
			s.Why = append(s.Why, text.Redact(i.Text))
		}
	}
	s.OK = len(s.Why) == 0
	s.State = snap.Word(s.OK)
	return s
}

// look returns what the agent of a site shows. A server has none of its own: its objects are read,
// with the settings of a call in that context.
func look(ctx context.Context, e *command.Env, of command.Context) (*snapshot.Snapshot, error) {
	if of.Kind == command.ContextServer || of.Kind == command.ContextKubeconfig {
		args := append(slices.Clone(e.Invocation.Output()), "--context", of.Name, "status")
		there, _, err := command.Parse(e.Streams, e.NewTree, args...)
		if err != nil {
			return nil, err
		}
		return lookAtServer(ctx, there)
	}
	there := *e
	there.Context = &of
	daemon, err := agentOf(ctx, &there)
	if err != nil {
		return nil, err
	}
	defer daemon.Close()
	return daemon.Snapshot(ctx)
}

// agentOf connects to the agent of a call, and says so where there is none.
func agentOf(ctx context.Context, e *command.Env) (*control.Client, error) {
	file, daemon, err := e.Attach(ctx)
	if errors.Is(err, control.ErrNoDaemon) && !errors.As(err, new(*command.UnresponsiveError)) {
		err = command.Errorf(command.ExitUnreachable, "limpet --daemon    # on that host", "no agent holds %s", file)
	}
	return daemon, err
}

func lookAtServer(ctx context.Context, e *command.Env) (*snapshot.Snapshot, error) {
	s, out := &command.Session{}, &snapshot.Snapshot{At: time.Now(), API: snapshot.API{Up: true}}
	var err error
	if s.Client, err = e.Connect(ctx, s, ""); err != nil {
		return nil, err
	}
	defer s.Close()
	repos, err := s.List(ctx, api.Repositories, e.Flags.ListNamespace(), "", nil, 0)
	if err != nil {
		return nil, err
	}
	jobs, err := s.List(ctx, api.Jobs, e.Flags.ListNamespace(), "", nil, 0)
	for i := range repos {
		if row, ok := snapshot.RepoOf(&repos[i]); ok {
			out.Repos = append(out.Repos, row)
		}
	}
	out.Counts.Pending = len(jobs)
	return out, err
}

func table(sites []Site, now time.Time) command.Table {
	t := command.Table{Columns: []string{"SITE", "STATE", "REPOS", "FAILING", "JOBS", "OLDEST", "WHY"},
		Wide: []string{"HOST", "VERSION", "KIND", "TARGET"}}
	for _, s := range sites {
		why := text.Line(strings.Join(s.Why, "; "), maxWhy)
		if s.State == "unreachable" {
			t.Add("", s.Name, s.Name, s.State, "-", "-", "-", "-", why, "-", "-", s.Kind, s.Target)
			continue
		}
		t.Add("", s.Name, s.Name, s.State, fmt.Sprint(s.Repositories), fmt.Sprint(s.Failing), fmt.Sprint(s.Jobs.All()-s.Jobs.Done),
			command.Since(now, s.Oldest), cmp.Or(why, "-"), text.OrDash(s.Host), text.OrDash(s.Version), s.Kind, s.Target)
	}
	return t
}

// RelayCommand is 'limpet relay'.
type RelayCommand struct{}

// Run connects stdin and stdout to the socket of the agent. It opens no port: who may start it may
// use the agent.
func (RelayCommand) Run(ctx context.Context, e *command.Env) error {
	if command.IsTerminal(e.Out) {
		return command.Usagef("limpet help contexts", "limpet relay speaks to another limpet: ssh HOST limpet relay")
	}
	daemon, err := agentOf(ctx, e)
	if err != nil {
		return err
	}
	defer daemon.Close()
	if hello := daemon.Hello(); hello.Protocol < control.RelayProtocol {
		return command.Errorf(command.ExitVersion, "limpet help upgrade", "the agent is limpet %s, which takes no relay yet: start it again", hello.Version)
	}
	conn, err := daemon.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	return control.Relay(conn, e.In, e.Out)
}
