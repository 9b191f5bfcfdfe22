package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"limpet/state"

	"github.com/clipperhouse/displaywidth"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// jobsScreen lists the jobs of the snapshot.
type jobsScreen struct{ list[snapshot.Job] }

func (l *jobsScreen) draw(p *view, at widget.Rect) {
	l.drawList(p, p.withPane(at, len(l.rows), l.pane), true)
}

// jobsNote counts the jobs by state. The title is narrow, so a zero is omitted when another count
// is shown.
func jobsNote(c snapshot.Counts) string {
	var parts []string
	if c.Working+c.Pending > 0 || c.All() == 0 {
		parts = []string{fmt.Sprintf("%d working, %d pending", c.Working, c.Pending)}
	}
	return countsText(parts, count{c.Resting, "waiting"}, count{c.Elsewhere, "on others"}, count{c.Undelivered, "undelivered"},
		count{c.Done, "just done"})
}

type count struct {
	n    int
	what string
}

func countsText(parts []string, counts ...count) string {
	for _, c := range counts {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	return strings.Join(parts, ", ")
}

func (l *jobsScreen) drawList(p *view, at widget.Rect, focused bool) {
	counts := p.Snap.Counts
	all := counts.All()
	if p.s.filter() != "" {
		counts = snapshot.Count(l.rows, p.Now)
	}
	foot := p.place(&l.position, all)
	if p.s.filter() == "" && len(l.rows) > 0 && all > len(l.rows) {
		foot += ": " + p.limpet("job list")
	}
	if at.H >= p.c.H-frameRows && p.s.screen == screenOverview {
		foot = widget.Join("; ", widget.When(len(p.Snap.Repos) > 0, "repositories: "+reposNote(p.Snap.Repos)), foot)
	}
	box := widget.Box{Title: p.listTitle("Jobs", &l.position), Note: jobsNote(counts), Foot: foot, Focused: focused}
	drawList(p, at, box, screenJobs, &l.list, p.jobTable(), p.noJobs())
}

func (p *view) jobTable() widget.Table[snapshot.Job] {
	type job = snapshot.Job
	return widget.Table[job]{Grow: 4, Most: 80, Then: 2, Over: 4, Columns: []widget.Column[job]{
		{Width: 1, Cell: stateCell(p.shownState, p.c.StateGlyph)},
		{Head: "JOB", Width: 16, Wide: 20, Whole: p.s.wide, Cell: widget.Plain(func(j job) string { return j.Name })},
		{Head: "REPOSITORY", Width: 12, Wide: 16, Rank: 1, Whole: p.s.wide, Cell: widget.Plain(func(j job) string { return j.Repository })},
		{Head: "ACTION", Width: 9, Rank: 3, Cell: widget.Plain(func(j job) string { return strings.TrimSpace(j.Action + " " + j.Detail) })},
		{Head: "PROGRESS", Width: 14, Wide: 24, Cell: p.progressCell},
		{Head: "DONE", Width: 7, Wide: 11, Rank: 5, Right: true, Whole: true, Cell: widget.Plain(doneText)},
		{Head: "TIME", Width: 6, Rank: 2, Right: true, Cell: widget.Plain(p.elapsed)},
		{Head: "LEASE", Width: 7, Rank: 4, Right: true, Cell: dim(p.lease)},
		{Head: "OWNER", Width: 5, Rank: 6, Cell: dim(func(j job) string { return text.OrDash(j.Owner) })},
		{Head: "REF", Width: 7, Rank: 7, Cell: dim(func(j job) string { return text.OrDash(text.ShortRef(j.RefTo)) })},
	}}
}

// stateCell is the text of a state in its colour.
func stateCell[T any](state func(T) string, text func(state string) string) func(T, int) (string, widget.Role) {
	return func(row T, _ int) (string, widget.Role) {
		is := state(row)
		return text(is), widget.StateRole(is)
	}
}

func dim[T any](text func(T) string) func(T, int) (string, widget.Role) {
	return func(row T, _ int) (string, widget.Role) { return text(row), widget.RoleDim }
}

// shownState returns the displayed state of a job: "unknown" when it is not live, "other" when
// another agent runs it.
func (p *view) shownState(j snapshot.Job) string {
	switch {
	case !j.Finished.IsZero() || !j.Undelivered.IsZero() || j.State == "pending":
		return j.State
	case p.offline():
		return "unknown"
	case j.Owner == "other":
		return "other"
	}
	return j.State
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
		return widget.Thousands(j.Total, counted(j))
	}
	return doneText(j)
}

// counted returns what a job counts.
func counted(j snapshot.Job) string { return cmp.Or(widget.When(j.Action == "test", "update"), "file") }

func (p *view) progressCell(j snapshot.Job, w int) (string, widget.Role) {
	state := p.shownState(j)
	return p.progress(j, state, w), widget.StateRole(state)
}

// progress draws a bar for a working job, and words for other states.
func (p *view) progress(j snapshot.Job, state string, w int) string {
	switch {
	case !j.Finished.IsZero():
		return strings.TrimSpace(state + " " + jobResult(j))
	case !j.Undelivered.IsZero():
		return "done, undelivered " + text.Age(p.Now.Sub(j.Undelivered))
	case waitsForRetry(p.facts, j):
		return "retry in " + text.Age(j.RetryAt.Sub(p.Now))
	case j.State == "pending" && j.Owner == "" && j.WaitReason == "" && j.Priority != "":
		return "pending prio " + j.Priority
	case j.State == "pending" && j.Owner == "":
		return strings.TrimSpace("pending " + j.WaitReason)
	case j.Transfer.Phase != "" && state == "working" && (j.Transfer.Percent < 0 || w < leastBar+len(j.Transfer.Phase)+6):
		return transferText(j.Transfer, p.Now, w)
	case j.Percent() < 0:
		return strings.TrimSpace(state + " " + j.Message)
	}
	word := ""
	if state != "working" {
		word = state + " "
	}
	percent := fmt.Sprintf("%s%3.0f%%", word, j.Percent())
	room := w - displaywidth.String(percent) - 1
	if room < leastBar {
		return percent
	}
	phase := cmp.Or(j.Transfer.Phase, j.Message)
	if phase != "" && room >= 4*leastBar {
		phase = p.cut(phase, room/2-1) + " "
	} else {
		phase = ""
	}
	return phase + p.c.Bar(room-displaywidth.String(phase), j.Percent()) + " " + percent
}

// leastBar is the least width of a progress bar, in cells.
const leastBar = 6

// transferText describes what a job receives in w cells.
func transferText(t snapshot.Transfer, now time.Time, w int) string {
	out := t.Text(now)
	if rate := text.Size(t.Rate) + "/s"; len(out) > w && t.Bytes > 0 {
		percent := widget.When(t.Percent >= 0, fmt.Sprintf("%d%% ", t.Percent))
		if out = percent + text.Size(t.Bytes) + " " + rate; len(out) > w {
			out = percent + rate
		}
	}
	return out
}

func (p *view) elapsed(j snapshot.Job) string {
	switch {
	case !j.Finished.IsZero() && !j.Started.IsZero():
		return text.Took(j.Finished.Sub(j.Started))
	case !j.Undelivered.IsZero() && !j.Started.IsZero():
		return text.Took(j.Undelivered.Sub(j.Started))
	case !j.Started.IsZero() && !p.offline():
		return text.Took(p.Now.Sub(j.Started))
	case j.State == "pending" && !j.Created.IsZero():
		return text.Took(p.Now.Sub(j.Created))
	}
	return "-"
}

func (p *view) lease(j snapshot.Job) string {
	switch {
	case !j.Finished.IsZero():
		return widget.Ago(p.Now, j.Finished)
	case !j.Undelivered.IsZero() || j.Owner == "":
		return "-"
	case p.Gone != "" && j.LeaseUntil.After(p.Now): // its holder may still work on it
		return text.Age(j.LeaseUntil.Sub(p.Now)) + "?"
	case p.offline():
		return "ended"
	case j.Owner == "other":
		return "other"
	case j.LeaseUntil.IsZero():
		return "-"
	}
	return text.Age(j.LeaseUntil.Sub(p.Now))
}

// jobResult returns the result of a job. It omits "completed", which the state shows.
func jobResult(j snapshot.Job) string {
	if !genericMessage(j.Message) {
		return j.Message
	}
	c := totals(j)
	if complaints := jobIssues(j); len(complaints) == 1 {
		c.Only = complaints[0].text
	}
	return resultText(c)
}

func recordResult(r snapshot.HistoryRow) string {
	if !genericMessage(r.Message) {
		return r.Message
	}
	if r.Tally == nil {
		return ""
	}
	c := *r.Tally
	if c.Only != "" {
		c.Only = parseIssue(r.State, c.Only).text
	}
	return resultText(c)
}

// resultText returns the only message, or the number of messages and the written objects.
func resultText(c state.Totals) string {
	var wrote []string
	for i, n := range []int64{c.Create, c.Update, c.Delete} {
		if n > 0 {
			wrote = append(wrote, "+~-"[i:i+1]+text.Thousands(int(n)))
		}
	}
	nothing := c.Counted && c.Errors+c.Warnings+len(wrote) == 0
	return cmp.Or(c.Only, widget.Join(", ", widget.When(c.Errors > 0, text.Plural(c.Errors, "error")),
		widget.When(c.Warnings > 0, text.Plural(c.Warnings, "warning")), strings.Join(wrote, " "),
		widget.When(nothing, "nothing to change")))
}

// genericMessage reports whether the message of a job repeats its state. Source: Grafana; see
// sync/jobs.
func genericMessage(message string) bool {
	return slices.Contains([]string{"completed successfully", "completed with warnings", "completed with errors"}, message)
}

var jobKind = &kind[snapshot.Job]{
	follows: true,
	object:  jobObject,
	key:     func(j *snapshot.Job) string { return j.UID },
	fields: widget.FieldSet{"repo": nil, "action": nil,
		"state": {"pending", "working", "waiting", "other", "undelivered", "success", "warning", "error", "cancelled", "dead"}},
	match: func(j snapshot.Job, t *widget.FilterTerms) bool {
		return t.Matches("repo", j.Repository) && t.Matches("action", j.Action) && t.Matches("state", jobStates(j)...) &&
			widget.ContainsWords(strings.Join(t.Words, " "), j.Name, j.Repository, j.Action, j.State, j.Namespace, j.Message)
	},
	sorts: []sorting[snapshot.Job]{
		{name: "default order"},
		{"job", func(a, b snapshot.Job) int { return cmp.Compare(a.Name, b.Name) }},
		{"repository", func(a, b snapshot.Job) int { return cmp.Compare(a.Repository, b.Repository) }},
		{"action", func(a, b snapshot.Job) int { return cmp.Compare(a.Action, b.Action) }},
		{"state", func(a, b snapshot.Job) int { return cmp.Compare(severity(a.State), severity(b.State)) }},
		{"progress", func(a, b snapshot.Job) int { return cmp.Compare(b.Progress, a.Progress) }},
		{"age", func(a, b snapshot.Job) int { return a.Created.Compare(b.Created) }},
	},
}

func jobStates(j snapshot.Job) []string {
	out := []string{j.State}
	if j.State == "dead" {
		out = append(out, "error")
	}
	if j.Finished.IsZero() {
		switch {
		case !j.Undelivered.IsZero():
			out = []string{"undelivered"}
		case j.Owner == "other":
			out = append(out, "other")
		case j.Owner == "" && !j.RetryAt.IsZero():
			out = append(out, "waiting")
		}
	}
	return out
}
