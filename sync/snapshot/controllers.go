package snapshot

import (
	"time"

	"limpet/sync/text"
)

// Controllers tells who looks after Repositories and Connections.
type Controllers struct {
	Mode  string    `json:"mode"`           // on, off or auto: what this agent was told
	Phase string    `json:"phase"`          // active: this agent does; passive: another program does; waiting: to see whether one does; off
	Since time.Time `json:"since,omitzero"` // of the phase
	// By is the field manager of the other program that wrote last, Wrote what that
	// was, and Seen when; zero = there was none. By is empty where the server does not
	// keep it.
	By    string    `json:"by,omitempty"`
	Wrote string    `json:"wrote,omitempty"`
	Seen  time.Time `json:"seen,omitzero"`
	Until time.Time `json:"until,omitzero"` // when this agent takes over, if nothing is written
}

// lately is how long another program that wrote counts as there.
const lately = 11 * time.Minute

// Other says that another program looks after Repositories and Connections, also
// when this agent does the same, and names it.
func (c Controllers) Other(now time.Time) (name string, there bool) {
	name = text.Clean(c.By)
	if name == "" {
		name = "another controller"
	}
	return name, c.Phase == "passive" || !c.Seen.IsZero() && now.Sub(c.Seen) < lately
}

// Text says it in a few words that go on after "repositories: ".
func (c Controllers) Text(now time.Time) string {
	other, there := c.Other(now)
	switch {
	case c.Phase == "passive":
		return "looked after by " + other
	case c.Phase == "off" && there:
		return "looked after by " + other + " (--controllers off)"
	case c.Phase == "off":
		return "not looked after by this agent (--controllers off)"
	case c.Phase == "waiting" && c.Until.IsZero():
		return "nobody looks after them yet"
	case c.Phase == "waiting":
		return "nobody looks after them yet, this agent does in " + text.Age(c.Until.Sub(now))
	case there && c.Mode == "on":
		return "looked after by this agent (--controllers on), and by " + other + " too"
	}
	return "looked after by this agent"
}
