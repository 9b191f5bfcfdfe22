package job

import (
	"context"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/control"
	"limpet/tui/cli/command"
)

type cancelCmd struct {
	Job string `arg:"" help:"Name or UID of a live job."`
}

func (c cancelCmd) Run(ctx context.Context, e *command.Env) error {
	return e.With(ctx, command.Needs{API: true}, func(s *command.Session) error {
		u, err := liveJob(ctx, s, e.Flags.ListNamespace(), c.Job)
		if err != nil {
			return err
		}
		if u == nil {
			return command.Errorf(command.ExitError, "limpet job list", "no running job %q", c.Job)
		}
		done, err := control.Cancel(ctx, s.Client, u, s.Embedded == nil)
		if apierrors.IsNotFound(err) {
			return command.Errorf(command.ExitError, "limpet history show "+string(u.GetUID()), "job %q already finished", c.Job)
		}
		if err != nil {
			return err
		}
		return e.PrintOne(map[string]string{"namespace": u.GetNamespace(), "name": u.GetName(), "uid": string(u.GetUID()), "result": done},
			"job/"+u.GetName(), func(w io.Writer) {
				fmt.Fprintf(w, "job/%s in namespace %s %s\n", u.GetName(), u.GetNamespace(), done)
			})
	})
}

type retryCmd struct {
	Job string `arg:"" help:"Name or UID of a job in backoff or of a finished one; of a name, the newest of its namespace."`

	WaitFlags
}

func (c retryCmd) Run(ctx context.Context, e *command.Env) error {
	return e.With(ctx, command.Needs{API: true}, func(s *command.Session) error {
		u, err := liveJob(ctx, s, e.Flags.ListNamespace(), c.Job)
		if err != nil {
			return err
		}
		if u == nil {
			return c.runAgain(ctx, e, s)
		}
		if u, err = control.EndBackoff(ctx, s.Client, u); err != nil {
			return err
		}
		return c.finish(ctx, e, s, u, "retried now")
	})
}

func (c retryCmd) runAgain(ctx context.Context, e *command.Env, s *command.Session) error {
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
}

// check refuses to wait where no agent runs: the API is in this process.
func (f WaitFlags) check(e *command.Env, s *command.Session) error {
	if f.Waits() && s.Embedded != nil {
		path, _ := e.StatePath() // it was opened
		return command.Errorf(command.ExitError, "limpet --daemon    # in another terminal, then this command again",
			"no agent would run the job: no agent holds %s", path)
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
	if s.Embedded != nil {
		e.Notef("no agent runs on this state file; start one with: %s", e.CommandFor("", "--daemon"))
	}
	u.SetManagedFields(nil)
	return e.PrintOne(u.Object, "job/"+u.GetName(), func(w io.Writer) { fmt.Fprintf(w, "job/%s %s\n", u.GetName(), done) })
}
