package screen

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"limpet/state"
	"limpet/sync/snapshot"
	"limpet/sync/source/artifact"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// sourcesScreen is the list of the Flux sources. It is available when the API serves them.
type sourcesScreen struct{ list[snapshot.Source] }

func (l *sourcesScreen) draw(p *view, at widget.Rect) {
	empty := p.whyEmpty("source", len(p.Snap.Sources))
	if empty == nil {
		empty = []string{"There are no sources any more."}
	}
	drawList(p, at, widget.Box{Title: p.listTitle("Sources", &l.position), Foot: sourcesNote(l.rows), Focused: true,
		Note: widget.Join(", ", p.cut(widget.When(at.W > 50, SourceController(p.Snap)), at.W/3), p.place(&l.position, 0))},
		screenSources, &l.list, p.sourceTable(), empty)
}

func (p *view) sourceTable() widget.Table[snapshot.Source] {
	type source = snapshot.Source
	t := widget.Table[source]{Grow: 3,
		Columns: []widget.Column[source]{
			{Width: 1, Cell: stateCell(func(from source) string { return sourceGlyph(p.sourceShownState(from)) }, p.c.StateGlyph)},
			{Head: "NAME", Width: 16, Wide: 22, Whole: p.s.wide, Cell: widget.Plain(func(from source) string { return from.Name })},
			{Head: "STATE", Width: 9, Cell: func(from source, _ int) (string, widget.Role) {
				state := p.sourceShownState(from)
				return state, widget.StateRole(sourceGlyph(state))
			}},
			{Head: "REVISION, OR WHY NOT", Width: 18, Wide: 30, Cell: func(from source, _ int) (string, widget.Role) {
				switch {
				case !from.Deleting.IsZero():
					return "is being deleted", widget.RoleWarn
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
	if slices.ContainsFunc(p.Snap.Sources, func(from source) bool { return otherKind(&from) != "" }) {
		t.Grow++
		t.Columns = slices.Insert(t.Columns, 2, widget.Column[source]{Head: "KIND", Width: 14, Rank: 1,
			Cell: widget.Plain(func(from source) string { return cmp.Or(from.Kind, "GitRepository") })})
	}
	return t
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

// sourceShownState returns the displayed state: a working source is "unknown" while the screen is
// not live.
func (p *view) sourceShownState(from snapshot.Source) string {
	state := sourceState(from)
	if p.offline() && state == snapshot.SourceWorking || sourceGlyph(state) == "unknown" {
		return snapshot.SourceUnknown
	}
	return state
}

var sourceGlyphs = map[string]string{
	snapshot.SourceReady: "success", snapshot.SourceFailed: "error", snapshot.SourceStalled: "dead", "suspended": "suspended",
	snapshot.SourceWorking: snapshot.SourceWorking, snapshot.SourcePending: snapshot.SourcePending,
}

// sourceGlyph returns the state whose glyph and colour stand for that of a source.
func sourceGlyph(state string) string { return cmp.Or(sourceGlyphs[state], "unknown") }

// SourceProblem returns the reason and the message of a source.
func SourceProblem(from snapshot.Source) string {
	return strings.TrimPrefix(strings.TrimSuffix(from.Reason+": "+text.WithoutLocalPorts(from.Message), ": "), ": ")
}

// ArtifactOf returns the artifact of a source; all its fields are zero when there is none.
func ArtifactOf(from snapshot.Source) snapshot.Artifact {
	return *cmp.Or(from.Artifact, new(snapshot.Artifact))
}

// sourceScreen is the screen of one source: its state, its artifact and its conditions, and below
// them the revisions that the host has, or its events.
type sourceScreen struct {
	page   page[state.Artifact]
	log    bool // events in place of revisions
	stored fetched[string, []state.Artifact]
}

func (f *sourceScreen) listPosition() *position     { return f.page.listPosition() }
func (f *sourceScreen) scroll(by int)               { f.page.scroll(by) }
func (f *sourceScreen) selection(s *scene) []object { return f.page.subject.selection(s) }

// turn and zoom show the facts alone, or the revisions too.
func (f *sourceScreen) turn(int) { f.zoom() }
func (f *sourceScreen) zoom()    { f.page.turned, f.log, f.page.top = !f.page.turned, false, 0 }

func (f *sourceScreen) fetch(s *scene) Lookup {
	key := f.page.subject.object.source.UID + " " + ArtifactOf(*f.page.subject.object.source).Digest
	if _, known, err := f.stored.of(key); known || err != "" && s.Now.Sub(f.stored.at) < recentMaxAge ||
		f.page.subject.object.source.Name == "" {
		return nil
	}
	of := f.page.subject.object.Subject
	return f.stored.look(s, key, func(ctx context.Context, src Source) ([]state.Artifact, error) {
		return src.Artifacts(ctx, artifact.KeyOf(of.Source, of.Namespace, of.Name))
	})
}

var revisionKind = &kind[state.Artifact]{follows: true, key: func(a *state.Artifact) string { return a.Digest + a.Revision }}

func (f *sourceScreen) refresh(*scene) {
	rows := slices.DeleteFunc(slices.Clone(f.stored.value), func(a state.Artifact) bool { return a.UID != f.page.subject.object.source.UID })
	f.page.rows.show(rows)
}

// open shows what the revision under the cursor has changed.
func (f *sourceScreen) open(s *scene) (out Outcome) {
	out.toast = sourceChangesRefusal(&s.facts, *f.page.subject.object.source)
	out.changes = out.toast == ""
	return out
}

// sourceChangesRefusal returns why the changes of a source cannot be shown; "" = they can.
func sourceChangesRefusal(s *facts, from snapshot.Source) string {
	switch role := s.Snap.Agent.Sources; {
	case role == nil || role.State != snapshot.ControllersActive:
		return "this agent does not reconcile sources, so it has no revisions to compare"
	case from.Artifact == nil:
		return from.Name + " has no artifact yet"
	}
	return ""
}

// events returns the events of the source, the newest last.
func (f *sourceScreen) events(p *view) (out []widget.TextLine) {
	for _, e := range p.Snap.Events {
		if txt, ok := strings.CutPrefix(e.Text, "source "+f.page.subject.object.source.Namespace+"/"+f.page.subject.object.source.Name+": "); ok {
			e.Text = txt
			_, role := levelWord(e.Level)
			out = append(out, widget.Styled(role, eventLine(e, p.Now)))
		}
	}
	return out
}

func (f *sourceScreen) lines(p *view, w int) []widget.TextLine {
	from, due := *f.page.subject.object.source, f.page.subject.object.source.DueText(p.Now)
	state := from.State
	if p.offline() {
		due = "not known while " + p.unavailableReason()
		state = strings.Replace(state, snapshot.SourceWorking, snapshot.SourceUnknown, 1)
	}
	var facts widget.Sheet
	facts.AddIf(!f.page.subject.live, widget.RoleBad, "gone", "deleted; this is its last known state")
	facts = append(facts, SourceFacts(from, state, p.c.G.State[sourceGlyph(state)]+" ", due, SourceController(p.Snap),
		commandLine(p.facts, "resume", sourceObject(&from)), p.Now)...)
	if len(f.page.subject.object.source.Conditions) > 0 {
		facts.Head("Conditions")
	}
	var met []string
	for _, c := range f.page.subject.object.source.Conditions { // the failing ones first and in full
		txt := strings.TrimSpace(c.Type + " " + c.Status + " " + c.Reason)
		switch {
		case !c.Unmet():
			met = append(met, txt)
			continue
		case c.Message != "" && c.Message != f.page.subject.object.source.Message: // else it is shown with the state
			txt += ": " + c.Message
		}
		if c.Status == "Unknown" {
			facts.Add(widget.RoleWarn, p.c.G.State["unknown"]+" not known", txt)
		} else {
			facts.Add(widget.RoleBad, p.c.G.State["error"]+" not met", txt)
		}
	}
	facts.AddIf(len(met) > 0, widget.RolePlain, p.c.G.State["success"]+" met", strings.Join(met, ", "))
	return facts.Lines(p.c, w)
}

func (f *sourceScreen) draw(p *view, at widget.Rect) {
	box := widget.Box{Title: p.cut(f.page.subject.object.source.Name, at.W/2), Note: p.cut(f.page.subject.object.source.Namespace, at.W/3), Focused: true}
	lines := f.lines(p, at.W-4)
	top, rest, fit := split(at, len(lines), min(leastList, len(f.page.rows.rows)+3))
	fit = fit && !f.page.turned
	if f.page.listed = fit && !f.log && len(f.page.rows.rows) > 0; !f.page.listed && !(fit && f.log) {
		p.c.Scroll(at, box, lines, &f.page.top)
		return
	}
	box.More, box.Focused = "tab", false
	p.c.Panel(top, box, lines)
	if f.log {
		events := f.events(p)
		if len(events) == 0 {
			events = []widget.TextLine{widget.Styled(widget.RoleDim, "no event of this source since the agent has started")}
		}
		p.c.Scroll(rest, widget.Box{Title: "Log", Note: "l revisions", Focused: true}, events, &f.page.top)
		return
	}
	drawList(p, rest, widget.Box{Title: "Revisions", Note: "enter changes, l log", Foot: p.place(&f.page.rows.position, 0), Focused: true},
		screenSource, &f.page.rows, p.revisionTable(), nil)
}

func (p *view) revisionTable() widget.Table[state.Artifact] {
	type stored = state.Artifact
	return widget.Table[stored]{Grow: 3, Columns: []widget.Column[stored]{
		{Head: "REVISION", Width: 15, Wide: 30, Cell: widget.Plain(func(a stored) string { return snapshot.ShortRevision(a.Revision) })},
		{Head: "STORED", Width: 12, Cell: widget.Plain(func(a stored) string { return widget.DayTime(a.Updated, p.Now) })},
		{Head: "SIZE", Width: 8, Rank: 2, Right: true, Cell: widget.Plain(func(a stored) string { return text.Size(a.Size) })},
		{Head: "SUBJECT", Width: 16, Rank: 1, Cell: dim(func(a stored) string { return a.Subject })},
	}}
}

// controllerTimeout is the time without an answer after which a controller is reported as inactive.
const controllerTimeout = 2 * time.Minute

// SourceController returns who reconciles sources; "" = not known.
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

// SourceFacts describes a source, for a screen and for 'limpet source show'. state is its shown
// state, mark stands before it, due is when its controller looks next, controller who that is, and
// resume the command that ends a suspension.
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
	out.Add(widget.RolePlain, cmp.Or(map[string]string{"HelmChart": "chart", "ExternalArtifact": "artifact of"}[from.Kind], "url"), text.OrDash(from.URL))
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
	out.AddIf(from.Sink != "", widget.RolePlain, "sink", from.Sink)
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

var sourceKind = &kind[snapshot.Source]{
	object: sourceObject,
	key:    func(from *snapshot.Source) string { return from.UID },
	fields: widget.FieldSet{"source": nil, "namespace": nil, "provider": nil, "reason": nil,
		"state": {snapshot.SourceReady, snapshot.SourceWorking, snapshot.SourceFailed, snapshot.SourceStalled, snapshot.SourcePending,
			snapshot.SourceUnknown, "suspended"}},
	match: func(from snapshot.Source, t *widget.FilterTerms) bool {
		return t.Matches("source", from.Name) && t.Matches("namespace", from.Namespace) && t.Matches("provider", from.Provider) &&
			t.Matches("reason", from.Reason) && t.Matches("state", from.State, sourceState(from)) &&
			widget.ContainsWords(strings.Join(t.Words, " "), from.Name, from.Namespace, from.URL, from.Ref, ArtifactOf(from).Revision,
				from.State, from.Reason, from.Message)
	},
	sorts: []sorting[snapshot.Source]{
		{name: "name"},
		{"state", func(a, b snapshot.Source) int { return cmp.Compare(severity(sourceState(a)), severity(sourceState(b))) }},
		{"namespace", func(a, b snapshot.Source) int { return cmp.Compare(a.Namespace, b.Namespace) }},
		{"updated", func(a, b snapshot.Source) int { return ArtifactOf(a).Updated.Compare(ArtifactOf(b).Updated) }},
		{"size", func(a, b snapshot.Source) int { return cmp.Compare(ArtifactOf(b).Size, ArtifactOf(a).Size) }},
		{"url", func(a, b snapshot.Source) int { return cmp.Compare(a.URL, b.URL) }},
	},
}
