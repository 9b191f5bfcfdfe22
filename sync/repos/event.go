package repos

import (
	"time"
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
