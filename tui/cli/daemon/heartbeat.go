package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"limpet/sync/agent"
)

// watchdog tells the service manager that has started this process how it is:
// ready, alive, stopping. Where none has, it does nothing.
type watchdog struct {
	log *slog.Logger

	mu    sync.Mutex // guards pulse
	probe func()     // returns once the agent has answered; nil while none runs
}

// during runs work and tells of it until it has ended. That it stops is told once
// ctx ends, and not when work ends to be begun anew.
func (h *watchdog) during(ctx context.Context, work func() error) error {
	done := make(chan struct{})
	var told sync.WaitGroup
	told.Go(func() {
		var beat <-chan time.Time
		period, err := daemon.SdWatchdogEnabled(false)
		if err != nil {
			h.log.Warn("no watchdog", "err", err)
		} else if period > 0 {
			// A third of the time: one beat may come late on a busy board.
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
				h.probeAgent()
				h.notify(daemon.SdNotifyWatchdog)
			}
		}
	})
	err := work()
	close(done)
	told.Wait()
	return err
}

// probeAgent returns once the agent has answered, so that a process that is stuck is not
// called alive.
func (h *watchdog) probeAgent() {
	h.mu.Lock()
	pulse := h.probe
	h.mu.Unlock()
	if pulse != nil {
		pulse()
	}
}

// of is the part that runs beside an agent: it calls the service ready when the
// agent has made its first picture, which does not need the API, and has its pulse
// felt until ctx ends.
func (h *watchdog) of(a *agent.Agent) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, err := a.Next(ctx, 0); err != nil {
			return nil // it has ended before
		}
		// That takes the locks of its work. The state file is not asked, because a
		// slow disk is no reason to kill anybody.
		h.setProbe(func() { a.Draining() })
		defer h.setProbe(nil)
		h.notify(daemon.SdNotifyReady)
		<-ctx.Done()
		return nil
	}
}

func (h *watchdog) setProbe(pulse func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.probe = pulse
}

func (h *watchdog) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		h.log.Warn("the service manager cannot be told", "what", state, "err", err)
	}
}
