package screen

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// The list of the Flux sources. It is available when the API serves them.

var sourcesScreen = screen{
	name: "sources", tab: "6", under: screenSources,
	list: paneOf(paneSources), selection: State.rowAtCursor, available: func(s State) bool { return len(s.Snap.Sources) > 0 },
	title: func(s State) string { return "Sources " + text.Thousands(len(s.Snap.Sources)) },
	draw:  func(p *view, x, y, w, h int) { p.sourceList(x, y, w, h) },
	hints: func(p *view) [][2]string {
		return [][2]string{{p.G.Up + p.G.Down, "move"}, {"enter", "open"}, {"p", "look now"}, {"s", p.sourceHint()}, {"t", "test"},
			{"/", "filter"}, {"o", "sort"}, {"u", "url"}, {"c", "commit"}}
	},
	move: State.moveSources, open: State.openSource, command: State.sourceShown,
}

func sourceKey(from snapshot.Source) string { return from.UID }

// sourceFields are the fields of a filter line.
var sourceFields = widget.FieldSet{"source": nil, "namespace": nil, "provider": nil, "reason": nil,
	"state": {snapshot.SourceReady, snapshot.SourceWorking, snapshot.SourceFailed, snapshot.SourceStalled, snapshot.SourcePending,
		snapshot.SourceUnknown, "suspended"}}

// sourceFieldsSeen returns the fields with the values of the snapshot.
func (s State) sourceFieldsSeen() widget.FieldSet {
	out := widget.FieldSet{"state": slices.Clone(sourceFields["state"])}
	for _, from := range s.Snap.Sources {
		for name, value := range map[string]string{"source": from.Name, "namespace": from.Namespace, "provider": from.Provider,
			"reason": from.Reason} {
			if value != "" && !slices.Contains(out[name], value) {
				out[name] = append(out[name], value)
			}
		}
	}
	for name := range sourceFields {
		sort.Strings(out[name])
	}
	return out
}

var sourceOrders = []widget.Sorting[snapshot.Source]{
	{Name: "name"},
	{Name: "state", Compare: func(a, b snapshot.Source) int { return cmp.Compare(sourceRank(a), sourceRank(b)) }},
	{Name: "namespace", Compare: func(a, b snapshot.Source) int { return cmp.Compare(a.Namespace, b.Namespace) }},
	{Name: "updated", Compare: func(a, b snapshot.Source) int { return updated(a).Compare(updated(b)) }},
	{Name: "size", Compare: func(a, b snapshot.Source) int { return cmp.Compare(size(b), size(a)) }},
	{Name: "url", Compare: func(a, b snapshot.Source) int { return cmp.Compare(a.URL, b.URL) }},
}

// sourceRank orders states: problems first.
func sourceRank(from snapshot.Source) int {
	if i := slices.Index([]string{snapshot.SourceStalled, snapshot.SourceFailed, snapshot.SourceUnknown, "suspended",
		snapshot.SourcePending, snapshot.SourceWorking}, sourceState(from)); i >= 0 {
		return i
	}
	return 99
}

// sources returns the rows of the list.
func (s State) sources() []snapshot.Source {
	if s.lists.cache.current(s) {
		return s.lists.cache.from
	}
	return s.findSources()
}

func (s State) findSources() []snapshot.Source {
	out := s.Snap.Sources
	if s.filter() != "" && s.nav.screen == screenSources {
		t := s.filterTerms(sourceFields)
		out = nil
		for _, from := range s.Snap.Sources {
			if t.Problem == "" && t.Matches("source", from.Name) && t.Matches("namespace", from.Namespace) &&
				t.Matches("provider", from.Provider) && t.Matches("reason", from.Reason) &&
				t.MatchesAny("state", []string{from.State, sourceState(from)}) && widget.ContainsWords(strings.Join(t.Words, " "), from.Name,
				from.Namespace, from.URL, from.Ref, revision(from), from.State, from.Reason, from.Message) {
				out = append(out, from)
			}
		}
	}
	return widget.Sorted(out, s.lists.orders[s.nav.screen][paneSources], sourceOrders)
}

func (s State) moveSources(by int) State {
	s.lists.source = widget.Step(s.lists.source, widget.KeysOf(s.sources(), sourceKey), by)
	return s
}

func (s State) openSource() State { return s.goSource(s.lists.source) }

func (s State) goSource(uid string) State {
	for _, from := range s.Snap.Sources {
		if from.UID == uid {
			to := s.goTo(screenSource)
			to.sourceView.seen, to.sourceView.top = &from, 0
			return to
		}
	}
	return s
}

// showSource sets the source of the detail screen.
func (s State) showSource(uid string) State {
	for _, from := range s.Snap.Sources {
		if from.UID == uid {
			s.sourceView.seen, s.sourceView.top = &from, 0
		}
	}
	return s
}

// source returns the source of the detail screen: its present state, else the last known one.
func (s State) source() (snapshot.Source, bool) {
	for _, from := range s.Snap.Sources {
		if from.UID == s.sourceView.seen.UID {
			return from, true
		}
	}
	return *s.sourceView.seen, false
}

// sourceState returns the state of a source as one word.
func sourceState(from snapshot.Source) string {
	if from.Suspended {
		return "suspended"
	}
	return from.State
}

// sourceGlyph returns the state whose glyph and colour stand for that of a source.
func sourceGlyph(state string) string {
	switch state {
	case snapshot.SourceReady:
		return "success"
	case snapshot.SourceFailed:
		return "error"
	case snapshot.SourceStalled:
		return "dead"
	case "suspended":
		return "cancelled"
	case snapshot.SourceWorking, snapshot.SourcePending:
		return state
	}
	return "unknown"
}

func (p *view) sourceList(x, y, w, h int) {
	rows := p.s.sources()
	title := "Sources"
	if p.s.offline() {
		title = "Sources (as of " + widget.ClockTime(p.s.staleSince(), p.s.Now) + ")"
	}
	keys := widget.KeysOf(rows, sourceKey)
	index := widget.IndexOf(p.s.lists.source, keys)
	if h >= sourceSide+8 && len(rows) > 0 {
		h -= sourceSide
		p.sourceBrief(x, y+h, w, sourceSide, rows[index])
	}
	p.Box(p.G, x, y, w, h, title+p.orderText(paneSources), p.markText(paneSources, widget.Place(index, len(rows), len(rows))),
		sourcesNote(rows), true)
	if len(rows) == 0 {
		p.Empty(x, y, w, h, p.noSources())
		return
	}
	columns := []widget.Column{widget.Col("", 1, 0), widget.Col("NAME", 16, 0), widget.Col("STATE", 9, 0),
		widget.Col("REVISION, OR WHY NOT", 18, 0), widget.Col("UPDATED", 8, 2), widget.Col("NEXT", 8, 3), widget.Col("REF", 16, 4),
		widget.NumCol("SIZE", 8, 5), widget.Col("URL", 28, 6), widget.Col("NAMESPACE", 14, 7)}
	if p.W >= wideWidth {
		columns[1].Width, columns[3].Width = 22, 30
	}
	if p.s.wide {
		p.Widen(columns, w, widget.KeysOf(rows, func(from snapshot.Source) string { return from.Name }), 1)
	}
	p.clickRows(paneSources, func(s State, i int) State { s.lists.source = rows[i].UID; return s })
	p.List(x+1, y+1, w-2, h-2, columns, 3, len(rows), index, true, func(i int) widget.Line { return p.sourceRow(rows[i]) })
}

// sourceSide is the height of the box below the list, in lines.
const sourceSide = 7

// sourceBrief draws the details of the source under the cursor that do not fit into its row.
func (p *view) sourceBrief(x, y, w, h int, from snapshot.Source) {
	var facts []widget.Fact
	for _, f := range p.sourceFacts(from, true) {
		if slices.Contains([]string{"state", "suspended", "asked for", "url", "artifact"}, f.Name) {
			facts = append(facts, f)
		}
	}
	p.Box(p.G, x, y, w, h, widget.Cut(from.Name, w/2, p.G.More), widget.Cut(from.Namespace, w/3, p.G.More), "", false)
	p.PutLines(x, y, w, h, p.FactLines(facts, w-4))
	p.Link(x+2, y+1, w-4, h-2, from.URL)
}

// sourcesNote counts the sources by state.
func sourcesNote(rows []snapshot.Source) string {
	counts := map[string]int{}
	for i := range rows {
		switch state := sourceState(rows[i]); {
		case state != "suspended" && rows[i].Bad():
			counts["failing"]++
		default:
			counts[state]++
		}
	}
	parts := []string{fmt.Sprintf("%d ready", counts[snapshot.SourceReady])}
	for _, state := range []string{"failing", snapshot.SourceWorking, snapshot.SourcePending, "suspended"} {
		if n := counts[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	return strings.Join(parts, ", ")
}

// noSources returns why the list is empty.
func (p *view) noSources() []string {
	if p.s.filter() != "" {
		return []string{"No source matches.", "Esc clears the filter."}
	}
	return []string{"There are no sources any more."}
}

func (p *view) sourceRow(from snapshot.Source) widget.Line {
	state := p.sourceShownState(from)
	what, ro := text.OrDash(snapshot.ShortRevision(revision(from))), widget.RolePlain
	switch {
	case from.Bad():
		what, ro = sourceProblem(from), widget.RoleBad
	case from.State != snapshot.SourceReady && from.Message != "":
		what, ro = from.Message, widget.RoleDim
	}
	next := from.Due(p.s.Now)
	if p.s.offline() {
		next = "-"
	}
	bytes := "-"
	if n := size(from); n > 0 {
		bytes = text.Size(n)
	}
	color := widget.StateRole(sourceGlyph(state))
	return widget.Line{
		Marked: slices.Contains(p.s.lists.marks[paneSources], from.UID),
		Cells: []string{p.G.State[sourceGlyph(state)], from.Name, state, what, widget.Ago(p.s.Now, updated(from)), next,
			strings.TrimPrefix(from.Ref, "branch "), bytes, from.URL, from.Namespace},
		Roles: []widget.Role{color, widget.RolePlain, color, ro, widget.RolePlain, widget.RolePlain, widget.RolePlain, widget.RolePlain,
			widget.RoleDim, widget.RoleDim},
	}
}

// sourceShownState returns the displayed state: a working source is "unknown" while the screen
// is not live.
func (p *view) sourceShownState(from snapshot.Source) string {
	state := sourceState(from)
	if p.s.offline() && state == snapshot.SourceWorking || p.G.State[sourceGlyph(state)] == "" || sourceGlyph(state) == "unknown" {
		return snapshot.SourceUnknown
	}
	return state
}

// sourceProblem returns what is wrong with a source.
func sourceProblem(from snapshot.Source) string {
	return strings.TrimPrefix(strings.TrimSuffix(from.Reason+": "+withoutLocalPorts(from.Message), ": "), ": ")
}

func (p *view) sourceHint() string {
	if rows := p.s.targetSources(); len(rows) > 0 && rows[0].Suspended {
		return "resume"
	}
	return "suspend"
}
