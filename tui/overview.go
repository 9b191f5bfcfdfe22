package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"

	"limpet/sync/view"
)

// wideEnough is where the overview gains its third pane and the lower row.
const (
	wideWidth  = 120
	wideHeight = 30
	sideWidth  = 40
)

var overviewFace = face{
	name: "overview", tab: "1", panes: 2, under: screenOverview,
	title: func(State) string { return "Overview" },
	draw:  (*painter).overview,
	hints: func(p *painter) [][2]string {
		if p.s.firstRun() {
			if p.s.SetUp {
				return [][2]string{{"enter", "set up"}, {"1-5", "screens"}}
			}
			return [][2]string{{"1-5", "screens"}}
		}
		return p.listHints()
	},
	move: func(s State, by int) State {
		if s.focus == paneRepos {
			return s.moveRepos(by)
		}
		return s.moveJobs(by)
	},
	open: func(s State) State {
		if s.focus == paneRepos {
			return s.openRepo()
		}
		return s.openJob()
	},
}

var jobsFace = face{
	name: "jobs", tab: "2", under: screenJobs,
	title: func(s State) string { return fmt.Sprintf("Jobs %d", s.Snap.Counts.All()) },
	draw:  func(p *painter, x, y, w, h int) { p.jobList(x, y, w, h, true) },
	hints: (*painter).listHints, move: State.moveJobs, open: State.openJob,
}

// listHints are the keys of a list.
func (p *painter) listHints() [][2]string {
	return [][2]string{{p.g.up + p.g.down, "move"}, {"enter", "open"}, {"tab", "pane"}, {"p", "pull"}, {"P", "full"}, {"x", "cancel"}, {"/", "filter"}}
}

// overview is the first screen: jobs, repositories and, where there is room,
// the job under the cursor, the events and the agent.
func (p *painter) overview(_, top, _, h int) {
	if p.s.firstRun() {
		p.welcome(top, top+h)
		return
	}
	if p.w < 80 || h < 16 || p.s.zoomed[screenOverview] {
		// One pane; Tab changes it.
		if p.s.focus == paneRepos {
			p.repoList(0, top, p.w, h, true)
		} else {
			p.jobList(0, top, p.w, h, true)
		}
		return
	}
	if p.w < wideWidth || p.h < wideHeight {
		jobs := (h*11 + 10) / 20
		p.jobList(0, top, p.w, jobs, p.s.focus == paneJobs)
		p.repoList(0, top+jobs, p.w, h-jobs, p.s.focus == paneRepos)
		return
	}
	low := 8
	repos := max((h-low)*2/5, 6)
	jobs := h - low - repos
	p.jobList(0, top, p.w-sideWidth, jobs, p.s.focus == paneJobs)
	p.side(p.w-sideWidth, top, sideWidth, jobs)
	p.repoList(0, top+jobs, p.w, repos, p.s.focus == paneRepos)
	p.eventList(0, top+jobs+repos, p.w-sideWidth, low)
	p.agentBox(p.w-sideWidth, top+jobs+repos, sideWidth, low)
}

// jobsNote says how many jobs there are of each kind. The room is narrow, so what
// there is none of is left out where something else is to be said.
func jobsNote(counts view.Counts) string {
	var parts []string
	if counts.Working+counts.Pending > 0 || counts.All() == 0 {
		parts = []string{fmt.Sprintf("%d working, %d pending", counts.Working, counts.Pending)}
	}
	for _, part := range []struct {
		n    int
		what string
	}{{counts.Resting, "resting"}, {counts.Elsewhere, "elsewhere"}, {counts.Unsent, "unsent"}, {counts.Done, "just done"}} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	return strings.Join(parts, ", ")
}

func (p *painter) jobList(x, y, w, h int, focused bool) {
	rows := p.s.jobs()
	counts := p.s.Snap.Counts
	if p.s.filter() != "" {
		counts = view.Count(rows, p.s.Now)
	}
	note := jobsNote(counts)
	title := "Jobs"
	if p.s.offline() {
		title = "Jobs (as of " + clockTime(p.s.stale(), p.s.Now) + ")"
	}
	index := indexOf(p.s.jobUID, keysOf(rows, jobKey))
	p.box(p.g, x, y, w, h, title+p.orderText(paneJobs), note, p.markText(paneJobs, place(index, len(rows), counts.All())), focused)
	if len(rows) == 0 {
		p.empty(x, y, w, h, p.noJobs())
		return
	}
	columns := []column{{"", 1, false, 0}, {"JOB", 16, false, 0}, {"REPOSITORY", 12, false, 1}, {"ACTION", 9, false, 3}, {"PROGRESS", 14, false, 0}, {"TIME", 6, true, 2}, {"LEASE", 6, true, 4}}
	if w >= 96 {
		columns[4].width = 24
		columns = slices.Insert(columns, 5, column{"DONE", 7, true, 5})
		columns = append(columns, column{"OWNER", 5, false, 6})
	}
	if w >= wideWidth {
		columns[1].width, columns[2].width, columns[5].width = 20, 16, 11
	}
	if p.s.wide {
		p.widen(columns, w, keysOf(rows, func(j view.Job) string { return j.Name }), 1)
		p.widen(columns, w, keysOf(rows, func(j view.Job) string { return j.Repository }), 2)
	}
	wide := fit(columns, w-4, 4)[4]
	at, more := p.hidden(rows, counts)
	p.picks(paneJobs, func(s State, i int) State {
		if more > 0 && i > at {
			i--
		}
		s.jobUID = rows[min(i, len(rows)-1)].UID
		return s
	})
	if more == 0 {
		p.list(x+1, y+1, w-2, h-2, columns, 4, len(rows), index, focused, func(i int) line { return p.jobRow(rows[i], wide, len(columns)) })
		return
	}
	if index >= at {
		index++
	}
	p.list(x+1, y+1, w-2, h-2, columns, 4, len(rows)+1, index, focused, func(i int) line {
		switch {
		case i < at:
			return p.jobRow(rows[i], wide, len(columns))
		case i > at:
			return p.jobRow(rows[i-1], wide, len(columns))
		}
		return line{whole: fmt.Sprintf("%s and %d more: limpet job list", p.g.more, more)}
	})
}

// hidden says how many live jobs the picture leaves out, and between which rows
// they would stand: after the live ones, before those that have just ended.
func (p *painter) hidden(rows []view.Job, counts view.Counts) (at, more int) {
	if p.s.filter() != "" {
		return len(rows), 0
	}
	if p.s.orders[p.s.screen][paneJobs] != (order{}) {
		live := len(rows) - counts.Done
		return len(rows), max(counts.All()-counts.Done-live, 0)
	}
	for at < len(rows) && rows[at].Finished.IsZero() {
		at++
	}
	return at, max(counts.All()-counts.Done-at, 0)
}

// shown is the state of a job as the screen says it: what is not live is
// unknown, what another agent runs is "other".
func (p *painter) shown(j view.Job) string {
	switch {
	case !j.Finished.IsZero() || !j.Unsent.IsZero() || j.State == "pending":
		return j.State
	case p.s.offline():
		return "unknown"
	case j.Owner == "other":
		return "other"
	}
	return j.State
}

func (p *painter) jobRow(j view.Job, wide, columns int) line {
	state := p.shown(j)
	r := stateRole(state)
	glyph, ok := p.g.state[state]
	if !ok {
		glyph = p.g.state["unknown"]
	}
	progress := p.progress(j, state, wide)
	action := strings.TrimSpace(j.Action + " " + j.Detail)
	l := line{
		marked: slices.Contains(p.s.marks[paneJobs], j.UID),
		cells:  []string{glyph, j.Name, j.Repository, action, progress, p.elapsed(j), p.lease(j)},
		roles:  []role{r, rolePlain, rolePlain, rolePlain, r, rolePlain, roleDim},
	}
	if columns > len(l.cells) {
		done := "-"
		if j.Total > 0 {
			done = fmt.Sprintf("%d/%d", j.Done, j.Total)
		}
		l.cells, l.roles = append(slices.Insert(l.cells, 5, done), view.OrDash(j.Owner)), append(slices.Insert(l.roles, 5, rolePlain), roleDim)
	}
	return l
}

// progress is a bar while a job works and says in words what else there is.
func (p *painter) progress(j view.Job, state string, w int) string {
	switch {
	case !j.Finished.IsZero():
		return strings.TrimSpace(state + " " + j.Message)
	case !j.Unsent.IsZero():
		return roomy(w, "done, waiting for the API ", "done, unsent ") + view.Age(p.s.Now.Sub(j.Unsent))
	case j.RestsUntil.After(p.s.Now) && j.Owner == "":
		return roomy(w, fmt.Sprintf("pending, attempt %d in ", j.Attempt), "retry in ") + view.Age(j.RestsUntil.Sub(p.s.Now))
	case j.State == "pending" && j.Owner == "" && j.Waits == "" && j.Priority != "":
		return "pending prio " + j.Priority
	case j.State == "pending" && j.Owner == "":
		return strings.TrimSpace("pending " + j.Waits)
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
	return p.bar(w-len(percent)-1, j.Progress) + " " + percent
}

// roomy is the long form of a text where there is room for it and an age.
func roomy(w int, long, short string) string {
	if w >= len(long)+3 {
		return long
	}
	return short
}

func (p *painter) elapsed(j view.Job) string {
	switch {
	case !j.Finished.IsZero() && !j.Started.IsZero():
		return clock(j.Finished.Sub(j.Started))
	case !j.Unsent.IsZero() && !j.Started.IsZero():
		return clock(j.Unsent.Sub(j.Started))
	case !j.Started.IsZero() && !p.s.offline():
		return clock(p.s.Now.Sub(j.Started))
	case j.State == "pending" && !j.Created.IsZero():
		return clock(p.s.Now.Sub(j.Created))
	}
	return "-"
}

func (p *painter) lease(j view.Job) string {
	switch {
	case !j.Finished.IsZero() || !j.Unsent.IsZero() || j.Owner == "":
		return "-"
	case p.s.offline():
		return "ended"
	case j.Owner == "other":
		return "other"
	case j.LeaseUntil.IsZero():
		return "-"
	}
	return view.Age(j.LeaseUntil.Sub(p.s.Now))
}

// noJobs says why the list is empty and what comes next.
func (p *painter) noJobs() []string {
	if problem := p.s.filterProblem(); problem != "" {
		return []string{problem, "Esc clears the filter."}
	}
	if p.s.filter() != "" {
		seen := len(p.s.Snap.Jobs)
		if all := p.s.Snap.Counts.All(); all > seen {
			return []string{fmt.Sprintf("None of the first %d jobs of %d matches %q; limpet job list has them all. Esc clears the filter.", seen, all, p.s.filter())}
		}
		return []string{fmt.Sprintf("No job of %d matches %q. Esc clears the filter.", seen, p.s.filter())}
	}
	if why := p.unread("The jobs"); why != nil {
		return why
	}
	text := "No jobs."
	var next time.Time
	var last view.Repo
	name := ""
	for _, r := range p.s.Snap.Repos {
		if r.Synced.After(last.Synced) {
			last = r
		}
		if !r.Next.IsZero() && (next.IsZero() || r.Next.Before(next)) {
			next, name = r.Next, r.Name
		}
	}
	if !last.Synced.IsZero() {
		how := last.Name
		if last.SyncState != "working" && last.SyncState != "pending" { // which are of the next one
			how += ": " + view.OrDash(last.SyncState)
		}
		text += fmt.Sprintf(" The last pull ended %s (%s).", ago(p.s.Now, last.Synced), how)
	}
	if name != "" {
		text += fmt.Sprintf(" Next pull in %s: %s.", view.Age(next.Sub(p.s.Now)), name)
	}
	if len(p.s.Snap.Repos) > 0 {
		text += " p on a repository starts one."
	}
	return []string{text}
}

// unread says why a list is empty that the server has not told, such as that it is
// not allowed; nil = it has. An empty list would say that there is nothing.
func (p *painter) unread(what string) []string {
	snap := p.s.Snap
	if snap.API.Synced || p.s.Source == FromDisk {
		return nil
	}
	out := []string{what + " have not been read yet" + p.g.more}
	if snap.Problem != "" {
		out = []string{what + " cannot be read: " + snap.Problem}
	}
	return out
}

func (p *painter) noRepos() []string {
	if problem := p.s.filterProblem(); problem != "" {
		return []string{problem, "Esc clears the filter."}
	}
	if p.s.filter() != "" {
		return []string{fmt.Sprintf("No repository of %d matches %q. Esc clears the filter.", len(p.s.Snap.Repos), p.s.filter())}
	}
	if why := p.unread("The repositories"); why != nil {
		return why
	}
	if p.s.Snap.API.Embedded {
		return []string{"No repositories. limpet repo create NAME --url https://HOST/REPO.git makes one."}
	}
	return []string{"No repositories here yet. Create one in Grafana under Administration, Provisioning, and it appears by itself."}
}

func (p *painter) empty(x, y, w, h int, text []string) {
	row := y + 1
	for _, t := range text {
		for _, l := range wrap(t, w-4) {
			if row < y+h-1 {
				p.put(x+2, row, w-4, roleDim, l)
			}
			row++
		}
	}
}

// place says where in a list the cursor is, and when the list is only the
// beginning of a longer one.
func place(index, rows, all int) string {
	switch {
	case rows == 0:
		return ""
	case rows < all:
		return fmt.Sprintf("%d/%d of %d", index+1, rows, all)
	}
	return fmt.Sprintf("%d/%d", index+1, rows)
}

// wrap breaks text at blanks into lines of at most w cells. A word that is
// longer is broken too: what an error says at its end matters as much.
func wrap(text string, w int) []string {
	var out []string
	cur := ""
	for _, word := range strings.Fields(text) {
		if cur != "" && displaywidth.String(cur)+1+displaywidth.String(word) <= w {
			cur += " " + word
			continue
		}
		if cur != "" {
			out = append(out, cur)
		}
		for cur = word; displaywidth.String(cur) > w; {
			head := cut(cur, w, "")
			if head == "" {
				return append(out, cur) // not even one letter fits
			}
			out, cur = append(out, head), cur[len(head):]
		}
	}
	return append(out, cur)
}
