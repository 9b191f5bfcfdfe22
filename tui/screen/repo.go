package screen

import (
	"fmt"
	"strings"

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
