package screen

import (
	"context"
	"fmt"
	"strings"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// repoScreen is the screen of one repository: its state, conditions and jobs.
type repoScreen struct {
	subject
	top      int  // first visible fact, when only facts fit
	tall     bool // only facts fit on the last frame
	recent   fetched[string, snapshot.HistoryPage]
	finished int // Snap.Agent.History at the lookup
	rows     list[snapshot.Job]
}

func (r *repoScreen) list(*State) *position { return &r.rows.position }

func (r *repoScreen) hints(*view) string {
	if r.tall {
		return strings.Replace(screens[screenRepo].hints, "enter job", "^v scroll", 1)
	}
	return screens[screenRepo].hints
}

func (r *repoScreen) open(s *State) {
	j := r.rows.here()
	if j == nil {
		s.showToast("no job of this repository is known; p starts a pull", false)
		return
	}
	s.goObject(jobObject(j))
}

// scroll moves the cursor among the jobs, or scrolls the facts when the jobs do not fit.
func (r *repoScreen) scroll(_ *State, by int) {
	if r.tall {
		r.top += by
	} else {
		r.rows.move(by)
	}
}

// leastJobs is the height that the list of jobs keeps, with its heads and edges.
const leastJobs = 6

// draw draws the facts with the conditions, and the jobs.
func (r *repoScreen) draw(p *view, at widget.Rect) {
	box := widget.Box{Title: p.cut(r.repo.Name+"  "+r.repo.Type, at.W/2), Note: p.cut(r.repo.Title, at.W/3), Focused: true}
	lines := append(p.repoFacts(*r.repo, r.live).Lines(p.Canvas, at.W-4), p.conditionLines(*r.repo, at.W-4)...)
	head := min(len(lines)+2, max(at.H-leastJobs, min(at.H, leastJobs)))
	if r.tall = at.H-head < 3; r.tall {
		p.Scroll(at, box, lines, &r.top)
		return
	}
	top, at := at.Top(head)
	p.Panel(top, box, lines)
	r.jobsBox(p, at)
}

func (p *view) repoFacts(r snapshot.Repo, live bool) (out widget.Sheet) {
	now := p.Now
	out.AddIf(!live, widget.RoleBad, "gone", "it is no longer there; this is what was seen last")
	out.AddIf(!r.Deleting.IsZero(), widget.RoleWarn, "deleting", "since "+widget.Ago(now, r.Deleting)+
		widget.When(r.DeleteError != "", "; in the way: "+r.DeleteError))
	out.Add(widget.StateRole(health(r)), "health", failingText(r, now)+
		widget.When(!r.Checked.IsZero(), ", checked "+widget.Ago(now, r.Checked))+widget.When(r.Health != "", ": "+r.Health))
	failed, first := p.s.repo.failedInARow(r)
	out.AddIf(failed > 1, widget.RoleBad, "failing", fmt.Sprintf("the last %d jobs, since %s; limpet repo test %s looks why", failed,
		widget.ClockTime(first, now), widget.Quote(r.Name)))
	out.Add(widget.StateRole(r.SyncState), "sync", p.syncText(r)+"; next "+p.nextPull(r)+
		widget.When(r.Interval > 0, ", every "+text.Age(r.Interval)))
	out.AddIf(r.Suspended, widget.RoleWarn, "suspended", "on this agent"+
		widget.When(!r.Next.IsZero(), fmt.Sprintf(" until %s, for %s more", widget.ClockTime(r.Next, now),
			text.Age(r.Next.Sub(now))))+"; s resumes")
	out.Add(widget.RolePlain, "source", strings.Join(strings.Fields(r.URL+" "+r.Branch+" "+r.Path), "  "))
	out.Add(widget.RolePlain, "target", text.OrDash(r.Target)+", "+quotaText(r)+
		widget.When(r.Connection != "", "; connection "+r.Connection))
	out.AddIf(p.Snap.Agent.Controllers.Mode != "", widget.RolePlain, "controller", p.Snap.Agent.Controllers.Text())
	role, token := widget.RolePlain, "ends in "+text.Age(r.TokenEnds.Sub(now))
	if !r.TokenEnds.After(now) {
		role, token = widget.RoleBad, "expired "+widget.Ago(now, r.TokenEnds)
	}
	out.Add(role, "webhook", p.webhookText(r)+widget.When(!r.TokenEnds.IsZero(), "; token "+token))
	return out
}

func (p *view) syncText(r snapshot.Repo) string {
	state := r.SyncState
	if p.offline() && state == "working" {
		state = "unknown"
	}
	runs := r.SyncState == "working" || r.SyncState == "pending" // else it is among the jobs below
	return widget.Join(", ", text.OrDash(state), widget.When(r.SyncJob != "" && runs, "job "+r.SyncJob),
		widget.When(r.LastRef != "", "at "+text.ShortRef(r.LastRef)), widget.When(!r.Synced.IsZero(), widget.Ago(p.Now, r.Synced)))
}

func quotaText(r snapshot.Repo) string {
	txt := widget.Thousands(r.Resources, "object") + ", no limit"
	if r.MaxResources > 0 {
		txt = fmt.Sprintf("%s of %s", text.Thousands(int(r.Resources)), widget.Thousands(r.MaxResources, "object"))
	}
	return widget.Join(": ", txt, kindsText(r))
}

func kindsText(r snapshot.Repo) string {
	var parts []string
	for _, c := range r.Contents {
		parts = append(parts, text.Thousands(int(c.Count))+" "+c.Resource)
	}
	return strings.Join(parts, ", ")
}

func (p *view) webhookText(r snapshot.Repo) string {
	if r.Webhook == nil {
		return "none: changes are found by the interval"
	}
	last := r.Webhook.LastEvent
	return "registered, id " + r.Webhook.ID + ", " + widget.When(last.IsZero(), "no event yet") +
		widget.When(!last.IsZero(), "last event "+widget.Ago(p.Now, last))
}

// conditionLines returns the conditions: the failing ones with their messages, then the others in one text.
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

const (
	// recentRows is the number of earlier jobs on the repository screen.
	recentRows = 50
	// recentMaxAge and recentMinAge bound their age. The shorter one applies when jobs have finished since.
	recentMaxAge = time.Minute
	recentMinAge = 5 * time.Second
)

func (r *repoScreen) fetch(s *State) Lookup {
	key, age := repoKind.key(*r.repo), s.Now.Sub(r.recent.at)
	if r.repo.Name == "" || r.recent.key == key && (age < recentMinAge || age < recentMaxAge && r.finished == s.Snap.Agent.History) {
		return nil
	}
	q := snapshot.HistoryQuery{Namespace: r.repo.Namespace, Repository: r.repo.Name, Limit: recentRows}
	r.finished = s.Snap.Agent.History
	return r.recent.look(s, key, func(s *State) *fetched[string, snapshot.HistoryPage] { return &s.repo.recent },
		func(ctx context.Context, src Source) (snapshot.HistoryPage, error) { return src.HistoryPage(ctx, q) })
}

// refresh lists the jobs of the snapshot, then the earlier ones.
func (r *repoScreen) refresh(s *State) {
	var out []snapshot.Job
	seen := map[string]bool{}
	for i := range s.Snap.Jobs {
		if j := &s.Snap.Jobs[i]; j.Namespace == r.repo.Namespace && j.Repository == r.repo.Name {
			out, seen[j.UID] = append(out, *j), true
		}
	}
	runs, _, _ := r.recent.of(repoKind.key(*r.repo))
	for _, row := range runs.Rows {
		if !seen[row.UID] {
			out = append(out, jobOfRecord(row))
		}
	}
	r.rows.show(out, jobKind.key)
}

// failedInARow returns how many of the last jobs of the repository failed in a row, and since when.
func (r *repoScreen) failedInARow(of snapshot.Repo) (n int, since time.Time) {
	runs, _, _ := r.recent.of(repoKind.key(of))
	for _, row := range runs.Rows {
		if row.State != "error" && row.State != "dead" {
			break
		}
		n, since = n+1, row.Finished
	}
	return n, since
}

func (r *repoScreen) jobsBox(p *view, at widget.Rect) {
	type job = snapshot.Job
	empty := "Looking" + p.G.More
	if _, known, err := r.recent.of(repoKind.key(*r.repo)); known || err != "" {
		empty = "No job of this repository is known." + p.startHint()
	}
	state := func(cell func(j job, state string, w int) string) func(job, int) (string, widget.Role) {
		return func(j job, w int) (string, widget.Role) {
			state := p.shownState(j)
			return cell(j, state, w), widget.StateRole(state)
		}
	}
	table := widget.Table[job]{Grow: 6, Columns: []widget.Column[job]{
		{Width: 1, Cell: state(func(_ job, state string, _ int) string { return p.StateGlyph(state) })},
		{Head: "FINISHED", Width: 12, Rank: 2, Cell: widget.Plain(func(j job) string {
			if j.Finished.IsZero() {
				return "-"
			}
			return widget.DayTime(j.Finished, p.Now)
		})},
		{Head: "JOB", Width: 16, Wide: 36, Rank: 1, Cell: widget.Plain(func(j job) string { return j.Name })},
		{Head: "ACTION", Width: 9, Rank: 4, Cell: widget.Plain(func(j job) string { return strings.TrimSpace(j.Action + " " + j.Detail) })},
		{Head: "TOOK", Width: 6, Rank: 3, Right: true, Cell: widget.Plain(p.elapsed)},
		{Head: "REF", Width: 7, Rank: 5, Cell: widget.Plain(func(j job) string { return text.OrDash(text.ShortRef(j.RefTo)) })},
		{Head: "RESULT", Width: 16, Cell: state(p.progress)},
	}}
	drawList(p, at, widget.Box{Title: "Recent jobs", Note: "h all", Foot: p.place(&r.rows.position, 0), Focused: true},
		func(s *State) *list[job] { return &s.repo.rows }, table, []string{empty})
}
