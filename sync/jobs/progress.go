package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/git/transfer"
	"limpet/sync/resources"
	"limpet/sync/text"
)

// Progress collects what a worker has done. Its methods never wait for the network: one goroutine
// per job writes the results to the Job. It is safe for concurrent use.
type Progress struct {
	job *heldJob // nil = of no job
	// Transfer counts what the run receives from Git servers.
	Transfer *transfer.Meter
	// changed holds one token when something has changed since the last write.
	changed chan struct{}

	mu        sync.Mutex // guards everything below
	results   Results
	wrote     time.Time // the last write to the Job
	message   bool      // a message or a total has changed since
	record    bool      // a resource was recorded since, or the last write did not arrive
	final     string
	maxErrors int
}

// NewProgress returns one that is written nowhere, for a worker that runs by itself.
func NewProgress() *Progress { return newProgress(nil) }

func newProgress(job *heldJob) *Progress {
	return &Progress{job: job, Transfer: transfer.New(), changed: make(chan struct{}, 1), wrote: time.Now()}
}

func (p *Progress) emit(typ, text string) {
	if p.job != nil {
		p.job.env.events.emit(typ, p.job.ref, text)
	}
}

func (p *Progress) measure(detail any) {
	if p.job != nil {
		p.job.env.events.measure(detail)
	}
}

// SetMessage sets what the job does now, which is a step of it.
func (p *Progress) SetMessage(_ context.Context, text string) {
	if p.say(text, true) {
		notify(p.changed)
	}
}

// Step is SetMessage without a write: the dashboard shows it at once, the API has it with the next
// write.
func (p *Progress) Step(text string) { p.say(text, false) }

// say begins a step and reports whether it is another one; due has it written to the API.
func (p *Progress) say(message string, due bool) bool {
	message = text.Clip(message, maxMessage)
	p.mu.Lock()
	same := p.results.Message == message
	p.results.Message, p.results.Steps = message, beginStep(p.results.Steps, message, time.Now())
	p.message = p.message || due && !same
	p.mu.Unlock()
	if !same {
		p.emit(EventProgress, message)
	}
	return !same
}

// StepNote adds a result to the name of the present step, such as how much was fetched.
func (p *Progress) StepNote(note string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.results.Steps; len(s) > 0 {
		last := &s[len(s)-1]
		last.Text = text.Clip(last.Text+", "+note, maxStepText)
	}
}

// SetTotal says how many results will follow; progress in percent is the share of those so far. 0 =
// unknown, unless there are some already.
func (p *Progress) SetTotal(_ context.Context, n int) {
	p.set(func() { p.results.Total, p.message = p.results.Done+int64(max(n, 0)), true })
	notify(p.changed)
}

// Count says how much of a work without results is done. The next write carries it.
func (p *Progress) Count(done, total int) {
	p.set(func() { p.results.Done, p.results.Total = int64(done), int64(total) })
}

// Record adds the result of one resource.
func (p *Progress) Record(_ context.Context, r Result) {
	p.set(func() {
		p.results.record(r)
		p.record = true
	})
	if p.job != nil {
		p.measure(ResourceDone{p.job.ref.action, r})
	}
	switch err := cmp.Or(r.Err, r.Warning); {
	case err != nil:
		p.emit(EventRejected, resultText(r, err))
	case r.Action != resources.Ignored:
		p.emit(EventApplied, appliedText(r))
	}
	notify(p.changed)
}

// Phase records how long a part of a sync took, or with phase "" all of it. sync is SyncFull or
// SyncIncremental; the names of the parts are Grafana's.
func (p *Progress) Phase(sync, phase string, took time.Duration) {
	p.measure(SyncPhase{sync, phase, took})
}

// set changes what has no write of its own: the next one carries it, or the end.
func (p *Progress) set(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn()
}

// SetFinalMessage sets the message of a job that does not end as error.
func (p *Progress) SetFinalMessage(message string) {
	p.set(func() { p.final = text.Clip(message, maxMessage) })
}

// SetRefs records the branch and the commits that are synced. from is empty for the first sync.
func (p *Progress) SetRefs(branch, from, to string) {
	p.set(func() {
		p.results.Branch = branch
		p.results.RefFrom = from
		p.results.RefTo = to
	})
}

// SetCommit records the commit that is synced.
func (p *Progress) SetCommit(c state.Commit) { p.set(func() { p.results.Commit = &c }) }

// SetURLs sets the links of the final status (repositoryURL, sourceURL, newPullRequestURL,
// compareURL).
func (p *Progress) SetURLs(urls map[string]string) { p.set(func() { p.results.URLs = urls }) }

// StrictMaxErrors makes TooManyErrors return an error from the n-th error on. 0 = no limit.
func (p *Progress) StrictMaxErrors(n int) { p.set(func() { p.maxErrors = n }) }

// TooManyErrors returns an error when the limit of StrictMaxErrors is reached. Workers call it
// between steps and return its error.
func (p *Progress) TooManyErrors() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.tooMany() && p.results.ErrorCount == 1 && len(p.results.Errors) == 1: // a number says less than the error
		return errors.New(p.results.Errors[0])
	case p.tooMany():
		return fmt.Errorf("too many errors: %d", p.results.ErrorCount)
	}
	return nil
}

func (p *Progress) tooMany() bool {
	return p.maxErrors > 0 && p.results.ErrorCount >= int64(p.maxErrors)
}

// ResetResults drops all results, for a worker that begins again in another way.
func (p *Progress) ResetResults() {
	p.set(func() {
		r := &p.results
		r.Done, r.Errors, r.Warnings, r.ErrorCount, r.WarningCount, r.Texts, r.Kinds = 0, nil, nil, 0, 0, 0, nil
		r.Issues, r.IssuesLeft, r.IssueTexts = nil, 0, 0
		p.record = true
	})
	notify(p.changed)
}

// Mark keeps a resume mark together with the results so far: after a crash the job goes on with
// both. It is one durable write, so call it per batch of about 200 changes or 1 s. The error is the
// cause of the end when the job may not be written any more. A mark that cannot be kept for want of
// space is not an error: only work is repeated.
func (p *Progress) Mark(ctx context.Context, v any) error {
	if p.job == nil {
		return nil
	}
	if err := context.Cause(p.job.ctx); err != nil {
		return err
	}
	inner, err := json.Marshal(v)
	var data []byte
	if err == nil {
		p.set(func() { data, err = json.Marshal(mark{Mark: inner, Results: p.results}) })
	}
	if err != nil {
		return fmt.Errorf("encode progress mark: %w", err)
	}
	if err = p.job.putMark(ctx, data); err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		p.emit(EventNote, "progress mark not kept: "+err.Error())
	}
	return nil
}

// mark is what the state file keeps of a running job.
type mark struct {
	Mark    json.RawMessage `json:"mark"`
	Results Results         `json:"account"` // the member of schema 1
}

// resume takes over the results of an earlier run and returns its mark. A mark that cannot be read
// counts as none: the work begins anew.
func (p *Progress) resume(data json.RawMessage) json.RawMessage {
	var m mark
	if len(data) == 0 || json.Unmarshal(data, &m) != nil || len(m.Mark) == 0 {
		return nil
	}
	maps.DeleteFunc(m.Results.Kinds, func(_ string, s *api.JobSummary) bool { return s == nil }) // the file may say null
	p.set(func() { p.results = m.Results })
	return m.Mark
}

// due returns when the next write to the Job has to happen, if anything has changed.
func (p *Progress) due() (at time.Time, some bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.message {
		return p.wrote.Add(messageInterval), true
	}
	return p.wrote.Add(recordInterval), p.record
}

// begin returns what a write that starts now has to carry.
func (p *Progress) begin(now time.Time) (status api.JobStatus) {
	p.set(func() {
		p.wrote = now
		p.message = false
		p.record = false
		status = p.results.status(api.StateWorking)
	})
	return status
}

// Summary returns the counts of the results so far, by kind.
func (p *Progress) Summary() (out []api.JobSummary) {
	p.set(func() { out = p.results.Summary() })
	return out
}

// look returns a copy of the results for the dashboard and for history.
func (p *Progress) look() (r Results) {
	p.set(func() { r = p.results.clone() })
	return r
}

// Intervals between progress writes of one job. Source: Grafana's progress recorder. Unlike there
// an update inside the interval is not dropped but sent when the interval is over, so the last one
// always arrives.
const (
	messageInterval = 500 * time.Millisecond
	recordInterval  = 5 * time.Second
)

// maxSteps bounds the steps of a run that are kept; the last one goes on for the rest.
const maxSteps = 16

// Step is one part of a run, as the worker names it.
type Step struct {
	Text string        `json:"text"`
	At   time.Time     `json:"at"`             // when it began, by the local clock
	Took time.Duration `json:"took,omitempty"` // 0 while it goes on
}

// beginStep adds a step to those of a run, which are one behind the other: only the last one goes
// on.
func beginStep(s []Step, step string, now time.Time) []Step {
	step = text.Clip(step, maxStepText)
	if n := len(s); n > 0 {
		last := &s[n-1]
		if last.Text == step || n == maxSteps {
			return s
		}
		if last.Took = now.Sub(last.At); last.Took < briefest {
			s = s[:n-1]
		}
	}
	return append(s, Step{Text: step, At: now})
}

// briefest is the shortest step worth keeping.
const briefest = 10 * time.Millisecond

// maxStepText bounds the name of a step, since each record carries it. Unit: bytes.
const maxStepText = 100

// finishedSteps returns the steps of a run that ended then, for its record.
func finishedSteps(s []Step, end time.Time) []state.Step {
	var out []state.Step
	for i, one := range s {
		if i == len(s)-1 {
			one.Took = end.Sub(one.At)
		}
		if one.Took >= briefest {
			out = append(out, state.Step{Text: one.Text, Seconds: math.Round(one.Took.Seconds()*1000) / 1000})
		}
	}
	return out
}
