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

func (p *view) sourceFacts(from snapshot.Source, live bool) (out widget.Sheet) {
	now := p.Now
	out.AddIf(!live, widget.RoleBad, "gone", "it is no longer there; this is what was seen last")
	out.AddIf(!from.Deleting.IsZero(), widget.RoleWarn, "deleting",
		"since "+widget.Ago(now, from.Deleting)+"; its controller removes what it has packed first")
	state := from.State
	if p.offline() && state == snapshot.SourceWorking {
		state = snapshot.SourceUnknown
	}
	glyph := sourceGlyph(state)
	out.Add(widget.StateRole(glyph), "state", widget.Join(": ", p.G.State[glyph]+" "+text.OrDash(state)+
		widget.When(!from.Since.IsZero(), " for "+text.Age(now.Sub(from.Since))), sourceProblem(from)))
	out.AddIf(from.Suspended, widget.RoleWarn, "suspended", "in its spec: its controller leaves it alone; s resumes it")
	out.AddIf(from.Behind && from.State != snapshot.SourcePending, widget.RoleWarn, "changed",
		"its controller has not seen the last change of its spec yet")
	due := from.DueText(now)
	if p.offline() {
		due = "not known while " + p.unavailableReason()
	}
	out.Add(widget.RolePlain, "next look", due)
	asked, role := p.askedText(from)
	out.AddIf(asked != "", role, "asked for", asked)
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

func (p *view) askedText(from snapshot.Source) (string, widget.Role) {
	switch ago := widget.Ago(p.Now, from.Asked); {
	case from.Waiting && from.Asked.IsZero():
		return "not looked at yet", widget.RoleWarn
	case from.Waiting && p.Now.Sub(from.Asked) > controllerTimeout && !from.Suspended:
		return ago + ", and not looked at yet: is source-controller at work?", widget.RoleWarn
	case from.Waiting:
		return ago + ", not looked at yet", widget.RoleWork
	case !from.Handled.IsZero():
		return widget.Ago(p.Now, from.Handled) + ", done", widget.RolePlain
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
