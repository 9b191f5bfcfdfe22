package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

var sourceScreen = screen{
	under: screenSources, draw: (*view).sourceDetail, command: State.sourceShown,
	move: State.scrollSource, list: paneOf(paneSources),
	selection: func(s State) (out selection) {
		if from, live := s.source(); live {
			out.source = &from
		}
		return out
	},
	hints: func(p *view) [][2]string {
		return [][2]string{{"esc", "back"}, {"p", "look now"}, {"s", p.sourceHint()}, {"t", "test"}, {"u", "url"}, {"c", "commit"},
			{"Y", "command"}}
	},
}

// controllerTimeout is the time without an answer after which a controller is reported as
// inactive.
const controllerTimeout = 2 * time.Minute

// sourceDetail draws one source: its state, its artifact and its conditions.
func (p *view) sourceDetail(x, y, w, h int) {
	from, live := p.s.source()
	lines, conditions := p.sourceLines(from, live, w, h)
	low := 0
	if len(conditions) > 0 {
		low = len(conditions) + 2
		p.Box(p.G, x, y+h-low, w, low, "Conditions", "", "", false)
		p.PutLines(x, y+h-low, w, low, conditions)
	}
	h -= low
	top := scrolled(p.s.sourceView.top, len(lines), h)
	foot := ""
	if rest := len(lines) - top - (h - 2); rest > 0 {
		foot = text.Plural(rest, "more line") + " below"
	}
	p.Box(p.G, x, y, w, h, widget.Cut(from.Name, w/2, p.G.More), widget.Cut(from.Namespace, w/3, p.G.More), foot, true)
	for i, l := range lines[top:min(top+max(h-2, 0), len(lines))] {
		p.Put(x+2, y+1+i, w-4, l.Role, widget.Cut(l.Text, w-4, p.G.More))
	}
	p.Link(x+2, y+1, w-4, h-2, from.URL)
	if from.Artifact != nil {
		p.Link(x+2, y+1, w-4, h-2, from.Artifact.URL)
	}
}

// scrollSource scrolls a source that has more lines than the screen.
func (s State) scrollSource(by int) State {
	w, h := s.size()
	p := &view{Painter: widget.NewPainter(0, 0, s.Caps), s: s}
	from, live := s.source()
	lines, _ := p.sourceLines(from, live, w, h-frameRows)
	top := scrolled(s.sourceView.top, len(lines), h-frameRows)
	s.sourceView.top = scrolled(max(top+by, 0), len(lines), h-frameRows)
	return s
}

// sourceLines lays out a source in a box of w by h cells: its facts, and its conditions for a
// separate box when there is room for both.
func (p *view) sourceLines(from snapshot.Source, live bool, w, h int) (lines, conditions []widget.TextLine) {
	lines = p.FactLines(p.sourceFacts(from, live), w-4)
	conditions = p.sourceConditions(from, w-4)
	if len(conditions) == 0 || len(lines)+len(conditions)+4 <= h {
		return lines, conditions
	}
	return append(append(lines, widget.TextLine{}, widget.Styled(widget.RoleHead, "CONDITIONS")), conditions...), nil
}

// sourceFacts returns the facts about a source.
func (p *view) sourceFacts(from snapshot.Source, live bool) (out []widget.Fact) {
	fact := func(ro widget.Role, name, txt string) { out = append(out, widget.NewFact(ro, name, txt)) }
	if !live {
		fact(widget.RoleBad, "gone", "it is no longer there; this is what was seen last")
	}
	if !from.Deleting.IsZero() {
		fact(widget.RoleWarn, "deleting", "since "+widget.Ago(p.s.Now, from.Deleting)+"; its controller removes what it has packed first")
	}
	state := from.State
	if p.s.offline() && state == snapshot.SourceWorking {
		state = snapshot.SourceUnknown
	}
	txt := p.G.State[sourceGlyph(state)] + " " + text.OrDash(state)
	if !from.Since.IsZero() {
		txt += " for " + text.Age(p.s.Now.Sub(from.Since))
	}
	if w := sourceProblem(from); w != "" {
		txt += ": " + w
	}
	fact(widget.StateRole(sourceGlyph(state)), "state", txt)
	if from.Suspended {
		fact(widget.RoleWarn, "suspended", "in its spec: its controller leaves it alone; s resumes it")
	}
	if from.Behind && from.State != snapshot.SourcePending {
		fact(widget.RoleWarn, "changed", "its controller has not seen the last change of its spec yet")
	}
	fact(widget.RolePlain, "next look", p.dueText(from))
	if txt, ro := p.askedText(from); txt != "" {
		fact(ro, "asked for", txt)
	}
	fact(widget.RolePlain, "url", text.OrDash(from.URL))
	fact(widget.RolePlain, "follows", from.Ref)
	if from.Provider != "" && from.Provider != "generic" {
		fact(widget.RolePlain, "provider", from.Provider)
	}
	if a := from.Artifact; a == nil {
		fact(widget.RoleWarn, "artifact", "none yet")
	} else {
		txt := text.OrDash(a.Revision)
		if a.Size > 0 {
			txt += ", " + text.Size(a.Size)
		}
		if !a.Updated.IsZero() {
			txt += ", packed " + widget.Ago(p.s.Now, a.Updated)
		}
		fact(widget.RolePlain, "artifact", txt)
		fact(widget.RolePlain, "digest", text.OrDash(a.Digest))
		fact(widget.RolePlain, "served at", text.OrDash(a.URL))
	}
	if from.Verify != "" {
		ro, txt := verifiedText(from)
		fact(ro, "signed", txt)
	}
	for _, in := range from.Includes {
		txt := fmt.Sprintf("%s of %s in %s", cmp.Or(in.From, "all"), in.Name, cmp.Or(in.To, in.Name))
		if in.Revision == "" {
			fact(widget.RoleWarn, "includes", txt+", not in the artifact yet")
		} else {
			fact(widget.RolePlain, "includes", txt+", at "+snapshot.ShortRevision(in.Revision))
		}
	}
	return out
}

func (p *view) dueText(from snapshot.Source) string {
	if p.s.offline() {
		return "not known while " + p.s.unavailableReason()
	}
	return from.DueText(p.s.Now)
}

// askedText describes a pending reconcile request.
func (p *view) askedText(from snapshot.Source) (string, widget.Role) {
	switch {
	case from.Waiting && from.Asked.IsZero():
		return "not looked at yet", widget.RoleWarn
	case from.Waiting && p.s.Now.Sub(from.Asked) > controllerTimeout && !from.Suspended:
		return widget.Ago(p.s.Now, from.Asked) + ", and not looked at yet: is source-controller at work?", widget.RoleWarn
	case from.Waiting:
		return widget.Ago(p.s.Now, from.Asked) + ", not looked at yet", widget.RoleWork
	case !from.Handled.IsZero():
		return widget.Ago(p.s.Now, from.Handled) + ", done", widget.RolePlain
	}
	return "", widget.RolePlain
}

// verifiedText describes the signature policy and its result.
func verifiedText(from snapshot.Source) (widget.Role, string) {
	want := from.Verify + " has to be: "
	for _, c := range from.Conditions {
		if c.Type == "SourceVerified" && c.Status == "True" {
			return widget.RoleGood, want + "verified" + strings.TrimSuffix(" ("+from.Verified+")", " ()")
		} else if c.Type == "SourceVerified" {
			return widget.RoleBad, want + "not verified, " + text.OrDash(c.Reason)
		}
	}
	return widget.RoleWarn, want + "not verified yet"
}

// sourceConditions returns the conditions, the failing ones first and in full.
func (p *view) sourceConditions(from snapshot.Source, w int) (out []widget.TextLine) {
	item := func(ro widget.Role, state, txt string) { out = append(out, p.MarkedLines(ro, state, txt, w)...) }
	var met []string
	for _, c := range from.Conditions {
		if !c.Unmet() {
			met = append(met, strings.TrimSpace(c.Type+" "+c.Status+" "+c.Reason))
			continue
		}
		ro, state := widget.RoleBad, "error"
		if c.Status == "Unknown" {
			ro, state = widget.RoleWarn, "unknown"
		}
		txt := c.Type + " " + c.Status + " " + c.Reason
		if c.Message != "" && c.Message != from.Message { // shown with the state
			txt += ": " + c.Message
		}
		item(ro, state, txt)
	}
	if len(met) > 0 {
		item(widget.RolePlain, "success", strings.Join(met, ", "))
	}
	return out
}

func revision(from snapshot.Source) string {
	if from.Artifact == nil {
		return ""
	}
	return from.Artifact.Revision
}

func size(from snapshot.Source) int64 {
	if from.Artifact == nil {
		return 0
	}
	return from.Artifact.Size
}

func updated(from snapshot.Source) time.Time {
	if from.Artifact == nil {
		return time.Time{}
	}
	return from.Artifact.Updated
}

// Actions on sources: limpet only sends requests to their controller.

// targetSources returns the marked sources, else the one under the cursor or on the detail
// screen.
func (s State) targetSources() []snapshot.Source {
	if many := marked(s, paneSources, s.sources(), sourceKey); len(many) > 0 {
		return many
	}
	if at := s.selection(); at.source != nil {
		return []snapshot.Source{*at.source}
	}
	return nil
}

// sourceTargets returns the targets of a key for v. When there are none, why is the reason.
func (s State) sourceTargets(v Verb, rows []snapshot.Source) (out []target, why string) {
	if why := s.notSentReason(); why != "" {
		return nil, why
	}
	why = "no source is under the cursor"
	for _, from := range rows {
		a := target{source: from, action: Action{Verb: v, Namespace: from.Namespace, Name: from.Name, UID: from.UID}}
		switch {
		case v == Reconcile && from.Suspended:
			why = from.Name + " is suspended, so its controller would not look: s resumes it"
			continue
		case v == SuspendSource && from.Suspended:
			a.action.Verb = ResumeSource
		}
		out = append(out, a)
	}
	if len(out) == 0 {
		return nil, why
	}
	// If only some of the sources are suspended, the first one decides between suspend and
	// resume.
	return sameVerb(out), ""
}

// requestSources sends the actions at once or after a confirmation.
func (s State) requestSources(targets []target) (State, Outcome) {
	name := targets[0].action.Name
	switch v := targets[0].action.Verb; {
	case v == SuspendSource:
		return s.ask(confirmSuspendSources(targets)), Outcome{}
	case v == ResumeSource && len(targets) > 1:
		return s.ask(confirmMany(targets, "Resume", "Their controller looks at each at once.")), Outcome{}
	case v == ResumeSource:
		return s.showToast("resumption of "+name+" asked for", false), send(targets)
	case len(targets) > 1:
		return s.ask(confirmMany(targets, "Look now at",
			"Each is asked of its controller, which fetches what is new; it is cheap and harmless when repeated.")), Outcome{}
	}
	return s.showToast("a look at "+name+" asked for", false), send(targets)
}

func confirmSuspendSources(targets []target) confirm {
	what, packed := targets[0].action.Name, "What is packed of it"
	if len(targets) > 1 {
		what, packed = fmt.Sprintf("%d sources", len(targets)), "What is packed of them"
	} else if rev := revision(targets[0].source); rev != "" {
		packed += " (" + snapshot.ShortRevision(rev) + ")"
	}
	return confirm{
		title: "Suspend " + what + " for everybody?",
		lines: []string{"spec.suspend is written to the API: the controller of Flux looks for nothing new, whoever asks, until " +
			"somebody resumes it. " +
			packed + " stays, and what is deployed from there stays as it is."},
		choices: yes("Yes, suspend", "suspension of "+what+" asked for", targets),
	}
}

// sourceLinks returns the addresses of the source under the cursor.
func (s State) sourceLinks() (out []snapshot.Link) {
	rows := s.targetSources()
	if len(rows) != 1 {
		return nil
	}
	if rows[0].URL != "" {
		out = append(out, snapshot.Link{Name: "source", URL: rows[0].URL})
	}
	if a := rows[0].Artifact; a != nil && a.URL != "" {
		out = append(out, snapshot.Link{Name: "artifact", URL: a.URL})
	}
	return out
}

// sourceCommand returns the command for an action on a source.
func (s State) sourceCommand(verb string, from snapshot.Source) string {
	txt := "limpet source " + verb + " " + widget.Quote(from.Name)
	for _, other := range s.Snap.Sources {
		if other.Name == from.Name && other.Namespace != from.Namespace {
			return txt + " --namespace " + widget.Quote(from.Namespace)
		}
	}
	return txt
}

// sourceShown returns the command that shows the source under the cursor.
func (s State) sourceShown() string {
	if rows := s.targetSources(); len(rows) > 0 {
		return s.sourceCommand("show", rows[0])
	}
	return ""
}

// sourceAt returns the present source with a UID: one, or none.
func (s State) sourceAt(uid string) []snapshot.Source {
	for _, from := range s.Snap.Sources {
		if from.UID == uid {
			return []snapshot.Source{from}
		}
	}
	return nil
}

// sourceCommands returns the commands of the palette for a source.
func (s State) sourceCommands(from snapshot.Source) []command {
	act := func(words, note, label string, v Verb) command {
		return command{words: words, note: note, label: label}.targeting(
			func() target { return target{source: from, action: Action{Verb: v, Name: from.Name}} })
	}
	out := []command{
		{words: "go source " + from.Name, refusalOf: goneRefusal(func(s State) bool { return len(s.sourceAt(from.UID)) > 0 }, from.Name+
			" is not there any more"), note: sourceState(from), label: "enter",
			line: func(s State) string { return s.sourceCommand("show", from) }, do: same(func(s State) State { return s.goSource(from.UID) })},
		act("reconcile "+from.Name, "its controller looks now", "p", Reconcile),
	}
	if from.Suspended {
		out = append(out, act("resume source "+from.Name, "", "s", ResumeSource))
	} else {
		out = append(out, act("suspend source "+from.Name, "asks", "s", SuspendSource))
	}
	out = append(out, command{words: "test source " + from.Name, note: "its host and its credentials", label: "t",
		line:      func(s State) string { return s.sourceCommand("test", from) },
		refusalOf: testRefusalOf(func(s State) bool { return len(s.sourceAt(from.UID)) > 0 }, from.Name),
		do:        same(func(s State) State { return s.openPopup(sourceSubject(from), true) })})
	get := func(s State) string { return s.sourceCommand("get", from) }
	return append(out, command{words: "get source " + from.Name, note: "copies the command", line: get,
		do: func(s State) (State, Outcome) { return s.copied(get(s)) }})
}

// sourceIssues returns the sources that have begun to fail since the previous snapshot, or whose
// reason has changed.
func (s State) sourceIssues(before *snapshot.Snapshot) (out []issue) {
	was := make(map[string]string, len(before.Sources))
	for i := range before.Sources {
		if from := &before.Sources[i]; from.Bad() {
			was[from.UID] = sourceProblem(*from)
		}
	}
	for _, from := range s.Snap.Sources {
		txt := sourceProblem(from)
		if old, bad := was[from.UID]; !from.Bad() || bad && old == txt {
			continue
		}
		at := from.Since
		if at.IsZero() || at.After(s.Snap.At) {
			at = s.Snap.At
		}
		out = append(out, issue{at: at, source: from.Name, text: strings.TrimSuffix(from.State+": "+txt, ": ")})
	}
	return out
}

// cleanSources cleans every text of sources, UIDs too: commands show them.
func cleanSources(in []snapshot.Source) []snapshot.Source {
	if len(in) == 0 {
		return nil
	}
	out := slices.Clone(in)
	for i := range out {
		from := &out[i]
		for _, p := range []*string{&from.UID, &from.Namespace, &from.Name, &from.URL, &from.Ref, &from.Provider, &from.Verify,
			&from.State, &from.Reason, &from.Message, &from.Verified} {
			*p = text.Clean(*p)
		}
		if from.Artifact != nil {
			a := *from.Artifact
			a.Revision, a.Digest, a.URL = text.Clean(a.Revision), text.Clean(a.Digest), text.Clean(a.URL)
			from.Artifact = &a
		}
		from.Includes, from.Conditions = slices.Clone(from.Includes), slices.Clone(from.Conditions)
		for k := range from.Includes {
			in := &from.Includes[k]
			in.Name, in.From, in.To, in.Revision = text.Clean(in.Name), text.Clean(in.From), text.Clean(in.To), text.Clean(in.Revision)
		}
		for k := range from.Conditions {
			c := &from.Conditions[k]
			c.Type, c.Status, c.Reason, c.Message = text.Clean(c.Type), text.Clean(c.Status), text.Clean(c.Reason), text.Clean(c.Message)
		}
	}
	return out
}
