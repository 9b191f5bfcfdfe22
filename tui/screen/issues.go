package screen

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// issue is an error that needs attention. Repeated errors about the same object are one issue
// with a count.
type issue struct {
	id        uint64
	at        time.Time // the last occurrence
	times     int
	job, repo string // the object, if known
	source    string
	link      string // a Connection
	text      string
	read      bool
}

const (
	// maxIssues bounds the list. Above it the oldest is dropped, read ones first.
	maxIssues = 200
	// readAfter is the age from which errors of the first snapshot count as read: a user who
	// attaches in the morning sees the errors of the night, not of the month.
	readAfter = 24 * time.Hour
)

// issues are the collected errors, oldest first.
type issues struct {
	list []issue
	last uint64 // id of the newest issue
}

// add adds an error or counts its repetition. It copies the slice, because older states share
// it.
func (t issues) add(e issue) issues {
	list := slices.Clone(t.list)
	e.times = 1
	for i, old := range list {
		if old.job == e.job && old.repo == e.repo && old.source == e.source && old.link == e.link && old.text == e.text {
			e.id, e.times, e.read = old.id, old.times+1, e.read && old.read
			list = slices.Delete(list, i, i+1)
			break
		}
	}
	if e.id == 0 {
		t.last++
		e.id = t.last
	}
	if list = append(list, e); len(list) > maxIssues {
		oldest := max(slices.IndexFunc(list, func(e issue) bool { return e.read }), 0)
		list = slices.Delete(list, oldest, oldest+1)
	}
	t.list = list
	return t
}

// unread returns the number of unread issues.
func (t issues) unread() (n int) {
	for _, e := range t.list {
		if !e.read {
			n++
		}
	}
	return n
}

// newest returns the newest unread issue.
func (t issues) newest() (issue, bool) {
	for _, e := range slices.Backward(t.list) {
		if !e.read {
			return e, true
		}
	}
	return issue{}, false
}

// markRead marks the oldest n as read.
func (t issues) markRead(n int) issues {
	t.list = slices.Clone(t.list)
	for i := range t.list[:n] {
		t.list[i].read = true
	}
	return t
}

// without removes one issue; the id 0 removes all read ones.
func (t issues) without(id uint64) issues {
	var rest []issue
	for _, e := range t.list {
		if id != 0 && e.id != id || id == 0 && !e.read {
			rest = append(rest, e)
		}
	}
	t.list = rest
	return t
}

// Fail returns the state after an action of the user has failed.
func (s State) Fail(txt string) State {
	txt = text.Clean(txt)
	s.issues = s.issues.add(issue{at: s.Now, text: txt})
	return s.showToast(txt, true)
}

// Lose returns the state while the source is unavailable.
func (s State) Lose(why string) State {
	why = text.Clean(why)
	if s.Gone == "" {
		s.issues = s.issues.add(issue{at: s.Now, text: why})
	}
	s.Gone = why
	s.history.invalidate()
	return s
}

// subject returns the job, the repository or the Connection of the error.
func (e issue) subject() string {
	return cmp.Or(e.job, e.repo, e.source, e.link)
}

// line formats an error in one line.
func (e issue) line(now time.Time) string {
	return strings.TrimRight(widget.DayTime(e.at, now)+" "+e.body(), " ")
}

func (e issue) body() string {
	txt := e.text
	if who := e.subject(); who != "" {
		txt = who + ": " + txt
	}
	if e.times > 1 {
		txt += fmt.Sprintf(" (%d times)", e.times)
	}
	return txt
}

// next returns the command that shows more.
func (e issue) next() string {
	switch {
	case e.job != "":
		return "limpet job show " + widget.Quote(e.job)
	case e.repo != "":
		return "limpet repo test " + widget.Quote(e.repo)
	case e.source != "":
		return "limpet source show " + widget.Quote(e.source)
	case e.link != "":
		return "limpet connection test " + widget.Quote(e.link)
	}
	return "limpet doctor"
}

// errorsPane lists the errors, the newest first.
type errorsPane struct {
	id     uint64 // id of the issue under the cursor
	scroll int    // lines above the pane
}

// openErrors shows the errors and marks them as read. The cursor is on the newest one and stays
// on it when others arrive.
func (s State) openErrors() State {
	n := len(s.issues.list)
	s.overlay = errorsPane{id: s.issues.list[n-1].id}
	s.issues = s.issues.markRead(n)
	return s
}

func issuesRefusal(s State) string {
	if len(s.issues.list) == 0 {
		return "no errors so far"
	}
	return ""
}

// rows returns the errors in the order of the pane, and the row of the cursor.
func (e errorsPane) rows(s State) (rows []issue, at int) {
	rows = slices.Clone(s.issues.list)
	slices.Reverse(rows)
	return rows, max(slices.IndexFunc(rows, func(t issue) bool { return t.id == e.id }), 0)
}

func (e errorsPane) key(s State, name, _ string) (State, Outcome) {
	rows, at := e.rows(s)
	var here issue
	if len(rows) > 0 {
		here = rows[at]
	}
	s.issues = s.issues.markRead(len(rows) - at) // newer ones are above the cursor
	to := at
	switch name {
	case "up", "k":
		to--
	case "down", "j":
		to++
	case "home", "g":
		to = 0
	case "end", "G", "shift+g":
		to = len(rows)
	case "pgdown", "ctrl+d":
		e.scroll = min(e.scroll+5, len(here.text)/10)
	case "pgup", "ctrl+u":
		e.scroll = max(e.scroll-5, 0)
	case "enter":
		return s.openIssue(here)
	case "c", "y", "Y", "shift+y":
		if here.id != 0 {
			return s.copied(here.next())
		}
	case "d":
		s.issues = s.issues.without(here.id)
		if rows = slices.Delete(rows, at, min(at+1, len(rows))); len(rows) == 0 {
			s.overlay = nil
			return s, Outcome{}
		}
	case "D", "shift+d":
		s.issues, s.overlay = s.issues.without(0), nil
		return s, Outcome{}
	default:
		s.overlay = nil
		return s, Outcome{}
	}
	if to != at || name == "d" {
		e.scroll = 0
	}
	if len(rows) > 0 {
		e.id = rows[min(max(to, 0), len(rows)-1)].id
	}
	s.overlay = e
	return s, Outcome{}
}

// openIssue shows the subject of an error: the changed file, the job, the repository or the
// source, else the agent.
func (s State) openIssue(e issue) (State, Outcome) {
	s.overlay = nil
	if e.id == 0 {
		return s, Outcome{}
	}
	for _, j := range s.Snap.Jobs {
		if e.job != "" && j.Name == e.job && (e.repo == "" || j.Repository == e.repo) {
			to := s.goJob(j.UID)
			if file := parseIssue("error", e.text).file; file != "" && changesRefusal(to) == "" {
				to = to.openFile(file)
			}
			return to, Outcome{}
		}
	}
	if e.job != "" { // it has finished
		return s.goTo(screenHistory).filterBy(e.job), Outcome{}
	}
	for _, r := range s.Snap.Repos {
		if e.repo != "" && r.Name == e.repo {
			return s.goRepo(repoKey(r)), Outcome{}
		}
	}
	for _, from := range s.Snap.Sources {
		if e.source != "" && from.Name == e.source {
			return s.goSource(from.UID), Outcome{}
		}
	}
	if who := e.subject(); who != "" && e.link == "" {
		return s.showToast(who+" is not there any more", true), Outcome{}
	}
	return s.goTo(screenAgent).showToast(e.next()+" says more", false), Outcome{}
}

func (e errorsPane) hints(p *view) [][2]string {
	return [][2]string{{p.G.Up + p.G.Down, "move"}, {"enter", "what it is about"}, {"c", "copy"}, {"d", "dismiss"}, {"D", "all"},
		{"esc", "close"}}
}

func (e errorsPane) draw(p *view) {
	rows, at := e.rows(p.s)
	w, h := min(p.W-2, 120), p.H-2
	x, y := p.Dialog(w, h)
	inner, hang := w-5, 2
	note, foot := "esc closes", "d dismiss"
	if w >= 60 {
		note, foot = "d dismiss, D all, esc closes", "enter opens, c copies the command"
		hang = len("15:04:05Z") + 3
	}
	p.Box(p.G, x, y, w, h, fmt.Sprintf("Errors %d", len(rows)), note, foot, true)
	// Each error is laid out in full, with its command. The one under the cursor starts at the
	// latest where it still fits into the pane.
	type row struct {
		widget.TextLine
		of int
	}
	var lines []row
	from, to := 0, 0
	for i, t := range rows {
		if i == at {
			from = len(lines)
		}
		mark := p.G.State["error"] + " "
		for _, l := range widget.Wrap(widget.ClockTime(t.at, p.s.Now)+" "+t.body(), inner-hang) {
			if mark != "" {
				l, mark = mark+l, ""
			} else {
				l = strings.Repeat(" ", hang) + l
			}
			lines = append(lines, row{widget.Styled(widget.RoleBad, l), i})
		}
		lines = append(lines, row{widget.Styled(widget.RoleDim, strings.Repeat(" ", hang)+t.next()), i})
		if i == at {
			to = len(lines)
		}
	}
	room := h - 2
	top := min(from, max(len(lines)-room, 0))
	if to-top > room { // longer than the pane
		top = min(from+e.scroll, to-room)
	} else {
		top = max(top, to-room)
	}
	for i, l := range lines[top:min(top+room, len(lines))] {
		if l.of == at && max(top, from) == top+i {
			p.Put(x+1, y+1+i, 1, widget.RoleKey, p.G.Cursor)
		}
		p.Put(x+3, y+1+i, inner, l.Role, widget.Cut(l.Text, inner, p.G.More))
	}
	if len(rows) == 0 {
		p.Put(x+3, y+1, inner, widget.RoleDim, "None any more.")
	}
}

// Errors in a snapshot that need attention.

// collectIssues adds the errors that are new since the previous snapshot, in the order of their
// times.
func (s State) collectIssues(before *snapshot.Snapshot) State {
	known := map[snapshot.Event]bool{}
	for _, e := range before.Events {
		if e.Level == "error" {
			known[e] = true
		}
	}
	first := before.At.IsZero()
	found := append(append(s.sourceIssues(before), s.repoIssues(before)...), s.connectionIssues(before)...)
	for _, e := range s.Snap.Events {
		if e.Level == "error" && !known[e] {
			found = append(found, issue{at: e.At, job: e.Job, repo: e.Repo, text: e.Text})
		}
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].at.Before(found[j].at) })
	for _, e := range found {
		e.read = first && s.Snap.At.Sub(e.at) > readAfter
		s.issues = s.issues.add(e)
	}
	p, api := s.Snap.Problem, s.Snap.API
	if p != "" && p != before.Problem {
		s.issues = s.issues.add(issue{at: s.Snap.At, text: p})
	}
	if !api.Up && api.Error != "" && !strings.Contains(p, api.Error) && (first || before.API.Up || before.API.Error == "") {
		s.issues = s.issues.add(issue{at: s.Snap.At, text: "API: " + api.Error})
	}
	return s
}

// repoIssues returns the repositories that have become unhealthy, or whose reason has changed.
func (s State) repoIssues(before *snapshot.Snapshot) (out []issue) {
	was := map[string]string{}
	for _, r := range before.Repos {
		if health(r) == "failing" {
			was[repoKey(r)] = repoProblem(r)
		}
	}
	for _, r := range s.Snap.Repos {
		if old, sick := was[repoKey(r)]; health(r) != "failing" || sick && old == repoProblem(r) {
			continue
		}
		at := failingSince(r)
		if at.IsZero() || at.After(s.Snap.At) {
			at = s.Snap.At
		}
		out = append(out, issue{at: at, repo: r.Name, text: repoProblem(r)})
	}
	return out
}

// connectionIssues returns the Connections that have become unhealthy, or whose reason has
// changed.
func (s State) connectionIssues(before *snapshot.Snapshot) (out []issue) {
	was := map[string]bool{}
	for _, c := range before.UnhealthyConnections {
		was[c.Namespace+"/"+c.Name+" "+connectionProblem(c)] = true
	}
	for _, c := range s.Snap.UnhealthyConnections {
		if was[c.Namespace+"/"+c.Name+" "+connectionProblem(c)] {
			continue
		}
		at := c.Checked
		if at.After(s.Snap.At) {
			at = s.Snap.At
		}
		out = append(out, issue{at: at, link: c.Name, text: connectionProblem(c)})
	}
	return out
}

// connectionProblem returns what is wrong with a Connection.
func connectionProblem(c snapshot.Connection) string {
	return "Connection: " + cmp.Or(withoutLocalPorts(c.Message), "it is not healthy, and the server does not say why")
}

// repoProblem returns what is wrong with an unhealthy repository.
func repoProblem(r snapshot.Repo) string {
	return cmp.Or(withoutLocalPorts(r.Health), "it is not healthy, and the server does not say why")
}
