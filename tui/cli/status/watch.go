package status

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

// statusEvery is the least time between two lines of a watch.
const statusEvery = time.Second

// watchStatus prints the status of the daemon whenever it changes, until ctx ends. It continues while the
// daemon is away, with a line that says so.
func watchStatus(ctx context.Context, e *command.Env) error {
	path, daemon, err := attach(ctx, e, "limpet --daemon    # in another terminal", "nothing to watch")
	if err != nil {
		return err
	}
	defer daemon.Close()
	snapshots, last := daemon.Watch(ctx), ""
	for {
		snap, err := snapshots.Next(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		rep := &report{State: path, OK: true}
		if err == nil {
			hello := snapshots.Hello()
			rep.Daemon, rep.Live = &hello, withoutNil(snap)
			rep.judge(e)
		} else {
			rep.OK, rep.Why = false, []string{command.ErrorText(command.AsUnresponsive(path, err))}
		}
		if mark := rep.mark(); mark != last {
			last = mark
			if e.Flags.Data() {
				err = e.PrintStream(command.StreamLine{Type: "status", Status: rep})
			} else {
				word := rep.word()
				_, err = fmt.Fprintln(e.Out, command.Timestamp(), command.ColorsOf(e.Out).Paint(word, word)+strings.TrimPrefix(rep.figures(), word))
			}
			if err != nil {
				return err
			}
		}
		command.Sleep(ctx, statusEvery)
	}
}

// withoutNil returns a snapshot whose lists are never nil.
func withoutNil(snap *snapshot.Snapshot) *snapshot.Snapshot {
	out := *snap
	out.Jobs, out.Repos, out.Events = command.List(out.Jobs), command.List(out.Repos), command.List(out.Events)
	return &out
}

// maxReasons bounds the reasons in a line.
const maxReasons = 3

// figures are the state of the agent and its counts without those that are zero, then the reasons.
func (s *report) figures() string {
	out := s.word()
	add := func(n int, what string) {
		if n > 0 {
			out += fmt.Sprintf(", %d %s", n, what)
		}
	}
	if s.Live != nil {
		c := s.Live.Counts
		add(c.Working, "working")
		add(c.Pending, "pending")
		add(c.Resting, "waiting to retry")
		add(c.Elsewhere, "on other agents")
		add(c.Undelivered, "not delivered yet")
		failing := 0
		for _, repo := range s.Live.Repos {
			if slices.ContainsFunc(repo.Issues(), func(i snapshot.Issue) bool { return i.Failing }) {
				failing++
			}
		}
		add(len(s.Live.Repos), map[bool]string{true: "repository", false: "repositories"}[len(s.Live.Repos) == 1])
		add(failing, "failing")
	}
	why := slices.Concat(s.Why, s.Warnings)
	if more := len(why) - maxReasons; more > 0 {
		why = append(why[:maxReasons], fmt.Sprintf("and %d more", more))
	}
	return strings.TrimSuffix(out+": "+text.Clean(strings.Join(why, "; ")), ": ")
}

// mark is equal for reports without a relevant change; ages are not relevant.
func (s *report) mark() string {
	if s.Live == nil {
		return "away"
	}
	return fmt.Sprint(s.figures(), s.Live.API.Up, s.Live.Agent.Draining.IsZero(), s.Why, s.Warnings)
}

// word is the state of the agent in one word.
func (s *report) word() string {
	switch {
	case s.Live == nil:
		return "away"
	case !s.Live.API.Up:
		return "offline"
	case !s.Live.Agent.Draining.IsZero():
		return "drained"
	case !s.OK:
		return "degraded"
	}
	return "ok"
}
