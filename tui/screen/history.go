package screen

import (
	"fmt"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

var historyScreen = screen{
	name: "history", tab: "4", under: screenHistory,
	list: paneOf(paneJobs),
	selection: func(s State) (out selection) {
		if at, ok := s.history.atCursor(); ok {
			j := jobOfRecord(*at.row)
			out.job = &j
		}
		return out
	},
	title: func(State) string { return "History" },
	draw:  (*view).drawHistory,
	hints: func(p *view) [][2]string {
		return [][2]string{{p.G.Up + p.G.Down, "move"}, {"enter", "open"}, {"/", "filter"}, {"+", "unfold"}, {"esc", "back"}}
	},
	move: func(s State, by int) State {
		s.history.move(by)
		return s
	},
	open:  State.openRecord,
	fetch: State.fetchHistory,
}

// drawHistory draws the list of finished jobs, with the filter above it and the record under the
// cursor below. If there is room, it adds a chart of the end times.
func (p *view) drawHistory(x, y, w, h int) {
	p.historyFilter(x, y, w)
	y, h = y+1, h-1
	list, record := h, 0
	if h >= 14 && len(p.s.history.items) > 0 {
		record = min(8, h/3+1)
		list -= record
	}
	tall := h >= 30 && record > 0
	if tall {
		list -= spanHeight
	}
	p.historyTable(x, y, w, list)
	if record > 0 {
		p.recordBox(x, y+list, w, record)
	}
	if tall {
		p.endedBox(x, y+list+record, w)
	}
}

// historyFilter draws the filter line, which is always present, and the number of matches.
func (p *view) historyFilter(x, y, w int) {
	note := p.historyNote()
	room := w - displaywidth.String(note) - 6
	at := p.Put(x+1, y, w, widget.RoleKey, "/ ")
	txt, r := p.s.filter(), widget.RolePlain
	if txt == "" && !p.s.input.typing {
		txt, r = "repo: state: action: since: until: ref: or words", widget.RoleDim
	}
	at = p.Put(at, y, room, r, widget.Cut(txt, room, p.G.More))
	if p.s.input.typing {
		p.Put(at, y, 1, widget.RoleCursor, " ")
	}
	p.Right(at+2, x+w-1, y, widget.RoleDim, note)
}

// historyNote returns the number of shown and of all rows.
func (p *view) historyNote() string {
	s := p.s.history
	switch {
	case s.request != nil && (s.filter != s.request.filter || s.request.more && len(s.rows) < historyPage) || !s.known && s.err == "":
		return "looking" + p.G.More
	case !s.known:
		return ""
	case p.s.historyProblem() != "":
		return fmt.Sprintf("0 of %s jobs", text.Thousands(s.all))
	case s.next != "":
		return fmt.Sprintf("the newest %s of %s jobs", text.Thousands(len(s.rows)), text.Thousands(s.all))
	case len(s.rows) == s.all:
		return text.Plural(s.all, "job")
	}
	return fmt.Sprintf("%s of %s jobs", text.Thousands(len(s.rows)), text.Thousands(s.all))
}

func (p *view) historyTable(x, y, w, h int) {
	items := p.s.history.items
	index := p.s.history.index()
	foot := ""
	if len(items) > 0 {
		foot = fmt.Sprintf("%d/%d", index+1, len(items))
		if p.s.history.next != "" {
			foot += "+"
		}
	}
	p.Box(p.G, x, y, w, h, "History", "newest first", foot, true)
	if len(items) == 0 {
		p.Empty(x, y, w, h, p.emptyHistory())
		return
	}
	columns := []widget.Column{widget.Col("", 1, 0), widget.Col("FINISHED", 12, 0), widget.Col("REPOSITORY", 14, 1),
		widget.Col("ACTION", 7, 4), widget.Col("STATE", 9, 2), widget.NumCol("TOOK", 6, 3), widget.Col("REF", 7, 5),
		widget.Col("JOB", 20, 6), widget.Col("OWNER", 12, 7), widget.Col("RESULT", 12, 0)}
	switch {
	case w >= wideWidth:
		columns[2].Width, columns[9].Width = 20, 24
	case w < 50: // the name of the repository stays at the least width too
		columns[2].Width, columns[9].Width = 10, 9
	}
	p.clickRows(paneNone, func(s State, i int) State { s.history.cursor = items[i].key(); return s })
	p.List(x+1, y+1, w-2, h-2, columns, 9, len(items), index, true, func(i int) widget.Line { return p.historyRow(items[i]) })
}

func (p *view) historyRow(i historyItem) widget.Line {
	r := i.row
	if i.folded > 0 {
		return widget.Line{Whole: fmt.Sprintf("%s %d more like these, back to %s; + unfolds", p.G.More, i.folded,
			widget.ClockTime(i.oldest, p.s.Now))}
	}
	glyph, ok := p.G.State[r.State]
	if !ok {
		glyph = p.G.State["unknown"]
	}
	took := "-"
	if !r.Started.IsZero() {
		took = widget.Clock(r.Finished.Sub(r.Started))
	}
	ro := widget.StateRole(r.State)
	return widget.Line{
		Cells: []string{glyph, widget.DayTime(r.Finished, p.s.Now), r.Repository, r.Action, r.State, took,
			text.OrDash(text.ShortRef(r.RefTo)), r.Name, text.OrDash(r.Agent), text.OrDash(recordResult(*r))},
		Roles: []widget.Role{ro, widget.RolePlain, widget.RolePlain, widget.RolePlain, ro, widget.RolePlain, widget.RolePlain,
			widget.RolePlain, widget.RolePlain, widget.RolePlain},
	}
}

// emptyHistory returns why the list is empty.
func (p *view) emptyHistory() []string {
	s := p.s.history
	problem := p.s.historyProblem()
	switch {
	case s.err != "":
		return []string{"The history cannot be read: " + s.err, "It is tried again by itself."}
	case !s.known, s.request != nil && s.request.more:
		return []string{"Looking" + p.G.More}
	case problem != "":
		return []string{problem, "Esc clears the filter."}
	case p.s.filter() != "":
		return []string{fmt.Sprintf("None of %s matches. Esc clears the filter.", text.Plural(s.all, "job"))}
	}
	return []string{"No job has ended here yet." + p.startHint(" p on a repository starts a pull.")}
}

// recordBox draws the record under the cursor.
func (p *view) recordBox(x, y, w, h int) {
	at, ok := p.s.history.atCursor()
	if !ok {
		return
	}
	r := *at.row
	p.Box(p.G, x, y, w, h, widget.Cut(r.Name, w/2, p.G.More), "enter: all of it", "", false)
	var lines []widget.TextLine
	add := func(ro widget.Role, txt string) {
		for _, l := range widget.Wrap(txt, w-4) {
			lines = append(lines, widget.Styled(ro, l))
		}
	}
	add(widget.StateRole(r.State), strings.TrimSuffix(p.G.State[r.State]+" "+r.State+": "+recordResult(r), ": "))
	span := "finished " + r.Finished.UTC().Format("2006-01-02 15:04:05.000Z")
	if !r.Started.IsZero() {
		span = "started " + r.Started.UTC().Format("15:04:05.000Z") + ", " + span
	}
	add(widget.RolePlain, span)
	add(widget.RolePlain, strings.Join([]string{"uid " + r.UID, text.Plural(max(r.Attempts, 1), "attempt"),
		"by " + text.OrDash(r.Agent)}, ", "))
	if r.Subject != "" {
		add(widget.RolePlain, "commit "+text.ShortRef(r.RefTo)+" "+widget.Quoted(r.Subject))
	}
	if n, since := p.s.sameAs(r); n > 1 {
		add(widget.RoleDim, fmt.Sprintf("the same %s times in the rows here, since %s", text.Thousands(n), widget.ClockTime(since, p.s.Now)))
	}
	p.PutLines(x, y, w, h, lines)
}

// sameAs counts the listed jobs with the same failure.
func (s State) sameAs(r snapshot.HistoryRow) (n int, since time.Time) {
	for _, other := range s.history.rows {
		if sameFailure(r, other) {
			n, since = n+1, other.Finished
		}
	}
	return n, since
}

// spanHeight is the height of the chart with its edges.
const spanHeight = 4

// spans are the periods that one column may cover, with their names.
var spans = []struct {
	each time.Duration
	name string
}{
	{time.Minute, "minute"}, {5 * time.Minute, "5 minutes"}, {15 * time.Minute, "15 minutes"},
	{time.Hour, "hour"}, {6 * time.Hour, "6 hours"}, {24 * time.Hour, "day"},
}

// overTime counts the rows that ended in each of n equal periods, the last of which contains
// now: the failed ones and the others. It chooses the shortest period, of at most a day, that
// covers all rows; old counts the rows before the first period. Rows after now count in the last
// one.
func overTime(rows []snapshot.HistoryRow, n int, now time.Time) (name string, failed, others []int64, old int) {
	oldest := now
	for _, r := range rows {
		if r.Finished.Before(oldest) {
			oldest = r.Finished
		}
	}
	span, end := spans[0], now
	for _, span = range spans {
		end = now.Truncate(span.each).Add(span.each)
		if !oldest.Before(end.Add(-time.Duration(n) * span.each)) {
			break
		}
	}
	failed, others = make([]int64, n), make([]int64, n)
	for _, r := range rows {
		at := n - 1 - int(max(end.Sub(r.Finished)-1, 0)/span.each)
		switch {
		case at < 0:
			old++
		case r.State == "error" || r.State == "dead":
			failed[at]++
		default:
			others[at]++
		}
	}
	return span.name, failed, others, old
}

// endedBox draws when the listed jobs ended.
func (p *view) endedBox(x, y, w int) {
	const named = 15 // cells of name and number
	rows := p.s.history.rows
	name, failed, others, old := overTime(rows, w-4-named, p.s.Now)
	note := ""
	if len(rows) > old {
		note = "since " + widget.ClockTime(rows[len(rows)-old-1].Finished, p.s.Now)
	}
	p.Box(p.G, x, y, w, spanHeight, "Ended per "+name, note, "", false)
	for i, line := range []struct {
		name   string
		values []int64
		role   widget.Role
	}{{"errors", failed, widget.RoleBad}, {"others", others, widget.RolePlain}} {
		var sum int64
		for _, v := range line.values {
			sum += v
		}
		if sum == 0 {
			line.role = widget.RoleDim
		}
		at := p.Put(x+2, y+1+i, named, widget.RoleDim, fmt.Sprintf("%-7s", line.name))
		at = p.Put(at, y+1+i, named, line.role, fmt.Sprintf("%6s  ", text.Thousands(int(sum))))
		p.Put(at, y+1+i, x+w-2-at, line.role, p.Heights(line.values, 1))
	}
}
