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

// sourceScreen is the screen of one source: its state, its artifact and its conditions.
type sourceScreen struct {
	subject
	top int // first visible line
}

func (f *sourceScreen) lines(p *view, w int) []widget.TextLine {
	facts := p.sourceFacts(*f.source, f.live)
	if len(f.source.Conditions) > 0 {
		facts.Head("Conditions")
		conditionFacts(&facts, p, *f.source)
	}
	return facts.Lines(p.Canvas, w)
}

func (f *sourceScreen) scroll(s *State, by int) {
	p, at := s.layout()
	n := len(f.lines(p, at.W-4))
	f.top = widget.Scrolled(max(widget.Scrolled(f.top, n, at.H)+by, 0), n, at.H)
}

func (f *sourceScreen) draw(p *view, at widget.Rect) {
	p.Scroll(at, widget.Box{Title: p.cut(f.source.Name, at.W/2), Note: p.cut(f.source.Namespace, at.W/3), Focused: true},
		f.lines(p, at.W-4), f.top, f.source.URL, artifactOf(*f.source).URL)
}

// controllerTimeout is the time without an answer after which a controller is reported as
// inactive.
const controllerTimeout = 2 * time.Minute

// sourceFacts returns the facts about a source.
func (p *view) sourceFacts(from snapshot.Source, live bool) (out widget.Sheet) {
	if !live {
		out.Add(widget.RoleBad, "gone", "it is no longer there; this is what was seen last")
	}
	if !from.Deleting.IsZero() {
		out.Add(widget.RoleWarn, "deleting", "since "+widget.Ago(p.s.Now, from.Deleting)+"; its controller removes what it has packed first")
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
	out.Add(widget.StateRole(sourceGlyph(state)), "state", txt)
	if from.Suspended {
		out.Add(widget.RoleWarn, "suspended", "in its spec: its controller leaves it alone; s resumes it")
	}
	if from.Behind && from.State != snapshot.SourcePending {
		out.Add(widget.RoleWarn, "changed", "its controller has not seen the last change of its spec yet")
	}
	out.Add(widget.RolePlain, "next look", p.dueText(from))
	if txt, ro := p.askedText(from); txt != "" {
		out.Add(ro, "asked for", txt)
	}
	out.Add(widget.RolePlain, "url", text.OrDash(from.URL))
	out.Add(widget.RolePlain, "follows", from.Ref)
	if from.Provider != "" && from.Provider != "generic" {
		out.Add(widget.RolePlain, "provider", from.Provider)
	}
	if a := from.Artifact; a == nil {
		out.Add(widget.RoleWarn, "artifact", "none yet")
	} else {
		txt := text.OrDash(a.Revision)
		if a.Size > 0 {
			txt += ", " + text.Size(a.Size)
		}
		if !a.Updated.IsZero() {
			txt += ", packed " + widget.Ago(p.s.Now, a.Updated)
		}
		out.Add(widget.RolePlain, "artifact", txt)
		out.Add(widget.RolePlain, "digest", text.OrDash(a.Digest))
		out.Add(widget.RolePlain, "served at", text.OrDash(a.URL))
	}
	if from.Verify != "" {
		ro, txt := verifiedText(from)
		out.Add(ro, "signed", txt)
	}
	for _, in := range from.Includes {
		txt := fmt.Sprintf("%s of %s in %s", cmp.Or(in.From, "all"), in.Name, cmp.Or(in.To, in.Name))
		if in.Revision == "" {
			out.Add(widget.RoleWarn, "includes", txt+", not in the artifact yet")
		} else {
			out.Add(widget.RolePlain, "includes", txt+", at "+snapshot.ShortRevision(in.Revision))
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

// conditionFacts adds the conditions, the failing ones first and in full.
func conditionFacts(out *widget.Sheet, p *view, from snapshot.Source) {
	var met []string
	for _, c := range from.Conditions {
		txt := strings.TrimSpace(c.Status + " " + c.Reason)
		if !c.Unmet() {
			met = append(met, strings.TrimSpace(c.Type+" "+txt))
			continue
		}
		ro, state := widget.RoleBad, "error"
		if c.Status == "Unknown" {
			ro, state = widget.RoleWarn, "unknown"
		}
		if c.Message != "" && c.Message != from.Message { // shown with the state
			txt += ": " + c.Message
		}
		out.Add(ro, p.G.State[state]+" not met", c.Type+" "+txt)
	}
	if len(met) > 0 {
		out.Add(widget.RolePlain, p.G.State["success"]+" met", strings.Join(met, ", "))
	}
}
