package daemon

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// TestStuckAgentIsNotCalledAlive: as long as the agent does not answer, there is no
// beat; when it does, there is one.
func TestStuckAgentIsNotCalledAlive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "3000")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	asked, answer := make(chan struct{}), make(chan struct{})
	h := &watchdog{log: slog.New(slog.DiscardHandler)}
	probe := func() []string {
		select {
		case asked <- struct{}{}:
		case <-answer:
		}
		<-answer
		return nil
	}
	h.probe.Store(&probe)
	said := func(within time.Duration) string {
		if err := socket.SetReadDeadline(time.Now().Add(within)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 64)
		n, err := socket.Read(buf)
		if err != nil {
			return ""
		}
		return string(buf[:n])
	}
	err = h.during(t.Context(), func() error {
		select {
		case <-asked:
		case <-time.After(10 * time.Second):
			t.Error("the agent is not asked before a beat")
			socket.Close() // a beat waits for who reads it
			close(answer)
			return nil
		}
		if word := said(50 * time.Millisecond); word != "" {
			t.Errorf("a stuck agent is called %q", word)
		}
		close(answer)
		stuck := func() []string { return []string{"watch"} }
		h.probe.Store(&stuck)
		for said(50*time.Millisecond) != "" { // the beat of the probe before
		}
		h.probe.Store(nil)
		if word := said(10 * time.Second); word != "WATCHDOG=1" {
			t.Errorf("an agent that answers is called %q", word)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestStoppingIsToldOnce: and that it lives goes on being told until it has stopped.
func TestStoppingIsToldOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "30000")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if err := socket.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	h := &watchdog{log: slog.New(slog.DiscardHandler)}
	err = h.during(ctx, func() error {
		cancel()
		stopping, beats := 0, 0
		for buf := make([]byte, 64); beats < 3; {
			n, err := socket.Read(buf)
			if err != nil {
				return err
			}
			switch string(buf[:n]) {
			case "STOPPING=1":
				stopping++
			case "WATCHDOG=1":
				beats += min(stopping, 1)
			}
		}
		if stopping != 1 {
			t.Errorf("it is told %d times", stopping)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestStopping: STOPPING=1 is sent also when the work ends at once.
func TestStopping(t *testing.T) {
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
