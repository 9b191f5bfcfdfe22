package snapshot

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"limpet/sync/kube"
	"limpet/sync/text"
)

// healthEvery is how soon a change of availability is visible. A check reads two
// fields.
const healthEvery = time.Second

// Manifests reports on the files of --manifests.
type Manifests interface {
	// Problem returns why files are not applied, "" when all are.
	Problem() string
}

// Health reports whether the API can be used.
type Health struct {
	Server    string // URL, or "embedded"
	Embedded  bool
	Started   time.Time
	Client    *kube.Client
	Jobs      *kube.Informer
	Repos     *kube.Informer
	Manifests Manifests // nil = none
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

// Problem returns why the API cannot be used and the next command, "" when it can.
// Watches that are not synced yet are no problem by themselves.
func (h *Health) Problem() string {
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

// ManifestsProblem returns why files of --manifests are not applied, "" when all are.
// The author of a file sees the screen and not the log.
func (h *Health) ManifestsProblem() string {
	if h.Manifests == nil {
		return ""
	}
	return text.Redact(h.Manifests.Problem())
}

// Run invalidates the snapshot of hub and logs when the API becomes unavailable or
// available, until ctx ends. An unavailable API sends no events.
func (h *Health) Run(ctx context.Context, hub *Hub, log *slog.Logger) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		// Without objects the first complete snapshot would come with the idle
		// tick, as if the start took that long.
		if h.WaitSynced(ctx) == nil {
			hub.Invalidate()
		}
		return nil
	})
	g.Go(func() error {
		tick := time.NewTicker(healthEvery)
		defer tick.Stop()
		var last healthState
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				last = h.runOnce(last, hub, log)
			}
		}
	})
	return g.Wait()
}

// healthState is the last result of runOnce.
type healthState struct{ problem, manifests string }

func (h *Health) runOnce(last healthState, hub *Hub, log *slog.Logger) healthState {
	now := healthState{h.Problem(), h.ManifestsProblem()}
	changed := (now.problem == "") != (last.problem == "")
	if changed || now.manifests != last.manifests {
		hub.Invalidate()
	}
	switch {
	case !changed:
	case now.problem == "":
		log.Info("API available again", "server", h.Server)
	default:
		log.Warn("API unavailable, retrying", "server", h.Server, "err", now.problem)
	}
	return now
}

// row returns the API of a snapshot.
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
		row.Up, row.Since, row.Error = false, since, text.Redact(err.Error())
		row.Next, row.Tries = h.Client.NextTry()
		row.Next = row.Next.Round(0) // wall clock: other processes read it
	}
	return row
}
