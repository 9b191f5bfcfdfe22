package snapshot

import "testing"

func TestControllersText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		c    Controllers
		want string
	}{
		{Controllers{Mode: "auto", State: ControllersActive}, "managed by this agent"},
		{Controllers{Mode: "on", State: ControllersStandby}, "waiting for the controller lease"},
		{Controllers{Mode: "on", State: ControllersStandby, Holder: "lab_\x1b[31mX2"}, "standby; active: lab"},
		{Controllers{Mode: "auto", State: ControllersOff}, "not managed by this agent (--controllers auto)"},
	} {
		if got := c.c.Text(); got != c.want {
			t.Errorf("%+v: %q", c.c, got)
		}
	}
}
