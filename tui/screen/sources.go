package screen

import (
	"cmp"
	"fmt"
	"strings"
	"time"

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
					return SourceProblem(from), widget.RoleBad
				case from.State != snapshot.SourceReady && from.Message != "":
					return from.Message, widget.RoleDim
				}
				return text.OrDash(snapshot.ShortRevision(ArtifactOf(from).Revision)), widget.RolePlain
			}},
			{Head: "UPDATED", Width: 8, Rank: 2, Cell: widget.Plain(func(from source) string {
				return widget.Ago(p.Now, ArtifactOf(from).Updated)
			})},
			{Head: "NEXT", Width: 8, Rank: 3, Cell: widget.Plain(func(from source) string {
				if p.offline() {
					return "-"
				}
				return from.Due(p.Now)
			})},
			{Head: "REF", Width: 16, Rank: 4, Cell: widget.Plain(func(from source) string { return strings.TrimPrefix(from.Ref, "branch ") })},
			{Head: "SIZE", Width: 8, Rank: 5, Right: true, Cell: widget.Plain(func(from source) string {
				if n := ArtifactOf(from).Size; n > 0 {
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
	case "suspended", snapshot.SourceWorking, snapshot.SourcePending:
		return state
	}
	return "unknown"
}

// SourceProblem returns the reason and the message of a source.
func SourceProblem(from snapshot.Source) string {
	return strings.TrimPrefix(strings.TrimSuffix(from.Reason+": "+text.WithoutLocalPorts(from.Message), ": "), ": ")
}

// ArtifactOf returns the artifact of a source; all its fields are zero when there is none.
func ArtifactOf(from snapshot.Source) snapshot.Artifact {
	if from.Artifact == nil {
		return snapshot.Artifact{}
	}
	return *from.Artifact
}

// sourceScreen is the screen of one source: its state, its artifact and its conditions.
type sourceScreen struct {
	subject
	top int // first visible line
}

func (f *sourceScreen) lines(p *view, w int) []widget.TextLine {
	from, state, due := *f.source, f.source.State, f.source.DueText(p.Now)
	if p.offline() {
		due = "not known while " + p.unavailableReason()
		state = strings.Replace(state, snapshot.SourceWorking, snapshot.SourceUnknown, 1)
	}
	var facts widget.Sheet
	facts.AddIf(!f.live, widget.RoleBad, "gone", "deleted; this is its last known state")
	facts = append(facts, SourceFacts(from, state, p.G.State[sourceGlyph(state)]+" ", due, SourceController(p.Snap), p.command("resume", sourceObject(&from)), p.Now)...)
	if len(f.source.Conditions) > 0 {
		facts.Head("Conditions")
	}
	var met []string
	for _, c := range f.source.Conditions { // the failing ones first and in full
		txt := strings.TrimSpace(c.Type + " " + c.Status + " " + c.Reason)
		switch {
		case !c.Unmet():
			met = append(met, txt)
			continue
		case c.Message != "" && c.Message != f.source.Message: // else it is shown with the state
			txt += ": " + c.Message
		}
		if c.Status == "Unknown" {
			facts.Add(widget.RoleWarn, p.G.State["unknown"]+" not known", txt)
		} else {
			facts.Add(widget.RoleBad, p.G.State["error"]+" not met", txt)
		}
	}
	facts.AddIf(len(met) > 0, widget.RolePlain, p.G.State["success"]+" met", strings.Join(met, ", "))
	return facts.Lines(p.Canvas, w)
}

func (f *sourceScreen) scroll(_ *State, by int) { f.top += by }

func (f *sourceScreen) draw(p *view, at widget.Rect) {
	p.Scroll(at, widget.Box{Title: p.cut(f.source.Name, at.W/2), Note: p.cut(f.source.Namespace, at.W/3), Focused: true},
		f.lines(p, at.W-4), &f.top)
}

// controllerTimeout is the time without an answer after which a controller is reported as inactive.
const controllerTimeout = 2 * time.Minute

// SourceController tells who reconciles sources; "" = not known.
func SourceController(snap *snapshot.Snapshot) string {
	switch role := snap.Agent.Sources; {
	case role == nil:
		return ""
	case role.State == snapshot.ControllersActive:
		return "this agent"
	case role.State == snapshot.ControllersStandby && role.Holder == "":
		return "none yet: this agent waits for the lease"
	case role.State == snapshot.ControllersStandby:
		return "the agent on " + role.HolderName()
	case snap.API.Embedded:
		return "none (--sources " + role.Mode + ")"
	default:
		return "Flux's source-controller, if it runs (--sources " + role.Mode + ")"
	}
}

// SourceFacts describes a source, for a screen and for 'limpet source show'. state is its shown state, mark stands before
// it, due is when its controller looks next, controller who that is, and resume the command that ends a suspension.
func SourceFacts(from snapshot.Source, state, mark, due, controller, resume string, now time.Time) (out widget.Sheet) {
	out.AddIf(!from.Deleting.IsZero(), widget.RoleWarn, "deleting",
		"since "+widget.Ago(now, from.Deleting)+"; its controller removes its artifacts first")
	out.Add(widget.StateRole(sourceGlyph(state)), "state", widget.Join(": ", mark+text.OrDash(state)+
		widget.When(!from.Since.IsZero(), " for "+text.Age(now.Sub(from.Since))), SourceProblem(from)))
	out.AddIf(from.Suspended, widget.RoleWarn, "suspended",
		"in its spec, until: "+resume)
	out.AddIf(from.Behind && from.State != snapshot.SourcePending, widget.RoleWarn, "changed",
		"its controller has not seen the last change of its spec yet")
	out.Add(widget.RolePlain, "next check", due)
	out.AddIf(controller != "", widget.RolePlain, "reconciler", controller)
	asked, role := requestText(from, now)
	out.AddIf(asked != "", role, "requested", asked)
	out.Add(widget.RolePlain, "url", text.OrDash(from.URL))
	out.AddIf(from.Ref != "", widget.RolePlain, "follows", from.Ref)
	out.AddIf(from.Provider != "" && from.Provider != "generic", widget.RolePlain, "provider", from.Provider)
	if a := from.Artifact; a == nil {
		out.Add(widget.RoleWarn, "artifact", "none yet")
	} else {
		out.Add(widget.RolePlain, "artifact", widget.Join(", ", text.OrDash(a.Revision), widget.When(a.Size > 0, text.Size(a.Size)),
			widget.When(!a.Updated.IsZero(), "packed "+widget.Ago(now, a.Updated))))
		out.Add(widget.RolePlain, "digest", text.OrDash(a.Digest))
		out.Add(widget.RolePlain, "served at", text.OrDash(a.URL))
	}
	role, signed := verifiedText(from)
	out.AddIf(from.Verify != "", role, "signed", signed)
	for _, in := range from.Includes {
		role, at := widget.RolePlain, "at "+snapshot.ShortRevision(in.Revision)
		if in.Revision == "" {
			role, at = widget.RoleWarn, "not in the artifact yet"
		}
		out.Add(role, "includes", fmt.Sprintf("%s of %s in %s, %s", cmp.Or(in.From, "all"), in.Name, cmp.Or(in.To, in.Name), at))
	}
	return out
}

func requestText(from snapshot.Source, now time.Time) (string, widget.Role) {
	switch ago := widget.Ago(now, from.Asked); {
	case from.Waiting && from.Asked.IsZero():
		return "not reconciled yet", widget.RoleWarn
	case from.Waiting && now.Sub(from.Asked) > controllerTimeout && !from.Suspended:
		return ago + ", and not reconciled yet: is its controller running?", widget.RoleWarn
	case from.Waiting:
		return ago + ", not reconciled yet", widget.RoleWork
	case !from.Handled.IsZero():
		return widget.Ago(now, from.Handled) + ", done", widget.RolePlain
	}
	return "", widget.RolePlain
}

func verifiedText(from snapshot.Source) (widget.Role, string) {
	want := from.Verify + " has to be: "
	for _, c := range from.Conditions {
		switch {
		case c.Type == "SourceVerified" && c.Status == "True":
			return widget.RoleGood, want + "verified" + widget.When(from.Verified != "", " ("+from.Verified+")")
		case c.Type == "SourceVerified":
			return widget.RoleBad, want + "not verified, " + text.OrDash(c.Reason)
		}
	}
	return widget.RoleWarn, want + "not verified yet"
}
