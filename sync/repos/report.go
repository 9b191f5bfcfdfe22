package repos

import (
	"log/slog"
	"time"

	"limpet/sync/reconcile"
)

type reporter struct {
	observe func(reconcile.Event)
	log     *slog.Logger
}

func (r reporter) logOf(a *attempt) *slog.Logger {
	return r.log.With("repo", a.key.Name, "namespace", a.key.Namespace)
}

func (r reporter) report(k reconcile.Key, level, text string) {
	r.observe(reconcile.Event{At: time.Now(), Level: level, Namespace: k.Namespace, Repository: k.Name, Text: text})
}

// Meter counts what a controller does.
type Meter interface {
	// Worked counts one key off the queue.
	Worked(reconcile.Done)
	// Checked counts a health check and its result.
	Checked(healthy bool, took time.Duration)
	// Triggered counts a reconcile with something to do, and why.
	Triggered(why string)
	// Failed counts a reconcile that failed in a phase, by a user's doing or not.
	Failed(phase string, user bool)
}

// noMeter counts nothing.
type noMeter struct{}

func (noMeter) Worked(reconcile.Done) {}

func (noMeter) Checked(bool, time.Duration) {}

func (noMeter) Triggered(string) {}

func (noMeter) Failed(string, bool) {}
