package screen

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// Verb, Action and the verbs are those of the agent.
type (
	Verb   = snapshot.Verb
	Action = snapshot.Action
)

// Source provides the data of the dashboard and carries out its actions.
type Source interface {
	// Next blocks until there is a snapshot that it has not returned before, or ctx ends. Any
	// other error means that the source is unavailable; the next call tries again.
	Next(ctx context.Context) (*snapshot.Snapshot, error)
	// Act sends a request to the agent, once.
	Act(ctx context.Context, a Action) error
	// HistoryPage returns a page of the history, PastJob one complete finished job.
	HistoryPage(ctx context.Context, q snapshot.HistoryQuery) (snapshot.HistoryPage, error)
	PastJob(ctx context.Context, uid string) (snapshot.Job, error)
	// Diagnostics returns diagnostics of the agent.
	Diagnostics(ctx context.Context) (snapshot.DiagnosticsReport, error)
	// Compare returns the changes in Git between two commits.
	Compare(ctx context.Context, q snapshot.CompareQuery) (snapshot.Comparison, error)
	// Artifacts returns those of a source that the host has, the newest first.
	Artifacts(ctx context.Context, of state.SourceKey) ([]state.Artifact, error)
	// Files lists the files of a Repository, or reads one of them.
	Files(ctx context.Context, q snapshot.FileQuery) (snapshot.FileList, error)
	// Test checks a Repository or a source like 'limpet repo test', without writing anything. An
	// error means that there is no result.
	Test(ctx context.Context, of snapshot.Subject) ([]snapshot.Finding, error)
	// Manifest returns an object as YAML, with secrets masked.
	Manifest(ctx context.Context, of snapshot.Subject) (string, error)
	// Edit carries out a step of an edit of an object.
	Edit(ctx context.Context, e snapshot.Edit) (snapshot.Edited, error)
	// Name is Standalone, FromDisk, or a text like "attached to daemon 4121".
	Name() string
	// Note is a warning about the source, for example that the daemon has another version; "" = none.
	Note() string
}

// Names of sources: the agent runs in this process, or no agent runs and its saved snapshot is
// shown.
const (
	Standalone = "standalone"
	FromDisk   = "own db, read from disk"
)

// verbs describes the verbs that act on objects.
var verbs = map[Verb]struct {
	kind  string // of the objects
	noun  string // "%s requested: X"
	title string // begins the question
	then  string // the consequences
	asks  bool
	flips Verb // the verb of the same key for a suspended object
}{
	snapshot.Pull:     {onRepo, "pull", "Pull", "Pulls what changed; harmless when repeated.", false, ""},
	snapshot.PullFull: {onRepo, "full pull", "Full pull of", "Overwrites all differences; manual changes in Grafana are lost.", true, ""},
	snapshot.Cancel:   {onJob, "cancel", "Cancel", "Stops a running job, deletes a pending one. What is written stays.", true, ""},
	snapshot.Retry: {onJob, "retry", "Retry", "Retries a waiting job now. Of a finished one, creates " +
		"a new job with the same options.", true, ""},
	snapshot.Suspend: {onRepo, "suspension", "Suspend", "Pauses checks and pulls on this agent, by interval and by webhook, for " +
		text.Age(snapshot.SuspendFor) + " or until resumed. Jobs that users create still run.", true,
		snapshot.Resume},
	snapshot.Resume:    {onRepo, "resume", "Resume", "Resumes checks and pulls by its interval.", false, ""},
	snapshot.Reconcile: {onSource, "reconciliation", "Reconcile", "Its controller fetches what is new; harmless when repeated.", false, ""},
	snapshot.SuspendSource: {onSource, "suspension", "Suspend", "For all users: writes spec.suspend to the API; its controller " +
		"fetches nothing new until resumed. Its artifact stays, and what is deployed from it.", true,
		snapshot.ResumeSource},
	snapshot.ResumeSource: {onSource, "resume", "Resume", "Its controller reconciles at once.", false, ""},
}

const onJob, onRepo, onSource = snapshot.SubjectJob, snapshot.SubjectRepository, snapshot.SubjectSource

type request struct {
	verb Verb
	on   []object
}

func (r request) what() string {
	if len(r.on) == 1 {
		return r.on[0].Name
	}
	return fmt.Sprintf("%d %s", len(r.on), map[string]string{onJob: "jobs", onRepo: "repositories", onSource: "sources"}[r.on[0].Kind])
}

// requestFor returns what a key for v would send, or why nothing. Help, hints and refusals all use
// it.
func requestFor(s *facts, v Verb, selected []object) (r request, why string) {
	if why := s.notSentReason(); why != "" {
		return r, why
	}
	kind := verbs[v].kind
	none := "no " + kind + " is under the cursor"
	if why = none; kind == onRepo {
		selected = onRepos(s, selected)
	}
	for _, o := range selected {
		as := v
		if o.suspended() && verbs[v].flips != "" {
			as = verbs[v].flips
		}
		switch not := refusalOf(s, v, o); {
		case o.Kind != kind || o.gone && (v != snapshot.Retry || o.job.Finished.IsZero()):
		case not != "" && why == none:
			why = not
		case not == "" && (r.verb == "" || as == r.verb): // the first one decides between suspend and resume
			r.verb, r.on = as, append(r.on, o)
		}
	}
	if len(r.on) > 0 {
		why = ""
	}
	return r, why
}

func (o object) suspended() bool {
	return o.repo != nil && o.repo.Suspended || o.source != nil && o.source.Suspended
}

// refusal returns why an object cannot be the target of v; "" = it can.
func refusalOf(s *facts, v Verb, o object) string {
	switch j := o.job; {
	case v == snapshot.Suspend && o.repo != nil && o.UID == "":
		return "repository " + o.Name + " not found"
	case v == snapshot.Reconcile && o.suspended():
		return o.Name + " is suspended; s resumes it"
	case j == nil:
	case v == snapshot.Cancel && (!j.Finished.IsZero() || !j.Undelivered.IsZero()):
		return "this job already finished"
	case v != snapshot.Retry || !j.Finished.IsZero():
	case !j.Undelivered.IsZero():
		return "this job is done; its result is not delivered yet"
	case j.Owner != "":
		return "this job is running; retry it when it has finished"
	case !waitsForRetry(s, *j):
		return "this job is already queued"
	}
	return ""
}

func waitsForRetry(s *facts, j snapshot.Job) bool {
	return j.Owner == "" && j.Finished.IsZero() && j.Undelivered.IsZero() && j.RetryAt.After(s.Now)
}

// requestNow returns the request for an object that was selected earlier, wherever the cursor is
// now.
func requestNow(s *facts, v Verb, before object) (request, string) {
	o, there := s.current(before)
	there = there || o.job != nil && !o.job.Finished.IsZero() || o.repo != nil && o.UID == ""
	if !there && s.notSentReason() == "" {
		return request{}, before.Name + " no longer exists"
	}
	key := v
	for of, verb := range verbs {
		if verb.flips == v {
			key = of
		}
	}
	r, why := requestFor(s, key, []object{o})
	if why == "" && r.verb != v {
		why = o.Name + " is " + widget.When(key != v, "not ") + "suspended" + widget.When(key == v, " already")
	}
	return r, why
}

func (s *State) request(r request, why string) {
	switch {
	case why != "":
		s.showToast(why, true)
	case verbs[r.verb].asks:
		s.overlay = confirmation(&s.facts, r)
	default:
		s.send(r)
	}
}

func (s *State) send(r request) {
	s.showToast(verbs[r.verb].noun+" requested: "+r.what(), false)
	for _, o := range r.on {
		a := Action{Verb: r.verb, Namespace: o.Namespace, Name: o.Name, UID: o.UID, Source: o.Source}
		if r.verb == snapshot.Pull || r.verb == snapshot.PullFull {
			a.UID = ""
		}
		s.out.Actions = append(s.out.Actions, a)
	}
}

// notSentReason returns why no action can be sent now; "" = it can.
func (s *facts) notSentReason() string {
	if why := s.readOnlyReason(); why != "" {
		return why
	}
	if s.offline() {
		return s.unavailableReason() + ": nothing is sent or queued"
	}
	return ""
}

// readOnlyReason returns why the dashboard is read-only; "" = it is not.
func (s *facts) readOnlyReason() string {
	switch {
	case s.Source == FromDisk:
		return "no agent is running: nothing is sent"
	case s.ReadOnly:
		return "--read-only: nothing is sent"
	}
	return ""
}

// typeNameFrom is the number of objects from which a full pull must be confirmed by the name of the
// repository.
const typeNameFrom = 1000

// confirmation returns the question before a request. What takes long to undo must be confirmed by
// name.
func confirmation(s *facts, r request) confirm {
	what, verb, o := r.what(), verbs[r.verb], r.on[0]
	q := confirm{title: verb.title + " " + what + "?", lines: []string{verb.then},
		choices: []choice{{"y", "Yes, " + strings.ToLower(strings.TrimSuffix(verb.title, " of")), command{act: "send", request: &r}}}}
	name := o.Name
	if len(r.on) > 1 {
		name = fmt.Sprintf("all %d", len(r.on))
		q.choices[0].text = "Yes, " + name
		var names []string
		for _, o := range r.on[:min(len(r.on), 5)] {
			names = append(names, o.Name)
		}
		q.lines = append([]string{strings.Join(names, ", ") + widget.When(len(r.on) > len(names),
			fmt.Sprintf(" and %d more", len(r.on)-len(names))) + "."}, q.lines...)
	} else if o.job != nil {
		q.lines = append(q.lines, jobInQuestion(s, *o.job))
	}
	objects := int64(0)
	for _, o := range r.on {
		if r.verb == snapshot.PullFull {
			objects += o.repo.Resources
		} else if r.verb == snapshot.Retry && q.name == "" && !o.job.Finished.IsZero() && slices.Contains(api.WriteActions, o.job.Action) {
			q.lines, q.name = append(q.lines, "This writes to Git again ("+o.job.Action+")."), name
		}
	}
	if r.verb == snapshot.PullFull {
		q.lines = append(q.lines, fmt.Sprintf("All files are read and %s compared.", widget.Thousands(objects, "object")))
		for _, j := range s.Snap.Jobs {
			if j.Namespace == o.Namespace && j.Repository == o.Name && j.Action == "pull" && j.Finished.IsZero() {
				q.lines = append(q.lines, "The API may refuse it until "+j.Name+" ("+j.State+") has ended.")
				break
			}
		}
	}
	if objects >= typeNameFrom {
		q.name = name
	}
	return q
}

func jobInQuestion(s *facts, j snapshot.Job) string {
	txt := "It is " + j.State
	switch {
	case !j.Finished.IsZero():
		txt = "It finished: " + j.State
	case waitsForRetry(s, j):
		txt += fmt.Sprintf(", retry in %s, attempt %d of %d", text.Age(j.RetryAt.Sub(s.Now)), j.Attempt,
			max(j.MaxAttempt, j.Attempt))
	case j.Owner == "other":
		txt += " on another agent"
	}
	return txt + widget.When(j.Total > 0, fmt.Sprintf(", %s of %s done", text.Thousands(int(j.Done)),
		widget.Thousands(j.Total, counted(j)))) + "."
}
