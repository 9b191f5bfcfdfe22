package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/snapshot"
	"limpet/sync/text"
)

type jobCmd struct {
	List   jobListCmd   `cmd:"" help:"Jobs that wait or run."`
	Show   jobShowCmd   `cmd:"" help:"One job, running or finished."`
	Watch  jobWatchCmd  `cmd:"" help:"Follow a job to its end."`
	Logs   jobLogsCmd   `cmd:"" help:"What the agent of this host says of a job."`
	Create jobCreateCmd `cmd:"" writes:"" help:"Ask for work on a repository."`
	Cancel jobCancelCmd `cmd:"" writes:"" help:"Stop a job that runs or rests, or delete a waiting one."`
	Retry  jobRetryCmd  `cmd:"" writes:"" help:"Run a job that rests now, or a finished one again."`
}

type jobListCmd struct {
	Repository string `short:"r" help:"Only of this repository."`
	Limit      uint   `help:"At most so many; 0 = all." default:"0"`
}

func (c jobListCmd) Run(ctx context.Context, r *run) error {
	s, err := r.open(ctx, need{API: true})
	if err != nil {
		return err
	}
	defer s.Close()
	keep := func(u *unstructured.Unstructured) bool {
		repository, _, _ := unstructured.NestedString(u.Object, "spec", "repository")
		return c.Repository == "" || repository == c.Repository
	}
	now := time.Now()
	unsent, snap := s.unsent(ctx)
	items, err := s.selected(ctx, api.Jobs, r.g.listNamespace(), "", keep, c.Limit)
	if err != nil {
		return c.known(r, snap, now, err)
	}
	t := table{Columns: []string{"NAME", "REPOSITORY", "ACTION", "STATE", "PROGRESS", "AGE", "MESSAGE"}, Wide: []string{"UID", "CLAIMED", "ATTEMPT", "PRIORITY"}}
	objects := make([]any, len(items))
	for i := range items {
		u := &items[i]
		objects[i] = u.Object
		job, err := api.JobView(u)
		if err != nil {
			return err
		}
		claimed := "-"
		if u.GetLabels()[api.LabelClaim] != "" {
			claimed = "yes"
		}
		t.add(u.GetNamespace(), "job/"+u.GetName(),
			u.GetName(), job.Spec.Repository, actionText(job.Spec), stateText(job.Status.State), progressText(job.Status), since(now, u.GetCreationTimestamp().Time), text.OrDash(message(now, u, job, unsent)),
			string(u.GetUID()), claimed, text.OrDash(u.GetAnnotations()[api.AnnoAttempt]), text.OrDash(u.GetAnnotations()[api.AnnoPriority]))
	}
	return r.printList(objects, t)
}

// unsent asks the daemon which results wait for the API. Without one, or when it
// does not answer, nothing is known of any.
func (s *session) unsent(ctx context.Context) (map[string]snapshot.Job, *snapshot.Snapshot) {
	out := map[string]snapshot.Job{}
	if s.Daemon == nil {
		return out, nil
	}
	snap, err := s.Daemon.Snapshot(ctx)
	if err != nil {
		return out, nil
	}
	for _, j := range snap.Jobs {
		if !j.Unsent.IsZero() {
			out[j.UID] = j
		}
	}
	return out, snap
}

// message says what a job does, or what it waits for.
func message(now time.Time, u *unstructured.Unstructured, job api.Job, unsent map[string]snapshot.Job) string {
	if j, ok := unsent[string(u.GetUID())]; ok {
		return j.State + ", " + unsentText(now, j)
	}
	// The agent has written how long the rest would last; that was then.
	if said, _, rests := strings.Cut(job.Status.Message, "; tried again in "); rests && stateText(job.Status.State) == api.StatePending {
		left := restOf(u).Sub(now)
		if left <= 0 {
			return said + "; waits for an agent"
		}
		return said + "; tried again in " + text.Age(left)
	}
	return job.Status.Message
}

// restOf is until when a job rests between two attempts; the zero time when it
// does not.
func restOf(u *unstructured.Unstructured) time.Time {
	ms, err := strconv.ParseInt(u.GetAnnotations()[api.AnnoNotBefore], 10, 64)
	if err != nil || ms <= 0 {
		return time.Time{}
	}
	return api.TimeOfMillis(ms)
}

// known shows what the daemon knows while the API does not answer. The exit code
// is that of the error, because this may not be what there is.
func (c jobListCmd) known(r *run, snap *snapshot.Snapshot, now time.Time, err error) error {
	code, _ := classify(err)
	if code != ExitUnreachable || snap == nil || r.g.data() {
		return err
	}
	t := table{Columns: []string{"NAME", "REPOSITORY", "ACTION", "STATE", "AGE", "MESSAGE"}, Wide: []string{"UID", "ATTEMPT"}}
	for _, j := range snap.Jobs {
		if c.Repository != "" && j.Repository != c.Repository || !j.Finished.IsZero() {
			continue
		}
		txt := j.Message
		if !j.Unsent.IsZero() {
			txt = unsentText(now, j)
		}
		t.add(j.Namespace, "job/"+j.Name, j.Name, j.Repository, strings.TrimSpace(j.Action+" "+j.Detail), stateText(j.State), since(now, j.Created), text.OrDash(txt), j.UID, fmt.Sprint(j.Attempt))
	}
	if err := r.printList(nil, t); err != nil {
		return err
	}
	asOf := snap.AsOf
	if asOf.IsZero() {
		asOf = snap.API.Since
	}
	return fail(code, "limpet status", "the API does not answer; shown is what the daemon knows, as of %s ago: %w", text.Age(now.Sub(asOf)), err)
}

func progressText(s api.JobStatus) string {
	if s.State != api.StateWorking {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", min(s.Progress, 100))
}

func actionText(s api.JobSpec) string {
	if s.Pull == nil || s.Action != "pull" {
		return s.Action
	}
	if s.Pull.Incremental {
		return "pull incr"
	}
	return "pull full"
}

func stateText(state string) string {
	if state == "" {
		return api.StatePending
	}
	return state
}

type jobShowCmd struct {
	Job string `arg:"" help:"Name or UID of a job, live or finished."`
}

func (c jobShowCmd) Run(ctx context.Context, r *run) error {
	s, err := r.open(ctx, need{API: true})
	if err != nil {
		return err
	}
	defer s.Close()
	u, err := s.liveJob(ctx, r.g.listNamespace(), c.Job)
	if err != nil {
		return err
	}
	if u == nil {
		if err := r.desk(ctx, s); err != nil {
			return err
		}
		rec, err := findRecord(ctx, s.Desk, r.g.listNamespace(), c.Job)
		if errors.Is(err, errNoRecord) {
			return fail(ExitError, "limpet job list; limpet history list", "no job %q, neither live nor finished", c.Job)
		}
		if err != nil {
			return err
		}
		return r.printOne(rec, rec.UID, func(w io.Writer) { printRecord(r, w, rec) })
	}
	job, err := api.JobView(u)
	if err != nil {
		return err
	}
	return r.printOne(u.Object, "job/"+u.GetName(), func(w io.Writer) {
		var f fields
		f.add("job", u.GetNamespace()+"/"+u.GetName())
		f.add("uid", string(u.GetUID()))
		f.add("repository", job.Spec.Repository)
		f.add("action", actionText(job.Spec))
		if p := u.GetAnnotations()[api.AnnoPriority]; p != "" {
			f.add("priority", p)
		}
		f.addState("state", stateText(job.Status.State), stateText(job.Status.State))
		f.add("message", text.OrDash(message(time.Now(), u, job, nil)))
		f.add("progress", fmt.Sprintf("%.0f%%", min(job.Status.Progress, 100)))
		f.add("created", u.GetCreationTimestamp().UTC().Format(time.RFC3339))
		if owner := u.GetLabels()[api.LabelClaimOwner]; owner != "" {
			f.add("claimed by", strings.TrimSpace(u.GetAnnotations()[api.AnnoAgent]+" "+owner))
		}
		if of := u.GetAnnotations()[api.AnnoRetryOf]; of != "" {
			f.add("again for", of)
		}
		if rests := restOf(u); rests.After(time.Now()) {
			f.add("rests until", rests.UTC().Format(time.RFC3339)+"; "+r.next(u.GetNamespace(), "job retry "+u.GetName())+" does not wait")
		}
		for _, a := range attempts(u) {
			f.addState("attempt "+strconv.Itoa(a.N), a.State, fmt.Sprintf("%s by %s%s: %s", a.State, text.OrDash(a.Agent), spanText(a), text.OrDash(a.Message)))
		}
		for _, e := range job.Status.Errors {
			f.add("error", e)
		}
		f.write(w)
	})
}

// attempts reads from a live job how its runs so far have ended.
func attempts(u *unstructured.Unstructured) []state.Attempt {
	var out []state.Attempt
	if json.Unmarshal([]byte(u.GetAnnotations()[api.AnnoAttempts]), &out) != nil {
		return nil
	}
	return out
}

// unsentText tells of a job that is done and whose result is kept until the API
// takes it.
func unsentText(now time.Time, job snapshot.Job) string {
	return "done, waiting for the API " + text.Age(now.Sub(job.Unsent))
}
