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
	List   listCmd   `cmd:"" help:"The sites that the config file names."`
}

type listCmd struct{}

func (listCmd) Run(e *command.Env) error {
	t := command.Table{Columns: []string{"SITE", "KIND", "TARGET"}}
	items := command.List(e.Contexts())
	for i := range items {
		items[i].Target = text.Redact(items[i].Target)
		t.Add("", items[i].Name, items[i].Name, items[i].Kind, items[i].Target)
	}
	if len(items) == 0 {
		e.Notef("the config file names no site; see: limpet help contexts")
	}
	return e.PrintList(items, t)
}

// maxWhy bounds the reasons in a row, in bytes.
const maxWhy = 120

// maxAsked bounds the sites that are asked at once: each may be a process of ssh.
const maxAsked = 64

type statusCmd struct {
	Site []string      `arg:"" optional:"" help:"Names of sites, or patterns such as 'site-*'. Default: all."`
	Wait time.Duration `help:"How long a site may take to answer." default:"3s"`
}

// Site is a row of 'limpet fleet status'.
type Site struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	Target  string `json:"target"`
	State   string `json:"state"` // ok, drained, degraded, offline or unreachable
	OK      bool   `json:"ok"`
	Host    string `json:"host,omitempty"`    // of its agent
	Version string `json:"version,omitempty"` // of its agent
	// Repositories and the counts below it are zero while it is unreachable.
	Repositories int             `json:"repositories"`
	Failing      int             `json:"failing"` // of them
	Sources      int             `json:"sources"`
	Unready      int             `json:"unready"` // of them
	Jobs         snapshot.Counts `json:"jobs"`
	// Oldest is when the repository was synced that waits longest for it.
	Oldest time.Time `json:"oldest,omitzero"`
	Why    []string  `json:"why"` // reasons why OK is false
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
	bad := 0
	for _, s := range sites {
		if !s.OK {
			bad++
		}
	}
	if err := e.PrintList(sites, table(sites, time.Now())); err != nil || bad == 0 {
		return err
	}
	return command.Errorf(command.ExitError, "limpet --context NAME status    # of one of them", "sites that need attention: %d of %d", bad, len(sites))
}

// chosen returns the contexts that the patterns match, in the order of the file.
func (c statusCmd) chosen(e *command.Env) (out []command.Context, err error) {
	all := e.Contexts()
	if len(all) == 0 {
		return nil, command.Usagef("limpet help contexts", "the config file names no site")
	}
	matched := map[string]bool{}
	for _, one := range all {
		in := len(c.Site) == 0
		for _, pattern := range c.Site {
			ok, err := path.Match(pattern, one.Name)
			if err != nil {
				return nil, command.Usagef("limpet fleet status 'site-*'", "%q is no pattern", pattern)
			}
			matched[pattern] = matched[pattern] || ok
			in = in || ok
		}
		if in {
			out = append(out, one)
		}
	}
	for _, pattern := range c.Site {
		if !matched[pattern] {
			return nil, command.Usagef("limpet fleet list", "the config file names no site %q", pattern)
		}
	}
	return out, nil
}

// ask returns the row of a site, whatever it answers.
func ask(ctx context.Context, e *command.Env, of command.Context) Site {
	s := Site{Name: of.Name, Kind: of.Kind, Target: text.Redact(of.Target), Why: []string{}}
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
	s.Repositories, s.Sources = len(snap.Repos), len(snap.Sources)
	for _, r := range snap.Repos {
		if slices.ContainsFunc(r.Issues(), func(i snapshot.Issue) bool { return i.Failing }) {
			s.Failing++
		}
		if r.Enabled && !r.Suspended && !r.Synced.IsZero() && (s.Oldest.IsZero() || r.Synced.Before(s.Oldest)) {
			s.Oldest = r.Synced
		}
	}
	for i := range snap.Sources {
		if snap.Sources[i].Bad() {
			s.Unready++
		}
	}
	for _, i := range snap.Issues() {
		if i.Failing {
			s.Why = append(s.Why, text.Redact(i.Text))
		}
	}
	s.OK = len(s.Why) == 0
	switch {
	case !snap.API.Up:
		s.State = "offline"
	case !s.OK:
		s.State = "degraded"
	case !snap.Agent.Draining.IsZero():
		s.State = "drained"
	default:
		s.State = "ok"
	}
	return s
}

// look returns what the agent of a site shows. A server has none of its own: its objects are read.
func look(ctx context.Context, e *command.Env, of command.Context) (*snapshot.Snapshot, error) {
	var daemon *control.Client
	var err error
	if of.Kind == command.ContextSSH {
		daemon, err = of.Attach(ctx)
	} else {
		var there *command.Env // as a call in that context
		args := append(slices.Clone(e.Invocation.Output()), "--context", of.Name, "status")
		if there, _, err = command.Parse(e.Streams, e.NewTree, args...); err != nil {
			return nil, err
		}
		if of.Kind != command.ContextState {
			return lookAtServer(ctx, there)
		}
		_, daemon, err = there.Attach(ctx)
	}
	if errors.Is(err, control.ErrNoDaemon) && !errors.As(err, new(*command.UnresponsiveError)) {
		err = fmt.Errorf("no agent holds %s", of.Target)
	}
	if err != nil {
		return nil, err
	}
	defer daemon.Close()
	return daemon.Snapshot(ctx)
}

func lookAtServer(ctx context.Context, e *command.Env) (*snapshot.Snapshot, error) {
	now := time.Now()
	out := &snapshot.Snapshot{At: now, API: snapshot.API{Up: true}}
	client, err := e.Connect(ctx, &command.Session{}, "")
	if err != nil {
		return nil, err
	}
	defer client.Close()
	s := &command.Session{Client: client}
	repos, err := s.List(ctx, api.Repositories, e.Flags.ListNamespace(), "", nil, 0)
	if err != nil {
		return nil, err
	}
	for i := range repos {
		if row, ok := snapshot.RepoOf(&repos[i]); ok {
			out.Repos = append(out.Repos, row)
		}
	}
	jobs, err := s.List(ctx, api.Jobs, e.Flags.ListNamespace(), "", nil, 0)
	if err != nil {
		return nil, err
	}
	for i := range jobs {
		row := snapshot.Job{State: api.StatePending}
		if jobs[i].GetLabels()[api.LabelClaim] != "" {
			row.Owner = "other"
		}
		out.Counts.Add(&row, 1, now)
	}
	return out, nil
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
	file, daemon, err := e.Attach(ctx)
	if errors.Is(err, control.ErrNoDaemon) && !errors.As(err, new(*command.UnresponsiveError)) {
		err = command.Errorf(command.ExitUnreachable, "limpet --daemon    # on that host", "no agent holds %s", file)
	}
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
