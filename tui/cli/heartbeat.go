package cli

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"limpet/sync/agent"
)

// heartbeat tells the service manager that has started this process how it is:
// ready, alive, stopping. Where none has, it does nothing.
type heartbeat struct {
	log *slog.Logger

	mu    sync.Mutex // guards pulse
	pulse func()     // returns once the agent has answered; nil while none runs
}

// during runs work and tells of it until it has ended. That it stops is told once
// ctx ends, and not when work ends to be begun anew.
func (h *heartbeat) during(ctx context.Context, work func() error) error {
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
				h.tell(daemon.SdNotifyStopping)
				stop = nil
			case <-beat:
				h.feel()
				h.tell(daemon.SdNotifyWatchdog)
			}
		}
	})
	err := work()
	close(done)
	told.Wait()
	return err
}

// feel returns once the agent has answered, so that a process that is stuck is not
// called alive.
func (h *heartbeat) feel() {
	h.mu.Lock()
	pulse := h.pulse
	h.mu.Unlock()
	if pulse != nil {
		pulse()
	}
}

// of is the part that runs beside an agent: it calls the service ready when the
// agent has made its first picture, which does not need the API, and has its pulse
// felt until ctx ends.
func (h *heartbeat) of(a *agent.Agent) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, err := a.Next(ctx, 0); err != nil {
			return nil // it has ended before
		}
		// That takes the locks of its work. The state file is not asked, because a
		// slow disk is no reason to kill anybody.
		h.follow(func() { a.Draining() })
		defer h.follow(nil)
		h.tell(daemon.SdNotifyReady)
		<-ctx.Done()
		return nil
	}
}

func (h *heartbeat) follow(pulse func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pulse = pulse
}

func (h *heartbeat) tell(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		h.log.Warn("the service manager cannot be told", "what", state, "err", err)
	}
}
