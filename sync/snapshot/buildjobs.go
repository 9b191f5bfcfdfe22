package snapshot

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/jobs"
	"limpet/sync/kube"
)

// ownJobs are the jobs that this agent runs or has finished, by namespace and name.
type ownJobs struct {
	running     map[string]jobs.Running
	undelivered map[string]jobs.Undelivered
	suspended   map[string]string // owner token by UID
}

func ownJobsOf(s jobs.Snapshot) ownJobs {
	own := ownJobs{map[string]jobs.Running{}, map[string]jobs.Undelivered{}, s.SuspendedClaims}
	for _, r := range s.Running {
		own.running[r.Namespace+"/"+r.Name] = r
	}
	for _, u := range s.Undelivered {
		own.undelivered[u.Namespace+"/"+u.Name] = u
	}
	return own
}

// has reports whether an object is one of these jobs, and not a different one of the
// same name.
func (o ownJobs) has(object kube.Object) bool {
	if u, ok := o.undelivered[object.Key()]; ok && u.UID == object.UID() {
		return true
	}
	r, ok := o.running[object.Key()]
	return ok && r.UID == object.UID()
}

// jobs returns the first jobs of the queue and the recently finished ones, in order,
// and the counts of all jobs. Own jobs are always included. unavailable means that
// the API does not answer.
func (b *Builder) jobs(s jobs.Snapshot, recent recentActivity, unavailable bool, now time.Time) ([]Job, Counts) {
	own := ownJobsOf(s)
	counts := Counts{Done: recent.ended}
	var held []kube.Object
	top := &topJobs{limit: max(maxJobs-len(recent.finished)-len(own.running)-len(own.undelivered), 0)}
	for _, o := range b.from.Health.Jobs.Objects() {
		if own.has(o) {
			held = append(held, o)
			continue
		}
		k := queueKeyOf(o, own.suspended)
		counts.Add(&Job{
			Finished: api.TimeOfMillis(k.finished),
			Owner:    k.owner,
			State:    k.state,
			RetryAt:  timeOfMillisText(o.Text(pathNotBefore)),
		}, now)
		top.offer(k)
	}
	var out []Job
	shown := map[string]bool{}
	for _, o := range held {
		row, ok := b.jobRow(o)
		if !ok {
			continue
		}
		if u, ok := own.undelivered[o.Key()]; ok && u.UID == row.UID {
			setUndelivered(&row, u)
			delete(own.undelivered, o.Key())
		} else {
			addRunning(&row, own.running[o.Key()])
		}
		counts.Add(&row, now)
		out, shown[row.UID] = append(out, row), true
	}
	for _, k := range top.keys {
		row, ok := b.jobRow(k.object)
		if !ok {
			continue
		}
		row.WaitReason = b.from.Activity.skipReason(row.UID)
		if suspendedClaim(k.object, own.suspended) {
			row.Owner, row.State, row.LeaseUntil = "", api.StatePending, time.Time{}
			if unavailable {
				row.WaitReason = suspendedText
			}
		}
		out, shown[row.UID] = append(out, row), true
	}
	b.jobRows.Sweep(len(held) + len(top.keys))
	for _, row := range recent.finished {
		if !shown[row.UID] {
			out = append(out, row)
		}
	}
	for _, u := range own.undelivered {
		row := undeliveredRow(u)
		counts.Add(row, now)
		out = append(out, *row)
	}
	slices.SortFunc(out, func(x, y Job) int { return compareJobs(&x, &y) })
	return out, counts
}

// jobRow returns a copy of the row of a job; ok is false for an invalid job.
func (b *Builder) jobRow(o kube.Object) (row Job, ok bool) {
	made := b.jobRows.Get(o, func(u *unstructured.Unstructured) *Job {
		job, err := api.JobView(u)
		if err != nil {
			return nil
		}
		row := jobRow(u, job, b.options)
		return &row
	})
	if made == nil {
		return Job{}, false
	}
	return *made, true
}
