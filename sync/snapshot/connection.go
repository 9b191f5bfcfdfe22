package snapshot

import "time"

// Connection is an unhealthy Connection: the Git host rejects its credentials, or its
// spec is invalid.
type Connection struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Checked   time.Time `json:"checked"`
	Message   string    `json:"message,omitempty"`
}
