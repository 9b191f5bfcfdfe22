package daemon

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"limpet/sync/agent"
)

// watchdog notifies the service manager that has started this process: ready, alive, stopping. Without one it
// does nothing.
type watchdog struct {
	log *slog.Logger

	probe atomic.Pointer[func() []string] // returns once the agent has answered what of it is stuck; nil while none runs
}

// during runs work and notifies until it ends. Stopping is sent once ctx ends, and not when work ends to be repeated.
func (h *watchdog) during(ctx context.Context, work func() error) error {
	done := make(chan struct{})
	var told sync.WaitGroup
	told.Go(func() {
		var beat <-chan time.Time
		period, err := daemon.SdWatchdogEnabled(false)
		if err != nil {
			h.log.Warn("no watchdog", "err", err)
		} else if period > 0 {
			// A third of the period: one notification may be late on a busy board.
			ticker := time.NewTicker(period / 3)
			defer ticker.Stop()
			beat = ticker.C
		}
		stop := ctx.Done()
		for {
			select {
			case <-done:
				return
			case <-stop:
				h.notify(daemon.SdNotifyStopping)
				stop = nil
			case <-beat:
				var stuck []string
				if probe := h.probe.Load(); probe != nil {
					stuck = (*probe)()
				}
				if len(stuck) == 0 {
					h.notify(daemon.SdNotifyWatchdog)
				} else {
					h.log.Error("the agent is stuck: the service manager is not told that it is alive", "causes", stuck)
				}
			}
		}
	})
	err := work()
	close(done)
	told.Wait()
	return err
}

// of runs beside an agent: it reports the service ready after the first snapshot, which does not need the API,
// and has the agent probed until ctx ends.
func (h *watchdog) of(a *agent.Agent) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, err := a.Next(ctx, 0); err != nil {
			return nil // it ended before
		}
		// This takes the locks of the agent. The state file is not used: a slow disk must not kill the process.
		probe := func() []string { a.Draining(); return a.Stuck() }
		h.probe.Store(&probe)
		defer h.probe.Store(nil)
		h.notify(daemon.SdNotifyReady)
		<-ctx.Done()
		return nil
	}
}

func (h *watchdog) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		h.log.Warn("the service manager cannot be told", "what", state, "err", err)
	}
}
