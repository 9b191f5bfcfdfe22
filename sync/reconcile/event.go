package reconcile

import "time"

// Event is a step of a controller that a person may want to know of.
type Event struct {
	At         time.Time
	Level      string // info, warn
	Namespace  string
	Repository string
	Text       string
}
