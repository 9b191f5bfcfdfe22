package screen

import (
	"fmt"
	"slices"
	"strings"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

var jobsScreen = screen{
	name: "jobs", tab: "2", under: screenJobs,
	list: paneOf(paneJobs), selection: State.rowAtCursor,
	title: func(s State) string { return "Jobs " + text.Thousands(s.Snap.Counts.All()) },
	draw:  func(p *view, x, y, w, h int) { p.jobList(x, y, w, h, true) },
	hints: (*view).listHints, move: State.moveJobs, open: State.openJob,
}

// listHints returns the keys of a list.
func (p *view) listHints() [][2]string {
	return [][2]string{{p.G.Up + p.G.Down, "move"}, {"enter", "open"}, {"tab", "pane"}, {"p", "pull"}, {"P", "full"}, {"x", "cancel"},
		{"/", "filter"}}
}

// jobsNote counts the jobs by state. The title is narrow, so a zero is omitted when another
// count is shown.
func jobsNote(counts snapshot.Counts) string {
	var parts []string
	if counts.Working+counts.Pending > 0 || counts.All() == 0 {
		parts = []string{fmt.Sprintf("%d working, %d pending", counts.Working, counts.Pending)}
	}
	for _, part := range []struct {
		n    int
		what string
	}{{counts.Resting, "resting"}, {counts.Elsewhere, "elsewhere"}, {counts.Undelivered, "unsent"}, {counts.Done, "just done"}} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	return strings.Join(parts, ", ")
}

func (p *view) jobList(x, y, w, h int, focused bool) {
	rows := p.s.jobs()
	counts := p.s.Snap.Counts
	if p.s.filter() != "" {
		counts = snapshot.Count(rows, p.s.Now)
	}
	note := jobsNote(counts)
	title := "Jobs"
	if p.s.offline() {
		title = "Jobs (as of " + widget.ClockTime(p.s.staleSince(), p.s.Now) + ")"
	}
	index := widget.IndexOf(p.s.lists.job, widget.KeysOf(rows, jobKey))
	p.Box(p.G, x, y, w, h, title+p.orderText(paneJobs), note, p.markText(paneJobs, widget.Place(index, len(rows), counts.All())), focused)
	if len(rows) == 0 {
		p.Empty(x, y, w, h, p.noJobs())
		return
	}
	columns := []widget.Column{widget.Col("", 1, 0), widget.Col("JOB", 16, 0), widget.Col("REPOSITORY", 12, 1),
		widget.Col("ACTION", 9, 3), widget.Col("PROGRESS", 14, 0), widget.NumCol("TIME", 6, 2), widget.NumCol("LEASE", 6, 4)}
	if w >= 96 {
		columns[4].Width = 24
		done := widget.NumCol("DONE", 7, 5)
		for i := range rows { // figures are never cut
			done.Width = max(done.Width, len(doneText(rows[i])))
		}
		columns = append(append(columns[:5:5], done), columns[5:]...)
		columns = append(columns, widget.Col("OWNER", 5, 6))
	}
	if w >= wideWidth {
		columns[1].Width, columns[2].Width, columns[5].Width = 20, 16, max(11, columns[5].Width)
	}
	if p.s.wide {
		p.Widen(columns, w, widget.KeysOf(rows, func(j snapshot.Job) string { return j.Name }), 1)
		p.Widen(columns, w, widget.KeysOf(rows, func(j snapshot.Job) string { return j.Repository }), 2)
	}
	wide := widget.Fit(columns, w-4, 4)[4]
	at, more := p.hidden(rows, counts)
	p.clickRows(paneJobs, func(s State, i int) State {
		if more > 0 && i > at {
			i--
		}
		s.lists.job = rows[min(i, len(rows)-1)].UID
		return s
	})
	if more == 0 {
		p.List(x+1, y+1, w-2, h-2, columns, 4, len(rows), index, focused,
			func(i int) widget.Line { return p.jobRow(rows[i], wide, len(columns)) })
		return
	}
	if index >= at {
		index++
	}
	p.List(x+1, y+1, w-2, h-2, columns, 4, len(rows)+1, index, focused, func(i int) widget.Line {
		switch {
		case i < at:
			return p.jobRow(rows[i], wide, len(columns))
		case i > at:
			return p.jobRow(rows[i-1], wide, len(columns))
		}
		return widget.Line{Whole: fmt.Sprintf("%s and %d more: limpet job list", p.G.More, more)}
	})
}

// hidden returns how many live jobs the snapshot omits, and the row where they belong: after the
// live jobs, before the finished ones.
func (p *view) hidden(rows []snapshot.Job, counts snapshot.Counts) (at, more int) {
	if p.s.filter() != "" {
		return len(rows), 0
	}
	if p.s.lists.orders[p.s.nav.screen][paneJobs] != (widget.Order{}) {
		live := len(rows) - counts.Done
		return len(rows), max(counts.All()-counts.Done-live, 0)
	}
	for at < len(rows) && rows[at].Finished.IsZero() {
		at++
	}
	return at, max(counts.All()-counts.Done-at, 0)
}

// shownState returns the displayed state of a job: "unknown" when it is not live, "other" when
// another agent runs it.
func (p *view) shownState(j snapshot.Job) string {
	switch {
	case !j.Finished.IsZero() || !j.Undelivered.IsZero() || j.State == "pending":
		return j.State
	case p.s.offline():
		return "unknown"
	case j.Owner == "other":
		return "other"
	}
	return j.State
}

func (p *view) jobRow(j snapshot.Job, wide, columns int) widget.Line {
	state := p.shownState(j)
	r := widget.StateRole(state)
	glyph, ok := p.G.State[state]
	if !ok {
		glyph = p.G.State["unknown"]
	}
	progress := p.progress(j, state, wide)
	action := strings.TrimSpace(j.Action + " " + j.Detail)
	l := widget.Line{
		Marked: slices.Contains(p.s.lists.marks[paneJobs], j.UID),
		Cells:  []string{glyph, j.Name, j.Repository, action, progress, p.elapsed(j), p.lease(j)},
		Roles:  []widget.Role{r, widget.RolePlain, widget.RolePlain, widget.RolePlain, r, widget.RolePlain, widget.RoleDim},
	}
	if columns > len(l.Cells) {
		l.Cells, l.Roles = append(slices.Insert(l.Cells, 5, doneText(j)), text.OrDash(j.Owner)),
			append(l.Roles[:5], widget.RolePlain, widget.RolePlain, widget.RoleDim, widget.RoleDim)
	}
	return l
}

// doneText returns the progress of a job in figures: "205/288", or "288" when it is complete.
func doneText(j snapshot.Job) string {
	switch {
	case j.Total <= 0:
		return "-"
	case j.Done == j.Total:
		return fmt.Sprint(j.Total)
	}
	return fmt.Sprintf("%d/%d", j.Done, j.Total)
}

// doneWords returns the progress with a noun, for places without a head.
func doneWords(j snapshot.Job) string {
	if j.Done == j.Total {
		return widget.Thousands(j.Total, "file")
	}
	return doneText(j)
}

// progress draws a bar for a working job, and words for other states.
func (p *view) progress(j snapshot.Job, state string, w int) string {
	switch {
	case !j.Finished.IsZero():
		return strings.TrimSpace(state + " " + jobResult(j))
	case !j.Undelivered.IsZero():
		return widget.LongOrShort(w, "done, waiting for the API ", "done, unsent ") + text.Age(p.s.Now.Sub(j.Undelivered))
	case p.s.waitsForRetry(j):
		return widget.LongOrShort(w, fmt.Sprintf("pending, attempt %d in ", j.Attempt), "retry in ") + text.Age(j.RetryAt.Sub(p.s.Now))
	case j.State == "pending" && j.Owner == "" && j.WaitReason == "" && j.Priority != "":
		return "pending prio " + j.Priority
	case j.State == "pending" && j.Owner == "":
		return strings.TrimSpace("pending " + j.WaitReason)
	case j.Progress < 0:
		return strings.TrimSpace(state + " " + j.Message)
	}
	word := ""
	if state != "working" {
		word = state + " "
	}
	percent := fmt.Sprintf("%s%3.0f%%", word, j.Progress)
	if w < len(percent)+6 {
		return percent
	}
	return p.Bar(w-len(percent)-1, j.Progress) + " " + percent
}

func (p *view) elapsed(j snapshot.Job) string {
	switch {
	case !j.Finished.IsZero() && !j.Started.IsZero():
		return widget.Clock(j.Finished.Sub(j.Started))
	case !j.Undelivered.IsZero() && !j.Started.IsZero():
		return widget.Clock(j.Undelivered.Sub(j.Started))
	case !j.Started.IsZero() && !p.s.offline():
		return widget.Clock(p.s.Now.Sub(j.Started))
	case j.State == "pending" && !j.Created.IsZero():
		return widget.Clock(p.s.Now.Sub(j.Created))
	}
	return "-"
}

func (p *view) lease(j snapshot.Job) string {
	switch {
	case !j.Finished.IsZero() || !j.Undelivered.IsZero() || j.Owner == "":
		return "-"
	case p.s.Gone != "" && j.LeaseUntil.After(p.s.Now): // its holder may still work on it
		return text.Age(j.LeaseUntil.Sub(p.s.Now)) + "?"
	case p.s.offline():
		return "ended"
	case j.Owner == "other":
		return "other"
	case j.LeaseUntil.IsZero():
		return "-"
	}
	return text.Age(j.LeaseUntil.Sub(p.s.Now))
}
