package status

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"limpet/sync/api"
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
	if !e.Flags.Data() && e.Flags.Output != "name" && !e.Flags.NoHeaders && !command.IsAccessible(e.Out) {
		fmt.Fprint(e.Out, statusHead)
	}
	pictures, last := daemon.Watch(ctx), ""
	for {
		snap, err := pictures.Next(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		rep := &report{State: path, OK: true}
		if err == nil {
			hello := pictures.Hello()
			rep.Daemon, rep.Live = &hello, withoutNil(snap)
			rep.judge(e)
		} else {
			rep.OK, rep.Why = false, []string{command.ErrorText(command.AsUnresponsive(path, err))}
		}
		if mark := rep.mark(); mark != last {
			last = mark
			if err := printStatusChange(e, rep); err != nil {
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

// statusColumns have fixed widths, so that lines printed minutes apart are aligned.
const (
	statusColumns = "%-20s  %-8s  %7s  %7s  %7s  %9s  %6s  %5s  %3s  %s\n"
	// maxReasons bounds the reasons in a line.
	maxReasons = 3
)

var (
	statusNames = []any{"TIME", "STATE", "WORKING", "PENDING", "RESTING", "ELSEWHERE", "UNSENT", "REPOS", "ILL", "WHY"}
	statusHead  = fmt.Sprintf(statusColumns, statusNames...)
)

// cells are the columns of a watch behind the time.
func (s *report) cells() []string {
	why := slices.Concat(s.Why, s.Warnings)
	if more := len(why) - maxReasons; more > 0 {
		why = append(why[:maxReasons], fmt.Sprintf("and %d more", more))
	}
	reasons := text.OrDash(text.Clean(strings.Join(why, "; ")))
	if s.Live == nil {
		return []string{"away", "-", "-", "-", "-", "-", "-", "-", reasons}
	}
	out, c, ill := []string{s.word()}, s.Live.Counts, 0
	for _, repo := range s.Live.Repos {
		if repo.Failing() || repo.SyncState == api.StateError {
			ill++
		}
	}
	for _, n := range []int{c.Working, c.Pending, c.Resting, c.Elsewhere, c.Undelivered, len(s.Live.Repos), ill} {
		out = append(out, fmt.Sprint(n))
	}
	return append(out, reasons)
}

// mark is equal for reports without a relevant change; ages are not relevant.
func (s *report) mark() string {
	if s.Live == nil {
		return "away"
	}
	return fmt.Sprint(s.cells(), s.Live.API.Up, s.Live.Agent.Draining.IsZero(), s.Why, s.Warnings)
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

func printStatusChange(e *command.Env, rep *report) error {
	if e.Flags.Data() {
		return e.PrintStream(command.StreamLine{Type: "status", Status: rep})
	}
	if command.IsAccessible(e.Out) {
		_, err := fmt.Fprintln(e.Out, rep.sentence(time.Now()))
		return err
	}
	_, err := io.WriteString(e.Out, command.ColorsOf(e.Out).Word(rep.line(time.Now()), rep.word(), rep.word()))
	return err
}

// sentence is the report with --accessible: the names and values of the columns, without those that are zero.
func (s *report) sentence(now time.Time) string {
	txt := now.UTC().Format(time.TimeOnly)
	for i, cell := range s.cells() {
		if cell != "0" && cell != "-" {
			txt += fmt.Sprintf(", %s %s", strings.ToLower(fmt.Sprint(statusNames[i+1])), cell)
		}
	}
	return txt
}

// line is the report in the columns of a watch.
func (s *report) line(now time.Time) string {
	cells := []any{now.UTC().Format(time.RFC3339)}
	for _, cell := range s.cells() {
		cells = append(cells, cell)
	}
	return fmt.Sprintf(statusColumns, cells...)
}
