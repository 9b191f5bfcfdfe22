package jobs

import (
	"fmt"
	"slices"

	"limpet/state"
	"limpet/sync/api"
)

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

// expiredMessage is the text of a job whose last claim has expired. Source:
// Grafana's cleanup.
const expiredMessage = "Job failed due to lease expiry - worker may have crashed or lost connection"

// expiredOutcome is how a job ends whose agent is gone and that is not tried again.
func expiredOutcome() Outcome {
	return Outcome{State: api.StateError, Message: expiredMessage, Errors: []string{expiredMessage}}
}

// dead is the outcome of a job whose attempts are used up.
func dead(out Outcome, reason string, attempts int) Outcome {
	out.dead = &state.DeadLetter{Reason: reason, Attempts: attempts, LastError: out.Message}
	out.Message = clip(fmt.Sprintf("%s (%s)", out.Message, plural(attempts, "attempt")), maxMessage)
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

// Outcome returns how the job ends if the worker returns err now. Workers that
// write a result elsewhere (the sync status of a Repository) use the same one.
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
	out := Outcome{Errors: slices.Clone(a.Errors), Warnings: slices.Clone(a.Warnings)}
	switch {
	case err != nil:
		out.State, out.Message = api.StateError, clip(err.Error(), maxMessage)
		if len(out.Errors) < maxErrors && !slices.Contains(out.Errors, clip(err.Error(), maxText)) {
			out.Errors = append(out.Errors, clip(err.Error(), maxText))
		}
	case a.ErrorCount > 0 && p.tooMany() != nil:
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

// finalStatus is the status with which the job goes into history. Progress is
// absent in it, as in Grafana.
func (p *Progress) finalStatus(out Outcome, started, finished int64) api.JobStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.results.status(out.State)
	s.Progress = 0
	s.Message, s.Errors, s.Warnings = out.Message, out.Errors, out.Warnings
	s.URLs = p.results.URLs
	s.Started, s.Finished = started, finished
	return s
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
