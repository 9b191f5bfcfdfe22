package jobs

import (
	"context"
	"strconv"
	"time"

	"limpet/sync/api"
)

// Meter is told what the drivers do, as it is done, so that it can be counted.
// What there is at a moment (jobs that wait, run, or have their result kept) is
// no part of it: that is read from the controller when somebody asks (Backlog,
// Live), because a number that goes up and down with the news drifts.
//
// Its methods are called from many goroutines at once. They must be quick and
// must not call the controller. A driver is the index of one of this agent's
// drivers as text, or DriverCleanup.
type Meter interface {
	// Began and Ended enclose the time in which a driver has a job under its
	// claim. Each Began has one Ended with the same uid.
	Began(uid, driver, action string)
	Ended(uid string)
	// Claim is one write of claim labels, or the end of one round of them.
	Claim(driver string, r ClaimResult)
	// Waited is how long a job that is claimed for the first time has waited since
	// it was created, by the server's clock to the second.
	Waited(action string, d time.Duration)
	// Processed is a job that has ended and is in history. outcome is success,
	// warning or error; changed is how many resources were created, updated or
	// deleted; took is from the claim to the end.
	Processed(action, outcome string, changed int64, took time.Duration)
	// Resource is the result of one resource.
	Resource(action string, r Result)
	// Phase is one part of a sync; phase "" is the whole of it. sync is SyncFull or
	// SyncIncremental.
	Phase(sync, phase string, took time.Duration)
	// Pruned is how many records of the state file and HistoricJobs of the API a
	// pass has deleted.
	Pruned(local, remote int)
	// Seen is a change of a job that the watch has shown (SourceLive after it had
	// synced, SourceInitial before), or a job that the periodic list brought
	// (SourceRelist). late is how long after the creation of the job that was, below
	// 0 when that is not known.
	Seen(source string, late time.Duration)
	// Looked is one name of the queue that a driver is done with: how long it had
	// waited in its lane, how long the look took with all that came of it, and
	// whether it is tried again because something went wrong.
	Looked(waited, took time.Duration, retried bool)
}

// DriverCleanup stands in the place of a driver where the cleanup of expired
// claims works on a job.
const DriverCleanup = "cleanup"

// ClaimResult is what became of one write of claim labels, or of a round.
type ClaimResult string

// Values of ClaimResult. The first three are results of one write; a round with
// up to three of them is contended when another took the job or all were
// conflicts.
const (
	ClaimWon       ClaimResult = "won"
	ClaimConflict  ClaimResult = "conflict"
	ClaimError     ClaimResult = "error"
	ClaimContended ClaimResult = "contended"
)

// Values of Meter.Phase and Meter.Seen.
const (
	SyncFull        = "full"
	SyncIncremental = "incremental"
	SourceLive      = "live"
	SourceInitial   = "initial"
	SourceRelist    = "relist"
)

// unmetered counts nothing.
type unmetered struct{}

func (unmetered) Began(string, string, string)                   {}
func (unmetered) Ended(string)                                   {}
func (unmetered) Claim(string, ClaimResult)                      {}
func (unmetered) Waited(string, time.Duration)                   {}
func (unmetered) Processed(string, string, int64, time.Duration) {}
func (unmetered) Resource(string, Result)                        {}
func (unmetered) Phase(string, string, time.Duration)            {}
func (unmetered) Pruned(int, int)                                {}
func (unmetered) Seen(string, time.Duration)                     {}
func (unmetered) Looked(time.Duration, time.Duration, bool)      {}

// driverKey is under which the context of a driver carries its index.
type driverKey struct{}

// withDriver marks everything that happens under ctx as the work of a driver.
func withDriver(ctx context.Context, index int) context.Context {
	return context.WithValue(ctx, driverKey{}, strconv.Itoa(index))
}

func driverOf(ctx context.Context) string {
	if driver, ok := ctx.Value(driverKey{}).(string); ok {
		return driver
	}
	return DriverCleanup
}

// processed counts a job that has ended with this status.
func (c *Controller) processed(h *held, out Outcome, status map[string]any) {
	c.trims.count()
	outcome := out.State
	if outcome != api.StateSuccess && outcome != api.StateWarning {
		outcome = api.StateError
	}
	var changed int64
	summary, _ := status["summary"].([]any)
	for _, part := range summary {
		kind, _ := part.(map[string]any)
		changed += updates(kind["create"]) + updates(kind["update"]) + updates(kind["delete"])
	}
	took := updates(status["finished"]) - updates(status["started"])
	c.o.Meter.Processed(h.action, outcome, changed, time.Duration(max(took, 0))*time.Millisecond)
}

// waited counts how long a job has waited for its first claim.
func (c *Controller) waited(h *held) {
	if h.attempt == 1 && !h.created.IsZero() {
		c.o.Meter.Waited(h.action, max(time.UnixMilli(h.started).Sub(h.created), 0))
	}
}

// seen counts a change that the watch has shown.
func (c *Controller) seen(created time.Time) {
	late := time.Duration(-1)
	if now, bound, ok := c.clock.Now(); ok && bound < time.Second && !created.IsZero() {
		late = max(now.Sub(created), 0)
	}
	if !c.jobs.HasSynced() {
		c.o.Meter.Seen(SourceInitial, -1)
		return
	}
	c.o.Meter.Seen(SourceLive, late)
}
