package screen

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

var reposScreen = screen{
	name: "repositories", tab: "3", under: screenRepos,
	list: paneOf(paneRepos), selection: State.rowAtCursor,
	title: func(s State) string { return "Repos " + text.Thousands(len(s.Snap.Repos)) },
	draw:  func(p *view, x, y, w, h int) { p.repoList(x, y, w, h, true) },
	hints: (*view).repoHints, move: State.moveRepos, open: State.openRepo,
}

// repoHints returns the keys of the list.
func (p *view) repoHints() [][2]string {
	suspend := "suspend"
	if rows := p.s.targetRepos(); len(rows) > 0 && rows[0].Suspended {
		suspend = "resume"
	}
	return [][2]string{{p.G.Up + p.G.Down, "move"}, {"enter", "open"}, {"tab", "pane"}, {"p", "pull"}, {"P", "full"}, {"s", suspend},
		{"h", "history"}, {"/", "filter"}, {"t", "test"}, {"y", "YAML"}}
}

func (p *view) repoList(x, y, w, h int, focused bool) {
	rows := p.s.repos()
	foot := reposNote(rows)
	title := "Repositories"
	if p.s.offline() {
		title = "Repositories (as of " + widget.ClockTime(p.s.staleSince(), p.s.Now) + ")"
	}
	index := widget.IndexOf(p.s.lists.repo, widget.KeysOf(rows, repoKey))
	p.Box(p.G, x, y, w, h, title+p.orderText(paneRepos), p.markText(paneRepos, widget.Place(index, len(rows), len(rows))), foot, focused)
	if len(rows) == 0 {
		p.Empty(x, y, w, h, p.noRepos())
		return
	}
	columns := []widget.Column{widget.Col("", 1, 0), widget.Col("NAME", 14, 0), widget.Col("TYPE", 6, 4), widget.Col("HEALTH", 11, 3),
		widget.Col("SYNC", 7, 0), widget.Col("REF", 7, 2), widget.Col("SYNCED", 8, 0), widget.Col("NEXT", 7, 5), widget.Col("24H", 6, 6)}
	if w >= wideWidth {
		columns[1].Width, columns[2].Width, columns[3].Width, columns[5].Width = 18, 9, 12, 15
		columns[5].Head = "LAST REF"
		columns[7].Head, columns[7].Width = "NEXT PULL", 9
		columns[8].Head, columns[8].Width = "LAST 24 H", 24
		columns = append(append(columns[:8:8], widget.Col("WEBHOOK", 8, 8), widget.NumCol("RES", 6, 7)), columns[8:]...)
		columns = append(columns, widget.Col("URL", 24, 9))
	}
	if p.s.wide {
		p.Widen(columns, w, widget.KeysOf(rows, func(r snapshot.Repo) string { return r.Name }), 1)
	}
	spark := columns[len(columns)-1].Width
	if w >= wideWidth {
		spark = columns[10].Width
	}
	p.clickRows(paneRepos, func(s State, i int) State { s.lists.repo = repoKey(rows[i]); return s })
	p.List(x+1, y+1, w-2, h-2, columns, 1, len(rows), index, focused,
		func(i int) widget.Line { return p.repoRow(rows[i], spark, len(columns)) })
}

// reposNote counts the repositories by state.
func reposNote(rows []snapshot.Repo) string {
	if len(rows) == 0 {
		return ""
	}
	counts := map[string]int{}
	for i := range rows {
		switch state := repoState(rows[i]); {
		case state == "pending" && rows[i].SyncState == state && rows[i].LastRef != "":
			counts["waiting"]++
		case state == "error" || state == "warning" || state == "pending":
			counts[state]++
		default:
			counts["in order"]++
		}
	}
	parts := []string{fmt.Sprintf("%d in order", counts["in order"])}
	for _, part := range [][2]string{{"warning", "with warnings"}, {"error", "failing"}, {"waiting", "waiting"},
		{"pending", "not pulled yet"}} {
		if n := counts[part[0]]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, part[1]))
		}
	}
	return strings.Join(parts, ", ")
}

// repoState returns the state of a repository as one word.
func repoState(r snapshot.Repo) string {
	switch {
	case !r.Checked.IsZero() && !r.Healthy:
		return "error"
	case r.SyncState == "":
		return "pending"
	}
	return r.SyncState
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

func (p *view) repoRow(r snapshot.Repo, spark, columns int) widget.Line {
	state := repoState(r)
	if p.s.offline() && state == "working" {
		state = "unknown"
	}
	glyph, ok := p.G.State[state]
	if !ok {
		glyph = p.G.State["unknown"]
	}
	next := "-"
	switch {
	case !r.Enabled:
		next = "off"
	case p.s.offline():
	case r.SyncState == "working":
		next = "now"
	case r.Suspended:
		next = "paused"
	case !r.Next.IsZero():
		next = "in " + text.Age(r.Next.Sub(p.s.Now))
	}
	h := health(r)
	l := widget.Line{
		Marked: slices.Contains(p.s.lists.marks[paneRepos], repoKey(r)),
		Cells: []string{glyph, r.Name, r.Type, failingText(r, p.s.Now), text.OrDash(r.SyncState), text.OrDash(text.ShortRef(r.LastRef)),
			widget.Ago(p.s.Now, r.Synced), next, p.Spark(r.Runs, spark)},
		Roles: []widget.Role{widget.StateRole(state), widget.RolePlain, widget.RolePlain, widget.StateRole(h),
			widget.StateRole(r.SyncState), widget.RolePlain, widget.RolePlain, widget.RolePlain, widget.RoleDim},
	}
	if columns > len(l.Cells) {
		l.Cells[5] = strings.TrimSpace(r.Branch + " " + l.Cells[5])
		l.Cells = append(slices.Insert(l.Cells, 8, p.hookText(r), fmt.Sprint(r.Resources)), r.URL)
		l.Roles = append(l.Roles[:8], widget.RolePlain, widget.RolePlain, widget.RoleDim, widget.RoleDim)
	}
	return l
}

// failingText returns the health of a repository, and the duration of a failure if it is known.
func failingText(r snapshot.Repo, now time.Time) string {
	h := health(r)
	if since := failingSince(r); h == "failing" && !since.IsZero() {
		h += " " + text.Age(now.Sub(since))
	}
	return h
}

// failingSince returns when the repository became unhealthy, zero when unknown: the transition
// time of its condition Ready.
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
		return p.G.Dot + " quiet"
	}
	return p.G.Dot + " " + widget.Ago(p.s.Now, r.Webhook.LastEvent)
}

func (p *view) eventList(x, y, w, h int) {
	events := p.s.Snap.Events
	p.Box(p.G, x, y, w, h, "Events", "all repositories", fmt.Sprintf("%d kept", len(events)), false)
	for i := range min(h-2, len(events)) {
		e := events[len(events)-1-i]
		r, mark := widget.RolePlain, " "
		switch e.Level {
		case "error":
			r, mark = widget.RoleBad, p.G.State["error"]
		case "warn":
			r, mark = widget.RoleWarn, p.G.State["warning"]
		}
		p.Put(x+2, y+1+i, w-4, r, widget.Cut(mark+" "+eventLine(e, p.s.Now), w-4, p.G.More))
	}
}
