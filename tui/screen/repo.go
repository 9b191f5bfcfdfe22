package screen

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// reposScreen lists the repositories.
type reposScreen struct{ list[snapshot.Repo] }

func (l *reposScreen) draw(p *view, at widget.Rect) {
	l.drawList(p, p.withPane(at, len(l.rows), l.pane), true)
}

func (l *reposScreen) drawList(p *view, at widget.Rect, focused bool) {
	box := widget.Box{Title: p.listTitle("Repositories", &l.position), Note: p.place(&l.position, 0), Foot: reposNote(l.rows),
		Focused: focused}
	drawList(p, at, box, screenRepos, &l.list, p.repoTable(), p.noRepos())
}

func (p *view) repoTable() widget.Table[snapshot.Repo] {
	type repo = snapshot.Repo
	now := p.Now
	return widget.Table[repo]{Grow: 1, Most: 40, Then: 11,
		Columns: []widget.Column[repo]{
			{Width: 1, Cell: stateCell(func(r repo) string { return p.liveState(shownRepo(r)) }, p.c.StateGlyph)},
			{Head: "NAME", Width: 14, Wide: 18, Whole: p.s.wide, Cell: widget.Plain(func(r repo) string { return r.Name })},
			{Head: "TYPE", Width: 6, Wide: 9, Rank: 4, Cell: widget.Plain(func(r repo) string { return r.Type })},
			{Head: "HEALTH", Width: 11, Wide: 12, Rank: 3, Cell: func(r repo, _ int) (string, widget.Role) {
				if r.Suspended {
					return "suspended", widget.StateRole("suspended")
				}
				return failingText(r, now), widget.StateRole(health(r))
			}},
			{Head: "SYNC", Width: 7, Cell: func(r repo, w int) (string, widget.Role) {
				if n := r.Unread.Count(); n > 0 && r.SyncState == "warning" {
					said := fmt.Sprintf("warn %d", n)
					if len(said) > w {
						said = fmt.Sprintf("! %d", n)
					}
					return said, widget.RoleWarn
				}
				return text.OrDash(r.SyncState), widget.StateRole(r.SyncState)
			}},
			{Head: "REF", Width: 7, Wide: 15, Rank: 2, Cell: func(r repo, w int) (string, widget.Role) {
				ref := text.OrDash(text.ShortRef(r.LastRef))
				if w > 7 {
					ref = strings.TrimSpace(r.Branch + " " + ref)
				}
				return ref, widget.RolePlain
			}},
			{Head: "SYNCED", Width: 8, Cell: widget.Plain(func(r repo) string { return widget.Ago(now, r.Synced) })},
			{Head: "NEXT", Width: 7, Wide: 9, Rank: 5, Cell: widget.Plain(p.nextPull)},
			{Head: "WEBHOOK", Width: 8, Rank: 8, Cell: widget.Plain(p.hookText)},
			{Head: "RES", Width: 6, Rank: 7, Right: true, Cell: dim(func(r repo) string { return fmt.Sprint(r.Resources) })},
			{Head: "24H", Width: 6, Wide: 24, Rank: 6, Cell: func(r repo, w int) (string, widget.Role) {
				return p.c.Spark(r.Runs, w), widget.RoleDim
			}},
			{Head: "URL", Width: 24, Rank: 9, Cell: dim(func(r repo) string { return r.URL })},
		}}
}

func (p *view) nextPull(r snapshot.Repo) string {
	switch {
	case !r.Enabled:
		return "off"
	case p.offline():
	case r.SyncState == "working":
		return "now"
	case r.Suspended:
		return "paused"
	case r.Pinned != "":
		return "pinned"
	case !r.Next.IsZero():
		return "in " + text.Age(r.Next.Sub(p.Now))
	}
	return "-"
}

func reposNote(rows []snapshot.Repo) string {
	if len(rows) == 0 {
		return ""
	}
	n := map[string]int{}
	for i := range rows {
		switch state := shownRepo(rows[i]); {
		case state == "pending" && rows[i].SyncState == state && rows[i].LastRef != "":
			n["waiting"]++
		case state == "error" || state == "warning" || state == "pending" || state == "suspended":
			n[state]++
		default:
			n["synced"]++
		}
	}
	return countsText([]string{fmt.Sprintf("%d synced", n["synced"])}, count{n["warning"], "with warnings"},
		count{n["error"], "failing"}, count{n["suspended"], "suspended"}, count{n["waiting"], "waiting"}, count{n["pending"], "not pulled yet"})
}

// liveState returns the displayed state: one that works is "unknown" while the screen is not live.
func (p *view) liveState(state string) string {
	if p.offline() && state == "working" {
		return "unknown"
	}
	return state
}

func repoState(r snapshot.Repo) string {
	switch {
	case r.Failing():
		return "error"
	case r.SyncState == "":
		return "pending"
	}
	return r.SyncState
}

func shownRepo(r snapshot.Repo) string {
	if r.Suspended {
		return "suspended"
	}
	return repoState(r)
}

func health(r snapshot.Repo) string {
	switch {
	case r.Checked.IsZero():
		return "unchecked"
	case r.Healthy:
		return "healthy"
	}
	return "failing"
}

// failingText returns the health of a repository, and the duration of a failure if it is known.
func failingText(r snapshot.Repo, now time.Time) string {
	h := health(r)
	if since := failingSince(r); h == "failing" && !since.IsZero() {
		h += " " + text.Age(now.Sub(since))
	}
	return h
}

// failingSince returns the transition time of a condition Ready that is not met, zero when unknown.
func failingSince(r snapshot.Repo) time.Time {
	for _, c := range r.Conditions {
		if c.Type == "Ready" && c.Status != "True" {
			return c.Since
		}
	}
	return time.Time{}
}

// hookText returns whether there is a webhook, and the time of its last delivery.
func (p *view) hookText(r snapshot.Repo) string {
	switch {
	case r.Webhook == nil:
		return "none"
	case r.Webhook.LastEvent.IsZero():
		return p.c.G.Dot + " quiet"
	}
	return p.c.G.Dot + " " + widget.Ago(p.Now, r.Webhook.LastEvent)
}

type repoScreen struct {
	page     page[snapshot.Job]
	recent   fetched[string, snapshot.HistoryPage]
	finished int  // Snap.Agent.History at the lookup
	opensLog bool // of its last job, when that is known
}

// selection returns the job under the cursor, whose repository is that of the screen, else the
// repository while it exists.
func (r *repoScreen) selection(s *scene) []object {
	if r.page.subject.live && r.page.listed && len(r.page.rows.rows) > 0 {
		return r.page.rows.selection(s)
	}
	return r.page.subject.selection(s)
}

func (r *repoScreen) hints(*scene) string {
	if r.page.listed {
		return screens[screenRepo].hints
	}
	return strings.Replace(screens[screenRepo].hints, "enter job", "^v scroll|tab jobs", 1)
}

// turn and zoom give the facts the whole screen, or the jobs: their part of it again, or all of it
// where both do not fit.
func (r *repoScreen) listPosition() *position { return r.page.listPosition() }
func (r *repoScreen) scroll(by int)           { r.page.scroll(by) }

func (r *repoScreen) turn(int) { r.zoom() }
func (r *repoScreen) zoom()    { r.page.turned, r.page.listed = !r.page.turned, !r.page.listed }

func (r *repoScreen) open(s *scene) Outcome {
	out := r.page.rows.open(s)
	if out.object.job == nil {
		out.toast = "no job of this repository is known; p starts a pull"
	}
	return out
}

func (r *repoScreen) draw(p *view, at widget.Rect) {
	box := widget.Box{Title: p.cut(r.page.subject.object.repo.Name+"  "+r.page.subject.object.repo.Type, at.W/2), Note: p.cut(r.page.subject.object.repo.Title, at.W/3), Focused: true, More: "tab"}
	lines := p.repoLines(*r.page.subject.object.repo, r.page.subject.live, at.W-4)
	facts, below, fit := split(at, len(lines), leastList)
	switch r.page.listed = r.page.turned != fit; {
	case !r.page.listed:
		p.c.Scroll(at, box, lines, &r.page.top)
	case fit:
		p.c.Panel(facts, box, lines)
		r.jobsBox(p, below)
	default:
		r.jobsBox(p, at)
	}
}

// repoLines describes a repository in lines of w cells.
func (p *view) repoLines(r snapshot.Repo, live bool, w int) []widget.TextLine {
	return append(p.repoFacts(r, live).Lines(p.c, w), p.conditionLines(r, w)...)
}

func (p *view) repoFacts(r snapshot.Repo, live bool) (out widget.Sheet) {
	now := p.Now
	out.AddIf(!live, widget.RoleBad, "gone", "deleted; this is its last known state")
	out.AddIf(!r.Deleting.IsZero(), widget.RoleWarn, "deleting", "since "+widget.Ago(now, r.Deleting)+
		widget.When(r.DeleteError != "", "; in the way: "+r.DeleteError))
	out.AddIf(r.Suspended, widget.StateRole("suspended"), "suspended", p.c.G.State["suspended"]+" on this agent"+
		widget.When(!r.Next.IsZero(), fmt.Sprintf(" until %s (%s)", widget.ClockTime(r.Next, now),
			text.Age(r.Next.Sub(now))))+"; s resumes")
	out.Add(widget.StateRole(health(r)), "health", failingText(r, now)+
		widget.When(!r.Checked.IsZero(), ", checked "+widget.Ago(now, r.Checked))+widget.When(r.Health != "", ": "+r.Health))
	out.Add(widget.StateRole(r.SyncState), "sync", p.syncText(r)+"; next "+p.nextPull(r)+
		widget.When(r.Interval > 0, ", every "+text.Age(r.Interval)))
	for _, j := range p.Snap.Jobs {
		out.AddIf(j.WaitReason != "" && j.Namespace == r.Namespace && j.Repository == r.Name, widget.RoleWarn, "job waits", j.WaitReason)
	}
	out.AddIf(r.Pinned != "", widget.RoleWarn, "pinned", "to "+text.ShortRef(r.Pinned)+", until: "+commandLine(p.facts, "set", repoObject(&r), "--unpin"))
	for i, line := range r.Unread.Lines(5) {
		out.Add(widget.RoleWarn, widget.When(i == 0, "unread files"), line)
	}
	out.Add(widget.RolePlain, "source", strings.Join(strings.Fields(r.URL+" "+r.Branch+" "+r.Path), "  "))
	out.Add(widget.RolePlain, "target", cmp.Or(r.Sink, r.Target, "-")+", "+quotaText(r)+
		widget.When(r.Connection != "", "; connection "+r.Connection))
	out.AddIf(p.Snap.Agent.Controllers.Mode != "", widget.RolePlain, "controller", p.Snap.Agent.Controllers.Text())
	out.Add(widget.RolePlain, "webhook", p.webhookText(r))
	switch {
	case r.TokenEnds.IsZero():
	case r.TokenEnds.After(now):
		out.Add(widget.RolePlain, "token", "ends in "+text.Age(r.TokenEnds.Sub(now)))
	default:
		out.Add(widget.RoleBad, "token", "expired "+widget.Ago(now, r.TokenEnds))
	}
	return out
}

func (p *view) syncText(r snapshot.Repo) string {
	state := p.liveState(r.SyncState)
	runs := r.SyncState == "working" || r.SyncState == "pending" // else it is among the jobs below
	return widget.Join(", ", text.OrDash(state), widget.When(r.SyncJob != "" && runs, "job "+r.SyncJob),
		widget.When(r.LastRef != "", "at "+text.ShortRef(r.LastRef)), widget.When(!r.Synced.IsZero(), widget.Ago(p.Now, r.Synced)))
}

func quotaText(r snapshot.Repo) string {
	txt := widget.Thousands(r.Resources, "object")
	if r.MaxResources > 0 {
		txt = fmt.Sprintf("%s of %s", text.Thousands(int(r.Resources)), widget.Thousands(r.MaxResources, "object"))
	}
	var kinds []string
	for _, c := range r.Contents {
		kinds = append(kinds, text.Thousands(int(c.Count))+" "+c.Resource)
	}
	return widget.Join(": ", txt, strings.Join(kinds, ", "))
}

func (p *view) webhookText(r snapshot.Repo) string {
	if r.Webhook == nil {
		return "none: changes are found by the interval"
	}
	last := r.Webhook.LastEvent
	return "registered, id " + r.Webhook.ID + ", " + widget.When(last.IsZero(), "no event yet") +
		widget.When(!last.IsZero(), "last event "+widget.Ago(p.Now, last))
}

// conditionLines returns the conditions: the failing ones with their messages, then the others in
// one text.
func (p *view) conditionLines(r snapshot.Repo, w int) (out []widget.TextLine) {
	var met []string
	for _, c := range r.Conditions {
		if c.Status == "True" {
			met = append(met, c.Type+" "+c.Reason)
		} else {
			state := cmp.Or(widget.When(c.Reason == "SyncWarning", "warning"), "error")
			out = append(out, p.c.MarkedLines(widget.StateRole(state), state, widget.Join(": ", c.Type+" "+c.Reason, c.Message), w)...)
		}
	}
	if len(met) > 0 {
		out = append(out, p.c.MarkedLines(widget.RolePlain, "success", strings.Join(met, ", "), w)...)
	}
	return out
}

const (
	// recentRows is the number of earlier jobs on the repository screen.
	recentRows = 50
	// recentMaxAge and recentMinAge bound their age. The shorter one applies when jobs have finished
	// since.
	recentMaxAge = time.Minute
	recentMinAge = 5 * time.Second
)

func (r *repoScreen) fetch(s *scene) Lookup {
	key, age := repoKind.key(r.page.subject.object.repo), s.Now.Sub(r.recent.at)
	if r.page.subject.object.repo.Name == "" || r.recent.key == key && (age < recentMinAge || age < recentMaxAge && r.finished == s.Snap.Agent.History) {
		return nil
	}
	q := snapshot.HistoryQuery{Namespace: r.page.subject.object.repo.Namespace, Repository: r.page.subject.object.repo.Name, Limit: recentRows}
	r.finished = s.Snap.Agent.History
	return r.recent.look(s, key, func(ctx context.Context, src Source) (snapshot.HistoryPage, error) {
		return src.HistoryPage(ctx, q)
	})
}

func (r *repoScreen) refresh(s *scene) {
	var out []snapshot.Job
	seen := map[string]bool{}
	for i := range s.Snap.Jobs {
		if j := &s.Snap.Jobs[i]; j.Namespace == r.page.subject.object.repo.Namespace && j.Repository == r.page.subject.object.repo.Name {
			out, seen[j.UID] = append(out, *j), true
		}
	}
	runs, _, _ := r.recent.of(repoKind.key(r.page.subject.object.repo))
	for _, row := range runs.Rows {
		if !seen[row.UID] {
			out = append(out, jobOfRecord(row))
		}
	}
	r.page.rows.show(out)
}

func (r *repoScreen) jobsBox(p *view, at widget.Rect) {
	type job = snapshot.Job
	empty := "Looking" + p.c.G.More
	if _, known, err := r.recent.of(repoKind.key(r.page.subject.object.repo)); known || err != "" {
		empty = "No job of this repository is known." + p.startHint()
	}
	table := widget.Table[job]{Grow: 6, Columns: []widget.Column[job]{
		{Width: 1, Cell: stateCell(p.shownState, p.c.StateGlyph)},
		{Head: "FINISHED", Width: 12, Rank: 2, Cell: widget.Plain(func(j job) string {
			if j.Finished.IsZero() {
				return "-"
			}
			return widget.DayTime(j.Finished, p.Now)
		})},
		{Head: "JOB", Width: 16, Wide: 36, Rank: 1, Whole: p.s.wide, Cell: widget.Plain(func(j job) string { return j.Name })},
		{Head: "ACTION", Width: 9, Rank: 4, Cell: widget.Plain(func(j job) string { return strings.TrimSpace(j.Action + " " + j.Detail) })},
		{Head: "TOOK", Width: 6, Rank: 3, Right: true, Cell: widget.Plain(p.elapsed)},
		{Head: "REF", Width: 7, Rank: 5, Cell: widget.Plain(func(j job) string { return text.OrDash(text.ShortRef(j.RefTo)) })},
		{Head: "RESULT", Width: 16, Cell: p.progressCell},
	}}
	drawList(p, at, widget.Box{Title: "Recent jobs", Note: "f files, h all", Foot: p.place(&r.page.rows.position, 0), Focused: true},
		screenRepo, &r.page.rows, table, []string{empty})
}

var repoKind = &kind[snapshot.Repo]{
	object: repoObject,
	key:    func(r *snapshot.Repo) string { return r.Namespace + "/" + r.Name },
	fields: widget.FieldSet{"repo": nil, "type": nil, "state": {"pending", "working", "success", "warning", "error", "suspended"}},
	match: func(r snapshot.Repo, t *widget.FilterTerms) bool {
		return t.Matches("repo", r.Name) && t.Matches("type", r.Type) && t.Matches("state", repoState(r), shownRepo(r)) &&
			widget.ContainsWords(strings.Join(t.Words, " "), r.Name, r.Title, r.Type, r.Namespace, r.SyncState, r.URL)
	},
	sorts: []sorting[snapshot.Repo]{
		{name: "name"},
		{"state", func(a, b snapshot.Repo) int { return cmp.Compare(severity(shownRepo(a)), severity(shownRepo(b))) }},
		{"type", func(a, b snapshot.Repo) int { return cmp.Compare(a.Type, b.Type) }},
		{"synced", func(a, b snapshot.Repo) int { return a.Synced.Compare(b.Synced) }},
		{"next pull", func(a, b snapshot.Repo) int { return a.Next.Compare(b.Next) }},
		{"objects", func(a, b snapshot.Repo) int { return cmp.Compare(b.Resources, a.Resources) }},
	},
}
