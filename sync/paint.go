package sync

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"limpet/sync/api"
	"limpet/sync/jobs"
	"limpet/sync/repos"
	"limpet/sync/view"
)

// mostJobs bounds the job rows of a picture. Nobody scrolls through more, and a
// daemon may have to send each picture to a dashboard; how many there are
// altogether is in its counts.
const mostJobs = 1000

// painter makes the pictures of an agent. It belongs to one goroutine.
type painter struct {
	*Agent
	jobRows  *shelf[*view.Job] // nil for what is no job
	repoRead *shelf[*api.Repository]
	before   *kept // shown until the watches have synced; nil = nothing was kept
}

func newPainter(ctx context.Context, a *Agent) *painter {
	return &painter{a, newShelf[*view.Job](), newShelf[*api.Repository](), a.keptPicture(ctx)}
}

// paint makes the picture of this moment from the caches of the watches and
// from what the drivers know of their own jobs.
func (p *painter) paint() *view.Snapshot {
	now := time.Now()
	events, done := p.board.recent(now)
	running := p.controller.Live()
	s := &view.Snapshot{At: now, Events: events, API: p.paintAPI(), Agent: p.paintAgent(len(running)), Problem: p.trouble()}
	switch {
	case s.API.Synced:
		p.before = nil
	case p.before != nil:
		s.AsOf, s.Repos, s.Counts = p.before.AsOf, p.before.Repos, p.before.Counts
		s.Jobs = withUnsent(p.before.Jobs, p.controller.Unsent(), &s.Counts)
		return s
	}
	for i, row := range p.rows(running, done) {
		s.Counts.Add(row)
		if i < mostJobs {
			s.Jobs = append(s.Jobs, *row)
		}
	}
	objects := p.repos.List()
	for _, u := range objects {
		if repo := p.repoRead.of(u, readRepo); repo != nil {
			s.Repos = append(s.Repos, p.paintRepo(u, *repo, now))
		}
	}
	p.repoRead.end(len(objects))
	slices.SortFunc(s.Repos, func(x, y view.Repo) int {
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
	})
	return s
}

// rows are the jobs of the queue and those that have just ended, in order.
func (p *painter) rows(running []jobs.Running, done []view.Job) []*view.Job {
	mine := make(map[string]jobs.Running, len(running))
	for _, r := range running {
		mine[r.UID] = r
	}
	gone := make(map[string]*view.Job, len(done)) // from the queue
	for i := range done {
		gone[done[i].UID] = &done[i]
	}
	unsent := make(map[string]jobs.Unsent)
	for _, u := range p.controller.Unsent() {
		unsent[u.UID] = u
	}
	waits := p.board.waits()
	objects := p.jobs.List()
	out := make([]*view.Job, 0, len(objects)+len(done))
	for _, u := range objects {
		row := p.jobRows.of(u, p.readJob)
		if row == nil {
			continue
		}
		if r, ok := unsent[row.UID]; ok {
			done := *row
			wait(&done, r)
			row = &done
			delete(unsent, row.UID)
		} else if r, ok := mine[row.UID]; ok {
			held := *row
			own(&held, r)
			row = &held
		} else if why := waits[row.UID]; why != "" {
			left := *row
			left.Waits = why
			row = &left
			delete(waits, row.UID)
		}
		delete(gone, row.UID)
		out = append(out, row)
	}
	p.jobRows.end(len(objects))
	for uid := range waits { // what waited has left the queue
		p.board.leave(uid, "")
	}
	for _, row := range gone {
		out = append(out, row)
	}
	for _, u := range unsent {
		out = append(out, unsentRow(u))
	}
	slices.SortFunc(out, inOrder)
	return out
}

func (p *painter) readJob(u *object) *view.Job {
	job, err := api.JobView(u)
	if err != nil {
		return nil
	}
	row := p.paintJob(u, job)
	return &row
}

func readRepo(u *object) *api.Repository {
	repo, err := api.RepositoryView(u)
	if err != nil {
		return nil
	}
	return &repo
}

// inOrder orders jobs for the list: working, then pending, then finished; the
// oldest first, but of the finished the newest.
func inOrder(x, y *view.Job) int {
	if d := rank(x) - rank(y); d != 0 {
		return d
	}
	if d := y.Finished.Compare(x.Finished); d != 0 {
		return d
	}
	if d := x.Created.Compare(y.Created); d != 0 {
		return d
	}
	return strings.Compare(x.UID, y.UID)
}

func rank(j *view.Job) int {
	switch {
	case !j.Finished.IsZero():
		return 2
	case j.State == api.StateWorking || j.Owner != "":
		return 0
	}
	return 1
}

// withUnsent puts the results that wait for the API into rows of before.
func withUnsent(rows []view.Job, unsent []jobs.Unsent, counts *view.Counts) []view.Job {
	out := slices.Clone(rows)
	for _, u := range unsent {
		i := slices.IndexFunc(out, func(j view.Job) bool { return j.UID == u.UID })
		if i < 0 {
			i = len(out)
			out = append(out, *unsentRow(u))
		} else {
			counts.Drop(&out[i])
			wait(&out[i], u)
		}
		counts.Add(&out[i])
	}
	return out
}

// wait turns the row of a job into that of one that is done, but whose result
// the API has not taken yet.
func wait(row *view.Job, u jobs.Unsent) {
	row.State, row.Unsent, row.Owner, row.Finished = u.State, u.Since, "this", time.Time{}
	row.Progress, row.LeaseUntil, row.RenewAt = 100, time.Time{}, time.Time{}
}

// unsentRow is the row of such a job that is not in the queue, as far as known.
func unsentRow(u jobs.Unsent) *view.Job {
	row := view.Job{UID: u.UID, Namespace: u.Namespace, Name: u.Name, Repository: u.Repository, Action: u.Action, Attempt: 1}
	wait(&row, u)
	return &row
}

func (a *Agent) paintAgent(claims int) view.Agent {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	draining, busy := a.controller.Draining()
	return view.Agent{Draining: draining, Busy: busy, Host: host, PID: os.Getpid(), Version: a.cfg.Version, Started: a.started, Drivers: a.cfg.Jobs.Drivers,
		Claims: claims, LostCount: int(a.lost.Load()), StorePath: a.cfg.StatePath, StoreSize: a.storeSize(), History: a.runs.count(),
		RSS: residentBytes(), Namespace: a.cfg.Namespace}
}

func (a *Agent) paintAPI() view.API {
	v := view.API{Server: a.serverName(), Embedded: a.embedded != nil, Synced: a.synced(), Up: true, Since: a.started}
	if since, err := a.client.Down(); err != nil {
		v.Up, v.Since, v.Error = false, since, api.Redact(err.Error())
	}
	v.Insecure, v.Latency = a.client.Insecure(), a.client.Latency()
	return v
}

func (a *Agent) paintJob(u *object, job api.Job) view.Job {
	row := view.Job{
		UID: string(u.GetUID()), Namespace: u.GetNamespace(), Name: u.GetName(),
		Repository: job.Spec.Repository, Action: job.Spec.Action, Detail: detail(u, job.Spec),
		State: job.Status.State, Message: job.Status.Message, Progress: min(job.Status.Progress, 100),
		Created: u.GetCreationTimestamp().Time, Started: fromMillis(job.Status.Started), Finished: fromMillis(job.Status.Finished),
		Errors: job.Status.Errors, Warnings: job.Status.Warnings, Attempt: attempt(u), MaxAttempt: a.cfg.Jobs.MaxAttempts,
		Summary: summaries(job.Status.Summary),
	}
	if row.State == "" {
		row.State = api.StatePending
	}
	if ms, err := strconv.ParseInt(u.GetAnnotations()[api.AnnoNotBefore], 10, 64); err == nil && row.State == api.StatePending {
		row.RestsUntil = fromMillis(ms)
	}
	if u.GetLabels()[api.LabelClaim] != "" {
		row.Owner = "other"
		if ms, err := strconv.ParseInt(u.GetLabels()[api.LabelClaim], 10, 64); err == nil {
			row.LeaseUntil = time.UnixMilli(ms).Add(a.cfg.Jobs.Expiry)
		}
	}
	return row
}

func detail(u *object, spec api.JobSpec) string {
	if spec.Action == "pull" && spec.Pull != nil {
		if spec.Pull.Incremental {
			return "incr"
		}
		return "full"
	}
	if n, ok := strings.CutPrefix(u.GetName(), spec.Repository+"-pr-"); ok && spec.Action == "pr" {
		return "#" + n
	}
	return ""
}

// attempt is the number of the run that the job is in or waits for.
func attempt(u *object) int {
	n, err := strconv.Atoi(u.GetAnnotations()[api.AnnoAttempt])
	if err != nil {
		return 1
	}
	return n + 1
}

func summaries(in []api.JobSummary) []view.Summary {
	var out []view.Summary
	for _, s := range in {
		out = append(out, view.Summary{Kind: cmp.Or(s.Kind, "unread files"), Total: s.Total, Create: s.Create, Update: s.Update, Delete: s.Delete, Noop: s.Noop, Warn: s.Warning, Error: s.Error})
	}
	return out
}

// own adds what only the driver of the job knows.
func own(row *view.Job, r jobs.Running) {
	row.Owner = "this"
	row.State = api.StateWorking
	row.LeaseUntil, row.RenewAt = r.LeaseUntil, r.RenewAt
	row.Attempt = r.Attempt
	row.Branch, row.RefFrom, row.RefTo = r.Branch, r.RefFrom, r.RefTo
	row.Done, row.Total = r.Done, r.Total
	if r.Message != "" {
		row.Message = r.Message
	}
	if row.Started.IsZero() {
		row.Started = r.Started
	}
	row.Progress = r.Progress
	if len(r.Summary) > 0 {
		row.Summary = summaries(r.Summary)
	}
	row.Errors, row.Warnings = r.Errors, r.Warnings
	for _, l := range r.Lines {
		row.Log = append(row.Log, view.Event{At: l.At, Level: l.Level, Job: row.Name, Repo: row.Repository, Text: l.Text})
	}
}

func (a *Agent) paintRepo(u *object, repo api.Repository, now time.Time) view.Repo {
	row := view.Repo{
		Namespace: u.GetNamespace(), Name: u.GetName(), Title: repo.Spec.Title, Type: repo.Spec.Type,
		Target: repo.Spec.Sync.Target, Enabled: repo.Spec.Sync.Enabled,
		Healthy: repo.Status.Health.Healthy, Checked: fromMillis(repo.Status.Health.Checked), Health: strings.Join(repo.Status.Health.Message, "; "),
		SyncState: repo.Status.Sync.State, SyncJob: repo.Status.Sync.Job, LastRef: repo.Status.Sync.LastRef, Synced: fromMillis(repo.Status.Sync.Finished),
		Runs: a.runs.line(u.GetNamespace()+"/"+u.GetName(), now),
	}
	if b := repo.Spec.Block(); b != nil {
		row.URL, row.Branch, row.Path = api.Redact(b.URL), b.Branch, b.Path
	}
	for _, s := range repo.Status.Stats {
		row.Resources += s.Count
	}
	if a.embedded != nil {
		_, row.Next = repos.Due(repo, u.GetGeneration(), false, time.Time{}, now)
	}
	return row
}

func fromMillis(ms int64) time.Time {
	if ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
