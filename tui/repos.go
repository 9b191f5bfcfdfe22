package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

var reposFace = screen{
	name: "repositories", tab: "3", under: screenRepos,
	title: func(s State) string { return "Repos " + text.Thousands(len(s.Snap.Repos)) },
	draw:  func(p *view, x, y, w, h int) { p.repoList(x, y, w, h, true) },
	hints: (*view).repoHints, move: State.moveRepos, open: State.openRepo,
}

// repoHints are the keys of the list.
func (p *view) repoHints() [][2]string {
	suspend := "suspend"
	if rows := p.s.targetRepos(); len(rows) > 0 && rows[0].Suspended {
		suspend = "resume"
	}
	return [][2]string{{p.g.up + p.g.down, "move"}, {"enter", "open"}, {"tab", "pane"}, {"p", "pull"}, {"P", "full"}, {"s", suspend}, {"h", "history"}, {"/", "filter"}, {"t", "test"}, {"y", "YAML"}}
}

func (p *view) repoList(x, y, w, h int, focused bool) {
	rows := p.s.repos()
	foot := reposNote(rows)
	title := "Repositories"
	if p.s.offline() {
		title = "Repositories (as of " + clockTime(p.s.staleSince(), p.s.Now) + ")"
	}
	index := indexOf(p.s.repoKey, keysOf(rows, repoKey))
	p.box(p.g, x, y, w, h, title+p.orderText(paneRepos), p.markText(paneRepos, place(index, len(rows), len(rows))), foot, focused)
	if len(rows) == 0 {
		p.empty(x, y, w, h, p.noRepos())
		return
	}
	columns := []column{{"", 1, false, 0}, {"NAME", 14, false, 0}, {"TYPE", 6, false, 4}, {"HEALTH", 11, false, 3}, {"SYNC", 7, false, 0}, {"REF", 7, false, 2}, {"SYNCED", 8, false, 0}, {"NEXT", 7, false, 5}, {"24H", 6, false, 6}}
	if w >= wideWidth {
		columns[1].width, columns[2].width, columns[3].width, columns[5].width = 18, 9, 12, 15
		columns[5].head = "LAST REF"
		columns[7].head, columns[7].width = "NEXT PULL", 9
		columns[8].head, columns[8].width = "LAST 24 H", 24
		columns = append(append(columns[:8:8], column{"WEBHOOK", 8, false, 8}, column{"RES", 6, true, 7}), columns[8:]...)
		columns = append(columns, column{"URL", 24, false, 9})
	}
	if p.s.wide {
		p.widen(columns, w, keysOf(rows, func(r snapshot.Repo) string { return r.Name }), 1)
	}
	spark := columns[len(columns)-1].width
	if w >= wideWidth {
		spark = columns[10].width
	}
	p.clickRows(paneRepos, func(s State, i int) State { s.repoKey = repoKey(rows[i]); return s })
	p.list(x+1, y+1, w-2, h-2, columns, 1, len(rows), index, focused, func(i int) line { return p.repoRow(rows[i], spark, len(columns)) })
}

// reposNote counts them by how they are.
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
	for _, part := range [][2]string{{"warning", "with warnings"}, {"error", "failing"}, {"waiting", "waiting"}, {"pending", "not pulled yet"}} {
		if n := counts[part[0]]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, part[1]))
		}
	}
	return strings.Join(parts, ", ")
}

// repoState is the one word for how a repository does.
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

func (p *view) repoRow(r snapshot.Repo, spark, columns int) line {
	state := repoState(r)
	if p.s.offline() && state == "working" {
		state = "unknown"
	}
	glyph, ok := p.g.state[state]
	if !ok {
		glyph = p.g.state["unknown"]
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
	l := line{
		marked: slices.Contains(p.s.marks[paneRepos], repoKey(r)),
		cells:  []string{glyph, r.Name, r.Type, failingText(r, p.s.Now), text.OrDash(r.SyncState), text.OrDash(text.ShortRef(r.LastRef)), ago(p.s.Now, r.Synced), next, p.spark(r.Runs, spark)},
		roles:  []role{stateRole(state), rolePlain, rolePlain, stateRole(h), stateRole(r.SyncState), rolePlain, rolePlain, rolePlain, roleDim},
	}
	if columns > len(l.cells) {
		l.cells[5] = strings.TrimSpace(r.Branch + " " + l.cells[5])
		l.cells = append(slices.Insert(l.cells, 8, p.hookText(r), fmt.Sprint(r.Resources)), r.URL)
		l.roles = append(l.roles[:8], rolePlain, rolePlain, roleDim, roleDim)
	}
	return l
}

// failingText is the health of a repository, and for how long it fails if that is
// known.
func failingText(r snapshot.Repo, now time.Time) string {
	h := health(r)
	if since := failingSince(r); h == "failing" && !since.IsZero() {
		h += " " + text.Age(now.Sub(since))
	}
	return h
}

// failingSince is when the repository was found to be not healthy, zero when that is
// not known: its condition Ready tells how the health is.
func failingSince(r snapshot.Repo) time.Time {
	for _, c := range r.Conditions {
		if c.Type == "Ready" && c.Status != "True" {
			return c.Since
		}
	}
	return time.Time{}
}

// hookText says in a word whether there is a webhook, and when it last told of
// something.
func (p *view) hookText(r snapshot.Repo) string {
	switch {
	case r.Webhook == nil:
		return "none"
	case r.Webhook.LastEvent.IsZero():
		return p.g.dot + " quiet"
	}
	return p.g.dot + " " + ago(p.s.Now, r.Webhook.LastEvent)
}

func (p *view) eventList(x, y, w, h int) {
	events := p.s.Snap.Events
	p.box(p.g, x, y, w, h, "Events", "all repositories", fmt.Sprintf("%d kept", len(events)), false)
	for i := range min(h-2, len(events)) {
		e := events[len(events)-1-i]
		r, mark := rolePlain, " "
		switch e.Level {
		case "error":
			r, mark = roleBad, p.g.state["error"]
		case "warn":
			r, mark = roleWarn, p.g.state["warning"]
		}
		p.put(x+2, y+1+i, w-4, r, cut(mark+" "+eventLine(e, p.s.Now), w-4, p.g.more))
	}
}
