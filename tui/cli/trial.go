package cli

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/control"
	"limpet/sync/repos"
)

// withTester calls f with a session and who tests: the daemon that works on the
// API that is meant, since it has the credentials; else this process. A state file
// that is not there is not made.
func (r *run) withTester(ctx context.Context, f func(*session, control.Tester) error) error {
	path, err := r.statePath()
	if err != nil {
		return err
	}
	s := new(session)
	defer s.Close()
	if s.Daemon, err = hail(ctx, path); err != nil && (!errors.Is(err, control.ErrNoDaemon) || r.embedded() && errors.As(err, new(*silentError))) {
		return err
	}
	if s.Daemon != nil {
		same, err := r.serves(ctx, s.Daemon)
		if err != nil {
			return err
		}
		if same {
			if s.Client, err = r.connect(ctx, s, ""); err != nil {
				return err
			}
			return f(s, s.Daemon)
		}
	}
	var store *state.Store
	if r.embedded() {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			dir, err := os.MkdirTemp("", "limpet-test-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			path = filepath.Join(dir, stateName)
		}
		if store, err = r.openStore(ctx, path, ""); err != nil {
			return err
		}
		defer store.Close()
	}
	cfg, err := r.agentConfig(store, path, r.log)
	if err != nil {
		return err
	}
	bench, err := agent.OpenBench(ctx, cfg)
	if err != nil {
		return err
	}
	err = f(&session{Client: bench.Client()}, bench)
	return errors.Join(err, bench.Close())
}

// printResults shows what a test has shown, and fails when that is not well. again
// is the call that tests once more.
func (r *run) printResults(results repos.TestResults, name, again string) error {
	t := table{Columns: []string{"STEP", "RESULT", "DETAIL"}}
	for _, step := range results.Steps {
		t.add("", name, step.Name, step.Result, step.Detail)
	}
	err := r.printOne(results, name, func(w io.Writer) { _ = t.write(w, false, !r.g.NoHeaders) })
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
	return fail(code, again+"    # after correcting it", "%s is not in order: %s", name, why)
}
