package tui

import (
	"slices"

	"limpet/sync/snapshot"
)

const (
	// answersKept and answersRows bound the answers of filters before: the rows are
	// some 1 MiB.
	answersKept = 16
	answersRows = pastMost
)

// answer is what the history has said to one filter: all rows that it lets through,
// from the newest down to where next goes on.
type answer struct {
	line string // the filter
	to   snapshot.PastQuery
	rows []snapshot.Past
	next string // where more rows are; "" = there are none
	all  int    // jobs in the history
	// sound says that rows and next are as the history has them: nothing was cleaned
	// out of them, left out or put together.
	sound bool
}

// narrowed is what the history would say to a narrower query, as far as a does.
func (a answer) narrowed(line string, to snapshot.PastQuery) answer {
	rows := a.rows
	if n := slices.IndexFunc(rows, func(r snapshot.Past) bool { return !to.Selects(r) }); n >= 0 { // else they are all meant
		rows = slices.Clone(rows[:n])
		for _, r := range a.rows[n+1:] {
			if to.Selects(r) {
				rows = append(rows, r)
			}
		}
	}
	return answer{line: line, to: to, rows: rows, next: a.next, all: a.all, sound: true}
}

// reaches says that a goes further back than b.
func (a answer) reaches(b answer) bool {
	if a.next == "" || b.next == "" {
		return a.next == "" && b.next != ""
	}
	return len(b.rows) == 0 || len(a.rows) > 0 && a.rows[len(a.rows)-1].Finished.Before(b.rows[len(b.rows)-1].Finished)
}

// narrow answers a filter from what the history has said already, so that who types
// one, or takes letters back, asks for nothing that is here. False says that the
// history has to be asked.
func (p *past) narrow(line string, to snapshot.PastQuery) bool {
	if p.stale {
		return false
	}
	var best *answer
	for _, a := range append(slices.Clip(p.trail), p.answer) {
		if a.sound && a.to.Covers(to) && (best == nil || a.reaches(*best)) {
			best = &a
		}
	}
	if best == nil {
		return false
	}
	p.change(best.narrowed(line, to))
	return true
}

// change puts an answer in the place of the one before, which is kept for who comes
// back to its filter. The cursor stays on its row, or at the top.
func (p *past) change(to answer) {
	was := p.answer
	if was.sound && !p.stale && was.line != to.line {
		var others []answer
		for _, a := range p.trail {
			if a.line != was.line {
				others = append(others, a)
			}
		}
		p.trail = append(others, was)
		for rows := p.trailRows(); len(p.trail) > answersKept || rows > answersRows; p.trail = p.trail[1:] {
			rows -= len(p.trail[0].rows)
		}
	}
	before := p.keys()
	top := len(before) == 0 || p.cursor == before[0]
	p.answer, p.known, p.fault, p.asking = to, true, "", nil
	p.fold()
	if top {
		p.cursor = ""
	}
	p.cursor = follow(p.cursor, before, p.keys())
}

func (p *past) trailRows() (n int) {
	for _, a := range p.trail {
		n += len(a.rows)
	}
	return n
}

// passed says that jobs have ended or left the history, or may have: what it said
// before may not be what it would say now.
func (p *past) passed() { p.stale, p.trail = true, nil }
