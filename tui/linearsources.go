package tui

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// The sources of Flux as they are read out.

// sourceWords are the commands about sources; they are there where sources are.
func sourceWords() []word {
	act := func(v Verb) func(linear, string) (linear, reply) {
		return func(l linear, rest string) (linear, reply) { return l.requestSource(v, rest) }
	}
	return []word{
		{[]string{"sources"}, "WORDS", "the sources of Flux; fields are source, state, namespace, provider, reason", func(l linear, rest string) (linear, reply) { return l.list(screenSources, rest) }},
		{[]string{"source"}, "NAME", "one source whole", func(l linear, rest string) (linear, reply) { return l.openSourceCalled(rest) }},
		{[]string{"reconcile"}, "NAME", "asks the controller of a source for a look", act(Reconcile)},
		{[]string{"suspend source"}, "NAME", "has its controller leave a source alone, after a question", act(SuspendSource)},
		{[]string{"resume source"}, "NAME", "ends that", act(ResumeSource)},
	}
}

func (l linear) requestSource(v Verb, name string) (linear, reply) {
	do := func(l linear, from snapshot.Source) (linear, reply) {
		switch {
		case v == SuspendSource && from.Suspended:
			return l, says("Not done: " + from.Name + " is suspended already. resume source " + from.Name + " ends that.")
		case v == ResumeSource && !from.Suspended:
			return l, says("Not done: " + from.Name + " is not suspended.")
		case v == ResumeSource:
			v = SuspendSource // one verb does both, by what is
		}
		var out Outcome
		l.s, out = l.s.request(l.s.sourceAims(v, l.s.sourceAt(from.UID)))
		return l.answered(out)
	}
	if name == "" && l.s.screen == screenSource {
		if from, live := l.s.source(); live {
			return do(l, from)
		}
	}
	if name == "" {
		return l, says("Say which: the word, then a name, as in: source NAME.")
	}
	return l.chooseSource(name, do)
}

// chooseSource finds the source of a name, and asks where several are meant.
func (l linear) chooseSource(name string, do func(linear, snapshot.Source) (linear, reply)) (linear, reply) {
	var exact, begun []snapshot.Source
	for _, from := range l.s.Snap.Sources {
		switch {
		case from.Name == name || from.Namespace+"/"+from.Name == name:
			exact = append(exact, from)
		case strings.HasPrefix(from.Name, strings.ToLower(name)):
			begun = append(begun, from)
		}
	}
	if n, err := strconv.Atoi(name); err == nil && len(exact) == 0 && n >= 1 && n <= len(l.sources) {
		exact = l.s.sourceAt(l.sources[n-1])
	}
	if len(exact) == 0 {
		exact = begun
	}
	switch len(exact) {
	case 0:
		return l, says(l.unknown("source", name, keysOf(l.s.Snap.Sources, func(from snapshot.Source) string { return from.Name })))
	case 1:
		return do(l, exact[0])
	}
	var offers []offer
	for _, from := range exact {
		offers = append(offers, offer{fmt.Sprintf("%s in namespace %s, %s", from.Name, text.OrDash(from.Namespace), sourceState(from)), func(l linear) (linear, reply) { return do(l, from) }})
	}
	return l.offer(offers)
}

// openSourceCalled says a source.
func (l linear) openSourceCalled(name string) (linear, reply) {
	if name == "" && l.s.screen == screenSource {
		return l.screen()
	}
	if name == "" {
		return l, says("Say which: source NAME, or source and its number in the list.")
	}
	return l.chooseSource(name, func(l linear, from snapshot.Source) (linear, reply) { return l.visit(l.s.goSource(from.UID)) })
}

// listSources says the sources.
func (l linear) listSources() (linear, reply) {
	rows := l.s.sources()
	l.sources = keysOf(rows, sourceKey)
	head := []string{"Sources: " + l.sourcesText()}
	switch problem := l.s.filterProblem(); {
	case problem != "":
		return l, says(problem)
	case l.s.filter() != "":
		head = []string{fmt.Sprintf("Sources that match %s: %d of %d", l.s.filter(), len(rows), len(l.s.Snap.Sources))}
	}
	if l.s.offline() {
		head[0] += ", as of " + clockTime(l.s.stale(), l.s.Now)
	}
	p := l.reader()
	var blocks [][]string
	for i, from := range rows {
		b := block{fmt.Sprintf("%d: source %s", i+1, from.Name)}
		b.add("state", strings.TrimSuffix(p.sourceShownState(from)+", "+p.sourceTrouble(from), ", "))
		b.add("revision", snapshot.ShortRevision(revision(from)))
		b.add("next look", p.dueText(from))
		blocks = append(blocks, b)
	}
	return l.page(head, blocks)
}

// sourceTrouble is why a source is not ready, "" when it is.
func (p *painter) sourceTrouble(from snapshot.Source) string {
	if from.State == snapshot.SourceReady {
		return ""
	}
	return why(from)
}

func (l linear) sourcesText() string {
	var bad []string
	for _, from := range l.s.Snap.Sources {
		if from.Bad() {
			bad = append(bad, from.Name)
		}
	}
	txt := fmt.Sprint(len(l.s.Snap.Sources))
	if len(bad) > 0 {
		txt += fmt.Sprintf(", %d not ready: %s", len(bad), strings.Join(bad[:min(len(bad), 5)], ", "))
	}
	return txt
}

// sourceFacts say a source whole.
func (l linear) sourceFacts() []string {
	from, live := l.s.source()
	b := block{"source " + from.Name}
	b.add("namespace", from.Namespace)
	for _, f := range l.reader().sourceFacts(from, live) {
		b.add(f.name, f.text)
	}
	for _, c := range from.Conditions {
		b.add(c.Type, strings.TrimSuffix(strings.Join([]string{c.Status, c.Reason, c.Message}, ", "), ", "))
	}
	return b
}

// tellSources tells what has become of the sources of the picture.
func tellSources(was, s State) (all []told) {
	before := make(map[string]snapshot.Source, len(was.Snap.Sources))
	for _, from := range was.Snap.Sources {
		before[from.UID] = from
	}
	for _, from := range s.Snap.Sources {
		old, known := before[from.UID]
		delete(before, from.UID)
		say := func(w weight, key, format string, args ...any) {
			all = append(all, told{w, key, "source " + from.Name + ": " + fmt.Sprintf(format, args...)})
		}
		if !known {
			say(tellOther, "", "is new")
		}
		switch {
		case from.Bad() && (!old.Bad() || why(old) != why(from)):
			say(tellError, "source "+from.UID+why(from), "%s, %s. Next: source %s", from.State, text.OrDash(why(from)), from.Name)
		case known && old.Bad() && from.State == snapshot.SourceReady:
			say(tellAgent, "", "ready again")
		}
		if rev := revision(from); known && rev != "" && rev != revision(old) {
			say(tellOther, "", "new revision %s", snapshot.ShortRevision(rev))
		}
		switch {
		case known && from.Suspended && !old.Suspended:
			say(tellAgent, "", "suspended")
		case known && !from.Suspended && old.Suspended:
			say(tellAgent, "", "resumed")
		}
		if known && !from.Deleting.IsZero() && old.Deleting.IsZero() {
			say(tellOther, "", "is being deleted")
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(before)) {
		all = append(all, told{weight: tellOther, text: "source " + before[uid].Name + ": is gone"})
	}
	return all
}
