package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// issue is an error that needs attention. Repeated errors about the same object are one issue with
// a count.
type issue struct {
	issueKey
	id    uint64
	at    time.Time // the last occurrence
	times int
	read  bool
	event bool   // it has happened, rather than lasts
	pull  bool   // of a job that pulls: the next good pull repairs it
	uid   string // of the job of the last occurrence; "" = unknown
}

// issueKey is what repetitions of an issue share.
type issueKey struct {
	kind, name string // of the object: job, repo, files of a repo, source or connection; "" = none
	repo       string // of a job, if known
	text       string
}

const (
	// maxIssues bounds the list. Above it the oldest is dropped, read ones first.
	maxIssues = 200
	// readAfter is the age from which errors of the first snapshot count as read: a user who
	// attaches in the morning sees the errors of the night, not of the month.
	readAfter = 24 * time.Hour
)

// issues are the collected errors, oldest first. Older states share the slice.
type issues struct {
	list []issue
	last uint64 // id of the newest issue
}

func (t *issues) add(e issue) {
	e.times = 1
	t.list = slices.Clone(t.list)
	if i := slices.IndexFunc(t.list, func(old issue) bool { return old.issueKey == e.issueKey }); i >= 0 {
		old := t.list[i]
		e.id = old.id
		e.times += old.times
		e.read = e.read && old.read
		t.list = slices.Delete(t.list, i, i+1)
	} else {
		t.last++
		e.id = t.last
	}
	if t.list = append(t.list, e); len(t.list) > maxIssues {
		oldest := max(slices.IndexFunc(t.list, func(e issue) bool { return e.read }), 0)
		t.list = slices.Delete(t.list, oldest, oldest+1)
	}
}

func (t issues) unread() (n int) {
	for _, e := range t.list {
		if !e.read {
			n++
		}
	}
	return n
}

func (t *issues) markRead(n int) {
	t.list = slices.Clone(t.list)
	for i := range t.list[:n] {
		t.list[i].read = true
	}
}

func (t *issues) drop(match func(issue) bool) {
	t.list = slices.DeleteFunc(slices.Clone(t.list), match)
}

// Fail returns the state after an action of the user has failed.
func (s State) Fail(txt string) State {
	txt = text.Clean(txt)
	s.issues.add(issue{at: s.Now, event: true, issueKey: issueKey{text: txt}})
	s.toastEnd = s.Now.Add(toastAge)
	s.showToast(txt, true)
	return s
}

// Lose returns the state while the source is unavailable.
func (s State) Lose(why string) State {
	why = text.Clean(why)
	if s.Gone == "" {
		s.issues.add(issue{at: s.Now, issueKey: issueKey{text: why}})
		s.toast = ""
	}
	s.Gone = why
	s.history.changes++
	return s
}

func (e issue) body() string {
	return widget.Join(": ", e.name, e.text) + widget.When(e.times > 1, fmt.Sprintf(" (%d times)", e.times))
}

// issuesPane lists the errors, the newest first, each in full with its command.
type issuesPane struct {
	id   uint64   // id of the issue under the cursor, which stays on it when others arrive
	line int      // line of the cursor within the issue
	of   []uint64 // the issue of each line
}

func openIssues(s *State) {
	n := len(s.issues.list)
	s.overlay = issuesPane{id: s.issues.list[n-1].id}
	s.issues.markRead(n)
}

// at returns the index of the issue under the cursor, that of the newest when it is gone.
func (e issuesPane) at(s *scene) int {
	at := slices.IndexFunc(s.issues.list, func(t issue) bool { return t.id == e.id })
	return cmp.Or(at+1, len(s.issues.list)) - 1
}

func (e issuesPane) key(s *State, name, _ string) {
	list, at := s.issues.list, e.at(&s.scene)
	s.overlay = nil
	if len(list) == 0 {
		return
	}
	s.issues.markRead(at + 1) // newer ones are above the cursor
	by, moves := steps[name]
	switch {
	case moves && by != 10 && by != -10:
		e.id, e.line = list[min(max(at-by, 0), len(list)-1)].id, 0
	case moves && len(e.of) > 0: // by lines, for what is longer than the pane
		line := min(max(slices.Index(e.of, e.id)+e.line+by/2, 0), len(e.of)-1)
		e.id, e.line = e.of[line], line-slices.Index(e.of, e.of[line])
	case name == "enter":
		openIssue(s, list[at])
		return
	case name == "c", name == "y", name == "Y":
		s.copied(nextCommand(&s.facts, list[at]))
	case name == "d":
		s.issues.drop(func(t issue) bool { return t.id == e.id })
		if len(list) == 1 {
			return
		}
		e.id, e.line = s.issues.list[max(at-1, 0)].id, 0
	case name == "D":
		s.issues.drop(func(t issue) bool { return t.read })
		return
	default:
		s.overlay = e
		s.leaveOverlay(name)
		return
	}
	s.overlay = e
}

// openIssue shows the subject of an error: the changed file, the job, the repository or the source,
// else the agent.
func openIssue(s *State, e issue) {
	kinds := map[string]string{"job": onJob, "repo": onRepo, "files": onRepo, "source": onSource}
	for o := range s.objects(kinds[e.kind]) {
		if o.Name != e.name || e.uid != "" && o.UID != e.uid || o.job != nil && e.repo != "" && o.job.Repository != e.repo {
			continue
		}
		s.goObject(o)
		if file := parseIssue("error", e.text).file; o.job != nil && file != "" && s.detail.changesRefusal() == "" {
			openFile(s, file)
		}
		return
	}
	switch {
	case e.uid != "": // it has finished
		s.goObject(jobObject(&snapshot.Job{UID: e.uid, Name: e.name, Repository: e.repo, State: "error", Message: e.text, Finished: e.at}))
	case e.kind == "job":
		s.goTo(screenHistory)
		s.setFilter(e.name)
	case slices.Contains([]string{"repo", "files", "source"}, e.kind):
		s.showToast(e.name+" no longer exists", true)
	default:
		s.goTo(screenAgent)
		s.showToast(nextCommand(&s.facts, e)+" says more", false)
	}
}

func (e issuesPane) hints(*scene) string {
	return "^v move|enter go to it|c copy|d dismiss|D all|esc close"
}

func (e issuesPane) draw(p *view) overlay {
	area := p.c.Dialog(min(p.c.W-2, 120), p.c.H-2)
	inner, hang := area.W-5, strings.Repeat(" ", min(area.W/5, 12))
	var lines []widget.TextLine
	e.of = nil
	for _, t := range slices.Backward(p.s.issues.list) {
		mark := p.c.G.State["error"] + " "
		for _, l := range widget.Wrap(widget.ClockTime(t.at, p.Now)+" "+t.body(), inner-len(hang)) {
			lines, e.of = append(lines, widget.Styled(widget.RoleBad, mark+l)), append(e.of, t.id)
			mark = hang
		}
		for _, l := range widget.Wrap(nextCommand(&p.s.facts, t), inner-len(hang)) {
			lines, e.of = append(lines, widget.Styled(widget.RoleDim, hang+l)), append(e.of, t.id)
		}
	}
	p.c.Box(area, widget.Box{Title: fmt.Sprintf("Errors %d", len(p.s.issues.list)), Note: "esc closes",
		Foot: "enter opens, d dismisses", Focused: true})
	cursor := min(max(slices.Index(e.of, e.id), 0)+e.line, len(lines)-1)
	top := widget.Window(cursor, len(lines), area.H-2)
	for i, l := range lines[top:min(top+area.H-2, len(lines))] {
		p.c.PutLine(area.X+3, area.Y+1+i, inner, l)
	}
	p.c.Put(area.X+1, area.Y+1+cursor-top, 1, widget.RoleKey, p.c.G.Cursor)
	return e
}

// collect adds the errors that are new since the previous snapshot, in the order of their times.
func (t *issues) collect(before, now *snapshot.Snapshot) {
	known := map[issue]bool{}
	same := func(e issue) issue { // an event has happened again when its time differs
		if e.pull = false; !e.event {
			e.at = time.Time{}
		}
		return e
	}
	for _, e := range problems(before) {
		known[same(e)] = true
	}
	all := problems(now)
	slices.SortStableFunc(all, func(a, b issue) int { return a.at.Compare(b.at) })
	lasts := !before.API.Up && before.API.Error != "" // whatever its error is now
	for _, e := range all {
		if !known[same(e)] && !(lasts && strings.HasPrefix(e.text, "API: ")) {
			e.read = before.At.IsZero() && now.At.Sub(e.at) > readAfter
			t.add(e)
		}
	}
	t.list = slices.Clone(t.list)
	for i, e := range t.list {
		lasts := !e.event && slices.ContainsFunc(all, func(now issue) bool { return now.issueKey == e.issueKey })
		t.list[i].read = e.read || !lasts && e.repaired(now)
	}
}

// repaired reports whether an error that lasts no more is over: it was a state, or a good pull has
// followed.
func (e issue) repaired(now *snapshot.Snapshot) bool {
	return !e.event || (e.pull || e.kind == "repo") && slices.ContainsFunc(now.Repos, func(r snapshot.Repo) bool {
		return r.Name == cmp.Or(e.repo, e.name) && !r.Failing() && r.SyncState == "success" && r.Synced.After(e.at)
	})
}

// problems returns the errors in a snapshot that need attention.
func problems(snap *snapshot.Snapshot) (out []issue) {
	add := func(at time.Time, event bool, key issueKey) {
		if at.IsZero() || at.After(snap.At) && !event {
			at = snap.At
		}
		out = append(out, issue{at: at, event: event, issueKey: key})
	}
	for i := range snap.Sources {
		if from := &snap.Sources[i]; from.Bad() {
			add(from.Since, false, issueKey{kind: "source", name: from.Name, text: widget.Join(": ", from.State, SourceProblem(*from))})
		}
	}
	for i := range snap.Repos {
		if r := &snap.Repos[i]; health(*r) == "failing" {
			add(failingSince(*r), false, issueKey{kind: "repo", name: r.Name, text: problemText(r.Health)})
		}
	}
	for i := range snap.Repos {
		if r := &snap.Repos[i]; r.Unread.Count() > 0 {
			add(r.Synced, false, issueKey{kind: "files", name: r.Name, text: "unread files: " + strings.Join(r.Unread.Lines(5), "; ")})
		}
	}
	for _, c := range snap.UnhealthyConnections {
		add(c.Checked, false, issueKey{kind: "connection", name: c.Name, text: "Connection: " + problemText(c.Message)})
	}
	for _, e := range snap.Events {
		switch {
		case e.Level != "error":
		case e.Job != "":
			add(e.At, true, issueKey{kind: "job", name: e.Job, repo: e.Repo, text: e.Text})
			last := &out[len(out)-1]
			last.uid = e.UID
			last.pull = slices.ContainsFunc(snap.Jobs, func(j snapshot.Job) bool { return j.UID == e.UID && j.Action == "pull" })
		default:
			add(e.At, true, issueKey{kind: widget.When(e.Repo != "", "repo"), name: e.Repo, text: e.Text})
		}
	}
	if snap.Problem != "" {
		add(snap.At, false, issueKey{text: snap.Problem})
	}
	if api := snap.API; !api.Up && api.Error != "" && !strings.Contains(snap.Problem, api.Error) {
		add(snap.At, false, issueKey{text: "API: " + api.Error})
	}
	return out
}

// problemText returns the reason of a server why an object is unhealthy.
func problemText(why string) string {
	return cmp.Or(text.WithoutLocalPorts(why), "it is not healthy, and the server does not say why")
}
