package tui

import (
	"context"
	"errors"
	"fmt"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// What a job has changed in Git: the list of files, and one of them old against
// new. Both are looked up when they are shown; commits do not change, so an answer
// stays good.

// changes is what the two screens know.
type changes struct {
	list, file *compared              // never nil
	cursor     string                 // path of a file of the list
	path       string                 // of the file that is shown
	scroll     int                    // lines of it above the screen
	request    *snapshot.CompareQuery // what is looked up; nil = nothing
}

// compared is an answer.
type compared struct {
	of snapshot.CompareQuery
	snapshot.Comparison
	known bool
	err   string // why there is none
}

var changesFace = screen{
	under: screenJobs, draw: (*view).changes, fetch: State.fetchChanges,
	hints: func(p *view) [][2]string {
		return [][2]string{{p.g.up + p.g.down, "move"}, {"enter", "old against new"}, {"/", "find"}, {"esc", "back"}}
	},
	move: func(s State, by int) State {
		s.changes.cursor = step(s.changes.cursor, keysOf(s.changed(), pathOf), by)
		return s
	},
	open: State.openDiff,
	found: func(s State) string {
		return fmt.Sprintf("%d of %s", len(s.changed()), text.Plural(len(s.changes.list.Files), "file"))
	},
	command: State.detailCommand,
}

func pathOf(f snapshot.FileChange) string { return f.Path }

// detailCommand is the command that shows the job in the detail.
func (s State) detailCommand() string {
	if j, _ := s.job(); j.UID != "" {
		return s.jobCommand("show", j)
	}
	return ""
}

// changed are the rows of the list.
func (s State) changed() []snapshot.FileChange {
	filter := s.filters[screenChanges]
	if filter == "" {
		return s.changes.list.Files
	}
	var out []snapshot.FileChange
	for _, f := range s.changes.list.Files {
		if matches(filter, f.Path, f.From, f.Type) {
			out = append(out, f)
		}
	}
	return out
}

// changeQuery asks for what the job in the detail has changed. Where that cannot be
// asked, why says so.
func (s State) changeQuery() (q snapshot.CompareQuery, why string) {
	j, _ := s.job()
	switch {
	case s.record.err != "":
		return q, "the record of the job cannot be read: " + s.record.err
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

// changesRefusal says why there are none to be shown.
func changesRefusal(s State) string {
	if s.partial && s.record.err == "" {
		return ""
	}
	_, why := s.changeQuery()
	return why
}

func (s State) openChanges() State {
	s.changes.cursor = ""
	return s.goTo(screenChanges)
}

// openDiff shows the file under the cursor; where the list could not be had it is
// asked for again.
func (s State) openDiff() State {
	if s.changes.list.err != "" {
		s.changes.list = new(compared)
		return s
	}
	rows := s.changed()
	if len(rows) == 0 {
		return s
	}
	return s.openFile(rows[indexOf(s.changes.cursor, keysOf(rows, pathOf))].Path)
}

// fetchChanges looks the list up, and first the record of the job where only a row
// of it is known.
func (s State) fetchChanges() (State, Lookup) {
	if s.partial && s.record.err == "" {
		return s.fetchJob()
	}
	q, why := s.changeQuery()
	if why != "" || s.changes.list.of == q {
		return s, nil
	}
	return s.compare(q)
}

func (s State) fetchDiff() (State, Lookup) {
	if s.partial && s.record.err == "" {
		return s.fetchJob()
	}
	q, why := s.changeQuery()
	if q.Path = s.changes.path; why != "" || q.Path == "" || s.changes.file.of == q {
		return s, nil
	}
	return s.compare(q)
}

// compare looks up what q asks for. What was there is of no use any more.
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
				return s // another one is asked for since
			}
			s.changes.request = nil
			answer := compared{of: q, Comparison: cleanComparison(got), known: err == nil}
			switch {
			case errors.Is(err, context.Canceled):
				return s // something else was looked up; it is asked again when it is shown
			case err != nil:
				answer.err = text.Clean(err.Error())
			}
			if q.Path != "" {
				s.changes.file = &answer
				return s
			}
			s.changes.list = &answer
			s.changes.cursor = keepCursor(s.changes.cursor, nil, keysOf(s.changed(), pathOf))
			return s
		}
	}
}

// changes is the list of the files that a job has changed.
func (p *view) changes(x, y, w, h int) {
	j, _ := p.s.job()
	c, rows := p.s.changes, p.s.changed()
	title := "Changes of " + cut(j.Name, w/2, p.g.more)
	note := ""
	if j.RefTo != "" {
		note = text.OrDash(text.ShortRef(j.RefFrom)) + " " + p.g.arrow + " " + text.ShortRef(j.RefTo)
	}
	index := indexOf(c.cursor, keysOf(rows, pathOf))
	p.box(p.g, x, y, w, h, title, note, place(index, len(rows), max(c.list.All, len(rows))), true)
	if why := p.noChanges(*c.list, rows); why != nil {
		p.empty(x, y, w, h, why)
		return
	}
	columns := []column{{"", 1, false, 0}, {"CHANGE", 8, false, 0}, {"FILE", 12, false, 0}}
	p.clickRows(paneNone, func(s State, i int) State { s.changes.cursor = rows[i].Path; return s })
	p.list(x+1, y+1, w-2, h-2, columns, 2, len(rows), index, true, func(i int) line {
		f := rows[i]
		txt, r := f.Path, changeRole(f.Type)
		if f.From != "" {
			txt = f.From + " " + p.g.arrow + " " + f.Path
		}
		return line{cells: []string{changeSign(f.Type), f.Type, txt}, roles: []role{r, r, rolePlain}}
	})
}

// noChanges says why the list is empty; nil = it is not.
func (p *view) noChanges(c compared, rows []snapshot.FileChange) []string {
	if why := changesRefusal(p.s); why != "" {
		return []string{why + "."}
	}
	q, _ := p.s.changeQuery()
	switch {
	case c.of == q && c.err != "":
		return []string{"It cannot be told what has changed: " + c.err, "Enter asks again."}
	case c.of != q || !c.known:
		return []string{"Looking" + p.g.more}
	case len(c.Files) == 0:
		return []string{"No file of the repository's path differs between the two commits."}
	case len(rows) == 0:
		return []string{fmt.Sprintf("None of %s matches %q. Esc clears the filter.", text.Plural(len(c.Files), "file"), p.s.filters[screenChanges])}
	}
	return nil
}

// changeSign and changeRole say in a letter and a colour what the word says.
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

func changeRole(kind string) role {
	switch kind {
	case "added":
		return roleGood
	case "deleted":
		return roleBad
	}
	return roleWarn
}
