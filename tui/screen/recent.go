package screen

import (
	"context"
	"strings"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

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
