// Package job has the commands of jobs, and waits for their ends.
package job

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/cli/command"
	"limpet/tui/cli/history"
)

// Command has the commands of 'limpet job'.
type Command struct {
	List   listCmd   `cmd:"" help:"Pending and running jobs."`
	Show   showCmd   `cmd:"" help:"One job, live or finished."`
	Watch  watchCmd  `cmd:"" help:"Follow a job to its end."`
	Logs   logsCmd   `cmd:"" help:"Log of a job that the agent on this host runs."`
	Create createCmd `cmd:"" writes:"" help:"Create a job for a repository."`
	Cancel cancelCmd `cmd:"" writes:"" help:"Stop a running job or one in backoff, or delete a pending one."`
	Retry  retryCmd  `cmd:"" writes:"" help:"Retry a job: end its backoff, or run a finished one again."`
}

type listCmd struct {
	Repository string `short:"r" help:"Only jobs of this repository."`
	Limit      uint   `help:"Maximum number; 0 = all." default:"0"`
}

func (c listCmd) Run(ctx context.Context, e *command.Env) error {
	return e.With(ctx, command.Needs{API: true}, func(s *command.Session) error { return c.list(ctx, e, s) })
}

func (c listCmd) list(ctx context.Context, e *command.Env, s *command.Session) error {
	now := time.Now()
	var snap *snapshot.Snapshot // nil without a daemon
	undelivered := map[string]snapshot.Job{}
	if s.Daemon != nil {
		snap, _ = s.Daemon.Snapshot(ctx) // the list is complete without it
	}
	if snap != nil {
		for _, j := range snap.Jobs {
			if !j.Undelivered.IsZero() {
				undelivered[j.UID] = j
			}
		}
	}
	keep := func(u *unstructured.Unstructured) bool {
		return c.Repository == "" || specOf(u)["repository"] == c.Repository
	}
	items, err := s.List(ctx, api.Jobs, e.Flags.ListNamespace(), "", keep, c.Limit)
	if err != nil {
		return c.known(e, snap, now, err)
	}
	t := command.Table{Columns: []string{"NAME", "REPOSITORY", "ACTION", "STATE", "PROGRESS", "AGE", "MESSAGE"},
		Wide: []string{"UID", "CLAIMED", "ATTEMPT", "PRIORITY"}}
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
		txt := message(now, u, job)
		if j, ok := undelivered[string(u.GetUID())]; ok {
			txt = j.State + ", " + UnsentText(now, j)
		}
		t.Add(u.GetNamespace(), "job/"+u.GetName(),
			u.GetName(), job.Spec.Repository, actionText(job.Spec), stateText(job.Status.State), progressText(job.Status),
			command.Since(now, u.GetCreationTimestamp().Time), text.OrDash(txt),
			string(u.GetUID()), claimed, text.OrDash(u.GetAnnotations()[api.AnnoAttempt]), text.OrDash(u.GetAnnotations()[api.AnnoPriority]))
	}
	return e.PrintList(objects, t)
}

// message describes what a job does, or what it waits for.
func message(now time.Time, u *unstructured.Unstructured, job api.Job) string {
	// The message has the backoff as it was when it began.
	if said, _, rests := strings.Cut(job.Status.Message, "; tried again in "); rests && stateText(job.Status.State) == api.StatePending {
		left := RestOf(u).Sub(now)
		if left <= 0 {
			return said + "; waits for an agent"
		}
		return said + "; tried again in " + text.Age(left)
	}
	return job.Status.Message
}

// uidLength is that of the UUIDs that Kubernetes-style APIs use.
const uidLength = 36

// liveJob returns a job of the queue by name or UID, nil when there is none.
func liveJob(ctx context.Context, s *command.Session, namespace, job string) (*unstructured.Unstructured, error) {
	u, err := s.Find(ctx, api.Jobs, namespace, job)
	if !apierrors.IsNotFound(err) {
		return u, err
	}
	if len(job) != uidLength { // no need to read a long queue
		return nil, nil
	}
	found, err := s.List(ctx, api.Jobs, namespace, "", func(u *unstructured.Unstructured) bool { return string(u.GetUID()) == job }, 1)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// RestOf returns the end of the backoff of a job, the zero time without one.
func RestOf(u *unstructured.Unstructured) time.Time {
	ms, err := strconv.ParseInt(u.GetAnnotations()[api.AnnoNotBefore], 10, 64)
	if err != nil || ms <= 0 {
		return time.Time{}
	}
	return api.TimeOfMillis(ms)
}

// known lists the jobs that the daemon knows while the API does not answer. The exit code is that of the
// error, because the list may be out of date.
func (c listCmd) known(e *command.Env, snap *snapshot.Snapshot, now time.Time, err error) error {
	code, _ := command.Classify(err)
	if code != command.ExitUnreachable || snap == nil || e.Flags.Data() {
		return err
	}
	t := command.Table{Columns: []string{"NAME", "REPOSITORY", "ACTION", "STATE", "AGE", "MESSAGE"}, Wide: []string{"UID", "ATTEMPT"}}
	for _, j := range snap.Jobs {
		if c.Repository != "" && j.Repository != c.Repository || !j.Finished.IsZero() {
			continue
		}
		txt := j.Message
		if !j.Undelivered.IsZero() {
			txt = UnsentText(now, j)
		}
		t.Add(j.Namespace, "job/"+j.Name, j.Name, j.Repository, strings.TrimSpace(j.Action+" "+j.Detail), stateText(j.State),
			command.Since(now, j.Created), text.OrDash(txt), j.UID, fmt.Sprint(j.Attempt))
	}
	if err := e.PrintList(nil, t); err != nil {
		return err
	}
	asOf := snap.AsOf
	if asOf.IsZero() {
		asOf = snap.API.Since
	}
	return command.Errorf(code, "limpet status", "the API does not answer; shown is what the daemon knows, as of %s ago: %w",
		text.Age(now.Sub(asOf)), err)
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

type showCmd struct {
	Job string `arg:"" help:"Name or UID of a job, live or finished."`
}

func (c showCmd) Run(ctx context.Context, e *command.Env) error {
	return e.With(ctx, command.Needs{API: true}, func(s *command.Session) error {
		u, err := liveJob(ctx, s, e.Flags.ListNamespace(), c.Job)
		if err != nil {
			return err
		}
		if u == nil {
			rec, err := finishedJob(ctx, e, s, c.Job, true)
			if err != nil {
				return err
			}
			return e.PrintOne(rec, rec.UID, func(w io.Writer) { history.PrintRecord(e, w, rec) })
		}
		job, err := api.JobView(u)
		if err != nil {
			return err
		}
		return e.PrintOne(u.Object, "job/"+u.GetName(), func(w io.Writer) { showJob(e, w, u, job, time.Now()) })
	})
}

func showJob(e *command.Env, w io.Writer, u *unstructured.Unstructured, job api.Job, now time.Time) {
	var f command.Fields
	notes, st := u.GetAnnotations(), job.Status
	f.Add("job", u.GetNamespace()+"/"+u.GetName())
	f.Add("uid", string(u.GetUID()))
	f.Add("repository", job.Spec.Repository)
	f.Add("action", actionText(job.Spec))
	f.AddSet("priority", notes[api.AnnoPriority])
	f.AddState("state", stateText(st.State), stateText(st.State))
	f.Add("message", text.OrDash(message(now, u, job)))
	f.Add("progress", fmt.Sprintf("%.0f%%", min(st.Progress, 100)))
	f.AddTime("created", u.GetCreationTimestamp().Time)
	if owner := u.GetLabels()[api.LabelClaimOwner]; owner != "" {
		f.Add("claimed by", strings.TrimSpace(notes[api.AnnoAgent]+" "+owner))
	}
	f.AddSet("again for", notes[api.AnnoRetryOf])
	if rests := RestOf(u); rests.After(now) {
		f.Add("rests until", rests.UTC().Format(time.RFC3339)+"; "+e.CommandFor(u.GetNamespace(), "job retry "+u.GetName())+" does not wait")
	}
	var attempts []state.Attempt
	_ = json.Unmarshal([]byte(notes[api.AnnoAttempts]), &attempts) // of a foreign text nothing is shown
	for _, a := range attempts {
		f.AddState("attempt "+strconv.Itoa(a.N), a.State, control.AttemptText(a))
	}
	for _, e := range st.Errors {
		f.Add("error", e)
	}
	f.Write(w)
}

// UnsentText describes a finished job whose result is kept until the API takes it.
func UnsentText(now time.Time, job snapshot.Job) string {
	return "done, waiting for the API " + text.Age(now.Sub(job.Undelivered))
}
