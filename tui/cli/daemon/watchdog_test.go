package daemon

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// TestStoppingIsTold: the service manager is told of a stop also when the work ends at once.
func TestStoppingIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	h := &watchdog{log: slog.New(slog.DiscardHandler)}
	said := make([]byte, 64)
	for range 100 {
		if err := h.during(ended, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		_ = socket.SetReadDeadline(time.Now().Add(time.Second))
		n, err := socket.Read(said)
		if err != nil || string(said[:n]) != "STOPPING=1" {
			t.Fatalf("said %q: %v", said[:n], err)
		}
	}
	if err := h.during(t.Context(), func() error { return nil }); err != nil { // it ends to be repeated
		t.Fatal(err)
	}
	_ = socket.SetReadDeadline(time.Now())
	if n, err := socket.Read(said); err == nil {
		t.Errorf("said %q", said[:n])
	}
}
