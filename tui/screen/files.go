package screen

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/sync/worker/drift"
	"limpet/tui/widget"
)

// filesScreen lists the files of the repository in the repository screen, at the commit that was
// synced last, or the objects that differ from them. The list is fetched when it is shown, again
// for another commit, and dropped when another screen is shown.
type filesScreen struct {
	drift bool
	page  fetched[filesKey, snapshot.FileList]
	shown filesShown
	rows  list[snapshot.RepoFile]
}

type filesKey struct {
	of     snapshot.Subject
	ref    string
	unread int
	drift  bool
}

// filesShown is what the rows depend on.
type filesShown struct {
	version int
	filter  string
}

// filesMinAge is the minimum time between two lookups of one repository.
const filesMinAge = 5 * time.Second

// fileGlyphs are the states whose glyph and colour stand for those of a file.
var fileGlyphs = map[string]string{snapshot.FileSynced: "success", snapshot.FileUnread: "warning", snapshot.FileLeftOut: "pending",
	snapshot.FileDrifted: "warning", drift.Missing: "warning", drift.Extra: "warning", drift.Modified: "warning"}

var fileKind = &kind[snapshot.RepoFile]{
	key:    func(f *snapshot.RepoFile) string { return f.Path },
	fields: widget.FieldSet{"kind": nil, "state": {snapshot.FileSynced, snapshot.FileUnread, snapshot.FileLeftOut, snapshot.FileDrifted}},
	match: func(f snapshot.RepoFile, t *widget.FilterTerms) bool {
		return t.Matches("kind", f.Kind) && t.Matches("state", f.State) &&
			widget.ContainsWords(strings.Join(t.Words, " "), f.Path, f.Kind, f.Title, f.UID, f.State, f.Reason)
	},
}

func openFiles(s *State, drift bool) {
	o := onRepos(&s.facts, s.selected)[0]
	s.goTo(screenFiles)
	s.setFilter("")
	s.files = filesScreen{drift: drift}
	s.showObject(o)
}

func (f *filesScreen) fetch(s *scene) Lookup {
	r := s.parent.object.repo
	key := filesKey{s.parent.object.Subject, r.LastRef, r.Unread.Count(), f.drift}
	_, known, err := f.page.of(key)
	waits := f.page.known && s.Now.Sub(f.page.at) < filesMinAge || f.page.request != nil
	if known || err != "" || f.page.key.of == key.of && waits {
		return nil
	}
	return f.page.look(s, key, func(ctx context.Context, src Source) (snapshot.FileList, error) {
		return src.Files(ctx, snapshot.FileQuery{Subject: key.of, Drift: key.drift})
	})
}

func (f *filesScreen) refresh(s *scene) {
	if now := (filesShown{f.page.version, s.filter()}); f.rows.kind == nil || f.shown != now {
		f.shown, f.rows.kind = now, fileKind
		t := s.filterTerms()
		f.rows.find(f.page.value.Files, &t)
	}
}

func (f *filesScreen) listPosition() *position     { return &f.rows.position }
func (f *filesScreen) selection(s *scene) []object { return s.parent.selection(s) }

func (f *filesScreen) found(s *scene) string {
	all := text.Plural(len(f.page.value.Files), "file")
	return cmp.Or(s.filterTerms().Problem, fmt.Sprintf("%s of %s", text.Thousands(len(f.rows.rows)), all))
}

// open shows the file under the cursor. When the list could not be fetched, it fetches it again.
func (f *filesScreen) open(s *scene) (out Outcome) {
	if f.page.err != "" {
		f.page.err = ""
	} else if at := f.rows.here(); at != nil {
		out.popup = &popup{popupKey: popupKey{of: s.parent.object.Subject, file: at.Path, drift: f.drift},
			command: commandLine(&s.facts, f.verb(), s.parent.object, text.ShellWord(at.Path))}
	}
	return out
}

// verb is the command that prints the list.
func (f *filesScreen) verb() string { return map[bool]string{false: "files", true: "diff"}[f.drift] }

// grafanaLink returns the page of Grafana that shows the object of a file; the URL is "" when there
// is none.
func grafanaLink(s *facts, namespace string, f snapshot.RepoFile) (l snapshot.Link) {
	below := map[string]string{"Dashboard": "/d/", "Folder": "/dashboards/f/"}[f.Kind]
	absent := f.State == snapshot.FileUnread || f.State == snapshot.FileLeftOut || f.State == drift.Missing
	if below == "" || f.UID == "" || absent || !strings.HasPrefix(s.Snap.API.Server, "http") {
		return l
	}
	org := ""
	if id, is := strings.CutPrefix(namespace, "org-"); is {
		org = "?orgId=" + url.QueryEscape(id)
	}
	return snapshot.Link{Name: "Grafana", URL: strings.TrimSuffix(s.Snap.API.Server, "/") + below + url.PathEscape(f.UID) + org}
}

func (f *filesScreen) draw(p *view, at widget.Rect) {
	type file = snapshot.RepoFile
	known, r := f.page.value, p.s.parent.object.repo
	title, why := "Files of ", "TITLE, OR WHY NOT"
	if f.drift {
		title, why = "Drift of ", "DIFFERS IN"
	}
	box := widget.Box{Title: title + p.cut(r.Name, at.W/2), Foot: p.place(&f.rows.position, known.All), Focused: true,
		Note: widget.When(known.Commit != "", "at "+text.ShortRef(known.Commit))}
	if row := f.rows.here(); row != nil && at.H >= 14 {
		var below widget.Rect
		at, below = at.Top(at.H - 6)
		lines := widget.Wrapped(nil, widget.RolePlain, row.Path, below.W-4)
		lines = widget.Wrapped(lines, widget.RolePlain, widget.Join(", ", row.Kind+widget.When(row.Title != "", fmt.Sprintf(" %q", row.Title)),
			widget.When(row.UID != "", "uid "+row.UID), widget.When(row.Folder != "", "folder "+row.Folder)), below.W-4)
		lines = widget.Wrapped(lines, widget.StateRole(fileGlyphs[row.State]), widget.Join(": ", row.State, row.Reason), below.W-4)
		lines = widget.Wrapped(lines, widget.RoleDim, grafanaLink(p.facts, p.s.parent.object.Namespace, *row).URL, below.W-4)
		p.c.Panel(below, widget.Box{Title: "enter: its text"}, lines)
	}
	var empty []string
	switch {
	case f.page.err != "":
		empty = []string{"The files cannot be listed: " + f.page.err, "Enter asks again."}
	case !f.page.known:
		empty = []string{"Looking" + p.c.G.More}
	case len(known.Files) == 0 && f.drift:
		empty = []string{"Nothing differs from Git."}
	case len(known.Files) == 0:
		empty = []string{"The repository has no file."}
	default:
		empty = []string{cmp.Or(p.s.filterTerms().Problem, fmt.Sprintf("None of %s matches %q.", text.Plural(len(known.Files), "file"),
			p.s.filter())), "Esc clears the filter."}
	}
	state := func(cell func(state string) string) func(file, int) (string, widget.Role) {
		return func(f file, _ int) (string, widget.Role) { return cell(f.State), widget.StateRole(fileGlyphs[f.State]) }
	}
	table := widget.Table[file]{Grow: 1, Most: 60, Then: 3, Columns: []widget.Column[file]{
		{Width: 1, Cell: state(func(state string) string { return p.c.StateGlyph(fileGlyphs[state]) })},
		{Head: "FILE", Width: 24, Wide: 36, Cell: widget.Plain(func(f file) string { return f.Path })},
		{Head: "STATE", Width: 8, Rank: 1, Cell: state(func(state string) string { return state })},
		{Head: why, Width: 17, Wide: 30, Rank: 2, Cell: widget.Plain(func(f file) string {
			return text.OrDash(cmp.Or(f.Reason, f.Title))
		})},
		{Head: "KIND", Width: 9, Rank: 4, Cell: widget.Plain(func(f file) string { return text.OrDash(f.Kind) })},
		{Head: "UID", Width: 12, Wide: 24, Rank: 3, Cell: dim(func(f file) string { return text.OrDash(f.UID) })},
	}}
	drawList(p, at, box, screenFiles, &f.rows, table, empty)
}
