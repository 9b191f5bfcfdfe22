package tui

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

const (
	// pastPage is how many rows of the history one lookup brings.
	pastPage = 200
	// pastMost bounds the rows that are kept, some 2 MiB; who wants to see more
	// narrows the filter.
	pastMost = 5000
	// pastAhead is how near to the end of the rows the cursor comes before more
	// are looked up.
	pastAhead = 50
	// pastFresh is the least time between two looks at what has just ended.
	pastFresh = 2 * time.Second
	// foldFrom is how many equal failures in a row are folded; foldShown of them
	// stay.
	foldFrom, foldShown = 5, 3
)

// pastFields are what a filter of the history may name.
var pastFields = fieldSet{"repo": nil, "state": {"success", "warning", "error", "cancelled", "dead"}, "action": nil, "since": nil, "until": nil, "ref": nil}

// past is what the screen of the history knows.
type past struct {
	answer            // the present one
	items  []pastItem // the lines of the list, made from rows and opened
	trail  []answer   // to filters before, the newest last, nothing having passed since
	known  bool       // there is an answer
	stale  bool       // jobs have ended since it was asked for
	filter string     // that was asked for last
	fault  string     // why there is no answer
	cursor string     // key of an item
	opened []string
	at     time.Time // when the last lookup began
	asking *pastAsk  // the lookup that runs; nil = none
}

// pastAsk is one lookup of rows.
type pastAsk struct {
	filter string
	more   bool // behind the rows that are there
	fresh  bool // before them
}

// lackPast looks rows up when those that are there are of another filter and do not
// tell of this one, when the cursor nears their end, and when jobs have ended since.
func (s State) lackPast() (State, Lookup) {
	ask := pastAsk{filter: s.filters[screenHistory]}
	q, problem := pastQuery(ask.filter, s.Now)
	if p := &s.past; problem == "" && p.filter != ask.filter && (p.asking == nil || p.asking.filter != ask.filter) && p.narrow(ask.filter, q) {
		p.filter = ask.filter
	}
	switch p := s.past; {
	case p.asking != nil && p.asking.filter == ask.filter:
		return s, nil
	case p.known && p.filter == ask.filter && problem != "":
		return s, nil
	case !p.known && p.fault == "" || p.filter != ask.filter:
	case p.fault != "":
		if s.Gone != "" || s.Now.Sub(p.at) < pastFresh {
			return s, nil
		}
	case p.next != "" && len(p.rows) < pastMost && p.index() > len(p.items)-pastAhead:
		ask.more = true
	case p.stale && s.Gone == "" && s.Now.Sub(p.at) >= pastFresh:
		ask.fresh = true
	default:
		return s, nil
	}
	if problem != "" {
		s.past.change(answer{line: ask.filter, all: s.past.all})
		s.past.filter = ask.filter
		return s, nil
	}
	if ask.more {
		q.After = s.past.next
	} else {
		if s.past.stale {
			s.past.sound = false // and it is not current any more
		}
		s.past.stale = false
	}
	s.past.asking, s.past.at = &ask, s.Now
	return s, func(ctx context.Context, src Source) func(State) State {
		page, err := src.Past(ctx, q)
		return func(s State) State {
			if s.past.asking != &ask {
				return s // another filter has been typed since
			}
			s.past.asking = nil
			switch {
			case errors.Is(err, context.Canceled): // it is asked again when it is shown
				s.past.passed()
			case err != nil:
				s.past.fault, s.past.filter = text.Clean(err.Error()), ask.filter
				s.past.passed()
			default:
				return s.showPast(ask, q, page)
			}
			return s
		}
	}
}

// showPast takes a page. The cursor stays on its row.
func (s State) showPast(ask pastAsk, q snapshot.PastQuery, said snapshot.PastPage) State {
	page := cleanPast(said)
	to := answer{line: ask.filter, to: q, rows: page.Rows, next: page.Next, all: page.All, sound: slices.Equal(page.Rows, said.Rows)}
	to.to.After = ""
	p := &s.past
	switch {
	case ask.more:
		to.to, to.rows, to.sound = p.to, append(slices.Clip(p.rows), page.Rows...), to.sound && p.sound
	case ask.fresh && len(p.rows) > pastPage && joins(page.Rows, p.rows):
		to.rows, to.next, to.sound = joined(page.Rows, p.rows), p.next, false
	}
	if len(to.rows) > pastMost {
		to.rows, to.next, to.sound = to.rows[:pastMost:pastMost], "", false
	}
	p.filter = ask.filter
	p.change(to)
	return s
}

// joins says that the newest rows reach those that are there.
func joins(fresh, rows []snapshot.Past) bool {
	if len(rows) == 0 || len(fresh) == 0 {
		return false
	}
	return slices.ContainsFunc(fresh, func(r snapshot.Past) bool { return r.UID == rows[0].UID })
}

// joined puts the newest rows before those that are there. A job that ran again
// has moved to the front.
func joined(fresh, rows []snapshot.Past) []snapshot.Past {
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

// pastQuery is what a filter line asks for, and what of it means nothing.
func pastQuery(filter string, now time.Time) (snapshot.PastQuery, string) {
	t := parseTerms(filter, pastFields)
	since, until := t.moment("since", now), t.moment("until", now)
	return snapshot.PastQuery{Repository: t.one("repo"), Action: t.one("action"), States: snapshot.EndsMeant(t.fields["state"]), Ref: t.one("ref"),
		Since: since, Until: until, Words: t.words, Limit: pastPage}, t.problem
}

// pastProblem says what is wrong with the filter of the history.
func (s State) pastProblem() string {
	_, problem := pastQuery(s.filters[screenHistory], s.Now)
	return problem
}

// pastItem is one line of the list: a row, or several equal ones folded.
type pastItem struct {
	row  *snapshot.Past
	fold int       // how many rows it stands for; 0 = it is a row
	till time.Time // finish of the oldest of them
	of   string    // UID of the first of the equal rows; "" = it has none
}

func (i pastItem) key() string {
	if i.fold > 0 {
		return "fold " + i.of
	}
	return i.row.UID
}

// fold makes the lines of the list: equal failures in a row are folded unless they
// were opened.
func (p *past) fold() {
	rows := p.rows
	p.items = make([]pastItem, 0, len(rows))
	for i := 0; i < len(rows); {
		n := 1
		for i+n < len(rows) && alike(rows[i], rows[i+n]) {
			n++
		}
		of := ""
		if n >= foldFrom {
			of = rows[i].UID
		}
		show := n
		if of != "" && !slices.Contains(p.opened, of) {
			show = foldShown
		}
		for k := range rows[i : i+show] {
			p.items = append(p.items, pastItem{row: &rows[i+k], of: of})
		}
		if show < n {
			p.items = append(p.items, pastItem{row: &rows[i+show], fold: n - show, till: rows[i+n-1].Finished, of: of})
		}
		i += n
	}
}

func (p past) keys() []string { return keysOf(p.items, pastItem.key) }

// index is the line of the cursor.
func (p past) index() int {
	for i, item := range p.items {
		if item.key() == p.cursor {
			return i
		}
	}
	return 0
}

// atCursor is the line under the cursor.
func (p past) atCursor() (pastItem, bool) {
	if len(p.items) == 0 {
		return pastItem{}, false
	}
	return p.items[p.index()], true
}

// move moves the cursor by so many lines.
func (p *past) move(by int) {
	if n := len(p.items); n > 0 {
		p.cursor = p.items[min(max(p.index()+by, 0), n-1)].key()
	}
}

// alike says that two jobs have failed in the same way.
func alike(a, b snapshot.Past) bool {
	return a.State != "success" && a.State == b.State && a.Namespace == b.Namespace && a.Repository == b.Repository && a.Action == b.Action && pastOutcome(a) == pastOutcome(b)
}

// unfold opens the equal rows under the cursor, or folds them again.
func (s State) unfold() State {
	at, ok := s.past.atCursor()
	if !ok || at.of == "" {
		return s.say("nothing is folded here", false)
	}
	before := s.past.keys()
	if i := slices.Index(s.past.opened, at.of); i >= 0 {
		s.past.opened = slices.Delete(slices.Clone(s.past.opened), i, i+1)
	} else {
		s.past.opened = append(slices.Clip(s.past.opened[max(len(s.past.opened)-trailLength, 0):]), at.of)
	}
	s.past.fold()
	s.past.cursor = follow(s.past.cursor, before, s.past.keys())
	return s
}

// pastJob is a row of the history as a job: without what only the whole record has.
func pastJob(r snapshot.Past) snapshot.Job {
	return snapshot.Job{UID: r.UID, Namespace: r.Namespace, Name: r.Name, Repository: r.Repository, Action: r.Action, State: r.State, Message: pastOutcome(r),
		Started: r.Started, Finished: r.Finished, RefTo: r.RefTo, Attempt: r.Attempts, Progress: 100, Owner: "this"}
}

// record is the lookup of the whole of a job of which only a row is known.
type record struct {
	asking string // UID; "" = nothing is looked up
	fault  string // why there is no answer
}

// lackJob looks up the whole record of the job in the detail, when that is a row
// of the history.
func (s State) lackJob() (State, Lookup) {
	if !s.brief || s.record.asking == s.detail || s.record.fault != "" {
		return s, nil
	}
	uid := s.detail
	s.record.asking = uid
	return s, func(ctx context.Context, src Source) func(State) State {
		j, err := src.PastJob(ctx, uid)
		return func(s State) State {
			if s.record.asking == uid {
				s.record.asking = ""
			}
			switch {
			case s.detail != uid || !s.brief || errors.Is(err, context.Canceled): // it is asked again when it is shown
			case err != nil:
				s.record.fault = text.Clean(err.Error())
				return s.say(s.record.fault, true)
			default:
				whole := cleanJob(j)
				s.last, s.brief = &whole, false
				return s.lookAt(whole)
			}
			return s
		}
	}
}

// openPast shows the record under the cursor whole; of folded rows it opens the
// fold.
func (s State) openPast() State {
	at, ok := s.past.atCursor()
	switch {
	case !ok:
		return s
	case at.fold > 0:
		return s.unfold()
	}
	to := s.visit(screenDetail)
	return to.takeJob(pastJob(*at.row), true)
}

// pastOf shows the history of the repository under the cursor.
func (s State) pastOf() State {
	if of := s.reposMeant(); len(of) == 1 {
		s.filters[screenHistory] = fmt.Sprintf("repo:%s ", of[0].Name)
	}
	return s.visit(screenHistory)
}

func pastLine(s State) string {
	if of := s.reposMeant(); len(of) == 1 {
		return "limpet history list --repository " + quote(of[0].Name)
	}
	return "limpet history list"
}
