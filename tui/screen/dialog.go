package screen

import (
	"fmt"
	"strings"

	"github.com/clipperhouse/displaywidth"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// overlay is a box over the screen. While it is open it handles all keys but Ctrl-C. It is a
// value: key and draw store its next state in s.overlay.
type overlay interface {
	key(s *State, name, text string)
	draw(p *view)
	// hints returns its keys for the last line of the screen.
	hints(p *view) []widget.Hint
}

// confirm is a confirmation dialog. Enter does nothing, because a habitual Enter is no decision.
// Every other unknown key means no.
type confirm struct {
	title   string
	lines   []string // the consequences of a yes, with figures
	choices []choice
	quit    bool // confirms the end of the dashboard
	// name, if set, must be typed before Enter takes the first choice. It protects actions that take long to undo.
	name, typed string
}

// choice is one answer.
type choice struct {
	key, text string
	do        func(*State)
}

const goBackText = "No, go back"

func (q confirm) key(s *State, name, txt string) {
	switch {
	case name == "enter" && q.name != "" && q.typed == q.name:
		s.overlay = nil
		q.choices[0].do(s)
	case name == "enter":
	case name == "esc" || q.name == "":
		s.overlay = nil
		for _, c := range q.choices {
			if strings.EqualFold(name, c.key) {
				c.do(s)
				return
			}
		}
	default:
		q.typed = widget.Edit(q.typed, name, txt)
		s.overlay = q
	}
}

func (q confirm) hints(*view) []widget.Hint {
	if q.name != "" {
		return []widget.Hint{{Key: "enter", Text: q.choices[0].text}, {Key: "esc", Text: goBackText}}
	}
	out := []widget.Hint{{Key: "n", Text: goBackText}}
	for _, c := range q.choices {
		out = append(out, widget.Hint{Key: c.key, Text: c.text})
	}
	return out
}

func (q confirm) draw(p *view) {
	w := min(72, p.W-2)
	box := widget.Box{Title: q.title, Note: "default: No", Focused: true}
	var lines []widget.TextLine
	if displaywidth.String(q.title) > w-8 {
		box.Title = "Sure?"
		lines = widget.Wrapped(nil, widget.RoleTitle, q.title, w-4)
	}
	if displaywidth.String(box.Title+box.Note) > w-8 {
		box.Note = ""
	}
	for _, l := range q.lines {
		lines = widget.Wrapped(lines, widget.RolePlain, l, w-4)
	}
	answers := q.hints(p)
	if q.name != "" {
		answers = append([]widget.Hint{{Key: "type", Text: q.name}, {Key: ">", Text: q.typed + "_"}}, answers...)
	}
	if room := max(p.H-3-len(answers), 0); len(lines) > room {
		lines = append(lines[:max(room-1, 0)], widget.Styled(widget.RolePlain, p.G.More))
	}
	at := p.Dialog(w, len(lines)+len(answers)+2)
	p.Panel(at, box, lines)
	for i := range answers {
		p.Canvas.Hints(at.X+2, at.Y+1+len(lines)+i, at.X+w-2, widget.RolePlain, answers[i:i+1])
	}
}

// quit leaves at once. While jobs run in this process, it asks first what to do with them.
func quit(s *State) {
	a := s.Snap.Agent
	if s.Source != Standalone || a.Claims == 0 {
		s.out.Quit = true
		return
	}
	q := confirm{quit: true, title: "Quit?", choices: []choice{{"y", "Yes, give them back", func(s *State) { s.out.Quit = true }}},
		lines: []string{fmt.Sprintf("%s here. What is given back goes on at the next start, here or elsewhere.",
			text.Plural(a.Claims, "running job"))}}
	switch {
	case s.leaving.whenIdle:
		q.title = "Quit now?"
		q.lines = append(q.lines, "This ends by itself when nothing runs any more. Who stays has jobs claimed again.")
		q.choices = append(q.choices, choice{"s", "Stay", stay})
	case s.readOnlyReason() == "":
		q.lines = append(q.lines, "Who finishes first claims nothing new and ends when nothing runs any more.")
		q.choices = append(q.choices, choice{"f", "Finish first", finish})
	}
	s.overlay = q
}

// finish claims no new jobs and quits when the running ones have finished.
func finish(s *State) {
	s.leaving.whenIdle = true
	s.showToast("claims nothing new; this ends when nothing runs any more. q asks again", false)
	if s.Snap.Agent.Draining.IsZero() {
		s.leaving.drained = true
		s.out.Actions = []Action{{Verb: snapshot.Drain}}
	}
}

func stay(s *State) {
	if s.leaving.drained {
		s.sendPlain(snapshot.Undrain, "claims jobs again")
	}
	s.leaving = leaving{}
}

// Ended reports whether a quit was requested for the end of all jobs, and no job runs any more.
func (s State) Ended() bool {
	return s.leaving.whenIdle && !s.Snap.Agent.Draining.IsZero() && s.Snap.Agent.Busy == 0
}
