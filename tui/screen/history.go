package screen

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

const (
	// historyPage is the number of rows of one lookup.
	historyPage = 200
	// maxHistoryRows bounds the cached rows, some 2 MiB. A narrower filter shows older rows.
	maxHistoryRows = 5000
	// prefetchRows is the distance of the cursor from the last row at which more rows are fetched.
	prefetchRows = 50
	// historyMinAge is the minimum time between two lookups of newly finished jobs.
	historyMinAge = 2 * time.Second
)

// historyFields are the fields of a history filter.
var historyFields = widget.FieldSet{"repo": nil, "state": {"success", "warning", "error", "cancelled", "dead"}, "action": nil,
	"since": nil, "until": nil, "ref": nil}

type historyScreen struct {
	page     fetched[historyRequest, snapshot.HistoryPage]
	taken    int    // version of page that items contain
	filter   string // of the rows
	next     string // token of the next page; "" = none
	all      int    // jobs in the history
	known    bool   // rows have arrived
	changes  int    // counts the times when jobs have finished or left the history, or may have
	upToDate int    // value of changes at the lookup of the newest rows
	items    list[snapshot.HistoryRow]
}

type historyRequest struct {
	filter  string
	after   string // for rows after the present ones; "" = the newest
	changes int
}

func (h *historyScreen) listPosition() *position { return &h.items.position }

func (h *historyScreen) selection(s *scene) []object { return h.items.selection(s) }
func (h *historyScreen) open(s *scene) Outcome       { return h.items.open(s) }

func recordObject(r *snapshot.HistoryRow) object {
	j := jobOfRecord(*r)
	return jobObject(&j)
}

// jobOfRecord converts a row of the history to a job, without the fields of the full record.
func jobOfRecord(r snapshot.HistoryRow) snapshot.Job {
	return snapshot.Job{UID: r.UID, Namespace: r.Namespace, Name: r.Name, Repository: r.Repository, Action: r.Action, State: r.State,
		Message: recordResult(r), Started: r.Started, Finished: r.Finished, RefTo: r.RefTo, Attempt: len(r.Attempts), Progress: 100,
		Owner: "this"}
}

// query parses the filter line. It returns a description of the first invalid part.
func (h *historyScreen) query(s *scene) (snapshot.HistoryQuery, string) {
	t := widget.ParseTerms(s.filters[screenHistory], historyFields)
	since, until := t.Moment("since", s.Now), t.Moment("until", s.Now)
	return snapshot.HistoryQuery{Repository: t.One("repo"), Action: t.One("action"), States: snapshot.ExpandStates(t.Fields["state"]),
		Ref: t.One("ref"), Since: since, Until: until, Words: t.Words, Limit: historyPage}, t.Problem
}

// fetch fetches rows of another filter, those beyond the cursor, and the jobs that have finished
// since.
func (h *historyScreen) fetch(s *scene) Lookup {
	q, problem := h.query(s)
	ask := historyRequest{filter: s.filters[screenHistory], changes: h.changes}
	waited := s.Now.Sub(h.page.at) >= historyMinAge
	switch failed := h.page.err != "" && h.page.key.filter == ask.filter; {
	case problem != "": // no row matches
		h.page.request = nil
		h.filter, h.next = ask.filter, ""
		h.known = true
		h.items.show(nil)
		return nil
	case h.page.request != nil && h.page.request.filter == ask.filter, failed && !waited:
		return nil
	case failed, !h.known || h.filter != ask.filter:
	case h.next != "" && len(h.items.rows) < maxHistoryRows && h.items.index() > len(h.items.rows)-prefetchRows:
		ask.after = h.next
	case h.changes != h.upToDate && waited:
	default:
		return nil
	}
	q.Before = ask.after
	return h.page.look(s, ask, func(ctx context.Context, src Source) (snapshot.HistoryPage, error) {
		return src.HistoryPage(ctx, q)
	})
}

func (h *historyScreen) refresh(*scene) {
	if h.page.version == h.taken {
		return
	}
	h.taken = h.page.version
	ask, page := h.page.key, h.page.value
	rows, next := page.Rows, page.Next
	switch {
	case ask.after != "":
		rows = append(slices.Clip(h.items.rows), rows...)
	case ask.filter == h.filter && len(h.items.rows) > historyPage &&
		slices.ContainsFunc(rows, func(r snapshot.HistoryRow) bool { return r.UID == h.items.rows[0].UID }): // they reach the present ones
		fresh := rows // a job that ran again moves to the front
		rows, next = append(slices.Clone(fresh), slices.DeleteFunc(slices.Clone(h.items.rows), func(r snapshot.HistoryRow) bool {
			return slices.ContainsFunc(fresh, func(f snapshot.HistoryRow) bool { return f.UID == r.UID })
		})...), h.next
	}
	if len(rows) > maxHistoryRows {
		rows, next = rows[:maxHistoryRows:maxHistoryRows], ""
	}
	if ask.after == "" {
		h.upToDate = ask.changes
	}
	h.filter, h.next = ask.filter, next
	h.all, h.known = page.All, true
	h.items.show(rows)
}

var recordKind = &kind[snapshot.HistoryRow]{follows: true, object: recordObject,
	key: func(r *snapshot.HistoryRow) string { return r.UID }}

// draw draws the list, with the filter and the number of matches above it and the record under the
// cursor below.
func (h *historyScreen) draw(p *view, at widget.Rect) {
	line, at := at.Top(1)
	note := h.note(p)
	p.filterInput(line.Y, line.W-displaywidth.String(note)-3)
	p.c.Right(3, line.W-1, line.Y, widget.RoleDim, note)
	if at.H >= 14 && len(h.items.rows) > 0 {
		var below widget.Rect
		at, below = at.Top(at.H - min(8, at.H/3+1))
		r := *h.items.here()
		var lines []widget.TextLine
		add := func(ro widget.Role, txt string) { lines = widget.Wrapped(lines, ro, txt, below.W-4) }
		add(widget.StateRole(r.State), strings.TrimSuffix(p.c.G.State[r.State]+" "+r.State+": "+recordResult(r), ": "))
		span := "finished " + r.Finished.UTC().Format("2006-01-02 15:04:05.000Z")
		if !r.Started.IsZero() {
			span = "started " + r.Started.UTC().Format("15:04:05.000Z") + ", " + span
		}
		add(widget.RolePlain, span)
		add(widget.RolePlain, "uid "+r.UID+", "+text.Plural(max(len(r.Attempts), 1), "attempt")+", by "+text.OrDash(r.Agent))
		if c := r.Commit; c != nil && c.Subject != "" {
			add(widget.RolePlain, fmt.Sprintf("commit %s %q", text.ShortRef(r.RefTo), c.Subject))
		}
		p.c.Panel(below, widget.Box{Title: p.cut(r.Name, below.W/2), Note: "enter open", More: "enter"}, lines)
	}
	h.drawList(p, at)
}

func (h *historyScreen) note(p *view) string {
	asked := h.page.request
	switch shown := text.Thousands(len(h.items.rows)); {
	case asked != nil && (h.filter != asked.filter || asked.after != "" && len(h.items.rows) < historyPage), !h.known && h.page.err == "":
		return "looking" + p.c.G.More
	case h.next != "":
		return fmt.Sprintf("the newest %s of %s jobs", shown, text.Thousands(h.all))
	case len(h.items.rows) == h.all:
		return text.Plural(h.all, "job")
	default:
		return fmt.Sprintf("%s of %s jobs", shown, text.Thousands(h.all))
	}
}

func (h *historyScreen) drawList(p *view, at widget.Rect) {
	foot := p.place(&h.items.position, 0)
	if h.next != "" && foot != "" {
		foot += "+"
	}
	plain := widget.Plain[snapshot.HistoryRow]
	state := func(r snapshot.HistoryRow) string { return r.State }
	repository, result := 14, 12
	if at.W < 50 { // the name of the repository stays at the least width too
		repository, result = 10, 9
	}
	table := widget.Table[snapshot.HistoryRow]{
		Grow: 9,
		Columns: []widget.Column[snapshot.HistoryRow]{
			{Width: 1, Cell: stateCell(state, p.c.StateGlyph)},
			{Head: "FINISHED", Width: 12, Cell: plain(func(r snapshot.HistoryRow) string { return widget.DayTime(r.Finished, p.Now) })},
			{Head: "REPOSITORY", Width: repository, Wide: 20, Rank: 1, Cell: plain(func(r snapshot.HistoryRow) string { return r.Repository })},
			{Head: "ACTION", Width: 7, Rank: 4, Cell: plain(func(r snapshot.HistoryRow) string { return r.Action })},
			{Head: "STATE", Width: 9, Rank: 2, Cell: stateCell(state, func(state string) string { return state })},
			{Head: "TOOK", Width: 6, Rank: 3, Right: true, Cell: plain(func(r snapshot.HistoryRow) string {
				if r.Started.IsZero() {
					return "-"
				}
				return text.Took(r.Finished.Sub(r.Started))
			})},
			{Head: "REF", Width: 7, Rank: 5, Cell: plain(func(r snapshot.HistoryRow) string { return text.OrDash(text.ShortRef(r.RefTo)) })},
			{Head: "JOB", Width: 20, Rank: 6, Cell: plain(func(r snapshot.HistoryRow) string { return r.Name })},
			{Head: "OWNER", Width: 12, Rank: 7, Cell: plain(func(r snapshot.HistoryRow) string { return text.OrDash(r.Agent) })},
			{Head: "RESULT", Width: result, Wide: 24, Cell: plain(func(r snapshot.HistoryRow) string { return text.OrDash(recordResult(r)) })},
		},
	}
	drawList(p, at, widget.Box{Title: "History", Note: "newest first", Foot: foot, Focused: true},
		screenHistory, &h.items, table, h.whyEmpty(p))
}

func (h *historyScreen) whyEmpty(p *view) []string {
	_, problem := h.query(p.s)
	switch {
	case problem != "":
		return []string{problem, "Esc clears the filter."}
	case h.page.err != "":
		return []string{"The history cannot be read: " + h.page.err, "Retrying."}
	case !h.known, h.page.request != nil && h.page.request.after != "":
		return []string{"Looking" + p.c.G.More}
	case p.s.filter() != "":
		return []string{fmt.Sprintf("None of %s matches. Esc clears the filter.", text.Plural(h.all, "job"))}
	}
	return []string{"No finished jobs yet." + p.startHint()}
}
