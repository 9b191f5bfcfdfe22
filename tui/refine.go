package tui

import (
	"slices"

	"limpet/sync/snapshot"
)

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
	query  snapshot.PastQuery
	rows   []snapshot.Past
	next   string // where more rows are; "" = there are none
	all    int    // jobs in the history
	// exact says that rows and next are as the history has them: nothing was cleaned
	// out of them, left out or put together.
	exact bool
}

// refined is what the history would say to a narrower query, as far as a does.
func (a historyAnswer) refined(line string, to snapshot.PastQuery) historyAnswer {
	rows := a.rows
	if n := slices.IndexFunc(rows, func(r snapshot.Past) bool { return !to.Selects(r) }); n >= 0 { // else they are all meant
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
func (p *history) refine(line string, to snapshot.PastQuery) bool {
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
	p.cursor = keepCursor(p.cursor, before, p.keys())
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
