package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"limpet/state"
	"limpet/sync/socket"
	"limpet/sync/view"
)

type statusCmd struct{}

// statusReport is what 'limpet status -o json' prints.
type statusReport struct {
	State  string         `json:"state"`  // path of the state file
	Daemon *socket.Hello  `json:"daemon"` // null when none runs
	Live   *view.Snapshot `json:"live"`   // null when no daemon runs
	Store  *state.Info    `json:"store"`  // null when there is no state file yet
	OK     bool           `json:"ok"`
	Why    []string       `json:"why,omitempty"`
}

func (statusCmd) Run(ctx context.Context, r *run) error {
	rep, err := r.status(ctx)
	if err != nil {
		return err
	}
	err = r.g.printOne(r.world.Out, rep, "", func(w io.Writer) { printStatus(w, rep) })
	if err == nil && !rep.OK {
		err = &Failure{Err: errors.New("degraded"), Hint: "limpet status -o json", Code: ExitError}
	}
	return err
}

// status asks the daemon; without one it looks into the file, but never makes
// one: asking must not change anything.
func (r *run) status(ctx context.Context) (*statusReport, error) {
	path, err := r.statePath()
	if err != nil {
		return nil, err
	}
	rep := &statusReport{State: path, OK: true}
	daemon, err := socket.Attach(ctx, socketPath(path))
	switch {
	case err == nil:
		defer daemon.Close()
		hello := daemon.Hello()
		rep.Daemon = &hello
		if rep.Live, err = daemon.Snapshot(ctx); err != nil {
			return nil, err
		}
		info, err := daemon.Info(ctx)
		if err != nil {
			return nil, err
		}
		rep.Store = &info
	case !errors.Is(err, socket.ErrNoDaemon):
		return nil, err
	default:
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return rep, nil
		}
		store, err := r.openStore(ctx, path)
		if err != nil {
			return nil, err
		}
		defer store.Close()
		info, err := store.Info(ctx)
		if err != nil {
			return nil, err
		}
		rep.Store = &info
	}
	rep.judge()
	return rep, nil
}

// judge fills OK and Why.
func (s *statusReport) judge() {
	if s.Live == nil {
		return
	}
	if !s.Live.API.Up {
		s.Why = append(s.Why, "the API does not answer: "+s.Live.API.Error)
	}
	if s.Live.Problem != "" {
		s.Why = append(s.Why, s.Live.Problem)
	}
	for _, repo := range s.Live.Repos {
		if repo.SyncState == "error" {
			s.Why = append(s.Why, fmt.Sprintf("the last pull of %s/%s ended in error", repo.Namespace, repo.Name))
		}
	}
	s.OK = len(s.Why) == 0
}

func printStatus(w io.Writer, rep *statusReport) {
	line := func(key, value string) { fmt.Fprintf(w, "%-12s%s\n", key, plain(value)) }
	line("state file", rep.State)
	if rep.Daemon == nil {
		line("agent", "not running; start it with: limpet --daemon")
	} else {
		line("agent", fmt.Sprintf("limpet %s, pid %d, up %s", rep.Daemon.Version, rep.Daemon.PID, short(time.Since(rep.Daemon.Started))))
	}
	if rep.Store == nil {
		line("store", "no state file yet")
	} else {
		line("store", fmt.Sprintf("%s, %d finished jobs, %d objects", bytesText(rep.Store.Bytes), rep.Store.History, rep.Store.Objects))
	}
	if rep.Live == nil {
		return
	}
	up := "ok"
	if !rep.Live.API.Up {
		up = "down for " + short(time.Since(rep.Live.API.Since))
	}
	line("api", rep.Live.API.Server+" "+up)
	var working, pending, other int
	for _, j := range rep.Live.Jobs {
		switch {
		case !j.Finished.IsZero():
		case j.Owner == "other":
			other++
		case j.State == "working":
			working++
		default:
			pending++
		}
	}
	line("jobs", fmt.Sprintf("%d working, %d pending, %d elsewhere", working, pending, other))
	states := map[string]int{}
	for _, repo := range rep.Live.Repos {
		states[repo.SyncState]++
	}
	line("repositories", fmt.Sprintf("%d: %d success, %d warning, %d error", len(rep.Live.Repos), states["success"], states["warning"], states["error"]))
	for _, why := range rep.Why {
		line("!", why)
	}
}
