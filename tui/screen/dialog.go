package screen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/clipperhouse/displaywidth"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// overlay is a box over the screen. While it is open it handles all keys but Ctrl-C. It is a
// value: key stores its next state in s.overlay, draw returns it.
type overlay interface {
	key(s *State, name, text string)
	draw(p *view) overlay
	// hints returns its keys for the last line of the screen, like those of a screen.
	hints(s *scene) string
}

// confirm is a confirmation dialog. Enter does nothing, because a habitual Enter is no decision,
// and no other key but the named ones answers.
type confirm struct {
	title   string
	lines   []string // the consequences of a yes, with figures
	choices []choice
	quit    bool // confirms the end of the dashboard
	// name, if set, must be typed before Enter takes the first choice. It protects actions that take
	// long to undo.
	name, typed string
}

type choice struct {
	key, text string
	do        command
}

const goBackText = "No, go back"

func (q confirm) key(s *State, name, txt string) {
	switch {
	case name == "enter" && q.name != "" && q.typed == q.name:
		s.overlay = nil
		s.perform(q.choices[0].do)
	case name == "esc" || q.name == "" && (strings.EqualFold(name, "n") || name == "q" || name == "backspace"):
		s.overlay = nil
	case name == "enter" && q.name != "":
		s.showToast("type "+q.name+" first; esc: no", true)
	case q.name == "":
		keys := "n"
		for _, c := range q.choices {
			if strings.EqualFold(name, c.key) {
				s.overlay = nil
				s.perform(c.do)
				return
			}
			keys += " or " + c.key
		}
		s.showToast("answer with "+keys, true)
	default:
		q.typed = widget.Edit(q.typed, name, txt)
		s.overlay = q
	}
}

func (q confirm) hints(*scene) string {
	if q.name != "" {
		return "enter " + q.choices[0].text + "|esc " + goBackText
	}
	out := "n " + goBackText
	for _, c := range q.choices {
		out += "|" + c.key + " " + c.text
	}
	return out
}

func (q confirm) draw(p *view) overlay {
	w := min(72, p.c.W-2)
	box := widget.Box{Title: q.title, Note: "esc: no", Focused: true}
	var lines []widget.TextLine
	if displaywidth.String(q.title) > w-8 {
		box.Title = "Sure?"
		lines = widget.Wrapped(nil, widget.RoleTitle, q.title, w-4)
	}
	if displaywidth.String(box.Title+box.Note) > w-8 {
		box.Note = ""
	}
	for _, l := range q.lines {
		lines = widget.Wrapped(lines, widget.RolePlain, l, w-4)
	}
	answers := p.hints(q.hints(p.s))
	if q.name != "" {
		answers = append([]widget.Hint{{Key: "type", Text: q.name}, {Key: ">", Text: q.typed + "_"}}, answers...)
	}
	if room := max(p.c.H-3-len(answers), 0); len(lines) > room {
		lines = append(lines[:max(room-1, 0)], widget.Styled(widget.RolePlain, p.c.G.More))
	}
	at := p.c.Dialog(w, len(lines)+len(answers)+2)
	p.c.Panel(at, box, lines)
	for i := range answers {
		p.c.Hints(at.X+2, at.Y+1+len(lines)+i, at.X+w-2, widget.RolePlain, answers[i:i+1])
	}
	return q
}

// popup is a box with the results of a test of an object, its YAML, or an edit of it, fetched once,
// when the box is opened.
type popup struct {
	popupKey
	command string
	top     int            // first visible line
	edit    *snapshot.Edit // nil = none
}

type popupKey struct {
	of   snapshot.Subject
	test bool   // results of a test; else YAML
	nth  int    // counts the popups
	file string // path of a file of the repository; "" = the object

	drift bool // its difference from the API
}

type popupText struct {
	Findings []snapshot.Finding
	YAML     []string // lines
	Diff     snapshot.TextChange
}

const (
	// maxYAML bounds the YAML that is shown and copied, in bytes. Terminals accept some 75,000 bytes
	// in one request, and base64 takes a third of them.
	maxYAML = 48 << 10
	// maxFile bounds the text of a file that is shown, in bytes.
	maxFile = 512 << 10
)

// testable returns the objects of the key t, showable those of the key y.
func (s *scene) testable() []object {
	if len(s.selected) > 0 && s.selected[0].source != nil {
		return s.selected
	}
	return onRepos(&s.facts, s.selected)
}

func (s *scene) showable() []object {
	if s.screen == screenRepo {
		return s.parent.selection(s)
	}
	if o, ok := s.one(); ok && o.job != nil && o.UID == "" {
		return nil
	}
	return s.selected
}

// testRefusal and showRefusal return why t and y are disabled; "" = enabled.
func testRefusal(s *scene) string {
	return cmp.Or(widget.When(s.Source == FromDisk, "no agent is running: nothing is tested"),
		widget.When(s.offline(), s.unavailableReason()+": nothing can be tested"),
		oneRefusal(s.testable(), "nothing that can be tested is under the cursor"))
}

func showRefusal(s *scene) string {
	of := s.showable()
	if len(of) == 1 && of[0].job != nil { // the history may have it
		return widget.When(s.Gone != "", "the daemon does not answer: nothing can be read")
	}
	return cmp.Or(widget.When(s.Source == FromDisk, "no agent is running: the API is not read"),
		oneRefusal(of, "there is nothing under the cursor"), widget.When(s.offline(), s.unavailableReason()+": nothing can be read"))
}

// oneRefusal returns why objects are not exactly one.
func oneRefusal(of []object, none string) string {
	if len(of) == 0 {
		return none
	}
	return widget.When(len(of) > 1, fmt.Sprintf("%d are marked; this is done one at a time", len(of)))
}

// openPopup shows a popup, which fetches its text anew.
func openPopup(s *State, q popup) {
	s.popups++
	q.nth = s.popups
	s.overlay = q
}

func popupLine(s *facts, of []object, test bool) string {
	if len(of) != 1 {
		return ""
	}
	now, there := s.current(of[0])
	switch {
	case test:
		return commandLine(s, "test", of[0])
	case of[0].job != nil && (!there || !now.job.Finished.IsZero()):
		return s.limpet("history show " + text.ShellWord(of[0].UID) + " -o yaml")
	}
	o := of[0]
	return s.limpet("get " + o.Kind + " " + named(s, o) + " -o yaml")
}

func (q popup) fetch(s *scene) Lookup {
	if _, known, err := s.popupText.of(q.popupKey); known || err != "" {
		return nil
	}
	return s.popupText.look(s, q.popupKey, q.get)
}

func (q popup) get(ctx context.Context, src Source) (out popupText, err error) {
	switch {
	case q.edit != nil:
		var edited snapshot.Edited
		edited, err = src.Edit(ctx, *q.edit)
		out.Diff = edited.Diff
	case q.test:
		out.Findings, err = src.Test(ctx, q.of)
	case q.file != "":
		var list snapshot.FileList
		list, err = src.Files(ctx, snapshot.FileQuery{Subject: q.of, Path: q.file, Drift: q.drift})
		if list.Diff != nil {
			out.Diff = *list.Diff
		}
		out.YAML = textLines(list.Text, maxFile)
	default:
		var txt string
		txt, err = src.Manifest(ctx, q.of)
		out.YAML = textLines(txt, maxYAML)
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		err = fmt.Errorf("no answer within %s; %s waits longer", LookupTimeout, q.command)
	}
	return out, err
}

func textLines(txt string, most int) (out []string) {
	had := 0
	for line := range strings.Lines(txt) {
		if had += len(line); had > most {
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
	value, _, failed := s.popupText.of(q.popupKey)
	yaml := value.YAML
	switch {
	case q.edit != nil && name == "E":
		s.overlay = nil
		s.edit(*q.edit)
	case q.edit != nil && name == "y" && failed == "" && len(value.Diff.Lines) > 0:
		s.overlay = nil
		e := *q.edit
		e.Apply = true
		s.out.Edit = &e
		s.showToast("change requested: "+e.Name, false)
	case scrolls:
		q.top += by
		s.overlay = q
	case name == "w":
		s.wraps = !s.wraps
	case q.edit != nil && !scrolls && name != "w":
		s.overlay = nil
		s.showToast("nothing was changed", false)
	case (name == "y" || name == "c") && len(yaml) > 0 && q.file == "":
		s.out.Copy = strings.Join(yaml, "\n") + "\n"
		s.showToast(fmt.Sprintf("%s of YAML copied; %s prints it", text.Plural(len(yaml), "line"), q.command), false)
	case name == "u" && q.file != "" && len(s.links) > 0:
		copyLink(s)
	case name == "y", name == "c", name == "Y":
		s.copied(q.command)
	default:
		s.leaveOverlay(name)
	}
}

// leaveOverlay handles a key that an overlay does not know: it closes the overlay, or does what it
// does on the screen below unless it acts on an object there.
func (s *State) leaveOverlay(name string) {
	b, ok := boundKey(&s.scene, name)
	switch {
	case slices.Contains([]string{"esc", "enter", "backspace", "q"}, name):
		s.overlay = nil
	case ok && (b.group == "VIEW" || b.group == "APP"):
		s.overlay = nil
		s.perform(b)
	default:
		s.showToast(keyName(name)+" does nothing here; esc closes", true)
	}
}

func (q popup) hints(s *scene) string {
	switch {
	case q.edit != nil:
		return "^v scroll|y apply|E edit again|w wrap|esc discard"
	case q.file != "" && len(s.links) > 0:
		return "^v scroll|u url|Y copy command|w wrap|esc close"
	case q.file != "":
		return "^v scroll|Y copy command|w wrap|esc close"
	}
	return "^v scroll|y copy it|Y copy command|w wrap|esc close"
}

func (q popup) lines(p *view, w int) (out []widget.TextLine) {
	value, known, err := p.s.popupText.of(q.popupKey)
	switch {
	case err != "":
		return widget.Wrapped(nil, widget.RoleBad, widget.When(q.edit == nil, "Not available: ")+err, w)
	case !known:
		return widget.Wrapped(nil, widget.RoleDim, "Looking, from the host of the agent"+p.c.G.More, w)
	}
	for _, l := range value.YAML {
		out = append(out, p.c.FoldLine(widget.RolePlain, l, w, p.s.wraps)...)
	}
	if q.edit != nil && len(value.Diff.Lines) == 0 {
		return widget.Wrapped(nil, widget.RoleDim, "The text means the same: nothing to apply.", w)
	}
	for _, l := range value.Diff.Lines {
		out = append(out, p.diffLine(l, w)...)
	}
	glyphs := map[string]string{"ok": "success", "failed": "error", "skipped": "pending"}
	for _, f := range value.Findings {
		out = append(out, p.c.MarkedLines(widget.StateRole(f.Result), cmp.Or(glyphs[f.Result], "warning"),
			widget.Join(": ", f.Result+" "+f.Name, f.Detail), w)...)
	}
	return out
}

func (q popup) draw(p *view) overlay {
	w := min(p.c.W-2, 120)
	lines := q.lines(p, w-4)
	title := q.of.Kind + " " + q.of.Name
	if q.file != "" {
		title = q.file
	} else if q.test {
		title = "Test " + q.of.Name
	} else if q.edit != nil {
		title = "Apply this change of " + q.of.Name + "?"
	}
	p.c.Scroll(p.c.Dialog(w, min(p.c.H-2, len(lines)+2)), widget.Box{Title: p.cut(title, w/2), Note: "esc closes", Foot: p.cut(q.command, w-6),
		Focused: true}, lines, &q.top)
	return q
}
