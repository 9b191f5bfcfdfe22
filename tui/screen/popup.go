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
	subject snapshot.Subject
	test    bool // results of a test; else YAML
	command string
	request *snapshot.Subject // the running or finished lookup; it identifies the box
	known   bool
	err     string
	found   []snapshot.Finding
	text    []string // lines of YAML
	scroll  int
}

// maxYAML bounds the YAML that is shown and copied, in bytes. Terminals accept some 75,000 bytes
// in one request, and base64 takes a third of them.
const maxYAML = 48 << 10

// subjects returns the objects of the keys t and y: those under the cursor, or the marked ones.
func (s State) subjects(test bool) (out []snapshot.Subject) {
	if s.listed() == paneSources {
		for _, from := range s.targetSources() {
			out = append(out, sourceSubject(from))
		}
		return out
	}
	if at := s.selection(); !test && at.job != nil {
		if at.job.UID == "" {
			return nil
		}
		return []snapshot.Subject{jobSubject(*at.job)}
	}
	for _, r := range s.targetRepos() {
		out = append(out, repoSubject(r))
	}
	return out
}

func jobSubject(j snapshot.Job) snapshot.Subject {
	return snapshot.Subject{Kind: snapshot.SubjectJob, Namespace: j.Namespace, Name: j.Name, UID: j.UID}
}

func repoSubject(r snapshot.Repo) snapshot.Subject {
	return snapshot.Subject{Kind: snapshot.SubjectRepository, Namespace: r.Namespace, Name: r.Name, UID: r.UID}
}

func sourceSubject(from snapshot.Source) snapshot.Subject {
	return snapshot.Subject{Kind: snapshot.SubjectSource, Namespace: from.Namespace, Name: from.Name, UID: from.UID}
}

// testRefusal returns why a test is disabled; "" = enabled.
func (s State) testRefusal() string {
	switch {
	case s.Source == FromDisk:
		return "no agent works on this file: nothing is tested"
	case s.offline():
		return s.unavailableReason() + ": what there is of the repository cannot be read"
	}
	return ""
}

// testRefusalOf returns why a test of a named object is disabled.
func testRefusalOf(there func(State) bool, name string) func(State) string {
	return func(s State) string {
		return cmp.Or(s.testRefusal(), goneRefusal(there, name+" is not there any more")(s))
	}
}

// notTestable and notShowable return why t and y are disabled; "" = enabled.
func notTestable(s State) string {
	switch of := s.subjects(true); {
	case s.testRefusal() != "":
		return s.testRefusal()
	case len(of) == 0:
		return "nothing that can be tested is under the cursor"
	case len(of) > 1:
		return fmt.Sprintf("%d are marked, and they are tested one at a time", len(of))
	}
	return ""
}

func notShowable(s State) string {
	switch of := s.subjects(false); {
	case len(of) == 1:
		return s.yamlRefusal(of[0])
	case s.Source == FromDisk:
		return unasked
	case len(of) == 0:
		return "there is nothing under the cursor"
	default:
		return fmt.Sprintf("%d are marked, and they are shown one at a time", len(of))
	}
}

const unasked = "no agent works on this file: the API is not asked"

// yamlRefusal returns why an object cannot be shown now; "" = it can.
func (s State) yamlRefusal(of snapshot.Subject) string {
	switch {
	case of.Kind == snapshot.SubjectJob && s.Gone != "":
		return "the daemon does not answer: nothing can be read"
	case of.Kind == snapshot.SubjectJob: // the history may have it
		return ""
	case s.Source == FromDisk:
		return unasked
	case s.offline():
		return s.unavailableReason() + ": what there is cannot be read"
	}
	return ""
}

func (s State) openTest() (State, Outcome) { return s.openPopup(s.subjects(true)[0], true), Outcome{} }
func (s State) openYAML() (State, Outcome) {
	return s.openPopup(s.subjects(false)[0], false), Outcome{}
}

// openPopup opens the box.
func (s State) openPopup(of snapshot.Subject, test bool) State {
	s.overlay = popup{subject: of, test: test, command: s.popupCommand(of, test)}
	return s
}

// popupCommand returns the equivalent command line.
func (s State) popupCommand(of snapshot.Subject, test bool) string {
	switch {
	case of.Kind == snapshot.SubjectSource && test:
		return s.sourceCommand("test", snapshot.Source{Namespace: of.Namespace, Name: of.Name})
	case test:
		return s.repoCommand("test", snapshot.Repo{Namespace: of.Namespace, Name: of.Name})
	case of.Kind == snapshot.SubjectJob && !s.queued(of.UID):
		return "limpet history show " + widget.Quote(of.UID) + " -o yaml"
	}
	return s.getCommand(of)
}

// testLine and yamlLine return the command lines of the keys, "" when these are disabled.
func testLine(s State) string { return s.lineAbout(true) }
func yamlLine(s State) string { return s.lineAbout(false) }

func (s State) lineAbout(test bool) string {
	if of := s.subjects(test); len(of) == 1 {
		return s.popupCommand(of[0], test)
	}
	return ""
}

// getCommand returns the command that prints an object as YAML.
func (s State) getCommand(of snapshot.Subject) string {
	txt := "limpet get " + of.Kind + " " + widget.Quote(of.Name)
	for _, other := range s.namespacesOf(of) {
		if other != of.Namespace {
			txt += " --namespace " + widget.Quote(of.Namespace)
			break
		}
	}
	return txt + " -o yaml"
}

// namespacesOf returns the namespaces of the snapshot with such an object.
func (s State) namespacesOf(of snapshot.Subject) (in []string) {
	add := func(kind, namespace, name string) {
		if of.Kind == kind && of.Name == name {
			in = append(in, namespace)
		}
	}
	for _, r := range s.Snap.Repos {
		add(snapshot.SubjectRepository, r.Namespace, r.Name)
	}
	for _, from := range s.Snap.Sources {
		add(snapshot.SubjectSource, from.Namespace, from.Name)
	}
	for _, j := range s.Snap.Jobs {
		if j.Finished.IsZero() {
			add(snapshot.SubjectJob, j.Namespace, j.Name)
		}
	}
	return in
}

// queued reports whether the API still has the job.
func (s State) queued(uid string) bool {
	rows := s.jobsAt(uid)
	return len(rows) > 0 && rows[0].Finished.IsZero()
}

// fetch fetches the contents.
func (q popup) fetch(s State) (State, Lookup) {
	if q.request != nil || s.Gone != "" {
		return s, nil
	}
	of := q.subject
	q.request = &of
	s.overlay = q
	return s, func(ctx context.Context, src Source) func(State) State {
		answer := popup{known: true}
		var err error
		if q.test {
			answer.found, err = src.Test(ctx, of)
		} else {
			var txt string
			txt, err = src.Manifest(ctx, of)
			answer.text = yamlLines(txt)
		}
		if answer.found = cleanFindings(answer.found); errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
			err = fmt.Errorf("no answer within %s; %s waits longer", LookupTimeout, q.command)
		}
		if err != nil {
			answer.err = text.Clean(err.Error())
		}
		return func(s State) State {
			now, here := s.overlay.(popup)
			if !here || now.request != q.request {
				return s // it was closed
			}
			now.known, now.err, now.found, now.text = true, answer.err, answer.found, answer.text
			s.overlay = now
			return s
		}
	}
}

// yamlLines returns the lines of a YAML text, at most maxYAML bytes.
func yamlLines(txt string) (out []string) {
	had := 0
	for line := range strings.Lines(txt) {
		if had += len(line); had > maxYAML {
			return append(out, fmt.Sprintf("# and %s bytes more", text.Thousands(len(txt)-had+len(line))))
		}
		out = append(out, text.Clean(strings.TrimSuffix(line, "\n")))
	}
	return out
}

func (q popup) key(s State, name, _ string) (State, Outcome) {
	page := max(s.H-8, 1)
	switch name {
	case "up", "k":
		q.scroll--
	case "down", "j":
		q.scroll++
	case "pgup", "ctrl+u":
		q.scroll -= page
	case "pgdown", "ctrl+d", "space", " ":
		q.scroll += page
	case "home", "g":
		q.scroll = 0
	case "end", "G", "shift+g":
		q.scroll = 1 << 30
	case "w":
		s.wraps = !s.wraps
	case "y", "c":
		if q.test || !q.known || q.err != "" {
			return s.copied(q.command)
		}
		return s.showToast(fmt.Sprintf("%s of YAML copied; %s prints it", text.Plural(len(q.text), "line"), q.command), false),
			Outcome{Copy: strings.Join(q.text, "\n") + "\n"}
	case "Y", "shift+y":
		return s.copied(q.command)
	default:
		s.overlay = nil
		return s, Outcome{}
	}
	p, _, _ := s.layout()
	w, h := s.size()
	_, _, _, q.scroll = q.box(p, w, h)
	s.overlay = q
	return s, Outcome{}
}

func (q popup) hints(p *view) [][2]string {
	scroll, end := [2]string{p.G.Up + p.G.Down, "scroll"}, [2]string{"esc", "close"}
	if q.test || !q.known || q.err != "" {
		return [][2]string{scroll, {"y", "copy command"}, end}
	}
	return [][2]string{scroll, {"y", "copy it"}, {"w", "wrap"}, end}
}

// lines returns the contents of the box, for w cells.
func (q popup) lines(p *view, w int) (out []widget.TextLine) {
	add := func(r widget.Role, txt string) {
		for _, l := range widget.Wrap(txt, w) {
			out = append(out, widget.Styled(r, l))
		}
	}
	switch {
	case !q.known && q.test:
		add(widget.RoleDim, "It is tested from the host of the agent"+p.G.More)
	case !q.known:
		add(widget.RoleDim, "Looking"+p.G.More)
	case q.err != "":
		add(widget.RoleBad, "This cannot be told: "+q.err)
	case !q.test:
		for _, l := range q.text {
			out = append(out, p.FoldLine(widget.RolePlain, l, w, p.s.wraps)...)
		}
	}
	for _, f := range q.found {
		out = append(out, p.MarkedLines(widget.StateRole(f.Result), findingGlyph(f.Result),
			strings.TrimSuffix(fmt.Sprintf("%s %s: %s", f.Result, f.Name, f.Detail), ": "), w)...)
	}
	return out
}

// findingGlyph returns the state whose glyph marks the result of a step.
func findingGlyph(result string) string {
	switch result {
	case "ok":
		return "success"
	case "failed":
		return "error"
	case "skipped":
		return "pending"
	}
	return "warning"
}

// box returns the size of the box on a terminal, its lines, and the first visible one.
func (q popup) box(p *view, w, h int) (bw, bh int, lines []widget.TextLine, top int) {
	bw = max(min(w-2, 120), 8)
	lines = q.lines(p, bw-4)
	bh = min(max(h-2, 3), len(lines)+2)
	return bw, bh, lines, max(min(q.scroll, len(lines)-(bh-2)), 0)
}

func (q popup) draw(p *view) {
	w, h, lines, top := q.box(p, p.W, p.H)
	x, y := p.Dialog(w, h)
	title, foot := "Test "+q.subject.Name, q.command
	if !q.test {
		title = q.subject.Kind + " " + q.subject.Name
	}
	if len(lines) > h-2 {
		foot = fmt.Sprintf("%d-%d/%d", top+1, top+h-2, len(lines))
	}
	p.Box(p.G, x, y, w, h, widget.Cut(title, w/2, p.G.More), "esc closes", widget.Cut(foot, w-6, p.G.More), true)
	for i, l := range lines[top : top+h-2] {
		p.Put(x+2, y+1+i, w-4, l.Role, widget.Cut(l.Text, w-4, p.G.More))
	}
}

// editing copies the command line that edits the object. The spec belongs to the user of the
// API, so no key writes it.
func (s State) editing() (State, Outcome) { return s.copied(editLine(s)) }

func editLine(s State) string {
	if of := s.subjects(true); len(of) == 1 {
		return s.editCommand(of[0])
	}
	return ""
}

func (s State) editCommand(of snapshot.Subject) string {
	file := widget.Quote(of.Name + ".yaml")
	return fmt.Sprintf("%s > %s && ${EDITOR:-vi} %s && limpet apply -f %s", s.getCommand(of), file, file, file)
}

func editRefusal(s State) string {
	switch {
	case len(s.subjects(true)) == 1:
		return ""
	case s.listed() == paneSources:
		return "one source has to be under the cursor"
	}
	return "one repository has to be under the cursor"
}
