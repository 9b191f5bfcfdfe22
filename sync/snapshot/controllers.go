package snapshot

import (
	"strings"

	"limpet/sync/text"
)

// States of the controllers of an agent.
const (
	ControllersActive  = "active"  // they work
	ControllersStandby = "standby" // another agent holds the Lease
	ControllersOff     = "off"
)

// Controllers is the role of an agent for Repositories and Connections.
type Controllers struct {
	Mode   string `json:"mode"`             // on, off or auto, as configured
	State  string `json:"state"`            // ControllersActive, ControllersStandby or ControllersOff
	Holder string `json:"holder,omitempty"` // identity of the agent that holds the Lease; "" = no Lease, or none known
}

// HolderName returns the name of the agent that holds the Lease, for people.
func (c Controllers) HolderName() string {
	name := c.Holder
	if i := strings.LastIndexByte(name, '_'); i > 0 {
		name = name[:i]
	}
	return text.Clean(name)
}

// Text describes the role in a few words that follow "repositories: ".
func (c Controllers) Text() string {
	switch {
	case c.State == ControllersOff:
		return "not managed by this agent (--controllers " + text.Clean(c.Mode) + ")"
	case c.State == ControllersStandby && c.Holder == "":
		return "waiting for the controller lease"
	case c.State == ControllersStandby:
		return "standby; active: " + c.HolderName()
	}
	return "managed by this agent"
}
