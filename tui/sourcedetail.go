package tui

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

var sourceFace = screen{
	under: screenSources, draw: (*view).sourceDetail, command: State.sourceShown,
	move: State.scrollSource,
	hints: func(p *view) [][2]string {
		return [][2]string{{"esc", "back"}, {"p", "look now"}, {"s", p.sourceHint()}, {"t", "test"}, {"u", "url"}, {"c", "commit"}, {"Y", "command"}}
	},
}

// silent is after how long without an answer a controller is doubted.
const silent = 2 * time.Minute

// sourceDetail is one source over the whole body: how it does, what is packed of it,
// and its conditions.
func (p *view) sourceDetail(x, y, w, h int) {
	from, live := p.s.source()
	lines, conditions := p.sourceLines(from, live, w, h)
	low := 0
	if len(conditions) > 0 {
		low = len(conditions) + 2
		p.box(p.g, x, y+h-low, w, low, "Conditions", "", "", false)
		p.putLines(x, y+h-low, w, low, conditions)
	}
	h -= low
	top := scrolled(p.s.sourceTop, len(lines), h)
	foot := ""
	if rest := len(lines) - top - (h - 2); rest > 0 {
		foot = text.Plural(rest, "more line") + " below"
	}
	p.box(p.g, x, y, w, h, cut(from.Name, w/2, p.g.more), cut(from.Namespace, w/3, p.g.more), foot, true)
	for i, l := range lines[top:min(top+max(h-2, 0), len(lines))] {
		p.put(x+2, y+1+i, w-4, l.role, cut(l.text, w-4, p.g.more))
	}
	p.link(x+2, y+1, w-4, h-2, from.URL)
	if from.Artifact != nil {
		p.link(x+2, y+1, w-4, h-2, from.Artifact.URL)
	}
}

// scrollSource moves what is shown of a source that has more lines than the screen.
func (s State) scrollSource(by int) State {
	w, h := s.size()
	p := &view{painter: newPainter(0, 0, s.Caps), s: s}
	from, live := s.source()
	lines, _ := p.sourceLines(from, live, w, h-frameRows)
	top := scrolled(s.sourceTop, len(lines), h-frameRows)
	s.sourceTop = scrolled(max(top+by, 0), len(lines), h-frameRows)
	return s
}

// sourceLines lays a source out for a box of w by h cells: its facts, and its
// conditions for a box of their own where there is room for both.
func (p *view) sourceLines(from snapshot.Source, live bool, w, h int) (lines, conditions []textLine) {
	lines = p.factLines(p.sourceFacts(from, live), w-4)
	conditions = p.sourceConditions(from, w-4)
	if len(conditions) == 0 || len(lines)+len(conditions)+4 <= h {
		return lines, conditions
	}
	return append(append(lines, textLine{}, textLine{roleHead, "CONDITIONS"}), conditions...), nil
}

// sourceFacts are what there is to say of a source.
func (p *view) sourceFacts(from snapshot.Source, live bool) (out []fact) {
	fact := func(ro role, name, txt string) { out = append(out, fact{ro, name, txt}) }
	if !live {
		fact(roleBad, "gone", "it is no longer there; this is what was seen last")
	}
	if !from.Deleting.IsZero() {
		fact(roleWarn, "deleting", "since "+ago(p.s.Now, from.Deleting)+"; its controller removes what it has packed first")
	}
	state := from.State
	if p.s.offline() && state == snapshot.SourceWorking {
		state = snapshot.SourceUnknown
	}
	txt := p.g.state[sourceGlyph(state)] + " " + text.OrDash(state)
	if !from.Since.IsZero() {
		txt += " for " + text.Age(p.s.Now.Sub(from.Since))
	}
	if w := why(from); w != "" {
		txt += ": " + w
	}
	fact(stateRole(sourceGlyph(state)), "state", txt)
	if from.Suspended {
		fact(roleWarn, "suspended", "in its spec: its controller leaves it alone; s resumes it")
	}
	if from.Behind && from.State != snapshot.SourcePending {
		fact(roleWarn, "changed", "its controller has not seen the last change of its spec yet")
	}
	fact(rolePlain, "next look", p.dueText(from))
	if txt, ro := p.askedText(from); txt != "" {
		fact(ro, "asked for", txt)
	}
	fact(rolePlain, "url", text.OrDash(from.URL))
	fact(rolePlain, "follows", from.Ref)
	if from.Provider != "" && from.Provider != "generic" {
		fact(rolePlain, "provider", from.Provider)
	}
	if a := from.Artifact; a == nil {
		fact(roleWarn, "artifact", "none yet")
	} else {
		txt := text.OrDash(a.Revision)
		if a.Size > 0 {
			txt += ", " + text.Size(a.Size)
		}
		if !a.Updated.IsZero() {
			txt += ", packed " + ago(p.s.Now, a.Updated)
		}
		fact(rolePlain, "artifact", txt)
		fact(rolePlain, "digest", text.OrDash(a.Digest))
		fact(rolePlain, "served at", text.OrDash(a.URL))
	}
	if from.Verify != "" {
		ro, txt := verifiedText(from)
		fact(ro, "signed", txt)
	}
	for _, in := range from.Includes {
		txt := fmt.Sprintf("%s of %s in %s", cmp.Or(in.From, "all"), in.Name, cmp.Or(in.To, in.Name))
		if in.Revision == "" {
			fact(roleWarn, "includes", txt+", not in the artifact yet")
		} else {
			fact(rolePlain, "includes", txt+", at "+snapshot.ShortRevision(in.Revision))
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

// askedText tells of a request for a look.
func (p *view) askedText(from snapshot.Source) (string, role) {
	switch {
	case from.Waiting && from.Asked.IsZero():
		return "not looked at yet", roleWarn
	case from.Waiting && p.s.Now.Sub(from.Asked) > silent && !from.Suspended:
		return ago(p.s.Now, from.Asked) + ", and not looked at yet: is source-controller at work?", roleWarn
	case from.Waiting:
		return ago(p.s.Now, from.Asked) + ", not looked at yet", roleWork
	case !from.Handled.IsZero():
		return ago(p.s.Now, from.Handled) + ", done", rolePlain
	}
	return "", rolePlain
}

// verifiedText says what has to be signed and whether it is.
func verifiedText(from snapshot.Source) (role, string) {
	want := from.Verify + " has to be: "
	for _, c := range from.Conditions {
		if c.Type == "SourceVerified" && c.Status == "True" {
			return roleGood, want + "verified" + strings.TrimSuffix(" ("+from.Verified+")", " ()")
		} else if c.Type == "SourceVerified" {
			return roleBad, want + "not verified, " + text.OrDash(c.Reason)
		}
	}
	return roleWarn, want + "not verified yet"
}

// sourceConditions are the conditions, what is wrong first and whole.
func (p *view) sourceConditions(from snapshot.Source, w int) (out []textLine) {
	item := func(ro role, state, txt string) { out = append(out, p.markedLines(ro, state, txt, w)...) }
	var met []string
	for _, c := range from.Conditions {
		if !c.Unmet() {
			met = append(met, strings.TrimSpace(c.Type+" "+c.Status+" "+c.Reason))
			continue
		}
		ro, state := roleBad, "error"
		if c.Status == "Unknown" {
			ro, state = roleWarn, "unknown"
		}
		txt := c.Type + " " + c.Status + " " + c.Reason
		if c.Message != "" && c.Message != from.Message { // which stands with the state
			txt += ": " + c.Message
		}
		item(ro, state, txt)
	}
	if len(met) > 0 {
		item(rolePlain, "success", strings.Join(met, ", "))
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
