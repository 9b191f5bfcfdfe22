package screen

import (
	"context"
	"fmt"
	"slices"
	"time"

	"limpet/sync/snapshot"
)

// Verb, Action and the verbs are those of the agent.
type (
	Verb   = snapshot.Verb
	Action = snapshot.Action
)

const (
	Pull          = snapshot.Pull
	PullFull      = snapshot.PullFull
	Cancel        = snapshot.Cancel
	Retry         = snapshot.Retry
	Suspend       = snapshot.Suspend
	Resume        = snapshot.Resume
	Drain         = snapshot.Drain
	Undrain       = snapshot.Undrain
	Hurry         = snapshot.Hurry
	Reconcile     = snapshot.Reconcile
	SuspendSource = snapshot.SuspendSource
	ResumeSource  = snapshot.ResumeSource
	SuspendFor    = snapshot.SuspendFor
)

// target is one object that a key acts on.
type target struct {
	action Action
	job    snapshot.Job  // for actions on jobs
	repo   snapshot.Repo // for actions on repositories; without a UID when it is not in the snapshot
	source snapshot.Source
}

// disabledReason returns why a key for v is disabled; "" means enabled. Help, hints and refusals
// all use it.
func disabledReason(v Verb) func(State) string {
	return func(s State) string { _, why := s.targets(v); return why }
}

// targets returns the present targets of a key for v. When there are none, why is the reason.
func (s State) targets(v Verb) (out []target, why string) {
	if v == Reconcile || v == SuspendSource {
		return s.sourceTargets(v, s.targetSources())
	}
	return s.targetsAt(v, s.targetJobs(v), s.targetRepos())
}

// targetsAt returns the targets among the given jobs or, for actions on repositories, the given
// repositories.
func (s State) targetsAt(v Verb, jobs []snapshot.Job, repos []snapshot.Repo) (out []target, why string) {
	if why := s.notSentReason(); why != "" {
		return nil, why
	}
	none := "no repository is under the cursor"
	if v == Cancel || v == Retry {
		none = "no job is under the cursor"
	}
	why = none
	add := func(a target, not string) {
		if not == "" {
			out = append(out, a)
		} else if why == none {
			why = not
		}
	}
	switch v {
	case Cancel, Retry:
		for _, j := range jobs {
			not := s.cancelRefusal(j)
			if v == Retry {
				not = s.retryRefusal(j)
			}
			add(target{job: j, action: Action{Verb: v, Namespace: j.Namespace, Name: j.Name, UID: j.UID}}, not)
		}
	default:
		for _, r := range repos {
			a := target{repo: r, action: Action{Verb: v, Namespace: r.Namespace, Name: r.Name}}
			not := ""
			if v == Suspend {
				a.action.UID = r.UID
				if r.Suspended {
					a.action.Verb = Resume
				}
				if r.UID == "" {
					not = "the repository " + r.Name + " is not there"
				}
			}
			add(a, not)
		}
	}
	if len(out) == 0 {
		return nil, why
	}
	// If only some of the repositories are suspended, the first one decides between suspend and
	// resume.
	return sameVerb(out), ""
}

// targetsNow returns the present state of an earlier target, wherever the cursor is.
// When the target is gone or the action would now do the opposite, why is the reason.
func (s State) targetsNow(before target) (out []target, why string) {
	v, found := keyVerb(before.action.Verb), 1
	switch {
	case before.source.UID != "":
		from := s.sourceAt(before.source.UID)
		found = len(from)
		out, why = s.sourceTargets(v, from)
	case before.job.UID != "":
		jobs := s.jobsAt(before.job.UID)
		if len(jobs) == 0 && !before.job.Finished.IsZero() { // it is in the history
			jobs = []snapshot.Job{before.job}
		}
		found = len(jobs)
		out, why = s.targetsAt(v, jobs, nil)
	default:
		repos := s.reposAt(repoKey(before.repo))
		if len(repos) == 0 && before.repo.UID == "" { // only its name was known
			repos = []snapshot.Repo{before.repo}
		}
		found = len(repos)
		out, why = s.targetsAt(v, nil, repos)
	}
	switch {
	case found == 0 && s.notSentReason() == "":
		why = before.action.Name + " is not there any more"
	case len(out) > 0 && out[0].action.Verb != before.action.Verb && v != before.action.Verb:
		return nil, before.action.Name + " is not suspended"
	case len(out) > 0 && out[0].action.Verb != before.action.Verb:
		return nil, before.action.Name + " is suspended already"
	}
	return out, why
}

// keyVerb returns the verb of the key for v: one key suspends and resumes.
func keyVerb(v Verb) Verb {
	switch v {
	case Resume:
		return Suspend
	case ResumeSource:
		return SuspendSource
	}
	return v
}

// notSentReason returns why no action can be sent now; "" = it can.
func (s State) notSentReason() string {
	if why := s.readOnlyReason(); why != "" {
		return why
	}
	if s.offline() {
		return s.unavailableReason() + ": nothing is sent, and nothing is queued for later"
	}
	return ""
}

// readOnlyReason returns why the dashboard is read-only; "" = it is not.
func (s State) readOnlyReason() string {
	switch {
	case s.Source == FromDisk:
		return "no agent works on this file: nothing is sent"
	case s.ReadOnly:
		return "--read-only: nothing is sent"
	}
	return ""
}

// cancelRefusal and retryRefusal return why a job cannot be cancelled or retried; "" = it can.
func (s State) cancelRefusal(j snapshot.Job) string {
	if !j.Finished.IsZero() || !j.Undelivered.IsZero() {
		return "this job has ended"
	}
	return ""
}

func (s State) retryRefusal(j snapshot.Job) string {
	switch {
	case !j.Finished.IsZero():
		return ""
	case !j.Undelivered.IsZero():
		return "this job is done; its result is sent when the API takes it"
	case j.Owner != "":
		return "this job runs now; it can be tried again when it has ended"
	case !s.waitsForRetry(j):
		return "this job is queued already"
	}
	return ""
}

// waitsForRetry reports whether a job waits for its next attempt.
func (s State) waitsForRetry(j snapshot.Job) bool {
	return j.Owner == "" && j.Finished.IsZero() && j.Undelivered.IsZero() && j.RetryAt.After(s.Now)
}

// selection is the object under the cursor, or the object of a detail screen.
type selection struct {
	job    *snapshot.Job
	gone   bool // the job is neither in the snapshot nor in the history list
	repo   *snapshot.Repo
	source *snapshot.Source
}

// selection returns the selection of the present screen.
func (s State) selection() selection {
	if f := screens[s.nav.screen].selection; f != nil {
		return f(s)
	}
	return selection{}
}

// rowAtCursor is the selection of a screen with lists.
func (s State) rowAtCursor() (out selection) {
	switch s.listed() {
	case paneJobs:
		out.job = findRow(s.jobs(), s.lists.job, jobKey)
	case paneRepos:
		out.repo = findRow(s.repos(), s.lists.repo, repoKey)
	case paneSources:
		out.source = findRow(s.sources(), s.lists.source, sourceKey)
	}
	return out
}

// findRow returns the row with a key, nil when there is none.
func findRow[T any](rows []T, key string, keyOf func(T) string) *T {
	for i := range rows {
		if keyOf(rows[i]) == key {
			return &rows[i]
		}
	}
	return nil
}

// targetJobs returns the marked jobs, else the selected one. A job that has left all lists can
// only be retried.
func (s State) targetJobs(v Verb) []snapshot.Job {
	if many := marked(s, paneJobs, s.jobs(), jobKey); len(many) > 0 {
		return many
	}
	at := s.selection()
	if at.job == nil || at.gone && (v != Retry || at.job.Finished.IsZero()) {
		return nil
	}
	return []snapshot.Job{*at.job}
}

// targetRepos returns the marked repositories, else the one under the cursor, or those of the
// selected jobs.
func (s State) targetRepos() []snapshot.Repo {
	if many := marked(s, paneRepos, s.repos(), repoKey); len(many) > 0 {
		return many
	}
	if many := marked(s, paneJobs, s.jobs(), jobKey); len(many) > 0 {
		var out []snapshot.Repo
		for _, j := range many {
			r := s.repoOf(j)
			if r.Name != "" && !slices.ContainsFunc(out, func(other snapshot.Repo) bool { return repoKey(other) == repoKey(r) }) {
				out = append(out, r)
			}
		}
		return out
	}
	switch at := s.selection(); {
	case at.repo != nil:
		return []snapshot.Repo{*at.repo}
	case at.job != nil && at.job.Repository != "":
		return []snapshot.Repo{s.repoOf(*at.job)}
	}
	return nil
}

// repoOf returns the repository of a job; only its name is set when the snapshot does not
// contain it.
func (s State) repoOf(j snapshot.Job) snapshot.Repo {
	for _, r := range s.Snap.Repos {
		if r.Namespace == j.Namespace && r.Name == j.Repository {
			return r
		}
	}
	return snapshot.Repo{Namespace: j.Namespace, Name: j.Repository}
}

// request sends the actions at once or after a confirmation. It takes the results of targets.
func (s State) request(targets []target, why string) (State, Outcome) {
	if why != "" {
		return s.showToast(why, true), Outcome{}
	}
	switch v := targets[0].action.Verb; {
	case targets[0].source.UID != "":
		return s.requestSources(targets)
	case v == PullFull:
		return s.ask(s.confirmPull(targets)), Outcome{}
	case v == Cancel:
		return s.ask(confirmCancel(targets)), Outcome{}
	case v == Retry:
		return s.ask(s.confirmRetry(targets)), Outcome{}
	case v == Suspend:
		return s.ask(confirmSuspend(targets)), Outcome{}
	case len(targets) > 1 && v == Resume:
		return s.ask(confirmMany(targets, "Resume", "Each is checked and pulled again by its interval.")), Outcome{}
	case len(targets) > 1:
		return s.ask(confirmMany(targets, "Pull", "Each looks for what has changed; it is cheap and harmless when repeated.")), Outcome{}
	default:
		return s.showToast(fmt.Sprintf("%s of %s asked for", v, targets[0].action.Name), false), send(targets)
	}
}

func send(targets []target) (out Outcome) {
	for _, a := range targets {
		out.Actions = append(out.Actions, a.action)
	}
	return out
}

func (s State) showToast(text string, bad bool) State {
	s.toast, s.toastBad = text, bad
	return s
}

// sameVerb returns the targets with the verb of the first one.
func sameVerb(targets []target) (out []target) {
	for _, a := range targets {
		if a.action.Verb == targets[0].action.Verb {
			out = append(out, a)
		}
	}
	return out
}

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
	// RecentRuns returns the recent jobs of a repository.
	RecentRuns(ctx context.Context, namespace, repository string) (snapshot.RecentRuns, error)
	// Diagnostics returns diagnostics of the agent.
	Diagnostics(ctx context.Context) (snapshot.DiagnosticsReport, error)
	// Compare returns the changes in Git between two commits.
	Compare(ctx context.Context, q snapshot.CompareQuery) (snapshot.Comparison, error)
	// Test checks a Repository or a source like 'limpet repo test', without writing anything. An
	// error means that there is no result.
	Test(ctx context.Context, of snapshot.Subject) ([]snapshot.Finding, error)
	// Manifest returns an object as YAML, with secrets masked.
	Manifest(ctx context.Context, of snapshot.Subject) (string, error)
	// Name is Standalone, FromDisk, or a text like "attached to daemon 4121".
	Name() string
	// Note is a warning about the source, for example that the daemon has another version; "" =
	// none.
	Note() string
}

// Names of sources: the agent runs in this process, or no agent runs and its saved snapshot is
// shown.
const (
	Standalone = "standalone"
	FromDisk   = "own db, read from disk"
)

// LookupTimeout bounds one lookup of a screen.
const LookupTimeout = 10 * time.Second
