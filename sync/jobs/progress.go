package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"limpet/state"
	"limpet/sync/api"
)

// Progress collects what a worker has done. Its methods never wait for the
// network: they change the account in memory, and one goroutine per job writes
// it to the Job at most as often as throttle allows. It is safe for concurrent
// use.
type Progress struct {
	// put keeps a resume mark; nil error or one that says the claim is gone.
	put func(ctx context.Context, mark json.RawMessage) error
	// ended returns why nothing may be written any more, or nil.
	ended func() error
	// tell reports a step to the observer of the controller.
	tell func(typ, text string)
	// meter counts the results, under the action of the job.
	meter  Meter
	action string
	// changed holds one token when something has changed since the last look.
	changed chan struct{}

	mu        sync.Mutex // guards everything below
	account   account
	throttle  throttle
	final     string
	maxErrors int
}

// NewProgress returns one that is written nowhere, for a worker that runs by itself.
func NewProgress() *Progress { return newProgress(time.Now()) }

func newProgress(now time.Time) *Progress {
	return &Progress{
		put:     func(context.Context, json.RawMessage) error { return nil },
		ended:   func() error { return nil },
		tell:    func(string, string) {},
		meter:   unmetered{},
		changed: make(chan struct{}, 1),
		account: newAccount(), throttle: throttle{last: now},
	}
}

// SetMessage says what the job is doing now, which is a step of it.
func (p *Progress) SetMessage(_ context.Context, text string) {
	if p.say(text, true) {
		p.notify()
	}
}

// Step is SetMessage for what people here see at once and the API with the next write,
// so that it costs none.
func (p *Progress) Step(text string) { p.say(text, false) }

// say begins a step, and says whether it is another one; due has the API told of it.
func (p *Progress) say(text string, due bool) bool {
	text = clip(text, maxMessage)
	p.mu.Lock()
	same := p.account.Message == text
	p.account.Message, p.account.Steps = text, beginStep(p.account.Steps, text, time.Now())
	p.throttle.message = p.throttle.message || due && !same
	p.mu.Unlock()
	if !same {
		p.tell(EventProgress, text)
	}
	return !same
}

// StepNote adds to the name of the present step what has come of it, such as how much
// was fetched.
func (p *Progress) StepNote(note string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.account.Steps; len(s) > 0 {
		last := &s[len(s)-1]
		last.Text = clip(last.Text+", "+note, maxStepText)
	}
}

// SetTotal says how many results there will be; progress in percent is the
// number of results so far divided by it. 0 = unknown.
func (p *Progress) SetTotal(_ context.Context, n int) {
	p.mu.Lock()
	p.account.Total = int64(max(n, 0))
	p.throttle.message = true
	p.mu.Unlock()
	p.notify()
}

// Record adds the result of one resource.
func (p *Progress) Record(_ context.Context, r Result) {
	p.mu.Lock()
	p.account.record(r)
	p.throttle.record = true
	p.mu.Unlock()
	p.meter.Resource(p.action, r)
	switch {
	case r.Err != nil:
		p.tell(EventRejected, resultText(r, r.Err))
	case r.Warning != nil:
		p.tell(EventRejected, resultText(r, r.Warning))
	case r.Action != Ignored:
		p.tell(EventApplied, appliedText(r))
	}
	p.notify()
}

// Phase notes how long a part of a sync took, or with phase "" all of it. sync is
// SyncFull or SyncIncremental; the names of the parts are Grafana's.
func (p *Progress) Phase(sync, phase string, took time.Duration) { p.meter.Phase(sync, phase, took) }

// SetFinalMessage sets the message of a job that does not end as error.
func (p *Progress) SetFinalMessage(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.final = clip(text, maxMessage)
}

// SetRefs notes the branch and the commits that are synced, for history and
// dashboard. from is empty for the first sync.
func (p *Progress) SetRefs(branch, from, to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.account.Branch, p.account.RefFrom, p.account.RefTo = branch, from, to
}

// SetCommit tells of the commit that is synced, for history and dashboard.
func (p *Progress) SetCommit(c state.Commit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.account.Commit = &c
}

// SetURLs sets the links of the final status (repositoryURL, sourceURL,
// newPullRequestURL, compareURL).
func (p *Progress) SetURLs(urls map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.account.URLs = urls
}

// StrictMaxErrors makes TooManyErrors return an error from the n-th error on.
// 0 = no limit.
func (p *Progress) StrictMaxErrors(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.maxErrors = n
}

// TooManyErrors returns an error when the limit of StrictMaxErrors is reached.
// Workers ask it between steps and return what it returns.
func (p *Progress) TooManyErrors() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tooMany()
}

// TooManyErrorsError is what TooManyErrors returns.
type TooManyErrorsError struct{ Count int }

func (e *TooManyErrorsError) Error() string { return fmt.Sprintf("too many errors: %d", e.Count) }

func (p *Progress) tooMany() error {
	if p.maxErrors > 0 && p.account.ErrorCount >= int64(p.maxErrors) {
		return &TooManyErrorsError{Count: int(p.account.ErrorCount)}
	}
	return nil
}

// ResetResults forgets all results, for a worker that begins again in another
// way (a full pull after an incremental one was impossible).
func (p *Progress) ResetResults() {
	p.mu.Lock()
	p.account.reset()
	p.throttle.record = true
	p.mu.Unlock()
	p.notify()
}

// Mark keeps a resume mark together with the results so far: after a crash the
// job goes on with Task.Mark = v and these results. It is one durable write
// (some milliseconds), so call it per batch of about 200 changes or 1 s. The
// error is the cause of the end when the job may not be written any more. A mark
// that cannot be kept for want of space is not an error: only work is repeated.
func (p *Progress) Mark(ctx context.Context, v any) error {
	if err := p.ended(); err != nil {
		return err
	}
	inner, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode progress mark: %w", err)
	}
	p.mu.Lock()
	data, err := json.Marshal(mark{Mark: inner, Account: p.account})
	p.mu.Unlock()
	if err != nil {
		return fmt.Errorf("encode progress mark: %w", err)
	}
	err = p.put(ctx, data)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, state.ErrNotFound):
		return fmt.Errorf("keep progress mark: %w", ErrLost)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	p.tell(EventNote, "progress mark not kept: "+err.Error())
	return nil
}

// mark is what the state file keeps of a running job.
type mark struct {
	Mark    json.RawMessage `json:"mark"`
	Account account         `json:"account"`
}

// resume takes over the results of an earlier run and returns its mark. A mark
// that cannot be read is like none: the work begins anew.
func (p *Progress) resume(data json.RawMessage) json.RawMessage {
	if len(data) == 0 {
		return nil
	}
	m := mark{Account: newAccount()}
	if err := json.Unmarshal(data, &m); err != nil || len(m.Mark) == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.account = m.Account
	p.account.repair()
	return m.Mark
}

func (p *Progress) notify() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// due tells when the next write to the Job has to happen, if anything changed.
func (p *Progress) due() (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.throttle.due()
}

// begin returns what a write that starts now has to carry.
func (p *Progress) begin(now time.Time) api.JobStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.throttle.begin(now)
	return p.account.status(api.StateWorking)
}

// again has the write repeated later, because it did not arrive.
func (p *Progress) again() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.throttle.again()
}

// look returns a copy of the account for the dashboard and for history.
func (p *Progress) look() account {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.account.clone()
}
