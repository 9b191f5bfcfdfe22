// Package job has the commands of jobs, and waits for their ends.
package job

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"limpet/sync/repos"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

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
	Diff   diffCmd   `cmd:"" help:"What the commit of a finished job changed, file by file."`
	Logs   logsCmd   `cmd:"" help:"Log of a job that the agent on this host runs."`
	Create createCmd `cmd:"" writes:"" help:"Create a job for a repository."`
	Cancel cancelCmd `cmd:"" writes:"" help:"Stop a running job or one in backoff, or delete a pending one."`
	Retry  retryCmd  `cmd:"" writes:"" help:"Retry a job: end its backoff, or run a finished one again."`
}

type listCmd struct {
	Repository string `short:"r" aliases:"repo" help:"Only jobs of this repository."`
	Limit      uint   `help:"Maximum number; 0 = all." default:"0"`
}

func (c listCmd) Run(ctx context.Context, e *command.Env) error {
	now, keep := time.Now(), func(u *unstructured.Unstructured) bool {
		return c.Repository == "" || specOf(u)["repository"] == c.Repository
	}
	t := command.Table{Columns: []string{"NAME", "REPOSITORY", "ACTION", "STATE", "PROGRESS", "AGE", "MESSAGE"},
		Wide: []string{"UID", "CLAIMED", "ATTEMPT", "PRIORITY"}}
	return e.With(ctx, command.Needs{API: true}, func(s *command.Session) error {
		rows, err := rowsOf(ctx, s)
		if err != nil {
			return err
		}
		return e.PrintObjects(ctx, s, []command.Resource{api.Jobs}, "", keep, c.Limit, t, func(u *unstructured.Unstructured) ([]string, error) {
			job, err := api.JobView(u)
			claimed, notes := "-", u.GetAnnotations()
			if u.GetLabels()[api.LabelClaim] != "" {
				claimed = "yes"
			}
			return []string{u.GetName(), job.Spec.Repository, actionText(job.Spec), stateText(job.Status.State),
				progressText(job.Status, rows[string(u.GetUID())]), command.Since(now, u.GetCreationTimestamp().Time),
				cmp.Or(message(now, u, job), rows[string(u.GetUID())].WaitReason, "-"),
				string(u.GetUID()), claimed, text.OrDash(notes[api.AnnoAttempt]), text.OrDash(notes[api.AnnoPriority])}, err
		})
	})
}

// rowsOf returns what the agent of this host knows of the jobs, by UID.
func rowsOf(ctx context.Context, s *command.Session) (map[string]snapshot.Job, error) {
	snap, err := s.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]snapshot.Job{}
	for _, j := range snap.Jobs {
		out[j.UID] = j
	}
	return out, nil
}

// message describes what a job does, or what it waits for. The agent writes the backoff as it is
// when it begins.
func message(now time.Time, u *unstructured.Unstructured, job api.Job) string {
	if at := api.UnservedAt(u); job.Status.Message == "" && !at.IsZero() && now.After(at) {
		return "no agent serves " + job.Spec.Action
	}
	said, _, rests := strings.Cut(job.Status.Message, "; tried again in ")
	if left := RestOf(u).Sub(now); rests && left > 0 {
		return said + "; tried again in " + text.Age(left)
	}
	return job.Status.Message
}

// withJob calls live with a job of the queue, or ended when there is none of that name or UID.
func withJob(ctx context.Context, e *command.Env, needs command.Needs, job string, ended func(*command.Session) error,
	live func(*command.Session, *unstructured.Unstructured) error) error {
	return e.With(ctx, needs, func(s *command.Session) error {
		u, err := s.Find(ctx, api.Jobs, e.Flags.ListNamespace(), job)
		if err == nil {
			return live(s, u)
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		if control.BeginsUID(job) { // else there is no need to read a long queue
			byUID := func(u *unstructured.Unstructured) bool { return strings.HasPrefix(string(u.GetUID()), job) }
			found, err := s.List(ctx, api.Jobs, e.Flags.ListNamespace(), "", byUID, 2)
			if err != nil {
				return err
			}
			if len(found) == 1 {
				return live(s, &found[0])
			}
		}
		return ended(s)
	})
}

func printFinished(e *command.Env, rec state.Record) error {
	return e.PrintOne(rec, rec.UID, func(w io.Writer) { history.PrintRecord(e, w, rec) })
}

// RestOf returns the end of the backoff of a job, the zero time without one.
func RestOf(u *unstructured.Unstructured) time.Time {
	ms, err := strconv.ParseInt(u.GetAnnotations()[api.AnnoNotBefore], 10, 64)
	if err != nil || ms <= 0 {
		return time.Time{}
	}
	return api.TimeOfMillis(ms)
}

// progressText returns the progress of a running job: that of the agent of this host, which the
// screens show too, else that of the API, which is some seconds old.
func progressText(s api.JobStatus, row snapshot.Job) string {
	percent := s.Progress
	if row.State == api.StateWorking {
		percent = row.Percent()
	}
	if s.State != api.StateWorking || percent < 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", min(percent, 100))
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
	Job    string `arg:"" help:"Name or UID of a job, live or finished; at least four characters of a UID."`
	Errors bool   `help:"List all errors and warnings, with file and reason: the status of a job has the first 20."`
}

func (c showCmd) Run(ctx context.Context, e *command.Env) error {
	return withJob(ctx, e, command.Needs{API: true}, c.Job, func(s *command.Session) error {
		rec, err := finishedJob(ctx, e, s, c.Job, true)
		switch {
		case err == nil && c.Errors:
			err = recordIssues(e, rec)
		case err == nil:
			err = printFinished(e, rec)
		}
		return err
	}, func(s *command.Session, u *unstructured.Unstructured) error {
		job, err := api.JobView(u)
		if err != nil {
			return err
		}
		if c.Errors {
			e.Notef("the job has not ended; its record will list all")
			return printIssues(e, statusIssues(job.Status), 0)
		}
		rows, err := rowsOf(ctx, s)
		if err != nil {
			return err
		}
		return e.PrintOne(u.Object, "job/"+u.GetName(), func(w io.Writer) { showJob(e, w, u, job, rows[string(u.GetUID())], time.Now()) })
	})
}

func showJob(e *command.Env, w io.Writer, u *unstructured.Unstructured, job api.Job, row snapshot.Job, now time.Time) {
	var f command.Fields
	notes, st := u.GetAnnotations(), job.Status
	f.Add("job", u.GetNamespace()+"/"+u.GetName())
	f.Add("uid", string(u.GetUID()))
	f.Add("repository", job.Spec.Repository)
	f.Add("action", actionText(job.Spec))
	f.AddSet("priority", notes[api.AnnoPriority])
	f.AddState("state", stateText(st.State), stateText(st.State))
	f.Add("message", cmp.Or(message(now, u, job), row.WaitReason, "-"))
	f.Add("progress", progressText(st, row))
	f.AddTime("created", u.GetCreationTimestamp().Time)
	if owner := u.GetLabels()[api.LabelClaimOwner]; owner != "" {
		f.Add("claimed by", strings.TrimSpace(notes[api.AnnoAgent]+" "+owner))
	}
	f.AddSet("again for", notes[api.AnnoRetryOf])
	if rests := RestOf(u); rests.After(now) {
		f.Add("retry at", rests.UTC().Format(time.RFC3339)+"; "+e.CommandFor(u.GetNamespace(), "job retry "+u.GetName())+" retries now")
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

type cancelCmd struct {
	Job string `arg:"" help:"Name or UID of a live job."`
}

func (c cancelCmd) Run(ctx context.Context, e *command.Env) error {
	return withJob(ctx, e, command.Needs{API: true}, c.Job, func(*command.Session) error {
		return command.Errorf(command.ExitError, "limpet job list", "no running job %q", c.Job)
	}, func(s *command.Session, u *unstructured.Unstructured) error {
		done, err := control.Cancel(ctx, s.Client, u, s.Embedded == nil)
		if apierrors.IsNotFound(err) {
			return command.Errorf(command.ExitError, "limpet history show "+string(u.GetUID()), "job %q already finished", c.Job)
		}
		if err != nil {
			return err
		}
		item := map[string]string{"namespace": u.GetNamespace(), "name": u.GetName(), "uid": string(u.GetUID()), "result": done}
		return e.PrintDone(item, "job/"+u.GetName(), "job/%s in namespace %s %s", u.GetName(), u.GetNamespace(), done)
	})
}

type retryCmd struct {
	Job string `arg:"" help:"Name or UID of a job in backoff or of a finished one; of a name, the newest of its namespace."`

	WaitFlags
}

func (c retryCmd) Run(ctx context.Context, e *command.Env) error {
	return withJob(ctx, e, command.Needs{API: true}, c.Job, func(s *command.Session) error {
		rec, err := finishedJob(ctx, e, s, c.Job, true)
		if err != nil {
			return err
		}
		if err := c.check(e, s); err != nil {
			return err
		}
		u, err := control.RunAgain(ctx, s.Client, rec)
		if err != nil {
			return err
		}
		return c.finish(ctx, e, s, u, "created, again for "+rec.UID)
	}, func(s *command.Session, u *unstructured.Unstructured) error {
		u, err := control.EndBackoff(ctx, s.Client, u)
		if err != nil {
			return err
		}
		return c.finish(ctx, e, s, u, "retried now")
	})
}

// check refuses to wait where no agent runs: the API is in this process.
func (f WaitFlags) check(e *command.Env, s *command.Session) error {
	if f.Waits() {
		return e.NeedsAgent(s, "run the job")
	}
	return nil
}

// finish waits for the end of a job as the flags say, else prints what was done.
func (f WaitFlags) finish(ctx context.Context, e *command.Env, s *command.Session, u *unstructured.Unstructured, done string) error {
	if f.Waits() {
		follower := newFollower(e, s, u, f.Progress)
		follower.showLog, follower.stream = f.Follow, f.Follow && e.Flags.Data()
		return follower.follow(ctx)
	}
	e.NoteAgent(s)
	u.SetManagedFields(nil)
	return e.PrintDone(u.Object, "job/"+u.GetName(), "job/%s %s", u.GetName(), done)
}

// SuspensionStore returns the daemon, or the suspensions in the state file; nil when the session
// has neither.
func SuspensionStore(ctx context.Context, s *command.Session) (control.Suspender, error) {
	switch {
	case s.Daemon != nil:
		return s.Daemon, nil
	case s.File != nil:
		return repos.OpenSuspensions(ctx, s.File)
	}
	return nil, nil
}

// Suspensions returns the suspensions of repositories in a session, by the UID of those.
func Suspensions(ctx context.Context, s *command.Session) (map[types.UID]repos.Suspension, error) {
	who, err := SuspensionStore(ctx, s)
	if who == nil || err != nil {
		return nil, err
	}
	all, err := who.Suspended(ctx)
	out := map[types.UID]repos.Suspension{}
	for _, one := range all {
		out[types.UID(one.UID)] = one
	}
	return out, err
}

// printIssues prints errors and warnings of a job; left is how many are known but not kept.
func printIssues(e *command.Env, issues []state.Issue, left int64) error {
	t := command.Table{Columns: []string{"STATE", "REASON", "FILE", "KIND", "NAME", "MESSAGE"}, Wide: []string{"ACTION"}}
	for _, i := range issues {
		t.Add("", text.OrDash(i.Path), i.State, text.OrDash(i.Reason), text.OrDash(i.Path), text.OrDash(i.Kind), text.OrDash(i.Name),
			i.Message, text.OrDash(i.Action))
	}
	if left > 0 {
		e.Notef("first %s of %s; the others are counted but not kept", text.Thousands(len(issues)), text.Thousands(len(issues)+int(left)))
	}
	if len(issues) == 0 {
		e.Notef("the job has no errors and no warnings")
	}
	return e.PrintList(command.List(issues), t)
}

// recordIssues prints those of a finished job: of the local history, else the ones that its status
// has room for.
func recordIssues(e *command.Env, rec state.Record) error {
	if len(rec.Issues) > 0 {
		return printIssues(e, rec.Issues, rec.IssuesLeft)
	}
	return printIssues(e, statusIssues(statusOf(rec)), 0)
}

// statusIssues returns the errors and warnings of a status. The texts of the summary name the
// files.
func statusIssues(status api.JobStatus) (out []state.Issue) {
	add := func(level, kind string, texts []string) {
		for _, txt := range texts {
			out = append(out, state.Issue{State: level, Kind: kind, Message: txt})
		}
	}
	for _, s := range status.Summary {
		add(api.StateError, s.Kind, s.Errors)
		add(api.StateWarning, s.Kind, s.Warnings)
	}
	if len(out) == 0 {
		add(api.StateError, "", status.Errors)
		add(api.StateWarning, "", status.Warnings)
	}
	return out
}
