package snapshot

import "time"

// Verb names an action of a dashboard.
type Verb string

// Verbs of an Action.
const (
	Pull     Verb = "pull"      // incremental; cheap and harmless when repeated
	PullFull Verb = "pull-full" // compares every file
	Cancel   Verb = "cancel"    // stops a job, or deletes a pending one
	Retry    Verb = "retry"     // ends the backoff of a job, or runs a finished one again
	Suspend  Verb = "suspend"   // suspends a repository for this agent for SuspendFor
	Resume   Verb = "resume"    // ends the suspension
	Drain    Verb = "drain"     // finish running jobs, claim no new ones
	Undrain  Verb = "undrain"   // claim jobs again
	Hurry    Verb = "hurry"     // retries an unavailable API now

	Reconcile     Verb = "reconcile"      // requests a reconciliation of a source
	SuspendSource Verb = "suspend-source" // sets suspend in the spec of the source
	ResumeSource  Verb = "resume-source"  // clears it

	CreateJob Verb = "create-job" // creates a job with Action.Spec
)

// SuspendFor is the duration of a suspension: one day, so that a forgotten one ends by itself.
const SuspendFor = 24 * time.Hour

// Action is one request of a dashboard to the agent, sent once.
type Action struct {
	Verb      Verb
	Namespace string
	Name      string // of the repository or the job; "" for the agent itself
	UID       string // of the object when the key was pressed, in case the name is reused; "" for new jobs
	Spec      string `json:",omitempty"` // of a new job, as JSON
}
