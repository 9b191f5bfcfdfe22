package doctor

import (
	"context"

	"limpet/tui/cli/service"
)

// checkService finds the unit of this user, else of the host, and compares its program with this one.
func (p *examination) checkService(ctx context.Context) check {
	c := check{"service", checkSkipped, "no systemd unit is installed", ""}
	for _, user := range []bool{true, false} {
		var place service.Location
		path, err := place.Path(user, p.Getenv)
		if err != nil || !service.Exists(path) {
			continue
		}
		manager := place.Manager(user)
		if manager.There() != nil {
			manager = nil // perhaps the unit of an image
		}
		s, err := service.StateOfService(ctx, path, manager)
		if err != nil {
			return check{"service", checkWarn, err.Error(), "limpet service status"}
		}
		return judgeService(s, user)
	}
	return c
}

func judgeService(s service.State, user bool) check {
	c := check{"service", checkOK, s.Unit + " starts this program", ""}
	if fault, next := s.Fault(user); fault != "" {
		c.Result, c.Found, c.Next = checkWarn, s.Unit+": "+fault, next
	}
	return c
}
