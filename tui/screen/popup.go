package screen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// popup is a box with details about one object: the results of a test, or its YAML. They are
// fetched once, when the box is opened.
type popup struct {
	popupKey
	command string
	top     int // first visible line
}

// popupKey identifies the contents of a popup.
type popupKey struct {
	of   snapshot.Subject
	test bool // results of a test; else YAML
	nth  int  // counts the popups
}

// popupText is the contents of a popup.
type popupText struct {
	Findings []snapshot.Finding
	YAML     []string // lines
}

// maxYAML bounds the YAML that is shown and copied, in bytes. Terminals accept some 75,000 bytes
// in one request, and base64 takes a third of them.
const maxYAML = 48 << 10

// testable returns the objects of the key t, showable those of the key y.
func (s *target) testable() []object {
	if len(s.selected) > 0 && s.selected[0].source != nil {
		return s.selected
	}
	return s.onRepos(s.selected)
}

func (s *target) showable() []object {
	if o, ok := s.one(); ok && o.job != nil && o.UID == "" {
		return nil
	}
	return s.selected
}

// testsRefused returns why no test is possible now; "" = it is.
func (s *facts) testsRefused() string {
	return cmp.Or(widget.When(s.Source == FromDisk, "no agent works on this file: nothing is tested"),
		widget.When(s.offline(), s.unavailableReason()+": nothing can be tested"))
}

// testRefusal and showRefusal return why t and y are disabled; "" = enabled.
func (s *target) testRefusal() string {
	return cmp.Or(s.testsRefused(), oneRefusal(s.testable(), "nothing that can be tested is under the cursor"))
}

func (s *target) showRefusal() string {
	of := s.showable()
	if len(of) == 1 && of[0].job != nil { // the history may have it
		return widget.When(s.Gone != "", "the daemon does not answer: nothing can be read")
	}
	return cmp.Or(widget.When(s.Source == FromDisk, "no agent works on this file: the API is not asked"),
		oneRefusal(of, "there is nothing under the cursor"), widget.When(s.offline(), s.unavailableReason()+": nothing can be read"))
}

// oneRefusal returns why objects are not exactly one.
func oneRefusal(of []object, none string) string {
	if len(of) == 0 {
		return none
	}
	return widget.When(len(of) > 1, fmt.Sprintf("%d are marked; this is done one at a time", len(of)))
}

func openPopup(s *State, o object, test bool) {
	s.popups++
	s.overlay = popup{popupKey: popupKey{o.Subject, test, s.popups}, command: s.popupLine([]object{o}, test)}
}

func (s *inventory) popupLine(of []object, test bool) string {
	if len(of) != 1 {
		return ""
	}
	now, there := s.current(of[0])
	switch {
	case test:
		return s.command("test", of[0])
	case of[0].job != nil && (!there || !now.job.Finished.IsZero()):
		return "limpet history show " + widget.Quote(of[0].UID) + " -o yaml"
	}
	return s.getCommand(of[0])
}

func (q popup) fetch(s *State) Lookup {
	if _, known, err := s.popupText.of(q.popupKey); known || err != "" {
		return nil
	}
	return s.popupText.look(s, q.popupKey, func(s *State) *fetched[popupKey, popupText] { return &s.popupText }, q.get)
}

func (q popup) get(ctx context.Context, src Source) (out popupText, err error) {
	if q.test {
		out.Findings, err = src.Test(ctx, q.of)
	} else {
		var txt string
		txt, err = src.Manifest(ctx, q.of)
		out.YAML = yamlLines(txt)
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		err = fmt.Errorf("no answer within %s; %s waits longer", LookupTimeout, q.command)
	}
	return out, err
}

// yamlLines returns the lines of a YAML text, at most maxYAML bytes.
func yamlLines(txt string) (out []string) {
	had := 0
	for line := range strings.Lines(txt) {
		if had += len(line); had > maxYAML {
			return append(out, fmt.Sprintf("# and %s bytes more", text.Thousands(len(txt)-had+len(line))))
		}
		out = append(out, strings.TrimSuffix(line, "\n"))
	}
	return out
}

func (q popup) key(s *State, name, _ string) {
	by, scrolls := steps[name]
	if name == "space" {
		by, scrolls = steps["pgdown"], true
	}
	value, _, _ := s.popupText.of(q.popupKey)
	yaml := value.YAML
	switch {
	case scrolls:
		q.top += by
		s.overlay = q
	case name == "w":
		s.wraps = !s.wraps
	case (name == "y" || name == "c") && len(yaml) > 0:
		s.out.Copy = strings.Join(yaml, "\n") + "\n"
		s.showToast(fmt.Sprintf("%s of YAML copied; %s prints it", text.Plural(len(yaml), "line"), q.command), false)
	case name == "y", name == "c", name == "Y":
		s.copied(q.command)
	default:
		s.overlay = nil
	}
}

func (q popup) hints(p *view) []widget.Hint {
	return []widget.Hint{p.arrows("scroll"), {Key: "y", Text: "copy it"}, {Key: "Y", Text: "copy command"}, {Key: "w", Text: "wrap"},
		{Key: "esc", Text: "close"}}
}

// lines returns the contents of the box, for w cells.
func (q popup) lines(p *view, w int) (out []widget.TextLine) {
	value, known, err := p.s.popupText.of(q.popupKey)
	switch {
	case err != "":
		return widget.Wrapped(nil, widget.RoleBad, "This cannot be told: "+err, w)
	case !known:
		return widget.Wrapped(nil, widget.RoleDim, "Looking, from the host of the agent"+p.G.More, w)
	}
	for _, l := range value.YAML {
		out = append(out, p.FoldLine(widget.RolePlain, l, w, p.s.wraps)...)
	}
	glyphs := map[string]string{"ok": "success", "failed": "error", "skipped": "pending"}
	for _, f := range value.Findings {
		out = append(out, p.MarkedLines(widget.StateRole(f.Result), cmp.Or(glyphs[f.Result], "warning"),
			widget.Join(": ", f.Result+" "+f.Name, f.Detail), w)...)
	}
	return out
}

func (q popup) draw(p *view) {
	w := min(p.W-2, 120)
	lines := q.lines(p, w-4)
	title := q.of.Kind + " " + q.of.Name
	if q.test {
		title = "Test " + q.of.Name
	}
	p.Scroll(p.Dialog(w, min(p.H-2, len(lines)+2)), widget.Box{Title: p.cut(title, w/2), Note: "esc closes", Foot: p.cut(q.command, w-6),
		Focused: true}, lines, &q.top)
	p.s.overlay = q
}
