package tui

import (
	"fmt"

	"limpet/sync/text"
)

// quit leaves at once, unless jobs run in this process: then the person says
// what becomes of them.
func (s State) quit() (State, Outcome) {
	claims := s.Snap.Agent.Claims
	if s.Source != Standalone || claims == 0 {
		return s, Outcome{Quit: true}
	}
	now := choice{"y", "Yes, give them back", func(s State) (State, Outcome) { return s, Outcome{Quit: true} }}
	stay := choice{"s", "Stay", func(s State) (State, Outcome) { return s.stay() }}
	if s.quitWhenIdle {
		return s.ask(confirm{quit: true, title: "Quit now?", choices: []choice{now, stay},
			lines: []string{fmt.Sprintf("%s to go; this ends by itself when nothing runs any more.", text.Plural(s.Snap.Agent.Busy, "job")),
				"What is given back goes on at the next start, here or elsewhere. Who stays has jobs claimed again."}}), Outcome{}
	}
	running := "1 job runs"
	if claims > 1 {
		running = fmt.Sprintf("%d jobs run", claims)
	}
	q := confirm{quit: true, title: "Quit?", choices: []choice{now}, lines: []string{running + " in this process. What is given back goes on at the next start, here or elsewhere."}}
	if s.readOnlyReason() == "" {
		q.lines[0] += " Who finishes first claims nothing new and ends when nothing runs any more."
		q.choices = append(q.choices, choice{"f", "Finish first", State.finish})
	}
	return s.ask(q), Outcome{}
}

// finish claims nothing new and ends when what runs has ended.
func (s State) finish() (State, Outcome) {
	s.quitWhenIdle = true
	s = s.say("claims nothing new; this ends when nothing runs any more. q asks again", false)
	if !s.Snap.Agent.Draining.IsZero() {
		return s, Outcome{}
	}
	s.drainedToQuit = true
	return s, Outcome{Actions: []Action{{Verb: Drain}}}
}

// stay undoes finish.
func (s State) stay() (State, Outcome) {
	s.quitWhenIdle = false
	if !s.drainedToQuit {
		return s, Outcome{}
	}
	s.drainedToQuit = false
	return s.say("claims jobs again", false), Outcome{Actions: []Action{{Verb: Undrain}}}
}

// Ended says that the person wanted to leave when nothing runs any more, and
// that nothing does.
func (s State) Ended() bool {
	return s.quitWhenIdle && !s.Snap.Agent.Draining.IsZero() && s.Snap.Agent.Busy == 0
}
