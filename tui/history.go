package tui

import (
	"fmt"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

var historyFace = screen{
	name: "history", tab: "4", under: screenHistory,
	title: func(State) string { return "History" },
	draw:  (*view).drawHistory,
	hints: func(p *view) [][2]string {
		return [][2]string{{p.g.up + p.g.down, "move"}, {"enter", "open"}, {"/", "filter"}, {"+", "unfold"}, {"esc", "back"}}
	},
	move: func(s State, by int) State {
		s.history.move(by)
		return s
	},
	open:  State.openRecord,
	fetch: State.fetchHistory,
}

// drawHistory is the list of the jobs that have ended, with the filter above it and
// the record under the cursor below, and where there is room when they ended.
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

// historyFilter is the line of the filter, which is always there, with what it lets
// through.
func (p *view) historyFilter(x, y, w int) {
	note := p.historyNote()
	room := w - displaywidth.String(note) - 6
	at := p.put(x+1, y, w, roleKey, "/ ")
	txt, r := p.s.filter(), rolePlain
	if txt == "" && !p.s.typing {
		txt, r = "repo: state: action: since: until: ref: or words", roleDim
	}
	at = p.put(at, y, room, r, cut(txt, room, p.g.more))
	if p.s.typing {
		p.put(at, y, 1, roleCursor, " ")
	}
	p.right(at+2, x+w-1, y, roleDim, note)
}

// historyNote counts: what is shown, of how many.
func (p *view) historyNote() string {
	s := p.s.history
	switch {
	case s.request != nil && (s.filter != s.request.filter || s.request.more && len(s.rows) < historyPage) || !s.known && s.err == "":
		return "looking" + p.g.more
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
	p.box(p.g, x, y, w, h, "History", "newest first", foot, true)
	if len(items) == 0 {
		p.empty(x, y, w, h, p.emptyHistory())
		return
	}
	columns := []column{{"", 1, false, 0}, {"FINISHED", 12, false, 0}, {"REPOSITORY", 14, false, 1}, {"ACTION", 7, false, 4}, {"STATE", 9, false, 2}, {"TOOK", 6, true, 3}, {"REF", 7, false, 5}, {"JOB", 20, false, 6}, {"OWNER", 12, false, 7}, {"RESULT", 12, false, 0}}
	switch {
	case w >= wideWidth:
		columns[2].width, columns[9].width = 20, 24
	case w < 50: // of which repository it is stays, at the least width as well
		columns[2].width, columns[9].width = 10, 9
	}
	p.clickRows(paneNone, func(s State, i int) State { s.history.cursor = items[i].key(); return s })
	p.list(x+1, y+1, w-2, h-2, columns, 9, len(items), index, true, func(i int) line { return p.historyRow(items[i]) })
}

func (p *view) historyRow(i historyItem) line {
	r := i.row
	if i.folded > 0 {
		return line{whole: fmt.Sprintf("%s %d more like these, back to %s; + unfolds", p.g.more, i.folded, clockTime(i.oldest, p.s.Now))}
	}
	glyph, ok := p.g.state[r.State]
	if !ok {
		glyph = p.g.state["unknown"]
	}
	took := "-"
	if !r.Started.IsZero() {
		took = clock(r.Finished.Sub(r.Started))
	}
	ro := stateRole(r.State)
	return line{
		cells: []string{glyph, dayTime(r.Finished, p.s.Now), r.Repository, r.Action, r.State, took, text.OrDash(text.ShortRef(r.RefTo)), r.Name, text.OrDash(r.Agent), text.OrDash(recordResult(*r))},
		roles: []role{ro, rolePlain, rolePlain, rolePlain, ro, rolePlain, rolePlain, rolePlain, rolePlain, rolePlain},
	}
}

// emptyHistory says why there is nothing to see.
func (p *view) emptyHistory() []string {
	s := p.s.history
	problem := p.s.historyProblem()
	switch {
	case s.err != "":
		return []string{"The history cannot be read: " + s.err, "It is tried again by itself."}
	case !s.known, s.request != nil && s.request.more:
		return []string{"Looking" + p.g.more}
	case problem != "":
		return []string{problem, "Esc clears the filter."}
	case p.s.filter() != "":
		return []string{fmt.Sprintf("None of %s matches. Esc clears the filter.", text.Plural(s.all, "job"))}
	}
	return []string{"No job has ended here yet." + p.startHint(" p on a repository starts a pull.")}
}

// recordBox is the record under the cursor.
func (p *view) recordBox(x, y, w, h int) {
	at, ok := p.s.history.atCursor()
	if !ok {
		return
	}
	r := *at.row
	p.box(p.g, x, y, w, h, cut(r.Name, w/2, p.g.more), "enter: all of it", "", false)
	var lines []textLine
	add := func(ro role, txt string) {
		for _, l := range wrap(txt, w-4) {
			lines = append(lines, textLine{ro, l})
		}
	}
	add(stateRole(r.State), strings.TrimSuffix(p.g.state[r.State]+" "+r.State+": "+recordResult(r), ": "))
	span := "finished " + r.Finished.UTC().Format("2006-01-02 15:04:05.000Z")
	if !r.Started.IsZero() {
		span = "started " + r.Started.UTC().Format("15:04:05.000Z") + ", " + span
	}
	add(rolePlain, span)
	add(rolePlain, strings.Join([]string{"uid " + r.UID, text.Plural(max(r.Attempts, 1), "attempt"), "by " + text.OrDash(r.Agent)}, ", "))
	if r.Subject != "" {
		add(rolePlain, "commit "+text.ShortRef(r.RefTo)+" "+quoted(r.Subject))
	}
	if n, since := p.s.sameAs(r); n > 1 {
		add(roleDim, fmt.Sprintf("the same %s times in the rows here, since %s", text.Thousands(n), clockTime(since, p.s.Now)))
	}
	p.putLines(x, y, w, h, lines)
}

// sameAs counts the jobs of the rows that have failed in the same way.
func (s State) sameAs(r snapshot.Past) (n int, since time.Time) {
	for _, other := range s.history.rows {
		if sameFailure(r, other) {
			n, since = n+1, other.Finished
		}
	}
	return n, since
}
