package repos

import (
	"strings"
	"time"

	"limpet/sync/api"
)

// Event is a step that a person may want to know of.
type Event struct {
	At         time.Time
	Level      string // info, warn
	Namespace  string
	Repository string
	Text       string
}

// Meter counts what a controller does.
type Meter interface {
	// Worked is one name off the queue and how long it took.
	Worked(took time.Duration)
	// Checked is a health check, and whether the Repository is in order.
	Checked(healthy bool, took time.Duration)
	// Triggered is a look with something to do, and why.
	Triggered(why string)
	// Failed is a reconcile that ended in a phase, by a user's doing or not.
	Failed(phase string, user bool)
}

// nobody counts nothing.
type nobody struct{}

func (nobody) Worked(time.Duration)        {}
func (nobody) Checked(bool, time.Duration) {}
func (nobody) Triggered(string)            {}
func (nobody) Failed(string, bool)         {}

func (c *Controller) tell(k Key, level, text string) {
	c.o.Observe(Event{At: time.Now(), Level: level, Namespace: k.Namespace, Repository: k.Name, Text: text})
}

// report tells a person when a Repository falls ill, ails from something else, or
// is well again.
func (r *reconciling) report(before api.HealthState, check bool, found finding) {
	switch {
	case !check:
	case found.ok() && r.reportMirror(before, found):
	case found.ok() && before.Checked > 0 && !before.Healthy:
		r.tell(r.key, "info", "healthy again")
		r.log.Info("repository is healthy again", "repo", r.key.Name, "namespace", r.key.Namespace)
	case !found.ok() && (before.Healthy || before.Checked == 0 || strings.Join(before.Message, "\n") != strings.Join(found.messages(), "\n")):
		text := found.ready().Message
		r.tell(r.key, "warn", "unhealthy: "+text)
		r.log.Warn("repository is not healthy", "repo", r.key.Name, "namespace", r.key.Namespace, "reason", found.ready().Reason, "err", text)
	}
}
