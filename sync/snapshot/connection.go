package snapshot

import "time"

// Connection is an identity at a Git host that the host does not take, or that does
// not hold together.
type Connection struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Checked   time.Time `json:"checked"`
	Message   string    `json:"message,omitempty"`
}
