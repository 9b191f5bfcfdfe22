package screen

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// The changes of a job in Git: the list of files, and the diff of one of them. Both are fetched
// when they are shown. Commits do not change, so a result stays valid.

// changes is the data of the two screens.
type changes struct {
	list, file *compared              // never nil
	cursor     string                 // path of a file of the list
	path       string                 // of the shown file
	scroll     int                    // lines of the file above the screen
	request    *snapshot.CompareQuery // the running lookup; nil = none
}

// compared is the result of a comparison.
type compared struct {
	of snapshot.CompareQuery
	snapshot.Comparison
	known bool
	err   string // why it failed
}

var changesScreen = screen{
	under: screenJobs, draw: (*view).changes, fetch: State.fetchChanges,
	hints: func(p *view) [][2]string {
		return [][2]string{{p.G.Up + p.G.Down, "move"}, {"enter", "old against new"}, {"/", "find"}, {"esc", "back"}}
	},
	move: func(s State, by int) State {
		s.changes.cursor = widget.Step(s.changes.cursor, widget.KeysOf(s.changed(), pathOf), by)
		return s
	},
	open: State.openDiff,
	found: func(s State) string {
		return fmt.Sprintf("%d of %s", len(s.changed()), text.Plural(len(s.changes.list.Files), "file"))
	},
	command: State.detailCommand,
}

func pathOf(f snapshot.FileChange) string { return f.Path }

// detailCommand returns the command that shows the job of the detail screen.
func (s State) detailCommand() string {
	if j, _ := s.job(); j.UID != "" {
		return s.jobCommand("show", j)
	}
	return ""
}

// changed returns the rows of the list.
func (s State) changed() []snapshot.FileChange {
	filter := s.input.filters[screenChanges]
	if filter == "" {
		return s.changes.list.Files
	}
	var out []snapshot.FileChange
	for _, f := range s.changes.list.Files {
		if widget.ContainsWords(filter, f.Path, f.From, f.Type) {
			out = append(out, f)
		}
	}
	return out
}

// changeQuery returns the query for the changes of the job in the detail screen. When there is
// none, why is the reason.
func (s State) changeQuery() (q snapshot.CompareQuery, why string) {
	j, _ := s.job()
	switch {
	case s.jobView.record.err != "":
		return q, "the record of the job cannot be read: " + s.jobView.record.err
	case j.UID == "":
		return q, "no job is shown"
	case j.RefTo == "" && j.Finished.IsZero():
		return q, "the job has not come to a commit yet"
	case j.RefTo == "":
		return q, "the record of the job names no commit"
	case j.RefFrom == j.RefTo:
		return q, "nothing has changed in Git: it was at " + text.ShortRef(j.RefTo) + " before, too"
	}
	return snapshot.CompareQuery{Namespace: j.Namespace, Repository: j.Repository, From: j.RefFrom, To: j.RefTo}, ""
}

// changesRefusal returns why the changes cannot be shown; "" = they can.
func changesRefusal(s State) string {
	if s.jobView.partial && s.jobView.record.err == "" {
		return ""
	}
	_, why := s.changeQuery()
	return why
}

func (s State) openChanges() State {
	s.changes.cursor = ""
	return s.goTo(screenChanges)
}

// openDiff shows the file under the cursor. When the list could not be fetched, it fetches it
// again.
func (s State) openDiff() State {
	if s.changes.list.err != "" {
		s.changes.list = new(compared)
		return s
	}
	rows := s.changed()
	if len(rows) == 0 {
		return s
	}
	return s.openFile(rows[widget.IndexOf(s.changes.cursor, widget.KeysOf(rows, pathOf))].Path)
}

// fetchChanges fetches the list, and before it the record of the job when only its history row
// is known.
func (s State) fetchChanges() (State, Lookup) {
	if s.jobView.partial && s.jobView.record.err == "" {
		return s.fetchJob()
	}
	q, why := s.changeQuery()
	if why != "" || s.changes.list.of == q {
		return s, nil
	}
	return s.compare(q)
}

func (s State) fetchDiff() (State, Lookup) {
	if s.jobView.partial && s.jobView.record.err == "" {
		return s.fetchJob()
	}
	q, why := s.changeQuery()
	if q.Path = s.changes.path; why != "" || q.Path == "" || s.changes.file.of == q {
		return s, nil
	}
	return s.compare(q)
}

// compare fetches the result of q and drops the previous one.
func (s State) compare(q snapshot.CompareQuery) (State, Lookup) {
	if s.changes.request != nil && *s.changes.request == q || s.Gone != "" {
		return s, nil
	}
	ask := &q
	s.changes.request = ask
	return s, func(ctx context.Context, src Source) func(State) State {
		got, err := src.Compare(ctx, q)
		return func(s State) State {
			if s.changes.request != ask {
				return s // replaced by a later request
			}
			s.changes.request = nil
			answer := compared{of: q, Comparison: cleanComparison(got), known: err == nil}
			switch {
			case errors.Is(err, context.Canceled):
				return s // cancelled by another lookup; fetched again when the screen is shown
			case err != nil:
				answer.err = text.Clean(err.Error())
			}
			if q.Path != "" {
				s.changes.file = &answer
				return s
			}
			s.changes.list = &answer
			s.changes.cursor = widget.KeepCursor(s.changes.cursor, nil, widget.KeysOf(s.changed(), pathOf))
			return s
		}
	}
}

// changes draws the list of the files that a job has changed.
func (p *view) changes(x, y, w, h int) {
	j, _ := p.s.job()
	c, rows := p.s.changes, p.s.changed()
	title := "Changes of " + widget.Cut(j.Name, w/2, p.G.More)
	note := ""
	if j.RefTo != "" {
		note = text.OrDash(text.ShortRef(j.RefFrom)) + " " + p.G.Arrow + " " + text.ShortRef(j.RefTo)
	}
	index := widget.IndexOf(c.cursor, widget.KeysOf(rows, pathOf))
	p.Box(p.G, x, y, w, h, title, note, widget.Place(index, len(rows), max(c.list.All, len(rows))), true)
	if why := p.noChanges(*c.list, rows); why != nil {
		p.Empty(x, y, w, h, why)
		return
	}
	columns := []widget.Column{widget.Col("", 1, 0), widget.Col("CHANGE", 8, 0), widget.Col("FILE", 12, 0)}
	p.clickRows(paneNone, func(s State, i int) State { s.changes.cursor = rows[i].Path; return s })
	p.List(x+1, y+1, w-2, h-2, columns, 2, len(rows), index, true, func(i int) widget.Line {
		f := rows[i]
		txt, r := f.Path, changeRole(f.Type)
		if f.From != "" {
			txt = f.From + " " + p.G.Arrow + " " + f.Path
		}
		return widget.Line{Cells: []string{changeSign(f.Type), f.Type, txt}, Roles: []widget.Role{r, r, widget.RolePlain}}
	})
}

// noChanges returns why the list is empty; nil = it is not.
func (p *view) noChanges(c compared, rows []snapshot.FileChange) []string {
	if why := changesRefusal(p.s); why != "" {
		return []string{why + "."}
	}
	q, _ := p.s.changeQuery()
	switch {
	case c.of == q && c.err != "":
		return []string{"It cannot be told what has changed: " + c.err, "Enter asks again."}
	case c.of != q || !c.known:
		return []string{"Looking" + p.G.More}
	case len(c.Files) == 0:
		return []string{"No file of the repository's path differs between the two commits."}
	case len(rows) == 0:
		return []string{fmt.Sprintf("None of %s matches %q. Esc clears the filter.", text.Plural(len(c.Files), "file"),
			p.s.input.filters[screenChanges])}
	}
	return nil
}

// changeSign and changeRole return a letter and a colour with the meaning of the word.
func changeSign(kind string) string {
	switch kind {
	case "added":
		return "+"
	case "deleted":
		return "-"
	case "renamed":
		return ">"
	}
	return "~"
}

func changeRole(kind string) widget.Role {
	switch kind {
	case "added":
		return widget.RoleGood
	case "deleted":
		return widget.RoleBad
	}
	return widget.RoleWarn
}

var diffScreen = screen{
	under: screenJobs, draw: (*view).diff, fetch: State.fetchDiff,
	hints: func(p *view) [][2]string {
		return [][2]string{{p.G.Up + p.G.Down, "scroll"}, {"n", "next change"}, {"w", "wrap"}, {"/", "find"}, {"esc", "back"}}
	},
	move: State.moveDiff,
	open: func(s State) State {
		if s.changes.file.err != "" {
			s.changes.file = new(compared)
		}
		return s
	},
	found: func(s State) string {
		of := 0
		if t := s.changes.file.Text; t != nil {
			of = len(t.Lines)
		}
		return fmt.Sprintf("%d of %s", len(s.diffLines()), text.Plural(of, "line"))
	},
	command: State.detailCommand,
}

// diffShown returns the comparison of the shown file, not that of a previous one.
func (s State) diffShown() (compared, bool) {
	q, _ := s.changeQuery()
	q.Path = s.changes.path
	return *s.changes.file, s.changes.file.of == q
}

// diffLines returns the lines of the file that match the filter.
func (s State) diffLines() []snapshot.TextLine {
	c, ok := s.diffShown()
	if !ok || c.Text == nil {
		return nil
	}
	filter := s.input.filters[screenDiff]
	if filter == "" {
		return c.Text.Lines
	}
	var out []snapshot.TextLine
	for _, l := range c.Text.Lines {
		if l.Op != "@" && widget.ContainsWords(filter, l.Text) {
			out = append(out, l)
		}
	}
	return out
}

// diffBody lays the lines out in w cells.
func (p *view) diffBody(w int) (out []widget.TextLine) {
	for _, l := range p.s.diffLines() {
		txt, r := l.Op+l.Text, widget.RolePlain
		switch l.Op {
		case "@":
			txt, r = l.Text, widget.RoleHead
		case "+":
			r = widget.RoleGood
		case "-":
			r = widget.RoleBad
		}
		out = append(out, p.FoldLine(r, txt, w, p.s.wraps)...)
	}
	if c, _ := p.s.diffShown(); c.Text != nil && c.Text.More > 0 {
		out = append(out, widget.Styled(widget.RoleDim, fmt.Sprintf("%s %s more lines are not shown", p.G.More, text.Thousands(c.Text.More))))
	}
	return out
}

// diffTop returns the first visible line and the number of lines that fit.
func (s State) diffTop(lines, h int) (top, room int) {
	room = max(h-3, 1) // the edges, and the line with the commits
	return min(max(s.changes.scroll, 0), max(lines-room, 0)), room
}

// layout returns a view that computes the lines of the screen for the keys.
func (s State) layout() (p *view, w, h int) {
	w, h = s.size()
	return &view{Painter: widget.NewPainter(0, 0, s.Caps), s: s}, w, h - frameRows
}

func (s State) moveDiff(by int) State {
	p, w, h := s.layout()
	lines := len(p.diffBody(w - 4))
	top, _ := s.diffTop(lines, h)
	s.changes.scroll = max(top+by, 0)
	s.changes.scroll, _ = s.diffTop(lines, h)
	return s
}

// nextPiece scrolls to the next hunk of the file, or with back to the previous one.
func (s State) nextPiece(back bool) State {
	p, w, h := s.layout()
	body := p.diffBody(w - 4)
	top, _ := s.diffTop(len(body), h)
	found := -1
	for i, l := range body {
		if l.Role != widget.RoleHead {
			continue
		}
		if back && i < top {
			found = i
		}
		if !back && i > top {
			found = i
			break
		}
	}
	if found < 0 {
		return s.showToast("there is no further change", false)
	}
	return s.moveDiff(found - top)
}

// diff draws the diff of one file.
func (p *view) diff(x, y, w, h int) {
	c, ok := p.s.diffShown()
	body := p.diffBody(w - 4)
	top, room := p.s.diffTop(len(body), h)
	note, foot := "", ""
	if ok && c.Text != nil {
		note = fmt.Sprintf("+%d -%d lines", c.Text.Added, c.Text.Deleted)
	}
	if len(body) > room {
		foot = fmt.Sprintf("%d-%d of %d", top+1, min(top+room, len(body)), len(body))
	}
	p.Box(p.G, x, y, w, h, fileTitle(p.s.changes.path, w-len(note)-10, p.G.More), note, foot, true)
	if why := p.noDiff(c, ok, body); why != nil {
		p.Empty(x, y, w, h, why)
		return
	}
	q, _ := p.s.changeQuery()
	head := fmt.Sprintf("%s, %s %s %s", c.Text.Form, text.OrDash(text.ShortRef(q.From)), p.G.Arrow, text.ShortRef(q.To))
	p.Put(x+2, y+1, w-4, widget.RoleDim, widget.Cut(head, w-4, p.G.More))
	for i, l := range body[top:min(top+room, len(body))] {
		p.Put(x+2, y+2+i, w-4, l.Role, l.Text)
	}
}

// fileTitle cuts a path to w cells at its start, because its end is more specific.
func fileTitle(path string, w int, more string) string {
	for widget.Cut(path, w, "") != path {
		_, rest, ok := strings.Cut(strings.TrimPrefix(path, more), "/")
		if !ok {
			return widget.Cut(path, w, more)
		}
		path = more + rest
	}
	return path
}

// noDiff returns why there is no diff; nil = there is one.
func (p *view) noDiff(c compared, ok bool, body []widget.TextLine) []string {
	if why := changesRefusal(p.s); why != "" {
		return []string{why + "."}
	}
	switch {
	case ok && c.err != "":
		return []string{"It cannot be told what has changed: " + c.err, "Enter asks again."}
	case !ok || c.Text == nil:
		return []string{"Looking" + p.G.More}
	case len(c.Text.Lines) == 0:
		return []string{c.Text.Form + "."}
	case len(body) == 0:
		return []string{fmt.Sprintf("No line has %q. Esc clears the filter.", p.s.input.filters[screenDiff])}
	}
	return nil
}
