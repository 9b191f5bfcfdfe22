package jobs

import (
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

	cancelled bool              // a person wanted it to end
	dead      *state.DeadLetter // its attempts are used up
}

// stateCancelled is what the local history calls a job that a person has
// cancelled. The wire has no such state; there it is an error.
const stateCancelled = "cancelled"

// stateDead is what the local history calls a job whose attempts are used up. On
// the wire it is an error.
const stateDead = "dead"

// death is how a job ends whose agent is gone and that is not tried again.
func death() Outcome {
	return Outcome{State: api.StateError, Message: deathMessage, Errors: []string{deathMessage}}
}

// shown is the state for people.
func (o Outcome) shown() string {
	switch {
	case o.cancelled:
		return stateCancelled
	case o.dead != nil:
		return stateDead
	}
	return o.State
}

// Outcome tells how the job ends if the worker returns err now. Workers that
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
	a := &p.account
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
	s := p.account.status(out.State)
	s.Progress = 0
	s.Message, s.Errors, s.Warnings = out.Message, out.Errors, out.Warnings
	s.URLs = p.account.URLs
	s.Started, s.Finished = started, finished
	return s
}
