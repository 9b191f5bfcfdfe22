package tui

import (
	"fmt"

	"limpet/sync/text"
)

// pageBlocks is how many entries of a list are said at once.
const pageBlocks = 10

// visit goes to a screen and says it, after what has to be looked up for it.
func (l linear) visit(to State) (linear, reply) {
	l.s = to
	var look Lookup
	l.s, look = l.s.lack()
	if look != nil {
		l.waits = true
		return l, reply{look: look}
	}
	return l.screen()
}

// screen says the present screen.
func (l linear) screen() (linear, reply) {
	l.waits = false
	if l.s.toast != "" {
		return l.answered(Outcome{})
	}
	switch l.s.screen {
	case screenJobs:
		return l.listJobs()
	case screenRepos:
		return l.listRepos()
	case screenDetail:
		return l, says(l.jobFacts()...)
	case screenRepo:
		return l, says(l.repoFacts()...)
	case screenSources:
		return l.listSources()
	case screenSource:
		return l, says(l.sourceFacts()...)
	case screenHistory:
		return l.listPast()
	case screenAgent:
		return l, says(l.agentFacts()...)
	case screenChanges:
		return l.listChanges()
	case screenDiff:
		return l.listDiff()
	}
	return l, says(l.status()...)
}

// page says the first blocks of a list and keeps the others for the word more.
func (l linear) page(head []string, blocks [][]string) (linear, reply) {
	n := min(len(blocks), pageBlocks)
	out := head
	for _, b := range blocks[:n] {
		out = append(out, b...)
	}
	l.rest = blocks[n:]
	if rest := len(l.rest); rest > 0 {
		out = append(out, fmt.Sprintf("%s more: the word more goes on.", text.Thousands(rest)))
	}
	return l, says(out...)
}

// more goes on with the list that was said last; of the history it looks up what
// comes after.
func (l linear) more() (linear, reply) {
	if len(l.rest) > 0 {
		return l.page(nil, l.rest)
	}
	if l.s.screen == screenHistory && l.s.past.next != "" && len(l.s.past.items) > 0 {
		l.s.past.cursor = l.s.past.items[len(l.s.past.items)-1].key()
		var look Lookup
		if l.s, look = l.s.lack(); look != nil {
			l.waits = true
			return l, reply{look: look}
		}
	}
	return l, says("That was all.")
}

// list says one of the lists, of what the words of a filter let through.
func (l linear) list(of screen, filter string) (linear, reply) {
	s := l.s.visit(of)
	s.filters[of] = filter
	return l.visit(s.settle())
}
