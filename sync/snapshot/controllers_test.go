package snapshot

import (
	"testing"
	"time"
)

// TestControllersText: what a person reads about who looks after repositories.
func TestControllersText(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		c    Controllers
		want string
	}{
		{Controllers{Mode: "auto", Phase: "active"}, "looked after by this agent"},
		{Controllers{Mode: "auto", Phase: "active", By: "grafana", Seen: now.Add(-lately)}, "looked after by this agent"},
		{Controllers{Mode: "auto", Phase: "passive", By: "graf\x1b[31mana", Seen: now}, "looked after by graf[31mana"},
		{Controllers{Mode: "auto", Phase: "passive", Seen: now}, "looked after by another controller"},
		{Controllers{Mode: "auto", Phase: "waiting"}, "nobody looks after them yet"},
		{Controllers{Mode: "auto", Phase: "waiting", Until: now.Add(90 * time.Second)}, "nobody looks after them yet, this agent does in 1m"},
		{Controllers{Mode: "on", Phase: "active", By: "grafana", Seen: now.Add(-time.Minute)}, "looked after by this agent (--controllers on), and by grafana too"},
		{Controllers{Mode: "off", Phase: "off"}, "not looked after by this agent (--controllers off)"},
		{Controllers{Mode: "off", Phase: "off", By: "grafana", Seen: now}, "looked after by grafana (--controllers off)"},
	} {
		if got := c.c.Text(now); got != c.want {
			t.Errorf("%+v: %q, want %q", c.c, got, c.want)
		}
	}
}
