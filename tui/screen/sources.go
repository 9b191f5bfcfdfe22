package screen

import (
	"fmt"
	"strings"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// sourcesScreen is the list of the Flux sources. It is available when the API serves them.
type sourcesScreen struct{}

func (sourcesScreen) list(s *State) *position     { return &s.sources.position }
func (sourcesScreen) selection(s *State) []object { return s.sources.targets(sourceObject) }
func (sourcesScreen) open(s *State)               { openRow(s, &s.sources, sourceObject) }

func (sourcesScreen) draw(p *view, at widget.Rect) {
	l := &p.s.sources
	empty := p.whyEmpty("source", len(p.Snap.Sources))
	if empty == nil {
		empty = []string{"There are no sources any more."}
	}
	drawList(p, at, widget.Box{Title: p.listTitle("Sources", &l.position), Note: p.place(&l.position, 0), Foot: sourcesNote(l.rows),
		Focused: true}, func(s *State) *list[snapshot.Source] { return &s.sources }, p.sourceTable(), empty)
}

func (p *view) sourceTable() widget.Table[snapshot.Source] {
	type source = snapshot.Source
	return widget.Table[source]{Grow: 3,
		Columns: []widget.Column[source]{
			{Width: 1, Cell: func(from source, _ int) (string, widget.Role) {
				glyph := sourceGlyph(p.sourceShownState(from))
				return p.G.State[glyph], widget.StateRole(glyph)
			}},
			{Head: "NAME", Width: 16, Wide: 22, Whole: p.s.wide, Cell: widget.Plain(func(from source) string { return from.Name })},
			{Head: "STATE", Width: 9, Cell: func(from source, _ int) (string, widget.Role) {
				state := p.sourceShownState(from)
				return state, widget.StateRole(sourceGlyph(state))
			}},
			{Head: "REVISION, OR WHY NOT", Width: 18, Wide: 30, Cell: func(from source, _ int) (string, widget.Role) {
				switch {
				case from.Bad():
					return sourceProblem(from), widget.RoleBad
				case from.State != snapshot.SourceReady && from.Message != "":
					return from.Message, widget.RoleDim
				}
				return text.OrDash(snapshot.ShortRevision(artifactOf(from).Revision)), widget.RolePlain
			}},
			{Head: "UPDATED", Width: 8, Rank: 2, Cell: widget.Plain(func(from source) string {
				return widget.Ago(p.Now, artifactOf(from).Updated)
			})},
			{Head: "NEXT", Width: 8, Rank: 3, Cell: widget.Plain(func(from source) string {
				if p.offline() {
					return "-"
				}
				return from.Due(p.Now)
			})},
			{Head: "REF", Width: 16, Rank: 4, Cell: widget.Plain(func(from source) string { return strings.TrimPrefix(from.Ref, "branch ") })},
			{Head: "SIZE", Width: 8, Rank: 5, Right: true, Cell: widget.Plain(func(from source) string {
				if n := artifactOf(from).Size; n > 0 {
					return text.Size(n)
				}
				return "-"
			})},
			{Head: "URL", Width: 28, Rank: 6, Cell: dim(func(from source) string { return from.URL })},
			{Head: "NAMESPACE", Width: 14, Rank: 7, Cell: dim(func(from source) string { return from.Namespace })},
		}}
}

func sourcesNote(rows []snapshot.Source) string {
	n := map[string]int{}
	for i := range rows {
		state := sourceState(rows[i])
		if state != "suspended" && rows[i].Bad() {
			state = "failing"
		}
		n[state]++
	}
	var counts []count
	for _, state := range []string{"failing", snapshot.SourceWorking, snapshot.SourcePending, "suspended"} {
		counts = append(counts, count{n[state], state})
	}
	return countsText([]string{fmt.Sprintf("%d ready", n[snapshot.SourceReady])}, counts...)
}

func sourceState(from snapshot.Source) string {
	if from.Suspended {
		return "suspended"
	}
	return from.State
}

// sourceShownState returns the displayed state: a working source is "unknown" while the screen is not live.
func (p *view) sourceShownState(from snapshot.Source) string {
	state := sourceState(from)
	if p.offline() && state == snapshot.SourceWorking || sourceGlyph(state) == "unknown" {
		return snapshot.SourceUnknown
	}
	return state
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

func sourceProblem(from snapshot.Source) string {
	return strings.TrimPrefix(strings.TrimSuffix(from.Reason+": "+withoutLocalPorts(from.Message), ": "), ": ")
}

// artifactOf returns the artifact of a source; all its fields are zero when there is none.
func artifactOf(from snapshot.Source) snapshot.Artifact {
	if from.Artifact == nil {
		return snapshot.Artifact{}
	}
	return *from.Artifact
}
