package cli

import "context"

// checkService looks for a unit of this user, else of the host, and whether what it
// starts is this program.
func (p *patient) checkService(ctx context.Context) check {
	c := check{"service", checkSkipped, "no systemd unit is installed", ""}
	for _, user := range []bool{true, false} {
		var place servicePlace
		path, err := place.path(user, p.Getenv)
		if err != nil || !exists(path) {
			continue
		}
		manager := place.manager(user)
		if manager.there() != nil {
			manager = nil // the unit of an image, perhaps
		}
		s, err := stateOfService(ctx, path, manager)
		if err != nil {
			return check{"service", checkWarn, err.Error(), "limpet service status"}
		}
		return judgeService(s, user)
	}
	return c
}

func judgeService(s serviceState, user bool) check {
	c := check{"service", checkOK, s.Unit + " starts this program", ""}
	if fault, next := s.fault(user); fault != "" {
		c.Result, c.Found, c.Next = checkWarn, s.Unit+": "+fault, next
	}
	return c
}
