package cli

import (
	"testing"

	"limpet/sync/socket"
)

// TestSkew: who looks at a daemon of another version is told so.
func TestSkew(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		daemon socket.Hello
		want   string
	}{
		{socket.Hello{Version: Version, Protocol: socket.Protocol}, ""},
		{socket.Hello{Version: "0.9", Protocol: socket.Protocol}, "daemon 0.9, this " + Version + ": reduced view"},
		{socket.Hello{Version: Version, Protocol: socket.Protocol + 1}, "daemon " + Version + ", this " + Version + ": reduced view"},
	} {
		if got := skew(c.daemon); got != c.want {
			t.Errorf("%+v: %q, want %q", c.daemon, got, c.want)
		}
	}
}
