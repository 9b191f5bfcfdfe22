package notify

import (
	"context"
	"log/slog"
	"time"

	"limpet/sync/netx"
)

// heartbeatEvery is the period of a heartbeat.
const heartbeatEvery = time.Minute

// Heartbeat calls a URL once a minute while nothing fails: whoever misses the calls knows that something fails, or that the
// host is down.
type Heartbeat struct {
	Target  *Target // a webhook
	Client  *netx.Client
	Healthy func(context.Context) error // why something fails; nil = nothing
	Logger  *slog.Logger
}

// Run calls until ctx ends.
func (h *Heartbeat) Run(ctx context.Context) error {
	tick := time.NewTicker(heartbeatEvery)
	defer tick.Stop()
	said := ""
	for {
		err, why := h.Healthy(ctx), ""
		if err == nil {
			err = h.Target.call(ctx, h.Client, "GET", map[string]string{}, nil)
		}
		if err != nil {
			why = err.Error()
		}
		switch {
		case why == said || ctx.Err() != nil:
			why = said
		case why == "":
			h.Logger.Info("heartbeats are sent", "target", h.Target.Name)
		default:
			h.Logger.Warn("no heartbeat is sent", "target", h.Target.Name, "err", why)
		}
		said = why
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
