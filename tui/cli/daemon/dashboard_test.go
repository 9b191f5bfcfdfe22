package daemon

import (
	"testing"

	"limpet/sync/control"
	"limpet/tui/cli/command"
)

// TestSkew: the dashboard of a daemon of another version says so.
func TestSkew(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		daemon control.Hello
		want   string
	}{
		{control.Hello{Version: command.Version, Protocol: control.Protocol}, ""},
		{control.Hello{Version: "0.9", Protocol: control.Protocol}, "daemon 0.9, this " + command.Version + ": reduced view"},
		{control.Hello{Version: command.Version, Protocol: control.Protocol + 1}, "daemon " + command.Version + ", this " + command.Version +
			": reduced view"},
	} {
		if got := versionSkew(c.daemon); got != c.want {
			t.Errorf("%+v: %q, want %q", c.daemon, got, c.want)
		}
	}
}
