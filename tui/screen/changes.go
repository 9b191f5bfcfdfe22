package screen

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/clipperhouse/displaywidth"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// The changes of a job in Git, or of a revision of a source: the list of files, and the diff of one
// of them. Both are fetched when they are shown. Commits and artifacts do not change, so a result
// stays valid.

// compared is what the screens of changes compare.
type compared struct {
	query   snapshot.CompareQuery
	why     string // why nothing is compared; "" = it is
	of      string // the name of the job or the source
	pending bool   // the record of the job has to be fetched first
}

type comparison = fetched[snapshot.CompareQuery, snapshot.Comparison]

type changesScreen struct {
	files comparison
	rows  list[snapshot.FileChange]
}

var changeKind = &kind[snapshot.FileChange]{key: func(f *snapshot.FileChange) string { return f.Path }}

type diffScreen struct {
	file  comparison
	top   int   // first visible line
	hunks []int // the lines where they begin
}

// changeQuery returns the query for the changes of the job in the detail screen, or why there is
// none.
func (d *jobScreen) changeQuery() (q snapshot.CompareQuery, why string) {
	j := d.subject.object.job
	_, _, err := d.record.of(j.UID)
	switch {
	case err != "":
		return q, "the record of the job cannot be read: " + err
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

// comparison returns what the screens of changes compare: the revision of a source with the one
// before, else what the job of the detail screen has found.
func comparisonOf(s *State) (c compared) {
	if from := s.location.object.source; from != nil {
		c.query = snapshot.CompareQuery{Namespace: from.Namespace, Repository: from.Name, To: s.revision, Source: true,
			Kind: s.location.object.Source}
		c.why, c.of = sourceChangesRefusal(&s.facts, *from), from.Name
		return c
	}
	c.query, c.why = s.detail.changeQuery()
	c.of = s.detail.subject.object.Name
	c.pending = s.detail.recordMissing() && (s.screen == screenChanges || s.screen == screenDiff)
	return c
}

// revisions returns the two revisions of a comparison in short.
func (c compared) revisions(value snapshot.Comparison) (from, to string) {
	if !c.query.Source {
		return text.ShortRef(c.query.From), text.ShortRef(c.query.To)
	}
	return snapshot.ShortRevision(value.From), snapshot.ShortRevision(value.To)
}

// changesRefusal returns why the changes cannot be shown; "" = they can.
func (d *jobScreen) changesRefusal() string {
	if d.recordMissing() {
		return ""
	}
	_, why := d.changeQuery()
	return why
}

// openChanges shows what a job has changed, or the revision of a source under the cursor, else its
// newest.
func openChanges(s *State) {
	o, _ := logged(s)
	row, shown := s.source.page.rows.here(), s.screen
	s.changes.rows.cursor = ""
	s.goTo(screenChanges)
	if o.source != nil {
		s.location.object, s.revision = o, ArtifactOf(*o.source).Digest
		if shown == screenSource && row != nil {
			s.revision = row.Digest
		}
		return
	}
	if s.detail.subject.object.UID != o.UID {
		s.showObject(o)
	}
	s.location.object = o
}

// openFile shows the diff of a file of the job in the detail screen, or the reason why it cannot.
func openFile(s *State, path string) {
	if c := comparisonOf(s); c.why != "" {
		s.showToast(path+": "+c.why, false)
		return
	}
	s.goTo(screenDiff)
	s.setFilter("")
	s.changes.rows.cursor, s.path = path, path
	s.diff.top = 0
}

// fetch fetches the changes of all files, or of the one with a path.
func (c compared) fetch(s *scene, in *comparison, path string) Lookup {
	q := c.query
	q.Path = path
	if _, known, err := in.of(q); c.why != "" || known || err != "" {
		return nil
	}
	return in.look(s, q, func(ctx context.Context, src Source) (snapshot.Comparison, error) {
		got, err := src.Compare(ctx, q)
		if got.Text != nil {
			t := *got.Text
			t.Lines = make([]snapshot.TextLine, len(t.Lines))
			for i, l := range got.Text.Lines { // tabs become blanks, which keep the indentation
				t.Lines[i] = snapshot.TextLine{Op: l.Op, Text: strings.ReplaceAll(l.Text, "\t", "    ")}
			}
			got.Text = &t
		}
		return got, err
	})
}

// whyNone returns why there are no changes to show, as far as both screens know it.
func (c compared) whyNone(more string, known bool, err string) []string {
	switch {
	case c.why != "" && !c.pending:
		return []string{c.why + "."}
	case err != "":
		return []string{"Changes are not available: " + err, "Enter asks again."}
	case !known:
		return []string{"Looking" + more}
	}
	return nil
}

func (c *changesScreen) fetch(s *scene) Lookup {
	return s.compared.fetch(s, &c.files, "")
}

func (c *changesScreen) refresh(s *scene) {
	value, _, _ := c.files.of(s.compared.query)
	rows := value.Files
	if filter := s.filter(); filter != "" {
		rows = nil
		for _, f := range value.Files {
			if widget.ContainsWords(filter, f.Path, f.From, f.Type) {
				rows = append(rows, f)
			}
		}
	}
	c.rows.show(rows)
}

func (c *changesScreen) listPosition() *position { return &c.rows.position }

func (c *changesScreen) found(*scene) string {
	return fmt.Sprintf("%d of %s", len(c.rows.rows), text.Plural(len(c.files.value.Files), "file"))
}

// open shows the file under the cursor. When the list could not be fetched, it fetches it again.
func (c *changesScreen) open(*scene) (out Outcome) {
	if c.files.err != "" {
		c.files = comparison{}
	} else if f := c.rows.here(); f != nil {
		out.file = f.Path
	}
	return out
}

func (c *changesScreen) draw(p *view, at widget.Rect) {
	type file = snapshot.FileChange
	of := p.s.compared
	value, known, err := c.files.of(of.query)
	box := widget.Box{Title: "Changes of " + p.cut(of.of, at.W/2), Foot: p.place(&c.rows.position, value.All), Focused: true}
	if from, to := of.revisions(value); to != "" {
		box.Note = p.cut(text.OrDash(from)+" "+p.c.G.Arrow+" "+to, at.W/2)
	}
	empty := of.whyNone(p.c.G.More, known, err)
	switch {
	case empty != nil:
	case len(value.Files) == 0:
		empty = []string{"No file " + widget.When(!of.query.Source, "of the repository's path ") + "differs between the two " +
			map[bool]string{true: "revisions.", false: "commits."}[of.query.Source]}
	default:
		empty = []string{fmt.Sprintf("None of %s matches %q. Esc clears the filter.", text.Plural(len(value.Files), "file"), p.s.filter())}
	}
	table := widget.Table[file]{Grow: 2, Columns: []widget.Column[file]{
		{Width: 1, Cell: func(f file, _ int) (string, widget.Role) { return changeMarks[f.Type].Text, changeMarks[f.Type].Role }},
		{Head: "CHANGE", Width: 8, Cell: func(f file, _ int) (string, widget.Role) { return f.Type, changeMarks[f.Type].Role }},
		{Head: "FILE", Width: 12, Cell: widget.Plain(func(f file) string {
			if f.From != "" {
				return f.From + " " + p.c.G.Arrow + " " + f.Path
			}
			return f.Path
		})},
	}}
	drawList(p, at, box, screenChanges, &c.rows, table, empty)
}

// changeMarks are a letter and a colour with the meaning of the word.
var changeMarks = map[string]widget.TextLine{"added": widget.Styled(widget.RoleGood, "+"),
	"deleted": widget.Styled(widget.RoleBad, "-"), "renamed": widget.Styled(widget.RoleWarn, ">"), "modified": widget.Styled(widget.RoleWarn,
		"~")}

func (d *diffScreen) fetch(s *scene) Lookup {
	if s.path == "" {
		return nil
	}
	return s.compared.fetch(s, &d.file, s.path)
}

// open fetches the diff again when that failed.
func (d *diffScreen) open(*scene) Outcome {
	if d.file.err != "" {
		d.file = comparison{}
	}
	return Outcome{}
}

// shown returns the comparison of the shown file, not that of a previous one.
func (d *diffScreen) shown(s *scene) (value snapshot.TextChange, known bool, err string) {
	q := s.compared.query
	q.Path = s.path
	got, known, err := d.file.of(q)
	if got.Text == nil {
		return value, false, err
	}
	return *got.Text, known, err
}

func (d *diffScreen) matches(s *scene) (out []snapshot.TextLine) {
	t, _, _ := d.shown(s)
	filter := s.filters[screenDiff]
	if filter == "" {
		return t.Lines
	}
	for _, l := range t.Lines {
		if l.Op != "@" && widget.ContainsWords(filter, l.Text) {
			out = append(out, l)
		}
	}
	return out
}

func (d *diffScreen) found(s *scene) string {
	t, _, _ := d.shown(s)
	return fmt.Sprintf("%d of %s", len(d.matches(s)), text.Plural(len(t.Lines), "line"))
}

// body lays the lines out in w cells, below a line with the commits.
func (d *diffScreen) body(p *view, w int) []widget.TextLine {
	t, _, _ := d.shown(p.s)
	from, to := p.s.compared.revisions(d.file.value)
	out := []widget.TextLine{widget.Styled(widget.RoleDim, fmt.Sprintf("%s, %s %s %s", t.Form, text.OrDash(from), p.c.G.Arrow, to))}
	d.hunks = nil
	for _, l := range d.matches(p.s) {
		if l.Op == "@" {
			d.hunks = append(d.hunks, len(out))
		}
		out = append(out, p.diffLine(l, w)...)
	}
	if t.More > 0 {
		out = append(out, widget.Styled(widget.RoleDim, fmt.Sprintf("%s %s more lines are not shown", p.c.G.More, text.Thousands(t.More))))
	}
	return out
}

// diffLine lays one line of a difference out in w cells.
func (p *view) diffLine(l snapshot.TextLine, w int) []widget.TextLine {
	roles := map[string]widget.Role{"@": widget.RoleHead, "+": widget.RoleGood, "-": widget.RoleBad}
	return p.c.FoldLine(roles[l.Op], strings.TrimPrefix(l.Op, "@")+l.Text, w, p.s.wraps)
}

func (d *diffScreen) scroll(by int) { d.top += by }

// nextHunk scrolls to the next hunk of the file, or with back to the previous one.
func (d *diffScreen) nextHunk(back bool) (toast string) {
	next, found := slices.BinarySearch(d.hunks, d.top)
	if back {
		next--
	} else if found || d.top < 2 { // the first one is on the screen already
		next++
	}
	if next < 0 || next >= len(d.hunks) {
		return "there is no further change"
	}
	d.top = d.hunks[next]
	return ""
}

func (d *diffScreen) draw(p *view, at widget.Rect) {
	t, known, err := d.shown(p.s)
	box := widget.Box{Focused: true, Note: widget.When(known, fmt.Sprintf("+%d -%d lines", t.Added, t.Deleted))}
	w := at.W - len(box.Note) - 10
	if box.Title = p.s.path; displaywidth.String(box.Title) > w { // the end of a path is more specific
		box.Title = p.c.G.More + ansi.TruncateLeft(box.Title, displaywidth.String(box.Title)-w+1, "")
	}
	why := p.s.compared.whyNone(p.c.G.More, known, err)
	switch {
	case why != nil:
	case len(t.Lines) == 0:
		why = []string{t.Form + "."}
	case len(d.matches(p.s)) == 0:
		why = []string{fmt.Sprintf("No line has %q. Esc clears the filter.", p.s.filter())}
	default:
		p.c.Scroll(at, box, d.body(p, at.W-4), &d.top)
		return
	}
	p.c.Box(at, box)
	p.c.Empty(at, why...)
}
