package tui

import (
	"fmt"
	"time"

	"limpet/sync/view"
)

// Verb names what a person asks the agent for.
type Verb string

// Verbs of the dashboard.
const (
	Pull     Verb = "pull"      // incremental; cheap and harmless when repeated
	PullFull Verb = "pull-full" // looks at everything
	Cancel   Verb = "cancel"    // stops a job, or deletes one that waits
	Retry    Verb = "retry"     // ends the rest of a job, or runs a finished one again
	Suspend  Verb = "suspend"   // has this agent leave a repository alone for SuspendFor
	Resume   Verb = "resume"    // ends that
)

// SuspendFor is how long a repository is left alone: a day, so that one that was
// forgotten comes back by itself.
const SuspendFor = 24 * time.Hour

// Action is one request to the agent, sent once.
type Action struct {
	Verb      Verb
	Namespace string
	Name      string // of the repository or the job
	UID       string // of what Name means; that may be another's by now. "" for pulls
}

// target is the repository that p, P and s mean.
func (s State) target() (namespace, name string, ok bool) {
	if s.screen == screenRepo {
		r, ok := s.repo()
		return r.Namespace, r.Name, ok
	}
	if s.screen == screenDetail {
		j, _ := s.job()
		return j.Namespace, j.Repository, j.Repository != ""
	}
	if s.listed() == paneRepos {
		for _, r := range s.repos() {
			if repoKey(r) == s.repoKey {
				return r.Namespace, r.Name, true
			}
		}
		return "", "", false
	}
	j, ok := s.selected()
	return j.Namespace, j.Repository, ok
}

// selected is the job under the cursor.
func (s State) selected() (view.Job, bool) {
	if s.screen == screenDetail {
		return s.job()
	}
	if s.listed() == paneJobs {
		for _, j := range s.jobs() {
			if j.UID == s.jobUID {
				return j, true
			}
		}
	}
	return view.Job{}, false
}

func (s State) pull() (State, Outcome) {
	namespace, name, ok := s.target()
	if why := s.refuse(ok); why != "" {
		return s.say(why, true), Outcome{}
	}
	return s.say("pull of "+name+" asked for", false), Outcome{Action: &Action{Verb: Pull, Namespace: namespace, Name: name}}
}

func (s State) pullFull() (State, Outcome) {
	namespace, name, ok := s.target()
	if why := s.refuse(ok); why != "" {
		return s.say(why, true), Outcome{}
	}
	return s.ask(question{text: "Pull everything of " + name + "? Each object is compared, what differs is written.",
		action: Action{Verb: PullFull, Namespace: namespace, Name: name}, done: "full pull of " + name + " asked for"}), Outcome{}
}

// suspend has the agent leave a repository alone, or take it up again.
func (s State) suspend() (State, Outcome) {
	namespace, name, ok := s.target()
	var repo view.Repo
	for _, r := range s.Snap.Repos {
		if r.Namespace == namespace && r.Name == name {
			repo = r
		}
	}
	if why := s.refuse(ok && repo.UID != ""); why != "" {
		return s.say(why, true), Outcome{}
	}
	act := Action{Verb: Suspend, Namespace: namespace, Name: name, UID: repo.UID}
	if repo.Suspended {
		act.Verb = Resume
		return s.say("resume of "+name+" asked for", false), Outcome{Action: &act}
	}
	return s.ask(question{text: fmt.Sprintf("Suspend %s on this agent for %s? Until then, or until s is pressed again, it is not checked and not pulled, neither by its interval nor by a webhook. Jobs that somebody makes are run.", name, view.Age(SuspendFor)),
		action: act, done: "suspension of " + name + " asked for"}), Outcome{}
}

func (s State) cancel() (State, Outcome) {
	j, ok := s.selected()
	why := s.refuse(ok)
	switch {
	case why != "":
	case !j.Finished.IsZero() || !j.Unsent.IsZero():
		why = "this job has ended"
	}
	if why != "" {
		return s.say(why, true), Outcome{}
	}
	text := "Cancel " + j.Name + "? What it has written stays."
	if j.Owner == "other" {
		text = "Cancel " + j.Name + ", which another agent runs? It is asked to stop; what it has written stays."
	}
	return s.ask(question{text: text, action: Action{Verb: Cancel, Namespace: j.Namespace, Name: j.Name, UID: j.UID}, done: "cancel of " + j.Name + " asked for"}), Outcome{}
}

func (s State) retry() (State, Outcome) {
	j, ok := s.repeatable()
	why := s.refuse(ok)
	text := ""
	switch {
	case why != "":
	case !j.Finished.IsZero():
		text = fmt.Sprintf("Run %s again? It has ended (%s); a new job is made of it.", j.Name, j.State)
	case !j.Unsent.IsZero():
		why = "this job is done; its result is sent when the API takes it"
	case j.Owner != "":
		why = "this job runs now; it can be tried again when it has ended"
	case !s.rests(j):
		why = "this job is queued already"
	default:
		text = fmt.Sprintf("Try %s now? It would rest for another %s.", j.Name, view.Age(j.RestsUntil.Sub(s.Now)))
	}
	if why != "" {
		return s.say(why, true), Outcome{}
	}
	return s.ask(question{text: text, action: Action{Verb: Retry, Namespace: j.Namespace, Name: j.Name, UID: j.UID}, done: "retry of " + j.Name + " asked for"}), Outcome{}
}

// rests says that a job waits for its next attempt.
func (s State) rests(j view.Job) bool {
	return j.Owner == "" && j.Finished.IsZero() && j.Unsent.IsZero() && j.RestsUntil.After(s.Now)
}

// repeatable is the job that r means: the one under the cursor, and in the
// detail also one that has ended so long ago that it is on no list any more.
func (s State) repeatable() (view.Job, bool) {
	j, ok := s.selected()
	return j, ok || s.screen == screenDetail && !j.Finished.IsZero()
}

// retryable says that r has a use on that job.
func (s State) retryable() bool {
	j, ok := s.repeatable()
	return ok && !s.offline() && (!j.Finished.IsZero() || s.rests(j))
}

// quit leaves at once, unless jobs run in this process: they would be cut off.
func (s State) quit() (State, Outcome) {
	if s.Source != Standalone || s.Snap.Agent.Claims == 0 {
		return s, Outcome{Quit: true}
	}
	return s.ask(question{quit: true, text: view.Plural(s.Snap.Agent.Claims, "job") + " running in this process. Quit? What is running is given back and goes on at the next start, here or elsewhere."}), Outcome{}
}

// refuse says why nothing can be asked for now; "" means it can.
func (s State) refuse(selected bool) string {
	switch {
	case s.offline():
		return "the API is away: nothing is sent, and nothing is queued for later"
	case !selected:
		return "nothing is selected"
	}
	return ""
}

func (s State) say(text string, bad bool) State {
	s.toast, s.toastBad = text, bad
	return s
}
