package jobs

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"limpet/state"
	"limpet/sync/api"
)

// Bounds of what a status may carry. Objects above about 1 MB are refused by
// API servers, and every progress write sends the whole object, so all texts of
// one job together stay below textBudget; the counters go on without texts.
const (
	maxErrors  = 20         // entries of status.errors; source: Grafana's progress recorder
	maxPerKind = 20         // entries of errors and of warnings in one summary
	maxKinds   = 64         // entries of summary; further kinds are counted together
	maxText    = 1 << 10    // bytes of one error or warning
	maxMessage = 2 << 10    // bytes of a message
	textBudget = 256 * 1024 // bytes of all errors and warnings of one job
)

// account is the sum of all results of a job. It is plain data: it is kept with
// the resume mark and taken up again after a crash.
type account struct {
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

	// Of this run alone: another one begins anew.
	Steps  []Step        `json:"-"`
	Commit *state.Commit `json:"-"` // RefTo; nil = it was not read
}

func newAccount() account { return account{Kinds: map[string]*api.JobSummary{}} }

// repair makes an account usable that was read from a file.
func (a *account) repair() {
	if a.Kinds == nil {
		a.Kinds = map[string]*api.JobSummary{}
	}
	maps.DeleteFunc(a.Kinds, func(_ string, s *api.JobSummary) bool { return s == nil })
}

func (a *account) reset() {
	a.Done, a.Errors, a.Warnings, a.ErrorCount, a.WarningCount, a.Texts = 0, nil, nil, 0, 0, 0
	a.Kinds = map[string]*api.JobSummary{}
}

// record counts a result by the rules of Grafana's progress recorder: an error
// or a warning counts as that alone; renamed is a delete and a create; write is
// create and update; an ignored result with an error is shown in the summary but
// is no error of the job.
func (a *account) record(r Result) {
	a.Done++
	s := a.kind(r.Group, r.Kind)
	switch {
	case r.Err != nil:
		s.Error++
		if r.Action != Ignored {
			a.ErrorCount++
			a.Errors = a.text(a.Errors, maxErrors, r.Err.Error())
		}
		s.Errors = a.text(s.Errors, maxPerKind, resultText(r, r.Err))
		return
	case r.Warning != nil:
		s.Warning++
		a.WarningCount++
		a.Warnings = a.text(a.Warnings, maxErrors, resultText(r, r.Warning))
		s.Warnings = a.text(s.Warnings, maxPerKind, resultText(r, r.Warning))
		return
	}
	switch r.Action {
	case Deleted:
		s.Delete++
	case Updated, Replaced:
		s.Update++
		s.Write++
	case Created:
		s.Create++
		s.Write++
	case Renamed:
		s.Delete++
		s.Create++
		s.Write++
	default:
		s.Noop++
	}
}

func (a *account) kind(group, kind string) *api.JobSummary {
	id := group + ":" + kind
	if s := a.Kinds[id]; s != nil {
		return s
	}
	if len(a.Kinds) >= maxKinds {
		id, group, kind = "other", "", "other"
		if s := a.Kinds[id]; s != nil {
			return s
		}
	}
	s := &api.JobSummary{Group: group, Kind: kind}
	a.Kinds[id] = s
	return s
}

// text appends a text to list unless a bound is reached.
func (a *account) text(list []string, limit int, text string) []string {
	if len(list) >= limit || a.Texts >= textBudget {
		return list
	}
	if text = clip(text, maxText); a.Texts+len(text) > textBudget {
		return list
	}
	a.Texts += len(text)
	return append(list, text)
}

// status is what a progress write carries. Warnings and links appear only at
// the end, as in Grafana.
func (a *account) status(state string) api.JobStatus {
	return api.JobStatus{State: state, Message: a.Message, Errors: slices.Clone(a.Errors),
		Progress: a.percent(), Summary: a.summary()}
}

// percent is 0 while the total is unknown and never above 100.
func (a *account) percent() float64 {
	if a.Total <= 0 {
		return 0
	}
	return min(100, float64(a.Done)/float64(a.Total)*100)
}

// summary is sorted, so that an unchanged account makes an unchanged status.
func (a *account) summary() []api.JobSummary {
	out := make([]api.JobSummary, 0, len(a.Kinds))
	for _, s := range a.Kinds {
		c := *s
		c.Errors, c.Warnings = slices.Clone(s.Errors), slices.Clone(s.Warnings)
		out = append(out, c)
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].Group != out[j].Group {
			return out[i].Group < out[j].Group
		}
		return out[i].Kind < out[j].Kind
	})
	return out
}

func (a *account) clone() account {
	c := *a
	c.Errors, c.Warnings, c.URLs, c.Steps = slices.Clone(a.Errors), slices.Clone(a.Warnings), maps.Clone(a.URLs), slices.Clone(a.Steps)
	c.Kinds = make(map[string]*api.JobSummary, len(a.Kinds))
	for id, s := range a.Kinds {
		k := *s
		c.Kinds[id] = &k
	}
	return c
}

func resultText(r Result, err error) string {
	return fmt.Sprintf("%s (file: %s, name: %s, action: %s)", err, r.Path, r.Name, r.Action)
}

func appliedText(r Result) string {
	text := r.Action
	if r.Kind != "" {
		text += " " + strings.ToLower(r.Kind)
	}
	if r.Name != "" {
		text += " " + r.Name
	}
	if r.PreviousPath != "" {
		text += " from " + r.PreviousPath
	}
	if r.Path != "" {
		text += " (" + r.Path + ")"
	}
	return text
}

// clip makes a text valid UTF-8 of at most limit bytes.
func clip(text string, limit int) string {
	if len(text) > 4*limit { // what is cut off need not be looked at
		text = text[:4*limit]
	}
	text = strings.ToValidUTF8(text, "�")
	if len(text) <= limit {
		return text
	}
	cut := limit - len("…")
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
