package screen

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"

	"limpet/state"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// summary counts the objects of a job by kind; zoomed it has the times too.
func (d *jobScreen) summary(p *view, w int) section {
	j, out := *d.subject.object.job, section{Box: widget.Box{Title: "Summary"}}
	switch out.lines = p.summaryLines(j, w); {
	case len(j.Summary) > 0:
	case j.WaitReason != "" && j.Finished.IsZero():
		out.lines = widget.Wrapped(nil, widget.RoleDim, "Not claimed by this agent: "+j.WaitReason, w)
	default:
		out.lines = []widget.TextLine{widget.Styled(widget.RoleDim, "Nothing is written.")}
	}
	if d.zoomed {
		out.lines = append(append(out.lines, widget.TextLine{}), p.timeLines(j, w, len(p.times(j))+len(j.Steps))...)
	}
	return out
}

// summaryLines counts the objects of a job by kind in w cells, below a head.
func (p *view) summaryLines(j snapshot.Job, w int) []widget.TextLine {
	heads, width := []string{"NEW", "UPD", "DEL", "ERR"}, 6
	if w >= 60 {
		heads, width = []string{"TOTAL", "CREATE", "UPDATE", "DELETE", "NOOP", "WARN", "ERROR"}, 7
	}
	line := func(r widget.Role, name string, figures ...string) widget.TextLine {
		txt := ""
		for _, f := range figures {
			txt += fmt.Sprintf(" %*s", width-1, p.cut(f, width-1))
		}
		name = p.cut(name, max(w-width*len(figures), 4))
		return widget.Styled(r, name+fmt.Sprintf("%*s", max(w-displaywidth.String(name), 0), txt))
	}
	out := []widget.TextLine{line(widget.RoleHead, "KIND", heads...)}
	for _, s := range j.Summary {
		figures := []int64{s.Create, s.Update, s.Delete, s.Error}
		if w >= 60 {
			figures = []int64{total(s), s.Create, s.Update, s.Delete, s.Noop, s.Warn, s.Error}
		}
		texts := strings.Fields(strings.Trim(fmt.Sprint(figures), "[]"))
		if w >= 60 && figures[0] <= 0 {
			texts[0] = "-"
		}
		r := widget.RolePlain
		if s.Error > 0 {
			r = widget.RoleBad
		} else if s.Warn > 0 {
			r = widget.RoleWarn
		}
		out = append(out, line(r, s.Kind, texts...))
	}
	return out
}

// total returns the number of resources of a kind in a job, 0 when it is unknown. Servers and
// agents may omit it. The other counters contain each resource once, a renamed one twice.
func total(s snapshot.Summary) int64 {
	if s.Total > 0 {
		return s.Total
	}
	return s.Create + s.Update + s.Delete + s.Noop + s.Warn + s.Error
}

// errors lists the errors and warnings. With the focus it has a cursor; Enter opens the file under
// it.
func (d *jobScreen) errors(p *view, w int) section {
	j, out := *d.subject.object.job, section{Box: widget.Box{Title: issuesTitle(*d.subject.object.job), Foot: p.cut(p.limpet("history show "+d.subject.object.job.UID), w)}}
	if j.Finished.IsZero() {
		out.Foot = p.cut(p.limpet("job show "+text.ShellWord(j.Name)), w)
	}
	if out.lines, out.of = p.issueLines(j, w); len(out.lines) == 0 {
		out.lines = []widget.TextLine{widget.Styled(widget.RoleDim, "None.")}
	}
	return out
}

func (d *jobScreen) log(p *view, w int) section {
	j, out := *d.subject.object.job, section{Box: widget.Box{Title: "Log", Foot: text.Plural(len(d.subject.object.job.Log), "line")}}
	_, recorded, _ := d.record.of(j.UID) // its lines are attempts
	for _, e := range d.matches(p.s) {
		level, r := levelWord(e.Level)
		line := e.At.UTC().Format("15:04:05.000") + " " + level + " " + e.Text
		out.lines = append(out.lines, p.c.FoldLine(r, line, w, p.s.wraps || recorded)...)
	}
	if recorded && len(out.lines) > 0 {
		out.Title, out.Foot = "Attempts", ""
		out.lines = widget.Wrapped(out.lines, widget.RoleDim, recordOnly, w)
	}
	if len(out.lines) == 0 {
		why := noLog(j)
		if _, _, err := d.record.of(j.UID); len(j.Log) > 0 {
			why = fmt.Sprintf("No line has %q. Esc clears the filter.", p.s.filters[screenDetail])
		} else if d.partial && err != "" {
			why = "The record of the job cannot be read: " + err
		}
		out.lines = widget.Wrapped(nil, widget.RoleDim, why, w)
	}
	if d.paused {
		out.Note = "paused, f follows"
	} else if j.Finished.IsZero() && len(j.Log) > 0 {
		out.Note = "following"
	}
	return out
}

// noLog returns why there is no log: only the agent of the job keeps it, for a limited time.
func noLog(j snapshot.Job) string {
	switch {
	case j.Owner == "other" && j.Finished.IsZero():
		return "The agent that runs it has the log."
	case j.Owner == "" && j.Finished.IsZero() && j.RetryAt.IsZero():
		return "It has not started."
	}
	return widget.When(j.Finished.IsZero(), "No log of this job is kept here.") + widget.When(!j.Finished.IsZero(), recordOnly)
}

const recordOnly = "Only the record of this job is left: its agent keeps the lines of the log for a minute after the end."

// timesWidth is the width of the times beside the summary of a wide screen.
const timesWidth = 46

func (p *view) times(j snapshot.Job) (out []widget.TextLine) {
	now := p.Now
	at := func(name, txt string) {
		out = append(out, widget.Styled(widget.RolePlain, fmt.Sprintf("%-9s%s", name, txt)))
	}
	if !j.Created.IsZero() {
		at("queued", widget.ClockTime(j.Created, now)+", "+widget.Ago(now, j.Created))
	}
	if !j.Started.IsZero() {
		txt := widget.ClockTime(j.Started, now)
		if wait := j.Started.Sub(j.Created); !j.Created.IsZero() && wait >= 0 {
			txt += ", after " + text.Took(wait)
		}
		at("started", txt)
	}
	switch left := remaining(j, now); {
	case !j.Finished.IsZero():
		txt := widget.ClockTime(j.Finished, now)
		if !j.Started.IsZero() {
			txt += ", after " + text.Took(j.Finished.Sub(j.Started))
		}
		at("ended", txt)
	case !j.Undelivered.IsZero():
		at("done", widget.ClockTime(j.Undelivered, now)+", "+widget.Ago(now, j.Undelivered))
	case waitsForRetry(p.facts, j):
		at("again", widget.ClockTime(j.RetryAt, now)+", in "+text.Age(j.RetryAt.Sub(now)))
	case left > 0 && p.shownState(j) == "working":
		at("ends", "about "+widget.ClockTime(now.Add(left), now)+" at this pace")
	}
	return out
}

// timeLines lists the times of a job and then the steps of its run, as many as fit into h lines.
func (p *view) timeLines(j snapshot.Job, w, h int) []widget.TextLine {
	out := p.times(j)
	for i, step := range j.Steps {
		if rest := len(j.Steps) - i; len(out) == h-1 && rest > 1 {
			return append(out, widget.Styled(widget.RoleDim, fmt.Sprintf("%s %d more steps", p.c.G.More, rest)))
		}
		r := widget.RolePlain
		if i == len(j.Steps)-1 && p.shownState(j) == "working" {
			r = widget.RoleWork
		}
		out = append(out, widget.Styled(r, fmt.Sprintf("%8s %s", text.Took(tookOf(j, i, p.Now)), p.cut(step.Text, max(w-9, 1)))))
	}
	return out
}

// tookOf returns the duration of a step of a job, up to now for a running one.
func tookOf(j snapshot.Job, step int, now time.Time) time.Duration {
	s := j.Steps[step]
	switch {
	case s.Took > 0 || step < len(j.Steps)-1:
		return max(s.Took, 0)
	case !j.Finished.IsZero():
		now = j.Finished
	case !j.Undelivered.IsZero():
		now = j.Undelivered
	}
	return max(now.Sub(s.At), 0)
}

type jobIssue struct {
	state string // error or warning
	text  string
	file  string // its file, relative to the path of the repository; "" = none
}

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
// created)", limpet without a name that is unknown; parts that repeat the message are dropped.
func parseIssue(state, txt string) jobIssue {
	f := jobIssue{state: state, text: txt}
	if at := strings.LastIndex(txt, " (file: "); at >= 0 {
		about, _, whole := strings.Cut(strings.TrimSuffix(txt[at+len(" (file: "):], ")"), ", action: ")
		if file, name, _ := strings.Cut(about, ", name: "); whole {
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
	words := strings.Fields(txt)
	if head, _, found := strings.Cut(txt, ": "); found { // a path may have spaces
		words = slices.Insert(words, 0, strings.TrimPrefix(head, "read "))
	}
	for _, word := range words {
		word = strings.TrimRight(strings.Trim(word, `"'():,;`), ":0123456789") // a place may follow
		if strings.HasSuffix(word, ".json") || strings.HasSuffix(word, ".yaml") || strings.HasSuffix(word, ".yml") {
			f.file = word
			break
		}
	}
	return f
}

// issueLines wraps errors and warnings, whose cause is often at the end, and returns the issue of
// each line too.
func (p *view) issueLines(j snapshot.Job, w int) (out []widget.TextLine, of []jobIssue) {
	for _, f := range jobIssues(j) {
		for _, l := range p.c.MarkedLines(widget.StateRole(f.state), f.state, f.text, w) {
			out, of = append(out, l), append(of, f)
		}
	}
	return out, of
}

// issuesTitle counts the issues.
func issuesTitle(j snapshot.Job) string {
	if len(j.Errors)+len(j.Warnings) == 0 && len(jobIssues(j)) > 0 {
		return "Why it waits"
	}
	c := totals(j)
	return "Errors " + text.Thousands(c.Errors) + ", Warnings " + text.Thousands(c.Warnings)
}

// totals sums up a job. It keeps only the first messages, but counts all.
func totals(j snapshot.Job) (c state.Totals) {
	c.Counted = len(j.Summary) > 0
	for _, s := range j.Summary {
		c.Create, c.Update, c.Delete = c.Create+s.Create, c.Update+s.Update, c.Delete+s.Delete
		c.Errors, c.Warnings = c.Errors+int(s.Error), c.Warnings+int(s.Warn)
	}
	c.Errors, c.Warnings = max(c.Errors, len(j.Errors)), max(c.Warnings, len(j.Warnings))
	return c
}
