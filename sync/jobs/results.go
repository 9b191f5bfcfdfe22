package jobs

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/resources"
	"limpet/sync/text"
)

// Bounds of what a status may carry. Objects above about 1 MB are refused by API servers, and every
// progress write sends the whole object, so all texts of one job together stay below textBudget;
// the counters go on without texts.
const (
	maxErrors  = 20        // entries of each list of errors or warnings; source: Grafana's progress recorder
	maxKinds   = 64        // entries of summary; further kinds are counted together
	maxText    = 1 << 10   // bytes of one error or warning
	maxMessage = 2 << 10   // bytes of a message
	textBudget = 200 << 10 // bytes of all errors and warnings of one job as JSON; the rest of a status has less than 56 KiB
)

// Bounds of the errors and warnings that history keeps of a job, which go beyond its status.
const (
	maxIssues   = 1000
	issueBudget = 256 << 10 // bytes
)

// Results is the sum of all results of a job. It is plain data: it is kept with the resume mark and
// taken up again after a crash.
type Results struct {
	Message      string                     `json:"message,omitempty"`
	Total        int64                      `json:"total,omitempty"`
	Done         int64                      `json:"done,omitempty"`
	Errors       []string                   `json:"errors,omitempty"`
	Warnings     []string                   `json:"warnings,omitempty"`
	ErrorCount   int64                      `json:"errorCount,omitempty"`
	WarningCount int64                      `json:"warningCount,omitempty"`
	Kinds        map[string]*api.JobSummary `json:"kinds,omitempty"`
	Texts        int                        `json:"texts,omitempty"` // bytes used of textBudget
	Branch       string                     `json:"branch,omitempty"`
	RefFrom      string                     `json:"refFrom,omitempty"`
	RefTo        string                     `json:"refTo,omitempty"`
	URLs         map[string]string          `json:"urls,omitempty"`
	Issues       []state.Issue              `json:"issues,omitempty"` // each is written once, so copies may share them
	IssuesLeft   int64                      `json:"issuesLeft,omitempty"`
	IssueTexts   int                        `json:"issueTexts,omitempty"` // bytes used of issueBudget

	// Of this run alone: another one begins anew.
	Steps  []Step        `json:"-"`
	Commit *state.Commit `json:"-"` // RefTo; nil = it was not read
}

// record counts a result by the rules of Grafana's progress recorder: an error or a warning counts
// as that alone; renamed is a delete and a create; write is create and update.
func (all *Results) record(r Result) {
	all.Done++
	if all.Total > 0 { // it was not expected
		all.Total = max(all.Total, all.Done)
	}
	s := all.kind(r.Group, r.Kind)
	switch {
	case r.Err != nil:
		s.Error++
		all.issue(api.StateError, r, r.Err)
		if r.Action != resources.Ignored {
			all.ErrorCount++
			all.Errors = all.text(all.Errors, r.Err.Error())
		}
		s.Errors = all.text(s.Errors, resultText(r, r.Err))
		s.ResourceErrors = all.resourceIssue(s.ResourceErrors, r, r.Err)
		return
	case r.Warning != nil:
		s.Warning++
		all.issue(api.StateWarning, r, r.Warning)
		all.WarningCount++
		all.Warnings = all.text(all.Warnings, resultText(r, r.Warning))
		s.Warnings = all.text(s.Warnings, resultText(r, r.Warning))
		s.ResourceWarnings = all.resourceIssue(s.ResourceWarnings, r, r.Warning)
		return
	}
	switch r.Action {
	case resources.Deleted:
		s.Delete++
	case resources.Updated:
		s.Update++
	case resources.Created, resources.Renamed:
		s.Create++
	default:
		s.Noop++
	}
	if r.Action == resources.Renamed {
		s.Delete++
	}
	s.Write = s.Update + s.Create
}

func (all *Results) kind(group, kind string) *api.JobSummary {
	id := group + ":" + kind
	if all.Kinds[id] == nil && len(all.Kinds) >= maxKinds {
		id = "other"
		group = ""
		kind = "other"
	}
	if all.Kinds == nil {
		all.Kinds = map[string]*api.JobSummary{}
	}
	if all.Kinds[id] == nil {
		all.Kinds[id] = &api.JobSummary{Group: group, Kind: kind}
	}
	return all.Kinds[id]
}

// text appends a text to list unless a bound is reached.
func (all *Results) text(list []string, line string) []string {
	if len(list) >= maxErrors || all.Texts >= textBudget {
		return list
	}
	line = text.Clip(line, maxText)
	size, _ := json.Marshal(line) // escapes take up to six bytes
	if all.Texts+len(size) > textBudget {
		return list
	}
	all.Texts += len(size)
	return append(list, line)
}

// bounded returns the first texts of a list of count, and a last one that says so.
func bounded(list []string, count int64) []string {
	out := slices.Clone(list)
	if count > int64(len(out)) {
		out = out[:min(len(out), maxErrors-1)]
		out = append(out, fmt.Sprintf("first %d of %d", len(out), count))
	}
	return out
}

// issue keeps an error or a warning for history unless a bound is reached.
func (all *Results) issue(level string, r Result, err error) {
	i := issueOf(level, r, err)
	size := len(i.Message) + len(i.Path) + len(i.Name) + len(i.Kind)
	if len(all.Issues) == maxIssues || all.IssueTexts+size > issueBudget {
		all.IssuesLeft++
		return
	}
	all.IssueTexts += size
	all.Issues = append(all.Issues, i)
}

// resourceIssue appends an error or a warning to list unless a bound is reached.
func (all *Results) resourceIssue(list []api.ResourceIssue, r Result, err error) []api.ResourceIssue {
	i := issueOf("", r, err)
	issue := api.ResourceIssue{Reason: resources.IssueReason(err), Message: i.Message, Path: text.Clip(i.Path, maxText)}
	size, _ := json.Marshal(issue)
	if len(list) >= maxErrors || all.Texts+len(size) > textBudget {
		return list
	}
	all.Texts += len(size)
	return append(list, issue)
}

// status is what a progress write carries. Warnings and links appear only at the end, as in
// Grafana.
func (all *Results) status(state string) api.JobStatus {
	return api.JobStatus{State: state, Message: all.Message, Errors: bounded(all.Errors, all.ErrorCount),
		Progress: all.percent(), Summary: all.Summary()}
}

// percent is 0 while the total is unknown.
func (all *Results) percent() float64 {
	if all.Total <= 0 {
		return 0
	}
	return float64(all.Done) / float64(all.Total) * 100
}

// Summary returns the counts by kind. It is sorted, so that unchanged results make an unchanged status.
func (all *Results) Summary() []api.JobSummary {
	out := make([]api.JobSummary, 0, len(all.Kinds))
	for _, s := range all.Kinds {
		c := *s
		c.Errors, c.Warnings = bounded(s.Errors, s.Error), bounded(s.Warnings, s.Warning)
		c.ResourceErrors, c.ResourceWarnings = slices.Clone(s.ResourceErrors), slices.Clone(s.ResourceWarnings)
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b api.JobSummary) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind))
	})
	return out
}

func (all *Results) clone() Results {
	c := *all
	c.Errors = slices.Clone(all.Errors)
	c.Warnings = slices.Clone(all.Warnings)
	c.URLs = maps.Clone(all.URLs)
	c.Steps = slices.Clone(all.Steps)
	c.Kinds = make(map[string]*api.JobSummary, len(all.Kinds))
	for id, s := range all.Kinds {
		k := *s
		c.Kinds[id] = &k
	}
	return c
}

func resultText(r Result, err error) string { return issueOf("", r, err).String() }

// issueOf describes an error or a warning of a result. Of a file that is no resource, and of what a
// server rejects, the message begins with the words of Grafana, which its users search for. The
// path stands beside it, and in it only with a place: "a.json:1:45: not JSON".
func issueOf(level string, r Result, err error) state.Issue {
	i := state.Issue{State: level, Reason: resources.Reason(err), Message: err.Error(), Path: r.Path, Kind: r.Kind,
		Name: r.Name, Action: string(r.Action)}
	if parse, is := errors.AsType[*resources.ParseError](err); is {
		i.Path, i.Message = cmp.Or(r.Path, parse.Path), strings.TrimPrefix(parse.Error(), parse.Path+": ")
	}
	if i.Reason == "parse" || i.Reason == "invalid" {
		i.Message = "resource validation failed: " + i.Message
	}
	i.Message = text.Clip(i.Message, maxText)
	return i
}

func appliedText(r Result) string {
	text := strings.Join(strings.Fields(fmt.Sprint(r.Action, " ", strings.ToLower(r.Kind), " ", r.Name)), " ")
	if r.PreviousPath != "" {
		text += " from " + r.PreviousPath
	}
	if r.Path != "" {
		text += " (" + r.Path + ")"
	}
	return text
}

// Outcome is how a job ends.
type Outcome struct {
	State    string // success, warning or error
	Message  string
	Errors   []string
	Warnings []string

	cancelled bool              // on request
	dead      *state.DeadLetter // its attempts are used up
}

// States of the local history that the wire does not have; there both are errors.
const (
	stateCancelled = "cancelled" // on request
	stateDead      = "dead"      // the attempts are used up
)

// expiredMessage is the text of a job whose last claim has expired. Source: Grafana's cleanup.
const expiredMessage = "Job failed due to lease expiry - worker may have crashed or lost connection"

// expiredOutcome is how a job ends whose agent is gone and that is not tried again.
func expiredOutcome() Outcome {
	return Outcome{State: api.StateError, Message: expiredMessage, Errors: []string{expiredMessage}}
}

// dead is the outcome of a job whose attempts are used up.
func dead(out Outcome, reason string, attempts int) Outcome {
	out.dead = &state.DeadLetter{Reason: reason, Attempts: attempts, LastError: out.Message}
	out.Message = text.Clip(fmt.Sprintf("%s (%s)", out.Message, text.Plural(attempts, "attempt")), maxMessage)
	return out
}

// shown is the state in the local history.
func (o Outcome) shown() string {
	switch {
	case o.cancelled:
		return stateCancelled
	case o.dead != nil:
		return stateDead
	}
	return o.State
}

// Outcome returns how the job ends if the worker returns err now. Workers that write a result
// elsewhere (the sync status of a Repository) use the same one.
//
//	worker returned an error      error    its text
//	errors were recorded          error    "completed with errors" or "... too many errors"
//	warnings were recorded        warning  "completed with warnings"
//	otherwise                     success  "completed successfully"
//
// A final message replaces the message of every state but error.
func (p *Progress) Outcome(err error) Outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := &p.results
	out := Outcome{Errors: bounded(a.Errors, a.ErrorCount), Warnings: bounded(a.Warnings, a.WarningCount)}
	switch {
	case err != nil:
		out.State, out.Message = api.StateError, text.Clip(err.Error(), maxMessage)
		if len(out.Errors) < maxErrors && !slices.Contains(out.Errors, text.Clip(err.Error(), maxText)) {
			out.Errors = append(out.Errors, text.Clip(err.Error(), maxText))
		}
	case a.ErrorCount > 0 && p.tooMany():
		out.State, out.Message = api.StateError, "completed with too many errors"
	case a.ErrorCount > 0:
		out.State, out.Message = api.StateError, "completed with errors"
	case a.WarningCount > 0:
		out.State, out.Message = api.StateWarning, "completed with warnings"
	default:
		out.State, out.Message = api.StateSuccess, "completed successfully"
	}
	if p.final != "" && out.State != api.StateError {
		out.Message = p.final
	}
	return out
}

// finalStatus is the status with which the job goes into history. Progress is absent in it, as in
// Grafana.
func (p *Progress) finalStatus(out Outcome, started, finished int64) api.JobStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.results.status(out.State)
	s.Progress = 0
	s.Message = out.Message
	s.Errors = out.Errors
	s.Warnings = out.Warnings
	s.URLs = p.results.URLs
	s.Started, s.Finished = started, finished
	return s
}
