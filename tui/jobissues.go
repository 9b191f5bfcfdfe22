package tui

import (
	"fmt"
	"strings"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// jobIssue is an error or a warning of a job, as the screen says it.
type jobIssue struct {
	state string // error or warning
	text  string
	file  string // that it is about, below the path of the repository; "" = it names none
}

// jobIssues are the errors of a job, then its warnings.
func jobIssues(j snapshot.Job) (out []jobIssue) {
	for _, txt := range j.Errors {
		out = append(out, parseIssue("error", txt))
	}
	for _, txt := range j.Warnings {
		out = append(out, parseIssue("warning", txt))
	}
	if len(out) == 0 && !j.RestsUntil.IsZero() && j.Owner == "" && j.Finished.IsZero() && j.Message != "" {
		out = append(out, parseIssue("warning", j.Message)) // why it is tried again
	}
	return out
}

// parseIssue reads what a person needs out of a text. Grafana and limpet end it with
// "(file: a/b.json, name: b, action: created)": what of that was said before goes.
func parseIssue(state, txt string) jobIssue {
	f := jobIssue{state: state, text: txt}
	if at := strings.LastIndex(txt, " (file: "); at >= 0 {
		file, rest, named := strings.Cut(strings.TrimSuffix(txt[at+len(" (file: "):], ")"), ", name: ")
		name, _, whole := strings.Cut(rest, ", action: ")
		if named && whole {
			f.file, f.text = file, txt[:at]
			if file != "" && !strings.Contains(f.text, file) {
				f.text = file + ": " + f.text
			}
			if name != "" && !strings.Contains(f.text, name) {
				f.text += " (" + name + ")"
			}
			return f
		}
	}
	for _, word := range strings.Fields(txt) {
		word = strings.Trim(word, `"'():,;`)
		if strings.HasSuffix(word, ".json") || strings.HasSuffix(word, ".yaml") || strings.HasSuffix(word, ".yml") {
			f.file = word
			break
		}
	}
	return f
}

// issueLines are the errors and warnings of a job, broken to w cells: what went
// wrong is often said at the end.
func (p *view) issueLines(j snapshot.Job, w int) []textLine {
	out, _ := p.numberedIssueLines(j, w)
	return out
}

// numberedIssueLines are the same, and for each line which of complaintsOf it is of.
func (p *view) numberedIssueLines(j snapshot.Job, w int) (out []textLine, of []int) {
	for i, f := range jobIssues(j) {
		for _, l := range p.markedLines(stateRole(f.state), f.state, f.text, w) {
			out, of = append(out, l), append(of, i)
		}
	}
	return out, of
}

// issuesBox is the section of the errors. With the focus it has a cursor, which Enter
// follows to the file.
func (p *view) issuesBox(x, y, w, h int, j snapshot.Job) {
	lines, of := p.numberedIssueLines(j, w-4)
	focused, note := p.s.section == sectionErrors, ""
	cursor := max(min(p.s.tops[sectionErrors], len(lines)-1), 0)
	top := window(cursor, len(lines), h-2)
	if focused && len(of) > 0 {
		note = fmt.Sprintf("%d/%d", of[cursor]+1, of[len(of)-1]+1)
	}
	more := "limpet history show " + cut(j.UID, 36, "")
	if j.Finished.IsZero() {
		more = "limpet job show " + cut(quote(j.Name), max(w-26, 1), p.g.more)
	}
	p.box(p.g, x, y, w, h, issuesTitle(j), note, more, focused)
	switch {
	case len(lines) == 0:
		p.empty(x, y, w, h, []string{"None."})
	case focused:
		for i, l := range lines[top:min(top+max(h-2, 0), len(lines))] {
			p.put(x+2, y+1+i, w-4, l.role, l.text)
		}
		p.put(x+1, y+1+cursor-top, 1, roleKey, p.g.cursor)
	default:
		p.putLines(x, y, w, h, lines[top:])
	}
}

// issuesTitle counts them. A job keeps the texts of a few alone and counts all.
func issuesTitle(j snapshot.Job) string {
	if len(j.Errors)+len(j.Warnings) == 0 && len(jobIssues(j)) > 0 {
		return "Why it rests"
	}
	errors, warnings := int64(0), int64(0)
	for _, s := range j.Summary {
		errors, warnings = errors+s.Error, warnings+s.Warn
	}
	count := func(noun string, shown int, all int64) string {
		if all > int64(shown) && shown > 0 {
			return fmt.Sprintf("%s %s of %s", noun, text.Thousands(shown), text.Thousands(int(all)))
		}
		return fmt.Sprintf("%s %s", noun, text.Thousands(shown))
	}
	return count("Errors", len(j.Errors), errors) + ", " + count("Warnings", len(j.Warnings), warnings)
}

// openJobIssue shows what the error under the cursor is about: its file old against new,
// where the job has changed it.
func (s State) openJobIssue() State {
	switch f, ok := s.issueAtCursor(); {
	case !ok:
		return s.say("this job has no errors", false)
	case f.file != "":
		return s.openFile(f.file)
	case changesRefusal(s) != "":
		return s.say("this "+f.state+" names no file", false)
	default:
		return s.say("this "+f.state+" names no file; d shows what the job has changed", false)
	}
}

// issueAtCursor is the error under the cursor.
func (s State) issueAtCursor() (jobIssue, bool) {
	p, w, _ := s.layout()
	j, _ := s.job()
	_, of := p.numberedIssueLines(j, w-4)
	if len(of) == 0 {
		return jobIssue{}, false
	}
	return jobIssues(j)[of[max(min(s.tops[sectionErrors], len(of)-1), 0)]], true
}

// openFile shows a file of the job in the detail old against new. Where that cannot be
// told it says why.
func (s State) openFile(path string) State {
	if why := changesRefusal(s); why != "" {
		return s.say(path+": "+why, false)
	}
	to := s.goTo(screenDiff)
	to.changes.cursor, to.changes.path, to.changes.scroll = path, path, 0
	to.filters[screenDiff] = ""
	return to
}
