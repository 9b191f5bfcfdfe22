package screen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clipperhouse/displaywidth"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// confirm is a confirmation dialog. Enter does nothing, because a habitual Enter is no decision.
// Every other unknown key means no.
type confirm struct {
	title   string
	lines   []string // the consequences of a yes, with figures
	choices []choice
	quit    bool // confirms the end of the dashboard
	// name, if set, must be typed before Enter takes the first choice. It protects actions that
	// take long to undo.
	name, typed string
}

// choice is one answer.
type choice struct {
	key, text string
	do        func(State) (State, Outcome)
}

// ask opens a confirmation.
func (s State) ask(q confirm) State { s.overlay = q; return s }

// confirmOpen returns the open confirmation.
func (s State) confirmOpen() (confirm, bool) { q, ok := s.overlay.(confirm); return q, ok }

// yes returns the answer that sends the actions.
func yes(txt, done string, targets []target) []choice {
	return []choice{{"y", txt, func(s State) (State, Outcome) { return s.showToast(done, false), send(targets) }}}
}

func (q confirm) key(s State, name, txt string) (State, Outcome) {
	if q.name != "" {
		return q.typing(s, name, txt)
	}
	if name == "enter" {
		return s, Outcome{}
	}
	s.overlay = nil
	for _, c := range q.choices {
		if strings.EqualFold(strings.TrimPrefix(name, "shift+"), c.key) {
			return c.do(s)
		}
	}
	return s, Outcome{}
}

// typing handles the keys of a confirmation by name.
func (q confirm) typing(s State, name, txt string) (State, Outcome) {
	switch name {
	case "esc":
		s.overlay = nil
	case "enter":
		if q.typed == q.name {
			s.overlay = nil
			return q.choices[0].do(s)
		}
	default:
		q.typed = widget.Edit(q.typed, name, txt)
		s.overlay = q
	}
	return s, Outcome{}
}

func (q confirm) hints(*view) [][2]string {
	if q.name != "" {
		return [][2]string{{"enter", "when the name is typed"}, {"esc", "no"}}
	}
	var out [][2]string
	for _, c := range q.choices {
		out = append(out, [2]string{c.key, c.text})
	}
	return append(out, [2]string{"n", "No, go back"})
}

func (q confirm) draw(p *view) {
	w := min(72, p.W-2)
	inner := w - 4
	title, note := q.title, "default: No"
	var lines []string
	if displaywidth.String(title) > w-8 {
		title = "Sure?"
		lines = widget.Wrap(q.title, inner)
	}
	if displaywidth.String(title)+displaywidth.String(note) > w-8 {
		note = ""
	}
	for _, l := range q.lines {
		lines = append(lines, widget.Wrap(l, inner)...)
	}
	answers := q.answers(p, inner)
	if room := p.H - 2 - len(answers) - 1; len(lines) > room {
		lines = append(lines[:max(room-1, 0):max(room-1, 0)], p.G.More)
	}
	h := len(lines) + len(answers) + 3
	x, y := p.Dialog(w, h)
	p.Box(p.G, x, y, w, h, title, note, "", true)
	for i, l := range lines {
		p.Put(x+2, y+1+i, inner, widget.RolePlain, l)
	}
	for i, row := range answers {
		at := x + 2
		for _, hint := range row {
			at = p.Put(at, y+2+len(lines)+i, x+w-2-at, widget.RoleKey, hint[0])
			at = p.Put(at+1, y+2+len(lines)+i, x+w-2-at-1, widget.RolePlain, hint[1]) + 3
		}
	}
}

// answers returns the choices in rows, as many in a row as fit.
func (q confirm) answers(p *view, w int) [][][2]string {
	if q.name != "" {
		return [][][2]string{{{"type", q.name}}, {{">", q.typed + "_"}}, {{"enter", q.choices[0].text}, {"esc", "No, go back"}}}
	}
	all := [][2]string{{"n", "No, go back"}}
	for _, c := range q.choices {
		all = append(all, [2]string{c.key, c.text})
	}
	out := [][][2]string{nil}
	room := w
	for _, hint := range all {
		need := displaywidth.String(hint[0]) + 1 + displaywidth.String(hint[1])
		if last := len(out) - 1; need > room && len(out[last]) > 0 {
			out, room = append(out, nil), w
		}
		out[len(out)-1] = append(out[len(out)-1], hint)
		room -= need + 3
	}
	return out
}

// typeNameFrom is the number of objects from which a full pull must be confirmed by the name of
// the repository.
const typeNameFrom = 1000

// confirmPull describes the effects of a full pull.
func (s State) confirmPull(targets []target) confirm {
	if len(targets) > 1 {
		objects := int64(0)
		for _, a := range targets {
			objects += a.repo.Resources
		}
		q := confirmMany(targets, "Full pull of",
			fmt.Sprintf("All their files are read and %s compared; what differs is written anew, and what was changed by hand in "+
				"Grafana is lost.", widget.Thousands(objects, "object")))
		if objects >= typeNameFrom {
			q.name = fmt.Sprintf("all %d", len(targets))
		}
		return q
	}
	r := targets[0].repo
	q := confirm{
		title: "Full pull of " + r.Name + "?",
		lines: []string{fmt.Sprintf("All its files are read and %s compared: what differs is written anew, and what was "+
			"changed by hand in Grafana is lost.", contentsOf(r))},
		choices: yes("Yes, full pull", "full pull of "+r.Name+" asked for", targets),
	}
	for _, j := range s.Snap.Jobs {
		if j.Namespace == r.Namespace && j.Repository == r.Name && j.Action == "pull" && j.Finished.IsZero() {
			q.lines = append(q.lines, fmt.Sprintf("A pull (%s) is %s now: until it has ended the API may refuse another.", j.Name, j.State))
			break
		}
	}
	if r.Resources >= typeNameFrom {
		q.name = r.Name
	}
	return q
}

// contentsOf describes the objects of a repository in Grafana: "288 objects (12 folders, 276
// dashboards)".
func contentsOf(r snapshot.Repo) string {
	if r.Resources == 0 {
		return "what it has made"
	}
	txt := widget.Thousands(r.Resources, "object")
	var kinds []string
	for _, c := range r.Contents {
		kinds = append(kinds, fmt.Sprintf("%s %s", text.Thousands(int(c.Count)), c.Resource))
	}
	if len(kinds) > 0 {
		txt += " (" + strings.Join(kinds, ", ") + ")"
	}
	return txt
}

func confirmSuspend(targets []target) confirm {
	what := targets[0].action.Name
	if len(targets) > 1 {
		what = fmt.Sprintf("%d repositories", len(targets))
	}
	return confirm{
		title: fmt.Sprintf("Suspend %s on this agent for %s?", what, text.Age(SuspendFor)),
		lines: []string{"Until then, or until it is resumed, it is not checked and not pulled, neither by its interval nor by " +
			"a webhook. Jobs that somebody makes are run."},
		choices: yes("Yes, suspend", "suspension of "+what+" asked for", targets),
	}
}

func confirmCancel(targets []target) confirm {
	if len(targets) > 1 {
		return confirmMany(targets, "Cancel", "Those that run are stopped, those that wait are deleted. What they have written stays.")
	}
	j := targets[0].job
	txt := "What it has written stays."
	switch {
	case j.Owner == "other":
		txt = "It runs on another agent, which is asked to stop; what it has written stays."
	case j.Owner == "":
		txt = "It waits: it is deleted, and nothing has been written by it yet."
		if j.Attempt > 1 {
			txt = "It waits for its next attempt and is ended now; what it has written stays."
		}
	case j.Total > 0:
		txt = fmt.Sprintf("It runs here and is stopped at %s of %s; what it has written stays.", text.Thousands(int(j.Done)),
			widget.Thousands(j.Total, "file"))
	}
	return confirm{title: "Cancel " + j.Name + "?", lines: []string{txt},
		choices: yes("Yes, cancel it", "cancel of "+j.Name+" asked for", targets)}
}

func (s State) confirmRetry(targets []target) confirm {
	if len(targets) > 1 {
		q := confirmMany(targets, "Try again", "What rests is tried now; of what has ended a new job is made.")
		if slices.ContainsFunc(targets, func(a target) bool { return writesToGitAgain(a.job) }) {
			q.lines = append(q.lines, "Some write to Git again.")
			q.name = fmt.Sprintf("all %d", len(targets))
		}
		return q
	}
	j := targets[0].job
	q := confirm{title: "Run " + j.Name + " again?", choices: yes("Yes, run it", "retry of "+j.Name+" asked for", targets)}
	if j.Finished.IsZero() {
		q.title = "Try " + j.Name + " now?"
		q.lines = []string{fmt.Sprintf("It would rest for another %s. This is attempt %d of %d.", text.Age(j.RetryAt.Sub(s.Now)),
			j.Attempt, max(j.MaxAttempt, j.Attempt))}
		return q
	}
	q.lines = []string{fmt.Sprintf("It has ended (%s); a new job with the same options is made of it.", j.State)}
	if writesToGitAgain(j) {
		q.lines = append(q.lines, fmt.Sprintf("It is a %s: it writes to Git again. Its name has to be typed.", j.Action))
		q.name = j.Name
	}
	return q
}

// writesToGitAgain reports whether retrying a finished job would write to Git again.
func writesToGitAgain(j snapshot.Job) bool {
	return !j.Finished.IsZero() && slices.Contains(gitWriteActions, j.Action)
}

// confirmMany asks once for several targets. It shows their number and the first names.
func confirmMany(targets []target, doing, follows string) confirm {
	noun := "repositories"
	if targets[0].job.UID != "" {
		noun = "jobs"
	} else if targets[0].source.UID != "" {
		noun = "sources"
	}
	var names []string
	for _, a := range targets[:min(len(targets), 5)] {
		names = append(names, a.action.Name)
	}
	list := strings.Join(names, ", ")
	if rest := len(targets) - len(names); rest > 0 {
		list += fmt.Sprintf(" and %d more", rest)
	}
	return confirm{
		title: fmt.Sprintf("%s %d %s?", doing, len(targets), noun),
		lines: []string{list + ".", follows},
		choices: yes(fmt.Sprintf("Yes, all %d", len(targets)), fmt.Sprintf("asked for: %s %d %s", strings.ToLower(doing), len(targets),
			noun), targets),
	}
}

// quit leaves at once. While jobs run in this process, it asks first what to do with them.
func (s State) quit() (State, Outcome) {
	claims := s.Snap.Agent.Claims
	if s.Source != Standalone || claims == 0 {
		return s, Outcome{Quit: true}
	}
	now := choice{"y", "Yes, give them back", func(s State) (State, Outcome) { return s, Outcome{Quit: true} }}
	stay := choice{"s", "Stay", func(s State) (State, Outcome) { return s.stay() }}
	if s.leaving.whenIdle {
		return s.ask(confirm{quit: true, title: "Quit now?", choices: []choice{now, stay},
			lines: []string{fmt.Sprintf("%s to go; this ends by itself when nothing runs any more.", text.Plural(s.Snap.Agent.Busy, "job")),
				"What is given back goes on at the next start, here or elsewhere. Who stays has jobs claimed again."}}), Outcome{}
	}
	running := "1 job runs"
	if claims > 1 {
		running = fmt.Sprintf("%d jobs run", claims)
	}
	q := confirm{quit: true, title: "Quit?", choices: []choice{now},
		lines: []string{running + " in this process. What is given back goes on at the next start, here or elsewhere."}}
	if s.readOnlyReason() == "" {
		q.lines[0] += " Who finishes first claims nothing new and ends when nothing runs any more."
		q.choices = append(q.choices, choice{"f", "Finish first", State.finish})
	}
	return s.ask(q), Outcome{}
}

// finish claims no new jobs and quits when the running ones have finished.
func (s State) finish() (State, Outcome) {
	s.leaving.whenIdle = true
	s = s.showToast("claims nothing new; this ends when nothing runs any more. q asks again", false)
	if !s.Snap.Agent.Draining.IsZero() {
		return s, Outcome{}
	}
	s.leaving.drained = true
	return s, Outcome{Actions: []Action{{Verb: Drain}}}
}

// stay cancels finish.
func (s State) stay() (State, Outcome) {
	s.leaving.whenIdle = false
	if !s.leaving.drained {
		return s, Outcome{}
	}
	s.leaving.drained = false
	return s.showToast("claims jobs again", false), Outcome{Actions: []Action{{Verb: Undrain}}}
}

// Ended reports whether a quit was requested for the end of all jobs, and no job runs any more.
func (s State) Ended() bool {
	return s.leaving.whenIdle && !s.Snap.Agent.Draining.IsZero() && s.Snap.Agent.Busy == 0
}
