package screen

import (
	"fmt"
	"slices"
	"strings"

	"limpet/state"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// jobIssue is an error or a warning of a job, parsed for the screen.
type jobIssue struct {
	state string // error or warning
	text  string
	file  string // its file, relative to the path of the repository; "" = none
}

// jobIssues returns the errors of a job, then its warnings.
func jobIssues(j snapshot.Job) (out []jobIssue) {
	for _, txt := range j.Errors {
		out = append(out, parseIssue("error", txt))
	}
	for _, txt := range j.Warnings {
		out = append(out, parseIssue("warning", txt))
	}
	if len(out) == 0 && !j.RetryAt.IsZero() && j.Owner == "" && j.Finished.IsZero() && j.Message != "" {
		out = append(out, parseIssue("warning", j.Message)) // the reason of the retry
	}
	return out
}

// parseIssue parses a message. Grafana and limpet append "(file: a/b.json, name: b, action:
// created)"; parts that repeat the message are dropped.
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

// issueLines wraps the errors and warnings of a job to w cells, because the cause is often at
// the end.
func (p *view) issueLines(j snapshot.Job, w int) []widget.TextLine {
	out, _ := p.numberedIssueLines(j, w)
	return out
}

// numberedIssueLines also returns for each line the index of its issue in jobIssues.
func (p *view) numberedIssueLines(j snapshot.Job, w int) (out []widget.TextLine, of []int) {
	for i, f := range jobIssues(j) {
		for _, l := range p.MarkedLines(widget.StateRole(f.state), f.state, f.text, w) {
			out, of = append(out, l), append(of, i)
		}
	}
	return out, of
}

// issuesTitle counts the issues. A job keeps only the first messages, but counts all.
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

// The results of finished jobs, in the words of a row.

// jobResult returns the result of a job. It omits "completed", which the state shows.
func jobResult(j snapshot.Job) string {
	if !genericMessage(j.Message) {
		return j.Message
	}
	c := state.Totals{Errors: len(j.Errors), Warnings: len(j.Warnings), Counted: len(j.Summary) > 0}
	if complaints := jobIssues(j); len(complaints) == 1 {
		c.Only = complaints[0].text
	}
	for _, s := range j.Summary {
		c.Create, c.Update, c.Delete = c.Create+s.Create, c.Update+s.Update, c.Delete+s.Delete
	}
	return resultText(c)
}

// recordResult returns the result of a history row.
func recordResult(r snapshot.HistoryRow) string {
	if !genericMessage(r.Message) {
		return r.Message
	}
	if r.Tally == nil {
		return ""
	}
	c := *r.Tally
	if c.Only != "" {
		c.Only = parseIssue(r.State, c.Only).text
	}
	return resultText(c)
}

// resultText returns the only message, or the number of messages and the written objects.
func resultText(c state.Totals) string {
	if c.Only != "" {
		return c.Only
	}
	var parts []string
	if c.Errors > 0 {
		parts = append(parts, text.Plural(c.Errors, "error"))
	}
	if c.Warnings > 0 {
		parts = append(parts, text.Plural(c.Warnings, "warning"))
	}
	if wrote := changesText(c.Create, c.Update, c.Delete); wrote != "" {
		parts = append(parts, wrote)
	} else if c.Counted && len(parts) == 0 {
		parts = append(parts, "nothing to change")
	}
	return strings.Join(parts, ", ")
}

// genericMessage reports whether the message of a job repeats its state. Source: Grafana; see
// sync/jobs.
func genericMessage(message string) bool {
	return slices.Contains([]string{"completed successfully", "completed with warnings", "completed with errors"}, message)
}

// changesText counts created, changed and deleted objects: "+24 ~3 -1"; "" = none.
func changesText(created, updated, deleted int64) string {
	var parts []string
	for i, n := range []int64{created, updated, deleted} {
		if n > 0 {
			parts = append(parts, "+~-"[i:i+1]+text.Thousands(int(n)))
		}
	}
	return strings.Join(parts, " ")
}
