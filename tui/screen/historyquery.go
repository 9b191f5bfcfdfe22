package screen

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

const (
	// historyPage is how many rows of the history one lookup brings.
	historyPage = 200
	// maxHistoryRows bounds the rows that are kept, some 2 MiB; who wants to see more
	// narrows the filter.
	maxHistoryRows = 5000
	// prefetchRows is how near to the end of the rows the cursor comes before more
	// are looked up.
	prefetchRows = 50
	// historyMinAge is the least time between two looks at what has just ended.
	historyMinAge = 2 * time.Second
	// foldMin is how many equal failures in a row are folded; foldShown of them
	// stay.
	foldMin, foldShown = 5, 3
)

// historyFields are what a filter of the history may name.
var historyFields = widget.FieldSet{"repo": nil, "state": {"success", "warning", "error", "cancelled", "dead"}, "action": nil, "since": nil, "until": nil, "ref": nil}

// history is what the screen of the history knows.
type history struct {
	historyAnswer                 // the present one
	items         []historyItem   // the lines of the list, made from rows and opened
	earlier       []historyAnswer // to filters before, the newest last, nothing having passed since
	known         bool            // there is an answer
	stale         bool            // jobs have ended since it was asked for
	filter        string          // that was asked for last
	err           string          // why there is no answer
	cursor        string          // key of an item
	unfolded      []string
	requested     time.Time       // when the last lookup began
	request       *historyRequest // the lookup that runs; nil = none
}

// historyRequest is one lookup of rows.
type historyRequest struct {
	filter string
	more   bool // behind the rows that are there
	fresh  bool // before them
}

// fetchHistory looks rows up when those that are there are of another filter and do not
// tell of this one, when the cursor nears their end, and when jobs have ended since.
func (s State) fetchHistory() (State, Lookup) {
	ask := historyRequest{filter: s.input.filters[screenHistory]}
	q, problem := historyQuery(ask.filter, s.Now)
	if p := &s.history; problem == "" && p.filter != ask.filter && (p.request == nil || p.request.filter != ask.filter) && p.refine(ask.filter, q) {
		p.filter = ask.filter
	}
	switch p := s.history; {
	case p.request != nil && p.request.filter == ask.filter:
		return s, nil
	case p.known && p.filter == ask.filter && problem != "":
		return s, nil
	case !p.known && p.err == "" || p.filter != ask.filter:
	case p.err != "":
		if s.Gone != "" || s.Now.Sub(p.requested) < historyMinAge {
			return s, nil
		}
	case p.next != "" && len(p.rows) < maxHistoryRows && p.index() > len(p.items)-prefetchRows:
		ask.more = true
	case p.stale && s.Gone == "" && s.Now.Sub(p.requested) >= historyMinAge:
		ask.fresh = true
	default:
		return s, nil
	}
	if problem != "" {
		s.history.replace(historyAnswer{filter: ask.filter, all: s.history.all})
		s.history.filter = ask.filter
		return s, nil
	}
	if ask.more {
		q.After = s.history.next
	} else {
		if s.history.stale {
			s.history.exact = false // and it is not current any more
		}
		s.history.stale = false
	}
	s.history.request, s.history.requested = &ask, s.Now
	return s, func(ctx context.Context, src Source) func(State) State {
		page, err := src.HistoryPage(ctx, q)
		return func(s State) State {
			if s.history.request != &ask {
				return s // another filter has been typed since
			}
			s.history.request = nil
			switch {
			case errors.Is(err, context.Canceled): // it is asked again when it is shown
				s.history.invalidate()
			case err != nil:
				s.history.err, s.history.filter = text.Clean(err.Error()), ask.filter
				s.history.invalidate()
			default:
				return s.takeHistoryPage(ask, q, page)
			}
			return s
		}
	}
}

// takeHistoryPage takes a page. The cursor stays on its row.
func (s State) takeHistoryPage(ask historyRequest, q snapshot.HistoryQuery, said snapshot.HistoryPage) State {
	page := cleanHistory(said)
	to := historyAnswer{filter: ask.filter, query: q, rows: page.Rows, next: page.Next, all: page.All, exact: slices.Equal(page.Rows, said.Rows)}
	to.query.After = ""
	p := &s.history
	switch {
	case ask.more:
		to.query, to.rows, to.exact = p.query, append(slices.Clip(p.rows), page.Rows...), to.exact && p.exact
	case ask.fresh && len(p.rows) > historyPage && overlaps(page.Rows, p.rows):
		to.rows, to.next, to.exact = mergeRows(page.Rows, p.rows), p.next, false
	}
	if len(to.rows) > maxHistoryRows {
		to.rows, to.next, to.exact = to.rows[:maxHistoryRows:maxHistoryRows], "", false
	}
	p.filter = ask.filter
	p.replace(to)
	return s
}

// overlaps says that the newest rows reach those that are there.
func overlaps(fresh, rows []snapshot.HistoryRow) bool {
	if len(rows) == 0 || len(fresh) == 0 {
		return false
	}
	return slices.ContainsFunc(fresh, func(r snapshot.HistoryRow) bool { return r.UID == rows[0].UID })
}

// mergeRows puts the newest rows before those that are there. A job that ran again
// has moved to the front.
func mergeRows(fresh, rows []snapshot.HistoryRow) []snapshot.HistoryRow {
	seen := make(map[string]bool, len(fresh))
	for _, r := range fresh {
		seen[r.UID] = true
	}
	out := slices.Clone(fresh)
	for _, r := range rows {
		if !seen[r.UID] {
			out = append(out, r)
		}
	}
	return out
}

// historyQuery is what a filter line asks for, and what of it means nothing.
func historyQuery(filter string, now time.Time) (snapshot.HistoryQuery, string) {
	t := widget.ParseTerms(filter, historyFields)
	since, until := t.Moment("since", now), t.Moment("until", now)
	return snapshot.HistoryQuery{Repository: t.One("repo"), Action: t.One("action"), States: snapshot.ExpandStates(t.Fields["state"]), Ref: t.One("ref"),
		Since: since, Until: until, Words: t.Words, Limit: historyPage}, t.Problem
}

// historyProblem says what is wrong with the filter of the history.
func (s State) historyProblem() string {
	_, problem := historyQuery(s.input.filters[screenHistory], s.Now)
	return problem
}

// historyItem is one line of the list: a row, or several equal ones folded.
type historyItem struct {
	row    *snapshot.HistoryRow
	folded int       // how many rows it stands for; 0 = it is a row
	oldest time.Time // finish of the oldest of them
	group  string    // UID of the first of the equal rows; "" = it has none
}

func (i historyItem) key() string {
	if i.folded > 0 {
		return "fold " + i.group
	}
	return i.row.UID
}

// fold makes the lines of the list: equal failures in a row are folded unless they
// were opened.
func (p *history) fold() {
	rows := p.rows
	p.items = make([]historyItem, 0, len(rows))
	for i := 0; i < len(rows); {
		n := 1
		for i+n < len(rows) && sameFailure(rows[i], rows[i+n]) {
			n++
		}
		of := ""
		if n >= foldMin {
			of = rows[i].UID
		}
		show := n
		if of != "" && !slices.Contains(p.unfolded, of) {
			show = foldShown
		}
		for k := range rows[i : i+show] {
			p.items = append(p.items, historyItem{row: &rows[i+k], group: of})
		}
		if show < n {
			p.items = append(p.items, historyItem{row: &rows[i+show], folded: n - show, oldest: rows[i+n-1].Finished, group: of})
		}
		i += n
	}
}

func (p history) keys() []string { return widget.KeysOf(p.items, historyItem.key) }

// index is the line of the cursor.
func (p history) index() int {
	for i, item := range p.items {
		if item.key() == p.cursor {
			return i
		}
	}
	return 0
}

// atCursor is the line under the cursor.
func (p history) atCursor() (historyItem, bool) {
	if len(p.items) == 0 {
		return historyItem{}, false
	}
	return p.items[p.index()], true
}

// move moves the cursor by so many lines.
func (p *history) move(by int) {
	if n := len(p.items); n > 0 {
		p.cursor = p.items[min(max(p.index()+by, 0), n-1)].key()
	}
}

// sameFailure says that two jobs have failed in the same way.
func sameFailure(a, b snapshot.HistoryRow) bool {
	return a.State != "success" && a.State == b.State && a.Namespace == b.Namespace && a.Repository == b.Repository && a.Action == b.Action && recordResult(a) == recordResult(b)
}

// unfold opens the equal rows under the cursor, or folds them again.
func (s State) unfold() State {
	at, ok := s.history.atCursor()
	if !ok || at.group == "" {
		return s.say("nothing is folded here", false)
	}
	before := s.history.keys()
	if i := slices.Index(s.history.unfolded, at.group); i >= 0 {
		s.history.unfolded = slices.Delete(slices.Clone(s.history.unfolded), i, i+1)
	} else {
		s.history.unfolded = append(slices.Clip(s.history.unfolded[max(len(s.history.unfolded)-trailLength, 0):]), at.group)
	}
	s.history.fold()
	s.history.cursor = widget.KeepCursor(s.history.cursor, before, s.history.keys())
	return s
}

// jobOfRecord is a row of the history as a job: without what only the whole record has.
func jobOfRecord(r snapshot.HistoryRow) snapshot.Job {
	return snapshot.Job{UID: r.UID, Namespace: r.Namespace, Name: r.Name, Repository: r.Repository, Action: r.Action, State: r.State, Message: recordResult(r),
		Started: r.Started, Finished: r.Finished, RefTo: r.RefTo, Attempt: r.Attempts, Progress: 100, Owner: "this"}
}

// record is the lookup of the whole of a job of which only a row is known.
type record struct {
	asking string // UID; "" = nothing is looked up
	err    string // why there is no answer
}

// fetchJob looks up the whole record of the job in the detail, when that is a row
// of the history.
func (s State) fetchJob() (State, Lookup) {
	if !s.jobView.partial || s.jobView.record.asking == s.jobView.uid || s.jobView.record.err != "" {
		return s, nil
	}
	uid := s.jobView.uid
	s.jobView.record.asking = uid
	return s, func(ctx context.Context, src Source) func(State) State {
		j, err := src.PastJob(ctx, uid)
		return func(s State) State {
			if s.jobView.record.asking == uid {
				s.jobView.record.asking = ""
			}
			switch {
			case s.jobView.uid != uid || !s.jobView.partial || errors.Is(err, context.Canceled): // it is asked again when it is shown
			case err != nil:
				s.jobView.record.err = text.Clean(err.Error())
				return s.say(s.jobView.record.err, true)
			default:
				whole := cleanJob(j)
				s.jobView.seen, s.jobView.partial = &whole, false
				return s.focusIssues(whole)
			}
			return s
		}
	}
}

// openRecord shows the record under the cursor whole; of folded rows it opens the
// fold.
func (s State) openRecord() State {
	at, ok := s.history.atCursor()
	switch {
	case !ok:
		return s
	case at.folded > 0:
		return s.unfold()
	}
	to := s.goTo(screenDetail)
	return to.setJob(jobOfRecord(*at.row), true)
}

// openHistoryOf shows the history of the repository under the cursor.
func (s State) openHistoryOf() State {
	if of := s.targetRepos(); len(of) == 1 {
		s.input.filters[screenHistory] = fmt.Sprintf("repo:%s ", of[0].Name)
	}
	return s.goTo(screenHistory)
}

func historyCommand(s State) string {
	if of := s.targetRepos(); len(of) == 1 {
		return "limpet history list --repository " + widget.Quote(of[0].Name)
	}
	return "limpet history list"
}

const (
	// maxAnswers and answersRows bound the answers of filters before: the rows are
	// some 1 MiB.
	maxAnswers    = 16
	maxAnswerRows = maxHistoryRows
)

// historyAnswer is what the history has said to one filter: all rows that it lets through,
// from the newest down to where next goes on.
type historyAnswer struct {
	filter string // the filter
	query  snapshot.HistoryQuery
	rows   []snapshot.HistoryRow
	next   string // where more rows are; "" = there are none
	all    int    // jobs in the history
	// exact says that rows and next are as the history has them: nothing was cleaned
	// out of them, left out or put together.
	exact bool
}

// refined is what the history would say to a narrower query, as far as a does.
func (a historyAnswer) refined(line string, to snapshot.HistoryQuery) historyAnswer {
	rows := a.rows
	if n := slices.IndexFunc(rows, func(r snapshot.HistoryRow) bool { return !to.Selects(r) }); n >= 0 { // else they are all meant
		rows = slices.Clone(rows[:n])
		for _, r := range a.rows[n+1:] {
			if to.Selects(r) {
				rows = append(rows, r)
			}
		}
	}
	return historyAnswer{filter: line, query: to, rows: rows, next: a.next, all: a.all, exact: true}
}

// reachesBeyond says that a goes further back than b.
func (a historyAnswer) reachesBeyond(b historyAnswer) bool {
	if a.next == "" || b.next == "" {
		return a.next == "" && b.next != ""
	}
	return len(b.rows) == 0 || len(a.rows) > 0 && a.rows[len(a.rows)-1].Finished.Before(b.rows[len(b.rows)-1].Finished)
}

// refine answers a filter from what the history has said already, so that who types
// one, or takes letters back, asks for nothing that is here. False says that the
// history has to be asked.
func (p *history) refine(line string, to snapshot.HistoryQuery) bool {
	if p.stale {
		return false
	}
	var best *historyAnswer
	for _, a := range append(slices.Clip(p.earlier), p.historyAnswer) {
		if a.exact && a.query.Covers(to) && (best == nil || a.reachesBeyond(*best)) {
			best = &a
		}
	}
	if best == nil {
		return false
	}
	p.replace(best.refined(line, to))
	return true
}

// replace puts an answer in the place of the one before, which is kept for who comes
// back to its filter. The cursor stays on its row, or at the top.
func (p *history) replace(to historyAnswer) {
	was := p.historyAnswer
	if was.exact && !p.stale && was.filter != to.filter {
		var others []historyAnswer
		for _, a := range p.earlier {
			if a.filter != was.filter {
				others = append(others, a)
			}
		}
		p.earlier = append(others, was)
		for rows := p.trailRows(); len(p.earlier) > maxAnswers || rows > maxAnswerRows; p.earlier = p.earlier[1:] {
			rows -= len(p.earlier[0].rows)
		}
	}
	before := p.keys()
	top := len(before) == 0 || p.cursor == before[0]
	p.historyAnswer, p.known, p.err, p.request = to, true, "", nil
	p.fold()
	if top {
		p.cursor = ""
	}
	p.cursor = widget.KeepCursor(p.cursor, before, p.keys())
}

func (p *history) trailRows() (n int) {
	for _, a := range p.earlier {
		n += len(a.rows)
	}
	return n
}

// invalidate says that jobs have ended or left the history, or may have: what it said
// before may not be what it would say now.
func (p *history) invalidate() { p.stale, p.earlier = true, nil }
