package status

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/repos"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/cli/command"
	"limpet/tui/cli/job"
)

// DrainCommand is 'limpet drain'.
type DrainCommand struct {
	Off  bool `help:"Claim jobs again." xor:"way"`
	Wait bool `short:"w" help:"Wait until all running jobs have ended." xor:"way"`
}

func (c DrainCommand) Run(ctx context.Context, e *command.Env) error {
	path, daemon, err := attach(ctx, e, drainedStart, "nothing to drain")
	if err != nil {
		return err
	}
	defer daemon.Close()
	out, err := daemon.Drain(ctx, !c.Off)
	if err != nil {
		return err
	}
	if c.Wait {
		if out, err = awaitDrained(ctx, e, path, daemon, out); err != nil {
			return err
		}
	}
	return e.PrintOne(out, "", func(w io.Writer) {
		if out.Since.IsZero() {
			fmt.Fprintln(w, "the agent claims jobs again")
		} else {
			fmt.Fprintln(w, drainText(e, snapshot.Agent{Draining: out.Since, Busy: out.Busy}, time.Now()))
		}
	})
}

// attach connects to the agent of the state file. Where none runs the error begins with nothing,
// and its hint is next.
func attach(ctx context.Context, e *command.Env, next, nothing string) (path string, daemon *control.Client, err error) {
	path, daemon, err = e.Attach(ctx)
	if errors.Is(err, control.ErrNoDaemon) && !errors.As(err, new(*command.UnresponsiveError)) {
		err = command.Errorf(command.ExitError, next, "%s: no agent holds %s", nothing, path)
	}
	return path, daemon, err
}

// awaitDrained waits until the agent is idle.
func awaitDrained(ctx context.Context, e *command.Env, path string, daemon *control.Client, out control.Drained) (control.Drained, error) {
	told, since, snapshots := -1, out.Since, daemon.Watch(ctx)
	for out.Busy > 0 {
		if out.Busy != told {
			told = out.Busy
			e.Notef("%s draining: %s to go", command.Timestamp(), text.Plural(out.Busy, "job"))
		}
		snap, err := snapshots.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return out, command.Errorf(command.WaitCode(ctx), "limpet drain --off    # claims jobs again",
				"stopped waiting; the agent goes on draining")
		case errors.Is(err, control.ErrNoDaemon):
			// An agent that stops closes its socket before it lets go of the file.
			if hangs := command.AwaitStop(ctx, path, daemon.Hello().PID); hangs != nil {
				return out, hangs
			}
			return out, command.Errorf(command.ExitUnreachable, drainedStart, "the agent has ended before it was drained: %w", err)
		case err != nil:
			return out, err
		case snap.Agent.PID != daemon.Hello().PID:
			return out, command.Errorf(command.ExitUnreachable, drainedStart,
				"the agent has ended before it was drained, and another one claims jobs")
		}
		switch now := snap.Agent; {
		case !now.Draining.IsZero():
			out = control.Drained{Since: now.Draining, Busy: now.Busy}
		case !snap.At.Before(since): // else the snapshot is older than the drain
			return out, command.Errorf(command.ExitCancelled, "limpet drain --wait", "the drain was ended: the agent claims jobs again")
		}
	}
	return out, nil
}

// drainedStart is the command that starts a drained agent.
const drainedStart = "limpet --daemon --drain    # starts one that claims nothing"

func drainText(e *command.Env, a snapshot.Agent, now time.Time) string {
	txt := "drained for " + text.Age(now.Sub(a.Draining))
	if a.Busy > 0 {
		txt = fmt.Sprintf("draining for %s, %s to go", text.Age(now.Sub(a.Draining)), text.Plural(a.Busy, "job"))
	}
	return txt + ": it claims no job; end it with: " + e.CommandFor("", "drain --off")
}

// leftReport describes the objects in the state file of a stopped agent.
type leftReport struct {
	Jobs  leftJobs        `json:"jobs"`
	Repos []snapshot.Repo `json:"repos"` // as the last agent saw them
}

type leftJobs struct {
	Pending int       `json:"pending"`
	Resting int       `json:"resting"`         // in backoff
	Claimed int       `json:"claimed"`         // by an agent that is gone
	Oldest  time.Time `json:"oldest,omitzero"` // creation time of the oldest
}

// readLeft fills Orphans and Left, which stays nil without jobs and repositories, as in the file of
// an agent of another server.
func (r *report) readLeft(ctx context.Context, e *command.Env, store *state.Store) error {
	s := &command.Session{File: store}
	var err error
	if s.Client, err = e.Connect(ctx, s, ""); err != nil {
		return err
	}
	defer func() { s.Client.Close(); s.Embedded.Close() }()
	left, now, namespace := &leftReport{Repos: []snapshot.Repo{}}, time.Now(), e.Flags.ListNamespace()
	_, err = s.List(ctx, api.Jobs, namespace, "", func(u *unstructured.Unstructured) bool {
		left.Jobs.add(u, now)
		return false
	}, 0)
	if err != nil {
		return err
	}
	var paused []repos.Suspension
	if kept, err := repos.OpenSuspensions(ctx, store); err == nil { // else 'repo list' reports the error
		paused, _ = kept.Suspended(ctx)
	}
	list, err := s.List(ctx, api.Repositories, namespace, "", nil, 0)
	for i := range list {
		if repo, ok := snapshot.RepoOf(&list[i]); ok {
			repo.Suspended = slices.ContainsFunc(paused, func(p repos.Suspension) bool { return p.UID == repo.UID })
			left.Repos = append(left.Repos, repo)
		}
	}
	if err != nil {
		return err
	}
	if left.Jobs != (leftJobs{}) || len(left.Repos) > 0 {
		r.Left = left
	}
	r.countOrphans(ctx, e, s)
	return nil
}

func (l *leftJobs) add(u *unstructured.Unstructured, now time.Time) {
	if at := api.Time(u.GetCreationTimestamp().Time); !at.IsZero() && (l.Oldest.IsZero() || at.Before(l.Oldest)) {
		l.Oldest = at
	}
	switch {
	case u.GetLabels()[api.LabelClaim] != "":
		l.Claimed++
	case job.RestOf(u).After(now):
		l.Resting++
	default:
		l.Pending++
	}
}

// judgeLeft reports that no agent holds the state file, with what waits for one.
func (s *report) judgeLeft(e *command.Env, now time.Time) {
	what := "no agent holds the state file"
	if s.Left != nil {
		for _, repo := range s.Left.Repos {
			s.add(e, repo.Issues())
		}
		jobs := s.Left.Jobs
		if n := jobs.Pending + jobs.Resting + jobs.Claimed; n > 0 {
			what += ", and " + text.Plural(n, "job") + " left"
		}
		if age := now.Sub(jobs.Oldest); !jobs.Oldest.IsZero() && age >= time.Minute {
			what += ", the oldest since " + text.Age(age)
		}
	}
	s.Why = append(s.Why, what+": "+e.CommandFor("", "--daemon"))
}
