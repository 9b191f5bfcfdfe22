package command

import (
	"context"
	"errors"
	"io"
	"net/http"

	"limpet/sync/agent"
	"limpet/sync/control"
	"limpet/sync/repos"
)

// WithTester calls f with a session and a tester: the daemon that works on the same API, which has the
// credentials, else this process. With desk the process works with the state file and its mirrors.
func (e *Env) WithTester(ctx context.Context, desk bool, f func(*Session, control.Tester) error) error {
	return e.With(ctx, Needs{Desk: desk || e.Embedded()}, func(s *Session) error {
		if s.Daemon != nil {
			same, err := e.Serves(ctx, s.Daemon)
			if same {
				s.Client, err = e.Connect(ctx, s, "")
			}
			if err != nil {
				return err
			}
			if same {
				return f(s, s.Daemon)
			}
		}
		path, err := e.StatePath()
		if err != nil {
			return err
		}
		cfg, err := e.AgentConfig(s.File, path, e.Log)
		if err != nil {
			return err
		}
		mirrors := ""
		if desk && s.File != nil {
			mirrors = agent.MirrorsPath(path)
		}
		tester, err := agent.OpenTester(ctx, cfg, mirrors)
		if err != nil {
			return err
		}
		return errors.Join(f(&Session{Client: tester.Client()}, tester), tester.Close())
	})
}

// PrintResults prints the results of a test, and fails when it failed. again is the command to run after a correction.
func (e *Env) PrintResults(results repos.TestResults, name, again string) error {
	t := Table{Columns: []string{"STEP", "RESULT", "DETAIL"}}
	for _, step := range results.Steps {
		t.Add("", name, step.Name, step.Result, step.Detail)
	}
	err := e.PrintOne(results, name, func(w io.Writer) { t.Write(w, false, !e.Flags.NoHeaders) })
	if err != nil || results.Success {
		return err
	}
	code, why := ExitError, http.StatusText(results.Code)
	if results.Code == http.StatusUnauthorized || results.Code == http.StatusForbidden {
		code = ExitAuth
	}
	if len(results.Errors) > 0 {
		why = results.Errors[0].Detail
	}
	return Errorf(code, again+"    # after correcting it", "%s failed the test: %s", name, why)
}
