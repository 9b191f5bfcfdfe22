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
	// historyPage is the number of rows of one lookup.
	historyPage = 200
	// maxHistoryRows bounds the cached rows, some 2 MiB. A narrower filter shows older rows.
	maxHistoryRows = 5000
	// prefetchRows is the distance of the cursor from the last row at which more rows are
	// fetched.
	prefetchRows = 50
	// historyMinAge is the minimum time between two lookups of newly finished jobs.
	historyMinAge = 2 * time.Second
	// foldMin is the number of equal failures in a row that are folded; foldShown of them stay
	// visible.
	foldMin, foldShown = 5, 3
)

// historyFields are the fields of a history filter.
var historyFields = widget.FieldSet{"repo": nil, "state": {"success", "warning", "error", "cancelled", "dead"}, "action": nil,
	"since": nil, "until": nil, "ref": nil}

// history is the data of the history screen.
type history struct {
	historyAnswer                 // the present result
	items         []historyItem   // the lines of the list, derived from rows and opened
	earlier       []historyAnswer // results of previous filters, the newest last; dropped when the history changes
	known         bool            // a result has arrived
	stale         bool            // jobs have finished since the lookup
	filter        string          // of the last lookup
	err           string          // why the lookup failed
	cursor        string          // key of an item
	unfolded      []string
	requested     time.Time       // start of the last lookup
	request       *historyRequest // the running lookup; nil = none
}

// historyRequest is one lookup of rows.
type historyRequest struct {
	filter string
	more   bool // rows after the present ones
	fresh  bool // rows before them
}

// fetchHistory fetches rows when the cached ones do not answer the filter, when the cursor nears
// their end, and when jobs have finished since.
func (s State) fetchHistory() (State, Lookup) {
	ask := historyRequest{filter: s.input.filters[screenHistory]}
	q, problem := historyQuery(ask.filter, s.Now)
	if p := &s.history; problem == "" && p.filter != ask.filter && (p.request == nil || p.request.filter != ask.filter) &&
		p.refine(ask.filter, q) {
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
			s.history.exact = false // and it is out of date
		}
		s.history.stale = false
	}
	s.history.request, s.history.requested = &ask, s.Now
	return s, func(ctx context.Context, src Source) func(State) State {
		page, err := src.HistoryPage(ctx, q)
		return func(s State) State {
			if s.history.request != &ask {
				return s // the filter has changed since
			}
			s.history.request = nil
			switch {
			case errors.Is(err, context.Canceled): // fetched again when the screen is shown
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

// takeHistoryPage applies a page. The cursor stays on its row.
func (s State) takeHistoryPage(ask historyRequest, q snapshot.HistoryQuery, said snapshot.HistoryPage) State {
	page := cleanHistory(said)
	to := historyAnswer{filter: ask.filter, query: q, rows: page.Rows, next: page.Next, all: page.All,
		exact: slices.Equal(page.Rows, said.Rows)}
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

// overlaps reports whether the newest rows reach the cached ones.
func overlaps(fresh, rows []snapshot.HistoryRow) bool {
	if len(rows) == 0 || len(fresh) == 0 {
		return false
	}
	return slices.ContainsFunc(fresh, func(r snapshot.HistoryRow) bool { return r.UID == rows[0].UID })
}

// mergeRows puts the newest rows before the cached ones. A job that ran again moves to the
// front.
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

// historyQuery parses a filter line. It returns a description of the first invalid part.
func historyQuery(filter string, now time.Time) (snapshot.HistoryQuery, string) {
	t := widget.ParseTerms(filter, historyFields)
	since, until := t.Moment("since", now), t.Moment("until", now)
	return snapshot.HistoryQuery{Repository: t.One("repo"), Action: t.One("action"), States: snapshot.ExpandStates(t.Fields["state"]),
		Ref:   t.One("ref"),
		Since: since, Until: until, Words: t.Words, Limit: historyPage}, t.Problem
}

// historyProblem returns what is wrong with the filter of the history.
func (s State) historyProblem() string {
	_, problem := historyQuery(s.input.filters[screenHistory], s.Now)
	return problem
}

// historyItem is one line of the list: a row, or several equal ones folded.
type historyItem struct {
	row    *snapshot.HistoryRow
	folded int       // number of folded rows; 0 = a single row
	oldest time.Time // finish of the oldest of them
	group  string    // UID of the first of the equal rows; "" = none
}

func (i historyItem) key() string {
	if i.folded > 0 {
		return "fold " + i.group
	}
	return i.row.UID
}

// fold derives the lines of the list: equal failures in a row are folded unless they were
// opened.
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

// index returns the line of the cursor.
func (p history) index() int {
	for i, item := range p.items {
		if item.key() == p.cursor {
			return i
		}
	}
	return 0
}

// atCursor returns the item under the cursor.
func (p history) atCursor() (historyItem, bool) {
	if len(p.items) == 0 {
		return historyItem{}, false
	}
	return p.items[p.index()], true
}

// move moves the cursor by a number of lines.
func (p *history) move(by int) {
	if n := len(p.items); n > 0 {
		p.cursor = p.items[min(max(p.index()+by, 0), n-1)].key()
	}
}

// sameFailure reports whether two jobs failed in the same way.
func sameFailure(a, b snapshot.HistoryRow) bool {
	return a.State != "success" && a.State == b.State && a.Namespace == b.Namespace && a.Repository == b.Repository &&
		a.Action == b.Action && recordResult(a) == recordResult(b)
}

// unfold opens the equal rows under the cursor, or folds them again.
func (s State) unfold() State {
	at, ok := s.history.atCursor()
	if !ok || at.group == "" {
		return s.showToast("nothing is folded here", false)
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

// jobOfRecord converts a row of the history to a job, without the fields of the full record.
func jobOfRecord(r snapshot.HistoryRow) snapshot.Job {
	return snapshot.Job{UID: r.UID, Namespace: r.Namespace, Name: r.Name, Repository: r.Repository, Action: r.Action, State: r.State,
		Message: recordResult(r),
		Started: r.Started, Finished: r.Finished, RefTo: r.RefTo, Attempt: r.Attempts, Progress: 100, Owner: "this"}
}

// record is the lookup of the full record of a job.
type record struct {
	asking string // UID; "" = no lookup runs
	err    string // why it failed
}

// fetchJob fetches the full record of the job in the detail screen, when only its history row is
// known.
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
			case s.jobView.uid != uid || !s.jobView.partial || errors.Is(err, context.Canceled): // fetched again when the screen is shown
			case err != nil:
				s.jobView.record.err = text.Clean(err.Error())
				return s.showToast(s.jobView.record.err, true)
			default:
				whole := cleanJob(j)
				s.jobView.seen, s.jobView.partial = &whole, false
				return s.focusIssues(whole)
			}
			return s
		}
	}
}

// openRecord shows the full record under the cursor; on folded rows it unfolds them.
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
	// maxAnswers and answersRows bound the results of previous filters: the rows are some 1 MiB.
	maxAnswers    = 16
	maxAnswerRows = maxHistoryRows
)

// historyAnswer is the result of one filter: all matching rows from the newest to the page token
// next.
type historyAnswer struct {
	filter string // the filter
	query  snapshot.HistoryQuery
	rows   []snapshot.HistoryRow
	next   string // token of the next page; "" = none
	all    int    // jobs in the history
	// exact reports that rows and next equal those of the history: cleaning, merging and bounds
	// have not changed them.
	exact bool
}

// refined returns the part of a that a narrower query selects.
func (a historyAnswer) refined(line string, to snapshot.HistoryQuery) historyAnswer {
	rows := a.rows
	if n := slices.IndexFunc(rows, func(r snapshot.HistoryRow) bool { return !to.Selects(r) }); n >= 0 { // else all match
		rows = slices.Clone(rows[:n])
		for _, r := range a.rows[n+1:] {
			if to.Selects(r) {
				rows = append(rows, r)
			}
		}
	}
	return historyAnswer{filter: line, query: to, rows: rows, next: a.next, all: a.all, exact: true}
}

// reachesBeyond reports whether a contains older rows than b.
func (a historyAnswer) reachesBeyond(b historyAnswer) bool {
	if a.next == "" || b.next == "" {
		return a.next == "" && b.next != ""
	}
	return len(b.rows) == 0 || len(a.rows) > 0 && a.rows[len(a.rows)-1].Finished.Before(b.rows[len(b.rows)-1].Finished)
}

// refine answers a filter from cached results, so that typing or deleting letters needs no
// lookup. It reports whether that was possible.
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

// replace sets a new result and caches the previous one for a return to its filter. The cursor
// stays on its row, or at the top.
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

// invalidate drops the cached results: jobs have finished or left the history, or may have.
func (p *history) invalidate() { p.stale, p.earlier = true, nil }
