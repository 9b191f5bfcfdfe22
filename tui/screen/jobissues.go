package screen

import (
	"cmp"
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
// the end. It returns the issue of each line too.
func (p *view) issueLines(j snapshot.Job, w int) (out []widget.TextLine, of []jobIssue) {
	for _, f := range jobIssues(j) {
		for _, l := range p.MarkedLines(widget.StateRole(f.state), f.state, f.text, w) {
			out, of = append(out, l), append(of, f)
		}
	}
	return out, of
}

// issuesTitle counts the issues. A job keeps only the first messages, but counts all.
func issuesTitle(j snapshot.Job) string {
	if len(j.Errors)+len(j.Warnings) == 0 && len(jobIssues(j)) > 0 {
		return "Why it rests"
	}
	errors, warnings := 0, 0
	for _, s := range j.Summary {
		errors, warnings = errors+int(s.Error), warnings+int(s.Warn)
	}
	count := func(noun string, shown, all int) string {
		return noun + " " + text.Thousands(shown) + widget.When(all > shown && shown > 0, " of "+text.Thousands(all))
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
	var wrote []string
	for i, n := range []int64{c.Create, c.Update, c.Delete} {
		if n > 0 {
			wrote = append(wrote, "+~-"[i:i+1]+text.Thousands(int(n)))
		}
	}
	nothing := c.Counted && c.Errors+c.Warnings+len(wrote) == 0
	return cmp.Or(c.Only, widget.Join(", ", widget.When(c.Errors > 0, text.Plural(c.Errors, "error")),
		widget.When(c.Warnings > 0, text.Plural(c.Warnings, "warning")), strings.Join(wrote, " "),
		widget.When(nothing, "nothing to change")))
}

// genericMessage reports whether the message of a job repeats its state. Source: Grafana; see sync/jobs.
func genericMessage(message string) bool {
	return slices.Contains([]string{"completed successfully", "completed with warnings", "completed with errors"}, message)
}
