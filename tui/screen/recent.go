package screen

import (
	"context"
	"errors"
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

// recentRuns are the recent jobs of the repository screen.
type recentRuns struct {
	of                   string // namespace/name
	*snapshot.RecentRuns        // never nil
	known                bool
	err                  string // why the lookup failed
	at                   time.Time
	count                int     // Snap.Agent.History at the lookup
	request              *string // the running lookup; nil = none
	cursor               string  // UID of a job
}

// fetchRecent fetches the recent jobs of the repository screen.
func (s State) fetchRecent() (State, Lookup) {
	key, l := repoKey(*s.repoView.seen), s.repoView.recent
	age := s.Now.Sub(l.at)
	switch {
	case s.Gone != "" || s.repoView.seen.Name == "" || l.request != nil && *l.request == key:
		return s, nil
	case l.of == key && (age < recentMinAge || age < recentMaxAge && l.count == s.Snap.Agent.History):
		return s, nil
	}
	ask := &key
	if l.of != key {
		s.repoView.recent = recentRuns{of: key, RecentRuns: new(snapshot.RecentRuns)}
	}
	s.repoView.recent.request, s.repoView.recent.at, s.repoView.recent.count = ask, s.Now, s.Snap.Agent.History
	namespace, name := s.repoView.seen.Namespace, s.repoView.seen.Name
	return s, func(ctx context.Context, src Source) func(State) State {
		got, err := src.RecentRuns(ctx, namespace, name)
		return func(s State) State {
			if s.repoView.recent.request != ask {
				return s
			}
			s.repoView.recent.request, s.repoView.recent.err = nil, ""
			switch {
			case errors.Is(err, context.Canceled): // fetched again when the screen is shown
				s.repoView.recent.at = time.Time{}
			case err != nil:
				s.repoView.recent.err = text.Clean(err.Error())
			default:
				before := widget.KeysOf(s.repoJobs(), jobKey)
				s.repoView.recent.RecentRuns, s.repoView.recent.known = &snapshot.RecentRuns{Rows: cleanHistory(
					snapshot.HistoryPage{Rows: got.Rows}).Rows,
					Day: got.Day}, true
				if s.repoView.recent.cursor != "" {
					s.repoView.recent.cursor = widget.KeepCursor(s.repoView.recent.cursor, before, widget.KeysOf(s.repoJobs(), jobKey))
				}
			}
			return s
		}
	}
}

// repoJobs returns the jobs of the repository screen: those of the snapshot, then the earlier
// ones.
func (s State) repoJobs() []snapshot.Job {
	var out []snapshot.Job
	seen := map[string]bool{}
	for _, j := range s.Snap.Jobs {
		if j.Namespace == s.repoView.seen.Namespace && j.Repository == s.repoView.seen.Name {
			out, seen[j.UID] = append(out, j), true
		}
	}
	if s.repoView.recent.of == repoKey(*s.repoView.seen) {
		for _, r := range s.repoView.recent.Rows {
			if !seen[r.UID] {
				out = append(out, jobOfRecord(r))
			}
		}
	}
	return out
}

func (s State) moveRecent(by int) State {
	s.repoView.recent.cursor = widget.Step(s.repoView.recent.cursor, widget.KeysOf(s.repoJobs(), jobKey), by)
	return s
}

// openRepoJob shows the job under the cursor of the repository screen.
func (s State) openRepoJob() State {
	rows := s.repoJobs()
	if len(rows) == 0 {
		return s.showToast("no job of this repository is known; p starts a pull", false)
	}
	j := rows[widget.IndexOf(s.repoView.recent.cursor, widget.KeysOf(rows, jobKey))]
	s.repoView.recent.cursor = j.UID
	if to := s.goJob(j.UID); to.nav.screen == screenDetail {
		return to
	}
	return s.goTo(screenDetail).setJob(j, true)
}

// failedInARow returns how many of the last jobs of the repository failed in a row, and since
// when.
func (s State) failedInARow() (n int, since time.Time) {
	if s.repoView.recent.of != repoKey(*s.repoView.seen) {
		return 0, since
	}
	for _, r := range s.repoView.recent.Rows {
		if r.State != "error" && r.State != "dead" {
			break
		}
		n, since = n+1, r.Finished
	}
	return n, since
}

// dayHeight is the height of the chart of the last day with its edges.
const dayHeight = 5

// dayBox draws the last 24 hours: runs, durations and changes, each with figures.
func (p *view) dayBox(x, y, w int) {
	l := p.s.repoView.recent
	note := ""
	if !l.Day.Since.IsZero() {
		note = "since " + widget.ClockTime(l.Day.Since, p.s.Now) + ", there are more"
	}
	p.Box(p.G, x, y, w, dayHeight, "Last 24 h", note, "", false)
	switch {
	case l.of != repoKey(*p.s.repoView.seen) || !l.known && l.err == "":
		p.Empty(x, y, w, dayHeight, []string{"Looking" + p.G.More})
		return
	case !l.known:
		p.Empty(x, y, w, dayHeight, []string{"The history cannot be read: " + l.err})
		return
	}
	d := l.Day
	if d.Good+d.Warned+d.Failed == 0 {
		p.Empty(x, y, w, dayHeight, []string{"No job has ended."})
		return
	}
	runs, took, changes := make([]int64, snapshot.RecentHours), make([]int64, snapshot.RecentHours), make([]int64, snapshot.RecentHours)
	for i, h := range d.Hours {
		runs[i], took[i], changes[i] = int64(h.Runs), int64(h.Median), h.Changes
	}
	r := widget.RolePlain
	if d.Failed > 0 {
		r = widget.RoleBad
	} else if d.Warned > 0 {
		r = widget.RoleWarn
	}
	for i, line := range []struct {
		name   string
		values []int64
		role   widget.Role
		text   string
	}{
		{"runs", runs, r, fmt.Sprintf("%s ok   %s   %s failed", text.Thousands(d.Good), widget.Thousands(int64(d.Warned), "warning"),
			text.Thousands(d.Failed))},
		{"seconds", took, widget.RolePlain, fmt.Sprintf("p50 %s   p95 %s   max %s", widget.SecondsText(d.Median),
			widget.SecondsText(d.P95), widget.SecondsText(d.Longest))},
		{"changes", changes, widget.RolePlain, fmt.Sprintf("+%d ~%d -%d objects", d.Created, d.Updated, d.Deleted)},
	} {
		at := p.Put(x+2, y+1+i, w-4, widget.RoleDim, fmt.Sprintf("%-9s", line.name))
		each := 1
		if w >= wideWidth {
			each = 2
		}
		if snapshot.RecentHours+displaywidth.String(line.text)+3 > x+w-2-at {
			line.text = strings.ReplaceAll(line.text, "   ", "  ")
		}
		if each*snapshot.RecentHours+displaywidth.String(line.text)+3 <= x+w-2-at {
			at = p.Put(at, y+1+i, x+w-2-at, line.role, p.Heights(line.values, each)) + 3
		}
		p.Put(at, y+1+i, x+w-2-at, widget.RolePlain, widget.Cut(line.text, x+w-2-at, p.G.More))
	}
}

// jobsOfRepo lists the jobs of the repository screen.
func (p *view) jobsOfRepo(x, y, w, h int) {
	rows := p.s.repoJobs()
	index := widget.IndexOf(p.s.repoView.recent.cursor, widget.KeysOf(rows, jobKey))
	p.Box(p.G, x, y, w, h, "Recent jobs", "h all", widget.Place(index, len(rows), len(rows)), true)
	if len(rows) == 0 {
		txt := "No job of this repository is known." + p.ifSendable(" p starts a pull.")
		if !p.s.repoView.recent.known && p.s.repoView.recent.err == "" {
			txt = "Looking" + p.G.More
		}
		p.Empty(x, y, w, h, []string{txt})
		return
	}
	columns := []widget.Column{widget.Col("", 1, 0), widget.Col("FINISHED", 12, 2), widget.Col("JOB", 18, 1),
		widget.Col("ACTION", 9, 4), widget.NumCol("TOOK", 6, 3), widget.Col("REF", 7, 5), widget.Col("RESULT", 16, 0)}
	switch {
	case w >= wideWidth:
		columns[2].Width = 36
	case w < 60: // the name of the job stays at the least width too
		columns[2].Width = 16
	}
	p.clickRows(paneNone, func(s State, i int) State { s.repoView.recent.cursor = rows[i].UID; return s })
	p.List(x+1, y+1, w-2, h-2, columns, 6, len(rows), index, true, func(i int) widget.Line {
		j := rows[i]
		state := p.shownState(j)
		glyph, ok := p.G.State[state]
		if !ok {
			glyph = p.G.State["unknown"]
		}
		finished, result := "-", p.progress(j, state, min(w/3, 30))
		if !j.Finished.IsZero() {
			finished = widget.DayTime(j.Finished, p.s.Now)
		}
		r := widget.StateRole(state)
		return widget.Line{Cells: []string{glyph, finished, j.Name, strings.TrimSpace(j.Action + " " + j.Detail), p.elapsed(j),
			text.OrDash(text.ShortRef(j.RefTo)), result},
			Roles: []widget.Role{r, widget.RolePlain, widget.RolePlain, widget.RolePlain, widget.RolePlain, widget.RolePlain, r}}
	})
}
