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

// repoScreen is the screen of one repository: its state, conditions and jobs.
type repoScreen struct {
	subject
	top      int // first visible fact, when only facts fit
	recent   fetched[string, snapshot.RecentRuns]
	finished int // Snap.Agent.History at the lookup
	rows     list[snapshot.Job]
}

func (r *repoScreen) list(*State) *position { return &r.rows.position }

func (r *repoScreen) hints(p *view) string {
	hints := screens[screenRepo].hints
	if lines, h := r.facts(p.s); h-repoHead(lines, h) < 3 {
		hints = strings.Replace(hints, "enter job", "^v scroll", 1)
	}
	return hints
}

// open shows the job under the cursor.
func (r *repoScreen) open(s *State) {
	j := r.rows.here()
	if j == nil {
		s.showToast("no job of this repository is known; p starts a pull", false)
		return
	}
	s.openJob(*j)
}

// openJob shows a job of the snapshot or of the history.
func (s *State) openJob(j snapshot.Job) {
	s.goTo(screenDetail)
	s.showObject(jobObject(&j))
}

// scroll moves the cursor among the jobs, or scrolls the facts when the jobs do not fit.
func (r *repoScreen) scroll(s *State, by int) {
	if lines, h := r.facts(s); h-repoHead(lines, h) < 3 {
		r.top = widget.ScrolledBy(r.top, by, lines, h)
	} else {
		r.rows.move(by)
	}
}

// facts returns the number of lines of the facts, and the height of the screen.
func (r *repoScreen) facts(s *State) (lines, h int) {
	p, at := s.layout()
	return len(p.repoFacts(*r.repo, r.live, at.H < roomyHeight).Lines(p.Canvas, at.W-4)), at.H
}

const (
	// roomyHeight is the height in lines from which each fact has its own line.
	roomyHeight = 26
	// leastJobs is the minimum height of the jobs on a wide screen, with their heads and edges.
	leastJobs = 9
)

// repoHead returns how many of h lines the facts of a repository take. When fewer than three
// lines would remain, the facts take all.
func repoHead(facts, h int) int { return min(facts+2, max(h-6, min(h, 6))) }

func (r *repoScreen) draw(p *view, at widget.Rect) {
	wide := at.W >= wideWidth && at.H >= roomyHeight
	w := at.W
	if wide {
		w = at.W * 9 / 20
	}
	box := widget.Box{Title: p.cut(r.repo.Name+"  "+r.repo.Type, w/2), Note: p.cut(r.repo.Title, w/3), Focused: true}
	lines := p.repoFacts(*r.repo, r.live, at.H < roomyHeight).Lines(p.Canvas, w-4)
	conditions, contents := p.conditionLines(*r.repo, at.W-w-4), p.contentLines(*r.repo, at.W-w-4)
	head := repoHead(len(lines), at.H)
	if wide {
		beside := dayHeight + len(conditions) + 2
		if len(contents) > 0 {
			beside += len(contents) + 2
		}
		head = min(max(len(lines)+2, beside), at.H-leastJobs)
	}
	if at.H-head < 3 {
		p.Scroll(at, box, lines, r.top, r.repo.URL)
		return
	}
	top, at := at.Top(head)
	if wide {
		var right widget.Rect
		top, right = top.Left(w)
		day, rest := right.Top(dayHeight)
		r.dayBox(p, day)
		if n := min(len(contents)+2, rest.H-3); len(contents) > 0 && n >= 3 {
			var made widget.Rect
			made, rest = rest.Top(n)
			p.Panel(made, widget.Box{Title: "Made here"}, contents)
		}
		if rest.H >= 3 {
			p.Panel(rest, widget.Box{Title: "Conditions"}, conditions)
		}
	}
	p.Panel(top, box, lines, r.repo.URL)
	if !wide {
		at = r.drawBelow(p, at)
	}
	if at.H >= 3 {
		r.jobsBox(p, at)
	}
}

// drawBelow draws the chart of the day and the conditions above the jobs, which are the most
// important part; the chart is dropped before the conditions.
func (r *repoScreen) drawBelow(p *view, at widget.Rect) widget.Rect {
	jobs := 6
	if at.H < roomyHeight {
		jobs = 4
	}
	var box widget.Rect
	if at.H >= dayHeight+jobs {
		box, at = at.Top(dayHeight)
		r.dayBox(p, box)
	}
	conditions := p.conditionLines(*r.repo, at.W-4)
	if h := min(len(conditions)+2, at.H-jobs); h >= 3 && (h == len(conditions)+2 || slices.ContainsFunc(r.repo.Conditions, func(c snapshot.Condition) bool { return c.Status != "True" })) {
		box, at = at.Top(h)
		p.Panel(box, widget.Box{Title: "Conditions"}, conditions)
	}
	return at
}

// repoFacts returns the facts about a repository. When tight, related facts share a line.
func (p *view) repoFacts(r snapshot.Repo, live, tight bool) (out widget.Sheet) {
	now := p.s.Now
	out.AddIf(!live, widget.RoleBad, "gone", "it is no longer there; this is what was seen last")
	out.AddIf(!r.Deleting.IsZero(), widget.RoleWarn, "deleting", "since "+widget.Ago(now, r.Deleting)+
		widget.When(r.DeleteError != "", "; in the way: "+r.DeleteError))
	h, since := health(r), failingSince(r)
	out.Add(widget.StateRole(h), "health", h+widget.When(h == "failing" && !since.IsZero(), " for "+text.Age(now.Sub(since)))+
		widget.When(!r.Checked.IsZero(), ", checked "+widget.Ago(now, r.Checked))+widget.When(r.Health != "", ": "+r.Health))
	failed, first := p.s.repo.failedInARow(r)
	out.AddIf(failed > 1, widget.RoleBad, "failing", fmt.Sprintf("the last %d jobs, since %s; limpet repo test %s looks why", failed,
		widget.ClockTime(first, now), widget.Quote(r.Name)))
	state, next := p.syncText(r), p.nextText(r)
	if tight {
		state += "; " + widget.When(r.Enabled && !r.Suspended && !p.s.offline(), "next ") + next
	}
	out.Add(widget.StateRole(r.SyncState), "sync", state)
	until := "until it is resumed; s resumes"
	if !r.Next.IsZero() {
		until = fmt.Sprintf("until %s, for %s more; s resumes", widget.ClockTime(r.Next, now), text.Age(r.Next.Sub(now)))
	}
	out.AddIf(r.Suspended, widget.RoleWarn, "suspended", "on this agent "+until)
	out.AddIf(!tight, widget.RolePlain, "next", next)
	out.Add(widget.RolePlain, "source", strings.Join(strings.Fields(r.URL+" "+r.Branch+" "+r.Path), "  "))
	out.Add(widget.RolePlain, "target", text.OrDash(r.Target)+", "+quotaText(r))
	c := p.s.Snap.Agent.Controllers
	out.AddIf(c.Mode != "", widget.RolePlain, "controller", c.Text())
	role, token := widget.RolePlain, "ends in "+text.Age(r.TokenEnds.Sub(now))
	if !r.TokenEnds.After(now) {
		role, token = widget.RoleBad, "expired "+widget.Ago(now, r.TokenEnds)
	}
	if r.TokenEnds.IsZero() {
		role, token = widget.RolePlain, ""
	}
	if tight {
		out.Add(role, "webhook", p.webhookText(r)+widget.When(token != "", "; token "+token))
		return out
	}
	out.AddIf(r.Connection != "", widget.RolePlain, "connection", r.Connection)
	out.Add(widget.RolePlain, "webhook", p.webhookText(r))
	out.AddIf(token != "", role, "token", token)
	return out
}

func (p *view) syncText(r snapshot.Repo) string {
	state := r.SyncState
	if p.s.offline() && state == "working" {
		state = "unknown"
	}
	runs := r.SyncState == "working" || r.SyncState == "pending" // else it is among the jobs below
	return widget.Join(", ", text.OrDash(state), widget.When(r.SyncJob != "" && runs, "job "+r.SyncJob),
		widget.When(r.LastRef != "", "at "+text.ShortRef(r.LastRef)), widget.When(!r.Synced.IsZero(), widget.Ago(p.s.Now, r.Synced)))
}

func (p *view) nextText(r snapshot.Repo) string {
	every := widget.When(r.Interval > 0, ", every "+text.Age(r.Interval))
	switch {
	case !r.Enabled:
		return "off: the repository is not pulled by itself"
	case p.s.offline():
		return "the next pull is not known while " + p.s.unavailableReason() + every
	case r.Suspended:
		return "nothing while it is suspended"
	case r.Next.IsZero():
		return "not known here" + every
	}
	return "in " + text.Age(r.Next.Sub(p.s.Now)) + every
}

func quotaText(r snapshot.Repo) string {
	txt := widget.Thousands(r.Resources, "object") + ", no limit"
	if r.MaxResources > 0 {
		txt = fmt.Sprintf("%s of %s", text.Thousands(int(r.Resources)), widget.Thousands(r.MaxResources, "object"))
	}
	return widget.Join(": ", txt, kindsText(r))
}

// kindsText counts the objects by kind.
func kindsText(r snapshot.Repo) string {
	var parts []string
	for _, c := range r.Contents {
		parts = append(parts, text.Thousands(int(c.Count))+" "+c.Resource)
	}
	return strings.Join(parts, ", ")
}

func (p *view) webhookText(r snapshot.Repo) string {
	switch {
	case r.Webhook == nil:
		return "none: changes are found by the interval"
	case r.Webhook.LastEvent.IsZero():
		return "registered, id " + r.Webhook.ID + ", no event yet"
	}
	return "registered, id " + r.Webhook.ID + ", last event " + widget.Ago(p.s.Now, r.Webhook.LastEvent)
}

// conditionLines returns the conditions: the failing ones with their messages, then the others
// in one text.
func (p *view) conditionLines(r snapshot.Repo, w int) (out []widget.TextLine) {
	var met []string
	for _, c := range r.Conditions {
		if c.Status == "True" {
			met = append(met, c.Type+" "+c.Reason)
		} else {
			out = append(out, p.MarkedLines(widget.RoleBad, "error", widget.Join(": ", c.Type+" "+c.Reason, c.Message), w)...)
		}
	}
	if len(met) > 0 {
		out = append(out, p.MarkedLines(widget.RolePlain, "success", strings.Join(met, ", "), w)...)
	}
	return out
}

// contentLines counts the objects of a repository by kind.
func (p *view) contentLines(r snapshot.Repo, w int) (out []widget.TextLine) {
	for _, c := range r.Contents {
		n := text.Thousands(int(c.Count))
		name := p.cut(c.Resource, max(w-displaywidth.String(n)-2, 4))
		out = append(out, widget.Styled(widget.RolePlain, fmt.Sprintf("%s%*s", name, max(min(w, 40)-displaywidth.String(name), len(n)+2), n)))
	}
	return out
}
