package agent

import (
	"cmp"
	"context"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/jobs"
	"limpet/sync/kube"
	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// mostJobs bounds the job rows of a picture. Nobody scrolls through more, and a
// daemon may have to send each picture to a dashboard; how many there are
// altogether is in its counts, and 'limpet job list' has them all.
const mostJobs = 1000

// painter makes the pictures of an agent. It belongs to one goroutine.
type painter struct {
	*Agent
	jobRows  *shelf[*snapshot.Job] // nil for what is no job
	repoRead *shelf[*api.Repository]
	before   *kept // shown until the watches have synced; nil = nothing was kept
	load     load

	sourceRows    *shelf[*snapshot.Source]
	sourcesBefore []snapshot.Source // shown until it is known what there is
}

func newPainter(ctx context.Context, a *Agent) *painter {
	p := &painter{Agent: a, before: a.keptPicture(ctx)}
	if p.before != nil {
		p.sourcesBefore = p.before.Sources
	}
	p.drop()
	a.board.drop = p.drop
	return p
}

// drop forgets what was made of the objects, until somebody looks again.
func (p *painter) drop() {
	p.jobRows, p.repoRead = newShelf[*snapshot.Job](), newShelf[*api.Repository]()
	p.sourceRows = newShelf[*snapshot.Source]()
}

// paint makes the picture of this moment from the caches of the watches and
// from what the drivers know of their own jobs.
func (p *painter) paint() *snapshot.Snapshot {
	now := time.Now()
	events, done := p.board.recent(now)
	own := p.controller.Snapshot()
	s := &snapshot.Snapshot{At: now, Events: events, API: p.paintAPI(), Agent: p.paintAgent(own, now), Problem: cmp.Or(p.trouble(), p.misread())}
	switch {
	case s.API.Synced:
		p.before = nil
	case p.before != nil:
		s.AsOf, s.Repos, s.Counts, s.Sources = p.before.AsOf, p.before.Repos, p.before.Counts, p.before.Sources
		s.Jobs = withUnsent(p.before.Jobs, own.Undelivered, &s.Counts, p.before.AsOf)
		return s
	}
	p.paintSources(s)
	s.IllConnections = p.illLinks()
	s.Jobs, s.Counts = p.rows(own, done, !s.API.Up, now)
	objects := p.repos.Objects()
	for _, seen := range objects {
		if repo := p.repoRead.of(seen, readRepo); repo != nil {
			s.Repos = append(s.Repos, p.paintRepo(seen.Unstructured(), *repo, now))
		}
	}
	p.repoRead.end(len(objects))
	sort.Slice(s.Repos, func(i, j int) bool {
		x, y := &s.Repos[i], &s.Repos[j]
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name)) < 0
	})
	return s
}

// rows are the first jobs of the queue and those that have just ended, in order,
// and how many there are altogether. The jobs of this agent are always among
// them.
func (p *painter) rows(own jobs.Snapshot, done ended, away bool, now time.Time) ([]snapshot.Job, snapshot.Counts) {
	mine := make(map[string]jobs.Running, len(own.Running)) // by key
	for _, r := range own.Running {
		mine[r.Namespace+"/"+r.Name] = r
	}
	unsent := map[string]jobs.Undelivered{}
	for _, u := range own.Undelivered {
		unsent[u.Namespace+"/"+u.Name] = u
	}
	counts := snapshot.Counts{Done: done.count}
	first := newFront(max(mostJobs-len(done.rows)-len(mine)-len(unsent), 0))
	chosen := make([]kube.Object, 0, mostJobs)
	for _, seen := range p.jobs.Objects() {
		if u, ok := unsent[seen.Key()]; ok && u.UID == seen.UID() {
			chosen = append(chosen, seen)
			continue
		}
		if r, ok := mine[seen.Key()]; ok && r.UID == seen.UID() {
			chosen = append(chosen, seen)
			continue
		}
		j := briefly(seen, own.SuspendedClaims)
		counts.Add(&snapshot.Job{Finished: api.TimeOfMillis(j.finished), Owner: j.owner, State: j.state, RestsUntil: millisOf(seen.Text(pathNotBefore))}, now)
		first.offer(j)
	}
	held := len(chosen)
	for _, j := range first.briefs {
		chosen = append(chosen, j.seen)
	}
	out := make([]snapshot.Job, 0, len(chosen)+len(done.rows)+len(unsent))
	shown := make(map[string]bool, len(chosen))
	for i, seen := range chosen {
		row := p.jobRows.of(seen, p.readJob)
		if row == nil {
			continue
		}
		out = append(out, *row)
		row = &out[len(out)-1]
		shown[row.UID] = true
		if i >= held {
			row.Waits = p.board.waits(row.UID)
			if ours(seen, own.SuspendedClaims) {
				row.Owner, row.State, row.LeaseUntil = "", api.StatePending, time.Time{}
				if away {
					row.Waits = adriftText
				}
			}
			continue
		}
		if u, ok := unsent[seen.Key()]; ok && u.UID == row.UID {
			wait(row, u)
			delete(unsent, seen.Key())
		} else {
			hold(row, mine[seen.Key()])
		}
		counts.Add(row, now)
	}
	p.jobRows.end(len(chosen))
	for _, row := range done.rows {
		if !shown[row.UID] {
			out = append(out, row)
		}
	}
	for _, u := range unsent {
		row := unsentRow(u)
		counts.Add(row, now)
		out = append(out, *row)
	}
	sort.Slice(out, func(i, j int) bool { return inOrder(&out[i], &out[j]) < 0 })
	return out, counts
}

// adriftText is why a job goes on in nobody's hands.
const adriftText = "this agent has let go of it and takes it up again when the API answers"

func (p *painter) readJob(u *object) *snapshot.Job {
	job, err := api.JobView(u)
	if err != nil {
		return nil
	}
	row := p.paintJob(u, job)
	return &row
}

// readRepo is what is painted of a Repository, its URL ready to be shown.
func readRepo(u *object) *api.Repository {
	repo, err := api.RepositoryView(u)
	if err != nil {
		return nil
	}
	if b := repo.Spec.Block(); b != nil {
		b.URL = text.Redact(b.URL)
	}
	return &repo
}

// inOrder orders jobs for the list: working, then pending, then finished; the
// oldest first, but of the finished the newest.
func inOrder(x, y *snapshot.Job) int {
	return cmp.Or(cmp.Compare(rankOf(!x.Finished.IsZero(), x.State, x.Owner), rankOf(!y.Finished.IsZero(), y.State, y.Owner)),
		y.Finished.Compare(x.Finished), x.Created.Compare(y.Created),
		strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name), strings.Compare(x.UID, y.UID))
}

func rankOf(finished bool, state, owner string) int {
	switch {
	case finished:
		return 2
	case state == api.StateWorking || owner != "":
		return 0
	}
	return 1
}

// withUnsent puts the results that wait for the API into rows of before.
func withUnsent(rows []snapshot.Job, unsent []jobs.Undelivered, counts *snapshot.Counts, asOf time.Time) []snapshot.Job {
	out := slices.Clone(rows)
	for _, u := range unsent {
		i := slices.IndexFunc(out, func(j snapshot.Job) bool { return j.UID == u.UID })
		if i < 0 {
			i = len(out)
			out = append(out, *unsentRow(u))
		} else {
			counts.Drop(&out[i], asOf)
			wait(&out[i], u)
		}
		counts.Add(&out[i], asOf)
	}
	return out
}

// wait turns the row of a job into that of one that is done, but whose result
// the API has not taken yet.
func wait(row *snapshot.Job, u jobs.Undelivered) {
	row.State, row.Unsent, row.Owner, row.Finished = u.State, u.Since, "this", time.Time{}
	row.Progress, row.LeaseUntil, row.RenewAt = 100, time.Time{}, time.Time{}
}

// unsentRow is the row of such a job that is not in the queue, as far as known.
func unsentRow(u jobs.Undelivered) *snapshot.Job {
	row := snapshot.Job{UID: u.UID, Namespace: u.Namespace, Name: u.Name, Repository: u.Repository, Action: u.Action, Attempt: 1}
	wait(&row, u)
	return &row
}

func (p *painter) paintAgent(own jobs.Snapshot, now time.Time) snapshot.Agent {
	a := p.Agent
	return snapshot.Agent{Draining: own.DrainingSince, Busy: own.Busy, Host: hostName(), PID: os.Getpid(), Version: a.cfg.Version, Started: a.started, Drivers: a.cfg.Jobs.Drivers,
		Claims: len(own.Running), LostCount: int(a.lost.Load()), StorePath: a.cfg.StatePath, StoreSize: a.storeSize(), History: a.runs.count(),
		RSS: residentBytes(), CPU: p.load.share(now, processorTime()), Kept: a.cfg.Jobs.LocalHistory, Namespace: a.cfg.Namespace, Controllers: a.controllers()}
}

func hostName() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return host
}

func (a *Agent) paintAPI() snapshot.API {
	v := snapshot.API{Server: a.serverName(), Embedded: a.embedded != nil, Synced: a.synced(), Up: true, Since: a.started}
	if since, err := a.client.Down(); err != nil {
		v.Up, v.Since, v.Error = false, since, text.Redact(err.Error())
		v.Next, v.Tries = a.client.NextTry()
		v.Next = v.Next.Round(0) // the time of a moment, not of this process
	}
	v.Insecure, v.Latency = a.client.Insecure(), a.client.Latency()
	return v
}

func (a *Agent) paintJob(u *object, job api.Job) snapshot.Job {
	row := snapshot.Job{
		UID: string(u.GetUID()), Namespace: u.GetNamespace(), Name: u.GetName(),
		Repository: job.Spec.Repository, Action: job.Spec.Action, Detail: JobDetail(u.GetName(), job.Spec),
		State: job.Status.State, Message: job.Status.Message, Progress: min(job.Status.Progress, 100),
		Created: api.Time(u.GetCreationTimestamp().Time), Started: api.TimeOfMillis(job.Status.Started), Finished: api.TimeOfMillis(job.Status.Finished),
		Errors: job.Status.Errors, Warnings: job.Status.Warnings, Attempt: attempt(u), MaxAttempt: a.cfg.Jobs.MaxAttempts,
		Summary: Summaries(job.Status.Summary), URLs: Links(job.Status.URLs),
	}
	if row.State == "" {
		row.State = api.StatePending
	}
	if row.State == api.StatePending {
		row.RestsUntil = millisOf(u.GetAnnotations()[api.AnnoNotBefore])
	}
	if p := u.GetAnnotations()[api.AnnoPriority]; len(p) == 1 && p >= "0" && p <= "9" {
		row.Priority = p
	}
	if u.GetLabels()[api.LabelClaim] != "" {
		row.Owner = "other"
		if ms, err := strconv.ParseInt(u.GetLabels()[api.LabelClaim], 10, 64); err == nil {
			row.LeaseUntil = api.Time(time.UnixMilli(ms).Add(a.cfg.Jobs.Expiry))
		}
	}
	return row
}

// JobDetail is what the action of a job tells besides its name: "full", "incr",
// "#481"; "" = nothing.
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

// attempt is the number of the run that the job is in or waits for.
func attempt(u *object) int {
	n, err := strconv.Atoi(u.GetAnnotations()[api.AnnoAttempt])
	if err != nil {
		return 1
	}
	return n + 1
}

// Summaries is what a job did to each kind of resource, as a person reads it.
func Summaries(in []api.JobSummary) []snapshot.Summary {
	var out []snapshot.Summary
	for _, s := range in {
		out = append(out, snapshot.Summary{Kind: cmp.Or(s.Kind, "unread files"), Total: s.Total, Create: s.Create, Update: s.Update, Delete: s.Delete, Noop: s.Noop, Warn: s.Warning, Error: s.Error})
	}
	return out
}

// Links are the web addresses of the status of a job, those that tell most first.
// Only https and http are followed by a person who trusts a terminal.
func Links(urls map[string]string) []snapshot.Link {
	var out []snapshot.Link
	for _, l := range []snapshot.Link{{Name: "new pull request", URL: "newPullRequestURL"}, {Name: "compare", URL: "compareURL"}, {Name: "source", URL: "sourceURL"}, {Name: "repository", URL: "repositoryURL"}} {
		if u := urls[l.URL]; strings.HasPrefix(u, "https://") || strings.HasPrefix(u, "http://") {
			out = append(out, snapshot.Link{Name: l.Name, URL: text.Redact(u)})
		}
	}
	return out
}

// hold adds what only the driver of the job knows.
func hold(row *snapshot.Job, r jobs.Running) {
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
		row.Summary = Summaries(r.Summary)
	}
	row.Errors, row.Warnings = r.Errors, r.Warnings
	if c := r.Commit; c != nil {
		row.Commit = &snapshot.Commit{Subject: c.Subject, Author: c.Author, At: c.At}
	}
	for _, s := range r.Steps {
		row.Steps = append(row.Steps, snapshot.Step{Text: s.Text, At: s.At, Took: s.Took})
	}
	for _, l := range r.Lines {
		row.Log = append(row.Log, snapshot.Event{At: l.At, Level: l.Level, Job: row.Name, Repo: row.Repository, Text: l.Text})
	}
}

func (a *Agent) paintRepo(u *object, repo api.Repository, now time.Time) snapshot.Repo {
	row := snapshot.Repo{
		Namespace: u.GetNamespace(), Name: u.GetName(), Title: repo.Spec.Title, Type: repo.Spec.Type,
		Target: repo.Spec.Sync.Target, Enabled: repo.Spec.Sync.Enabled,
		Healthy: repo.Status.Health.Healthy, Checked: api.TimeOfMillis(repo.Status.Health.Checked), Health: strings.Join(repo.Status.Health.Message, "; "),
		SyncState: repo.Status.Sync.State, SyncJob: repo.Status.Sync.Job, LastRef: repo.Status.Sync.LastRef, Synced: api.TimeOfMillis(repo.Status.Sync.Finished),
		Runs: a.runs.line(u.GetNamespace()+"/"+u.GetName(), now),
	}
	if b := repo.Spec.Block(); b != nil {
		row.URL, row.Branch, row.Path = b.URL, cmp.Or(repo.GitRef, b.Branch), b.Path
		if mirrors, err := auth.Mirrors(repo.GitMirrors, b.URL); err == nil { // a wrong list is told by its health
			row.Mirrors = strings.Join(mirrors, " ")
		}
	}
	for _, s := range repo.Status.Stats {
		row.Resources += s.Count
		row.Contents = append(row.Contents, snapshot.Content{Resource: s.Resource, Count: s.Count})
	}
	paintStatus(&row, u, repo)
	a.paintKept(&row, string(u.GetUID()))
	return row
}

// millisOf reads a time of a text of milliseconds, zero when it is none.
func millisOf(text string) time.Time {
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return api.TimeOfMillis(ms)
}
