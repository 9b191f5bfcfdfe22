package snapshot

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"limpet/sync/kube"
	"limpet/sync/text"
)

// healthEvery is how soon a change of availability is visible. A check reads two fields.
const healthEvery = time.Second

// Health reports whether the API can be used.
type Health struct {
	Server   string // URL, or "embedded"
	Embedded bool
	Started  time.Time
	Client   *kube.Client
	Jobs     *kube.Informer
	Repos    *kube.Informer
	// HostProblem returns what is wrong on this host, "" for nothing: the disk of the state file takes
	// no writes, or files of --manifests are not applied. The author of a file sees the screen and not
	// the log.
	HostProblem func() string
	Warnings    func() []string // of the agent itself
}

// Synced reports whether the watches have shown all objects.
func (h *Health) Synced() bool { return h.Jobs.HasSynced() && h.Repos.HasSynced() }

// WaitSynced blocks until Synced, or returns an error when ctx ends.
func (h *Health) WaitSynced(ctx context.Context) error {
	if err := h.Jobs.WaitSynced(ctx); err != nil {
		return err
	}
	return h.Repos.WaitSynced(ctx)
}

// problem returns why the API cannot be used and the next command, "" when it can. Watches that are
// not synced yet are no problem by themselves.
func (h *Health) problem() string {
	_, err := h.Client.Down()
	for _, informer := range []*kube.Informer{h.Jobs, h.Repos} {
		if err == nil {
			err = informer.LastError()
		}
	}
	if err == nil {
		return ""
	}
	problem := text.Redact(err.Error())
	if hint := kube.Hint(err); hint != "" {
		problem += " (" + hint + ")"
	}
	return problem
}

// Run invalidates the snapshot of hub and logs when the API becomes unavailable or available, until
// ctx ends. An unavailable API sends no events.
func (h *Health) Run(ctx context.Context, hub *Hub, log *slog.Logger) error {
	var synced sync.WaitGroup
	defer synced.Wait()
	// Without objects the first complete snapshot would come with the idle tick, as if the start took
	// that long.
	synced.Go(func() {
		if h.WaitSynced(ctx) == nil {
			hub.Invalidate()
		}
	})
	problem := ""
	local := ""
	warnings := []string(nil)
	for kube.Sleep(ctx, healthEvery) == nil {
		wasUp := problem == ""
		wasLocal := local
		hadWarnings := warnings
		problem = h.problem()
		local = h.HostProblem()
		warnings = h.Warnings()
		isUp := problem == ""
		if isUp != wasUp || local != wasLocal || !slices.Equal(warnings, hadWarnings) {
			hub.Invalidate()
		}
		switch {
		case isUp && !wasUp:
			log.Info("API available again", "server", h.Server)
		case wasUp && !isUp:
			log.Warn("API unavailable, retrying", "server", h.Server, "err", problem)
		}
	}
	return nil
}

func (h *Health) row() API {
	row := API{
		Server:   h.Server,
		Embedded: h.Embedded,
		Synced:   h.Synced(),
		Up:       true,
		Since:    h.Started,
		Insecure: h.Client.Insecure(),
		Latency:  h.Client.Latency(),
	}
	if since, err := h.Client.Down(); err != nil {
		row.Up = false
		row.Since = since
		row.Error = text.Redact(err.Error())
		row.Next, row.Tries = h.Client.NextTry()
		row.Next = row.Next.Round(0) // wall clock: other processes read it
	}
	return row
}
