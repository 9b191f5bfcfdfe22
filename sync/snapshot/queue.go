package snapshot

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/jobs"
	"limpet/sync/kube"
)

// suspendedText is shown for a job whose claim no driver works on.
const suspendedText = "waiting for the API; will resume"

// Fields of a Job that determine its position in the list and its count.
var (
	pathState      = kube.PathTo("status", "state")
	pathFinished   = kube.PathTo("status", "finished")
	pathClaim      = kube.PathTo("metadata", "labels", api.LabelClaim)
	pathClaimOwner = kube.PathTo("metadata", "labels", api.LabelClaimOwner)
	pathNotBefore  = kube.PathTo("metadata", "annotations", api.AnnoNotBefore)
)

// queued is a job that this agent neither runs nor has finished. Its row has what determines its
// place in the list and its count.
type queued struct {
	object    kube.Object
	suspended bool // no driver works on its claim
	row       Job
}

func compareQueued(x, y queued) int { return compareJobs(x.row, y.row) }

// compareJobs orders jobs: working, then pending, then finished; the oldest first, but of the
// finished the newest.
func compareJobs(x, y Job) int {
	return cmp.Or(
		cmp.Compare(rank(&x), rank(&y)),
		y.Finished.Compare(x.Finished),
		x.Created.Compare(y.Created),
		compareNames(x.Namespace, y.Namespace, x.Name, y.Name),
		strings.Compare(x.UID, y.UID),
	)
}

func rank(j *Job) int {
	switch {
	case !j.Finished.IsZero():
		return 2
	case j.State == api.StateWorking || j.Owner != "":
		return 0
	}
	return 1
}

// jobs returns the first jobs of the queue and the recently finished ones, in order, and the counts
// of all jobs. Own jobs are always included. unavailable means that the API does not answer.
func (b *Builder) jobs(s jobs.Snapshot, recent recentActivity, unavailable bool, now time.Time) ([]Job, Counts) {
	running := map[string]*jobs.Running{} // own jobs by UID
	for i := range s.Running {
		running[s.Running[i].UID] = &s.Running[i]
	}
	undelivered := map[string]jobs.Undelivered{}
	for _, u := range s.Undelivered {
		undelivered[u.UID] = u
	}
	counts := Counts{Done: recent.ended}
	var out []Job
	shown := map[string]bool{} // by UID
	add := func(row Job) { out, shown[row.UID] = append(out, row), true }
	top := topJobs{limit: max(maxJobs-len(recent.finished)-len(running)-len(undelivered), 0)}
	for _, o := range b.from.Health.Jobs.Objects() {
		uid := o.UID()
		u, isUndelivered := undelivered[uid]
		r, isRunning := running[uid]
		if !isUndelivered && !isRunning {
			top.offer(queue(o, uid, s.SuspendedClaims, &counts, now))
			continue
		}
		row, ok := b.jobRow(o)
		switch {
		case !ok:
			continue
		case isUndelivered:
			setUndelivered(&row, u)
		default:
			addRunning(&row, *r)
		}
		counts.Add(&row, 1, now)
		add(row)
	}
	for _, q := range top.first() {
		row, ok := b.jobRow(q.object)
		if !ok {
			continue
		}
		row.WaitReason = b.from.Activity.skipReason(row.UID)
		if q.suspended {
			row.Owner = ""
			row.State = api.StatePending
			row.LeaseUntil = time.Time{}
			if unavailable {
				row.WaitReason = suspendedText
			}
		}
		add(row)
	}
	b.jobRows.EndRound()
	for _, u := range s.Undelivered {
		if !shown[u.UID] {
			row := undeliveredRow(u)
			counts.Add(&row, 1, now)
			add(row)
		}
	}
	for _, row := range recent.finished {
		if !shown[row.UID] {
			add(row)
		}
	}
	slices.SortFunc(out, compareJobs)
	return out, counts
}

// queue returns a job of the queue and counts it. suspended has owner tokens by UID.
func queue(o kube.Object, uid string, suspended map[string]string, counts *Counts, now time.Time) queued {
	q := queued{object: o, row: Job{
		UID:       uid,
		Namespace: o.Namespace(),
		Name:      o.Name(),
		State:     o.Text(pathState),
		Created:   o.Created(),
		Finished:  api.TimeOfMillis(o.Number(pathFinished)),
		RetryAt:   timeOfMillisText(o.Text(pathNotBefore)),
	}}
	if token := suspended[uid]; token != "" && o.Text(pathClaimOwner) == token {
		q.row.State, q.suspended = api.StatePending, true
	} else if o.Text(pathClaim) != "" {
		q.row.Owner = "other"
	}
	counts.Add(&q.row, 1, now)
	return q
}

// jobRow returns a copy of the row of a job; ok is false for an invalid job.
func (b *Builder) jobRow(o kube.Object) (row Job, ok bool) {
	made := b.jobRows.Get(o, func(u *unstructured.Unstructured) *Job {
		job, err := api.JobView(u)
		if err != nil {
			return nil
		}
		return new(jobRow(u, job, b.options))
	})
	if made == nil {
		return Job{}, false
	}
	return *made, true
}

// topJobs keeps the first limit jobs of the list. It sorts when it has twice as many.
type topJobs struct {
	jobs  []queued
	limit int
	last  *queued // of the first limit jobs at the last sort
}

func (t *topJobs) offer(q queued) {
	if t.last != nil && compareQueued(q, *t.last) > 0 {
		return
	}
	if t.jobs = append(t.jobs, q); len(t.jobs) >= 2*max(t.limit, 1) {
		t.first()
	}
}

// first returns the first jobs in order.
func (t *topJobs) first() []queued {
	slices.SortFunc(t.jobs, compareQueued)
	if len(t.jobs) >= t.limit && t.limit > 0 {
		t.last = new(t.jobs[t.limit-1])
	}
	t.jobs = t.jobs[:min(len(t.jobs), t.limit)]
	return t.jobs
}
