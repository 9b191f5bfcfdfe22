package screen

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

const (
	// recentMaxAge and recentMinAge bound the age of the recent jobs on the repository screen. A
	// lookup reads the records of a day. The shorter one applies when jobs have finished since.
	recentMaxAge = time.Minute
	recentMinAge = 5 * time.Second
)

func (r *repoScreen) fetch(s *State) Lookup {
	key, age := repoKind.key(*r.repo), s.Now.Sub(r.recent.at)
	if r.repo.Name == "" ||
		r.recent.key == key && (age < recentMinAge || age < recentMaxAge && r.finished == s.Snap.Agent.History) {
		return nil
	}
	namespace, name := r.repo.Namespace, r.repo.Name
	r.finished = s.Snap.Agent.History
	return r.recent.look(s, key, func(s *State) *fetched[string, snapshot.RecentRuns] { return &s.repo.recent },
		func(ctx context.Context, src Source) (snapshot.RecentRuns, error) {
			return src.RecentRuns(ctx, namespace, name)
		})
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

// failedInARow returns how many of the last jobs of the repository failed in a row, and since
// when.
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

// dayHeight is the height of the chart of the last day with its edges.
const dayHeight = 5

// dayBox draws the last 24 hours: runs, durations and changes, each with figures.
func (r *repoScreen) dayBox(p *view, at widget.Rect) {
	runs, known, err := r.recent.of(repoKind.key(*r.repo))
	d, box := runs.Day, widget.Box{Title: "Last 24 h"}
	if !d.Since.IsZero() {
		box.Note = "since " + widget.ClockTime(d.Since, p.Now) + ", there are more"
	}
	p.Canvas.Box(at, box)
	switch {
	case !known && err != "":
		p.Empty(at, "The history cannot be read: "+err)
		return
	case !known:
		p.Empty(at, "Looking"+p.G.More)
		return
	case d.Good+d.Warned+d.Failed == 0:
		p.Empty(at, "No job has ended.")
		return
	}
	var runs24, seconds, changes []int64
	for _, h := range d.Hours {
		runs24, seconds, changes = append(runs24, int64(h.Runs)), append(seconds, int64(h.Median)), append(changes, h.Changes)
	}
	worst := widget.RolePlain
	if d.Failed > 0 {
		worst = widget.RoleBad
	} else if d.Warned > 0 {
		worst = widget.RoleWarn
	}
	at.Y++
	p.series(at, "runs", worst, runs24, fmt.Sprintf("%s ok  %s  %s failed", text.Thousands(d.Good),
		widget.Thousands(int64(d.Warned), "warning"), text.Thousands(d.Failed)))
	at.Y++
	p.series(at, "seconds", widget.RolePlain, seconds, fmt.Sprintf("p50 %s  p95 %s  max %s", widget.SecondsText(d.Median),
		widget.SecondsText(d.P95), widget.SecondsText(d.Longest)))
	at.Y++
	p.series(at, "changes", widget.RolePlain, changes, fmt.Sprintf("+%d ~%d -%d objects", d.Created, d.Updated, d.Deleted))
}

// series draws a line of a chart in a box: its name, its values if there is room, and figures.
func (p *view) series(box widget.Rect, name string, r widget.Role, values []int64, figures string) {
	end := box.X + box.W - 2
	x := p.Put(box.X+2, box.Y, end, widget.RoleDim, fmt.Sprintf("%-9s", name))
	each := max((end-x-displaywidth.String(figures)-3)/max(len(values), 1), 0)
	if each > 0 {
		x = p.Put(x, box.Y, end-x, r, p.Heights(values, min(each, 2))) + 3
	}
	p.PutCut(x, box.Y, end-x, widget.RolePlain, figures)
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
