package snapshot

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/jobs"
	"limpet/sync/text"
)

// JobOptions are the settings of the job controller that rows of jobs show.
type JobOptions struct {
	Expiry      time.Duration // of a claim
	MaxAttempts int
}

func jobRow(u *unstructured.Unstructured, job api.Job, o JobOptions) Job {
	row := Job{
		UID:        string(u.GetUID()),
		Namespace:  u.GetNamespace(),
		Name:       u.GetName(),
		Repository: job.Spec.Repository,
		Action:     job.Spec.Action,
		Detail:     JobDetail(u.GetName(), job.Spec),
		State:      cmp.Or(job.Status.State, api.StatePending),
		Message:    job.Status.Message,
		Progress:   min(job.Status.Progress, 100),
		Created:    api.Time(u.GetCreationTimestamp().Time),
		Started:    api.TimeOfMillis(job.Status.Started),
		Finished:   api.TimeOfMillis(job.Status.Finished),
		Errors:     job.Status.Errors,
		Warnings:   job.Status.Warnings,
		Attempt:    attemptOf(u),
		MaxAttempt: o.MaxAttempts,
		Summary:    Summaries(job.Status.Summary),
		URLs:       Links(job.Status.URLs),
	}
	if row.State == api.StatePending {
		row.RetryAt = timeOfMillisText(u.GetAnnotations()[api.AnnoNotBefore])
	}
	if p := u.GetAnnotations()[api.AnnoPriority]; len(p) == 1 && p >= "0" && p <= "9" {
		row.Priority = p
	}
	if claim := u.GetLabels()[api.LabelClaim]; claim != "" {
		row.Owner = "other"
		if ms, err := strconv.ParseInt(claim, 10, 64); err == nil {
			row.LeaseUntil = api.Time(time.UnixMilli(ms).Add(o.Expiry))
		}
	}
	return row
}

// JobDetail qualifies the action of a job: "full", "incr", "#481"; "" = nothing.
func JobDetail(name string, spec api.JobSpec) string {
	if spec.Action == "pull" && spec.Pull != nil {
		if spec.Pull.Incremental {
			return "incr"
		}
		return "full"
	}
	if n, ok := strings.CutPrefix(name, spec.Repository+"-pr-"); ok && spec.Action == "pr" {
		return "#" + n
	}
	return ""
}

// attemptOf returns the number of the current or next attempt.
func attemptOf(u *unstructured.Unstructured) int {
	n, err := strconv.Atoi(u.GetAnnotations()[api.AnnoAttempt])
	if err != nil {
		return 1
	}
	return n + 1
}

// Summaries returns the counts of each kind of resource.
func Summaries(in []api.JobSummary) []Summary {
	var out []Summary
	for _, s := range in {
		out = append(out, Summary{
			Kind:   cmp.Or(s.Kind, "no kind"),
			Total:  s.Total,
			Create: s.Create,
			Update: s.Update,
			Delete: s.Delete,
			Noop:   s.Noop,
			Warn:   s.Warning,
			Error:  s.Error,
		})
	}
	return out
}

// linkNames are the web addresses of a job status, the most useful first.
var linkNames = []Link{
	{Name: "new pull request", URL: "newPullRequestURL"},
	{Name: "compare", URL: "compareURL"},
	{Name: "source", URL: "sourceURL"},
	{Name: "repository", URL: "repositoryURL"},
}

// Links returns the web addresses of a job status. Only https and http are safe to follow from a
// terminal.
func Links(urls map[string]string) []Link {
	var out []Link
	for _, l := range linkNames {
		if u := urls[l.URL]; strings.HasPrefix(u, "https://") || strings.HasPrefix(u, "http://") {
			out = append(out, Link{Name: l.Name, URL: text.Redact(u)})
		}
	}
	return out
}

// addRunning adds the progress that only the driver of the job has.
func addRunning(row *Job, r jobs.Running) {
	row.Owner = "this"
	row.State = api.StateWorking
	row.Attempt = r.Attempt
	row.LeaseUntil, row.RenewAt = r.LeaseUntil, r.RenewAt
	row.Branch = r.Branch
	row.RefFrom = r.RefFrom
	row.RefTo = r.RefTo
	row.Done = r.Done
	row.Total = r.Total
	row.Progress = r.Progress
	row.Message = cmp.Or(r.Message, row.Message)
	if !r.Started.IsZero() {
		row.Started = r.Started // by the clock of Finished, of the steps and of the log
	}
	if counts := r.Summary(); len(counts) > 0 {
		row.Summary = Summaries(counts)
	}
	row.Transfer = r.Transfer
	row.Errors = r.Errors
	row.Warnings = r.Warnings
	row.Commit = r.Commit
	row.Steps = r.Steps
	for _, l := range r.Lines {
		row.Log = append(row.Log, Event{At: l.At, Level: l.Level, Job: row.Name, Repo: row.Repository, Text: l.Text})
	}
}

// finishedRow returns the row of a job that just ended.
func finishedRow(e jobs.Event, o JobOptions) Job {
	row := Job{UID: e.UID, Namespace: e.Namespace, Name: e.Job, Repository: e.Repository, Action: e.Action, Attempt: e.Attempt}
	if e.Last != nil {
		if job, err := api.JobView(e.Last.Job); err == nil {
			row = jobRow(e.Last.Job, job, o)
		}
		addRunning(&row, *e.Last)
	}
	row.State = e.State
	row.Message = e.Text
	row.Finished = e.At
	row.Owner = "this"
	row.Progress = 100
	if len(row.Errors) == 0 && row.State == api.StateError {
		row.Errors = []string{e.Text} // an error of the driver, not of a resource
	}
	row.LeaseUntil = time.Time{}
	row.RenewAt = time.Time{}
	row.Transfer = Transfer{}
	return row
}

// setUndelivered turns the row of a job into that of a finished job whose result is not delivered
// to the API yet.
func setUndelivered(row *Job, u jobs.Undelivered) {
	row.State = u.State
	row.Undelivered = u.Since
	row.Owner = "this"
	row.Finished = time.Time{}
	row.Progress = 100
	row.LeaseUntil = time.Time{}
	row.RenewAt = time.Time{}
}

// undeliveredRow returns the row of an undelivered result whose job is not in the queue.
func undeliveredRow(u jobs.Undelivered) Job {
	row := Job{UID: u.UID, Namespace: u.Namespace, Name: u.Name, Repository: u.Repository, Action: u.Action, Attempt: 1}
	setUndelivered(&row, u)
	return row
}

// timeOfMillisText parses a time in milliseconds, zero when s is none.
func timeOfMillisText(s string) time.Time {
	ms, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return api.TimeOfMillis(ms)
}

// readRepository decodes a Repository and redacts its URL, nil when it is invalid.
func readRepository(u *unstructured.Unstructured) *api.Repository {
	repo, err := api.RepositoryView(u)
	if err != nil {
		return nil
	}
	if b := repo.Spec.Block(); b != nil {
		b.URL = text.Redact(b.URL)
	}
	return &repo
}

// RepoOf returns the row of a Repository; ok is false for an invalid one.
func RepoOf(u *unstructured.Unstructured) (row Repo, ok bool) {
	repo := readRepository(u)
	if repo == nil {
		return Repo{}, false
	}
	return repoRow(u, *repo), true
}

// Failing reports whether the last health check of the repository failed.
func (r Repo) Failing() bool { return !r.Checked.IsZero() && !r.Healthy }

func repoRow(u *unstructured.Unstructured, repo api.Repository) Repo {
	spec, status := repo.Spec, repo.Status
	row := Repo{
		UID:          string(u.GetUID()),
		Namespace:    u.GetNamespace(),
		Name:         u.GetName(),
		Title:        spec.Title,
		Type:         spec.Type,
		Pinned:       repo.Pinned(),
		RolledBack:   repo.RolledBack,
		Target:       spec.Sync.Target,
		Sink:         u.GetAnnotations()[api.AnnoSinkDir],
		Enabled:      spec.Sync.Enabled,
		Interval:     time.Duration(spec.Sync.IntervalSeconds) * time.Second,
		Healthy:      status.Health.Healthy,
		Checked:      api.TimeOfMillis(status.Health.Checked),
		Health:       strings.Join(status.Health.Message, "; "),
		SyncState:    status.PullState(),
		SyncJob:      status.Sync.Job,
		LastRef:      status.Sync.LastRef,
		Synced:       api.TimeOfMillis(status.Sync.Finished),
		TokenEnds:    api.TimeOfMillis(status.Token.Expiration),
		MaxResources: status.Quota.MaxResourcesPerRepository,
	}
	if repo.GitRef != "" {
		row.ReadOnly = "it has the annotation " + api.AnnoGitRef
	} else if len(spec.Workflows) == 0 {
		row.ReadOnly = "it has no spec.workflows"
	}
	if b := spec.Block(); b != nil {
		row.URL = b.URL
		row.Branch = cmp.Or(repo.GitRef, b.Branch)
		row.Path = b.Path
		if mirrors, err := auth.Mirrors(repo.GitMirrors, b.URL); err == nil { // an invalid list is reported by the health check
			row.Mirrors = strings.Join(mirrors, " ")
		}
	}
	if c := spec.Connection; c != nil {
		row.Connection = c.Name
	}
	if h := status.Webhook; h != nil && (h.ID != 0 || h.UUID != "") {
		row.Webhook = &Webhook{ID: cmp.Or(h.UUID, strconv.FormatInt(h.ID, 10)), LastEvent: api.TimeOfMillis(h.LastEvent)}
	}
	for _, s := range status.Stats {
		row.Resources += s.Count
		row.Contents = append(row.Contents, Content{Resource: s.Resource, Count: s.Count})
	}
	for _, c := range status.Conditions {
		row.Conditions = append(row.Conditions, conditionRow(c))
	}
	if at := u.GetDeletionTimestamp(); at != nil {
		row.Deleting = api.Time(at.Time)
		var all []string
		for _, e := range status.Blocked() {
			all = append(all, e.String())
		}
		row.DeleteError = text.Line(strings.Join(all, "; "), 1<<10)
	}
	return row
}

// conditionRow returns the row of a condition. One that is met has no message.
func conditionRow(c api.Condition) Condition {
	row := Condition{Type: c.Type, Status: c.Status, Reason: c.Reason}
	if c.Status != "True" {
		row.Message = c.Message
		row.Since = api.TimeOfText(c.LastTransitionTime)
	}
	return row
}
