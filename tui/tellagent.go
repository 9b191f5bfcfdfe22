package tui

import (
	"fmt"

	"limpet/sync/text"
)

// tellAgents tells what has become of the agent, of its API and of the way to it.
func tellAgents(was, s State) (all []told) {
	say := func(w weight, format string, args ...any) {
		all = append(all, told{weight: w, text: fmt.Sprintf(format, args...)})
	}
	if was.Gone != "" {
		say(tellAgent, "the daemon answers again: %s", s.Source)
	} else if was.Source != s.Source {
		say(tellAgent, "now %s", s.Source)
	}
	if s.Note != "" && s.Note != was.Note {
		say(tellAgent, "note: %s", s.Note)
	}
	before, now := was.Snap.API, s.Snap.API
	switch {
	case s.Source == FromDisk:
	case !now.Up && before.Up:
		say(tellError, "offline: the API does not answer, %s. Nothing is sent, and nothing is queued for later. Next: limpet doctor, in another terminal", text.OrDash(now.Error))
	case now.Up && !before.Up:
		say(tellAgent, "online: the API answers")
	}
	if before.Synced != now.Synced && now.Synced || !was.Snap.AsOf.IsZero() && s.Snap.AsOf.IsZero() {
		say(tellAgent, "the API was read: what is listed is live")
	}
	if p := s.Snap.Problem; p != was.Snap.Problem && p != "" {
		say(tellError, "problem: %s", p)
	} else if p != was.Snap.Problem {
		say(tellAgent, "the problem is over: %s", was.Snap.Problem)
	}
	a, b := was.Snap.Agent, s.Snap.Agent
	switch {
	case b.Draining.IsZero() && !a.Draining.IsZero():
		say(tellAgent, "claims jobs again")
	case !b.Draining.IsZero() && (a.Draining.IsZero() || (a.Busy == 0) != (b.Busy == 0)):
		say(tellAgent, "%s", drainText(b))
	}
	if lost := b.LostCount - a.LostCount; lost > 0 && a.PID == b.PID {
		say(tellError, "%s lost: another agent may take what ran. Next: agent", text.Plural(lost, "lease"))
	}
	return all
}
