package tui

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// linear is the dashboard as lines, for who has it read out: what changes is told in
// sentences, a typed line has an answer. Like State it is a value whose functions
// return the next one and the lines that are said. Nothing in a line moves a cursor.
type linear struct {
	s    State
	tell teller

	waits  bool       // the answer of a lookup is to be said
	offers []offer    // what a number means now
	rest   [][]string // blocks of a list that were not said yet
	jobs   []string   // UIDs of the list that was said last, in its order
	repos  []string   // keys of the list that was said last
	past   int        // rows of the history that were said

	sources []string // UIDs of the list that was said last
}

// reply is what a typed line leads to.
type reply struct {
	Outcome
	lines []string
	look  Lookup // to be asked before the next line is read; nil = nothing
}

func says(txt ...string) reply { return reply{lines: txt} }

func newLinear(s State) linear {
	s.Caps = Caps{ASCII: true, Mono: true} // what painters say here has no glyphs
	return linear{s: s.enter(screenJobs)}
}

// show takes a picture. The first one is greeted.
func (l linear) show(snap *snapshot.Snapshot, source, note string, now time.Time) (linear, []string) {
	was, first := l.s, !l.tell.started
	l.s.Now = now
	l.s = l.s.Show(snap)
	l.s.Source, l.s.Note = source, text.Clean(note)
	var out []string
	l.tell, out = l.tell.picture(was, l.s)
	switch {
	case first:
		return l, l.greeting()
	case l.s.firstRun() && !was.firstRun():
		out = append(out, l.firstSteps()...)
	}
	return l, out
}

// lose is what is said while the source does not answer.
func (l linear) lose(why string, now time.Time) (linear, []string) {
	was := l.s
	l.s.Now = now
	l.s = l.s.Lose(why)
	var out []string
	l.tell, out = l.tell.lost(was, l.s)
	return l, out
}

// tick is what is said as time goes by.
func (l linear) tick(now time.Time) (linear, []string) {
	l.s.Now = now
	var out []string
	l.tell, out = l.tell.later(l.s)
	return l, out
}

// greeting is what who comes in has to know.
func (l linear) greeting() []string {
	out := []string{fmt.Sprintf("limpet %s, %s. Times are UTC. The word help lists what can be typed.", text.OrDash(l.s.Snap.Agent.Version), l.s.Source)}
	if l.s.Note != "" {
		out = append(out, "note: "+l.s.Note)
	}
	if l.s.firstRun() {
		return append(out, l.firstSteps()...)
	}
	return append(out, l.status()...)
}

// interrupt is what Ctrl-C does: it asks where jobs run in this process, and twice
// it ends at once.
func (l linear) interrupt() (linear, reply) {
	l.offers = nil
	var out Outcome
	l.s, out = l.s.Key("ctrl+c", "")
	return l.answered(out)
}

// acted takes the end of what was asked of the agent.
func (l linear) acted(err error) (linear, []string) {
	if err == nil {
		return l, nil
	}
	l.s = l.s.Fail(err.Error())
	txt := l.s.toast
	l.s.toast = ""
	l.tell.errors = l.s.troubles.counts()
	return l, []string{stamped(l.s.Now, "not done: "+txt)}
}

// found takes the answer of a lookup, and says what was waited for.
func (l linear) found(take func(State) State) (linear, reply) {
	l.s = take(l.s)
	if q, ok := l.s.over.(inquiry); ok {
		l.s.over = nil
		return l.told(q)
	}
	if !l.waits {
		return l, reply{}
	}
	return l.visit(l.s) // a record that was found may have to be looked up whole
}

// enter is what a typed line leads to.
func (l linear) enter(line string) (linear, reply) {
	line = strings.Join(strings.Fields(text.Clean(line)), " ")
	l.s.toast = ""
	if q, ok := l.s.asked(); ok {
		return l.decide(q, line)
	}
	if line == "" {
		return l, reply{}
	}
	offers := l.offers
	l.offers = nil
	if n, err := strconv.Atoi(line); err == nil && len(offers) > 0 {
		if n < 1 || n > len(offers) {
			l.offers = offers
			return l, says(fmt.Sprintf("Type a number from 1 to %d, or another command.", len(offers)))
		}
		return offers[n-1].do(l)
	}
	for _, w := range l.words() {
		if rest, ok := w.takes(line); ok {
			return w.do(l, rest)
		}
	}
	return l.command(line)
}

// command does what the palette has under these words; where they are not exact it
// offers what they may mean.
func (l linear) command(line string) (linear, reply) {
	var exact, like []command
	fields := strings.Fields(strings.ToLower(line))
	for _, c := range l.s.commands() {
		if c.group != "" || strings.HasPrefix(c.words, "theme ") { // keys, and what is seen
			continue
		}
		if strings.EqualFold(c.words, line) {
			exact = append(exact, c)
		} else if rank, ok := match(strings.ToLower(c.words), strings.ToLower(line), fields); ok && rank < 2 {
			like = append(like, c)
		}
	}
	if len(exact) == 1 {
		return l.perform(exact[0])
	}
	var offers []offer
	for _, c := range append(exact, like...) {
		offers = append(offers, offer{c.words, func(l linear) (linear, reply) { return l.perform(c) }})
	}
	if len(offers) > 0 {
		return l.offer(offers)
	}
	word, _, _ := strings.Cut(line, " ")
	var names []string
	for _, w := range l.words() {
		names = append(names, w.names...)
	}
	txt := fmt.Sprintf("%s is no command.", cmp.Or(word, line))
	if near := nearest(word, names); near != "" {
		txt += " Did you mean " + near + "?"
	}
	return l, says(txt + " The word help lists them.")
}

func (l linear) perform(c command) (linear, reply) {
	at := l.s.here()
	filter := l.s.filter()
	var out Outcome
	l.s, out = l.s.perform(c)
	if l.s.here() != at || l.s.filter() != filter {
		return l.visit(l.s.settle())
	}
	l, re := l.answered(out)
	if len(re.lines) == 0 && !re.Quit && !re.SetUp && !re.Refresh && len(re.Actions) == 0 {
		return l, says("Nothing was done: what was meant is gone, or is so already.")
	}
	return l, re
}
