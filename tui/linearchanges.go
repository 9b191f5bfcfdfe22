package tui

import (
	"fmt"
	"slices"
	"strings"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// listChanges says which files a job has changed in Git.
func (l linear) listChanges() (linear, reply) {
	rows := l.s.changed()
	if why := l.reader().noChanges(*l.s.changes.list, rows); why != nil {
		return l, says(why[0])
	}
	j, _ := l.s.job()
	head := []string{fmt.Sprintf("Files that %s has changed: %d", j.Name, max(l.s.changes.list.All, len(rows)))}
	var blocks [][]string
	for i, f := range rows {
		txt := fmt.Sprintf("%d: %s %s", i+1, f.Type, f.Path)
		if f.From != "" {
			txt += ", before " + f.From
		}
		blocks = append(blocks, []string{txt})
	}
	return l.page(append(head, "diff and a number says what is different."), blocks)
}

// listDiff says how a file has changed, line by line.
func (l linear) listDiff() (linear, reply) {
	c, ok := l.s.diffShown()
	switch {
	case !ok || !c.known && c.fault == "":
		return l, says("It cannot be told now what is different.")
	case c.fault != "":
		return l, says("It cannot be told what is different: " + c.fault)
	case c.Text == nil:
		return l, says("There is no text to compare.")
	}
	head := []string{fmt.Sprintf("%s: %d lines new, %d gone", l.s.changes.path, c.Text.Added, c.Text.Deleted)}
	if c.Text.Form != "" {
		head = append(head, c.Text.Form)
	}
	var blocks [][]string
	for _, line := range c.Text.Lines {
		name := map[string]string{"+": "new: ", "-": "gone: ", "@": "at: "}[line.Op]
		blocks = append(blocks, []string{strings.TrimRight(name+strings.TrimSpace(line.Text), " ")})
	}
	if c.Text.More > 0 {
		blocks = append(blocks, []string{fmt.Sprintf("%s more lines are not here.", text.Thousands(c.Text.More))})
	}
	return l.page(head, blocks)
}

// openChanges says what the job that was said last has changed; with a name another
// one.
func (l linear) openChanges(name string) (linear, reply) {
	if name != "" {
		return l.chooseJob(name, l.jobsCalled(name), func(l linear, j snapshot.Job) (linear, reply) {
			l.s = l.s.visit(screenDetail).takeJob(j, len(l.s.jobsAt(j.UID)) == 0)
			return l.openChanges("")
		})
	}
	if !slices.Contains([]screen{screenDetail, screenChanges, screenDiff}, l.s.screen) {
		return l, says("Say which: changes NAME, or job NAME first.")
	}
	if why := noChanges(l.s); why != "" {
		return l, says(why + ".")
	}
	return l.visit(l.s.openChanges())
}

// openDiff says what is different in a file of the list, by its number or its path.
func (l linear) openDiff(name string) (linear, reply) {
	rows := l.s.changed()
	at := slices.IndexFunc(rows, func(f snapshot.FileChange) bool { return f.Path == name })
	var n int
	if _, err := fmt.Sscanf(name, "%d", &n); at < 0 && err == nil && n >= 1 && n <= len(rows) {
		at = n - 1
	}
	if at < 0 || !slices.Contains([]screen{screenChanges, screenDiff}, l.s.screen) {
		return l, says("Say which: changes lists the files, diff and a number says one of them.")
	}
	l.s.changes.cursor = rows[at].Path
	return l.visit(l.s.openDiff())
}
