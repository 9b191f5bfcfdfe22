package cli_test

import (
	"net"
	"strings"
	"sync"
	"testing"

	"limpet/sync/testenv/ptytest"
)

// TestDashboardFinishesFirst: who quits while a job runs in the process may have it
// finish first. Nothing new is claimed from then on, and the dashboard ends by itself
// when the job has come to its end.
func TestDashboardFinishesFirst(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	silent := listenSilently(t)
	h.must(t, 0, "repo", "create", "boards", "--url", "https://"+silent.Addr().String()+"/boards.git")
	h.must(t, 0, "job", "create", "boards")
	tt := h.show(t, 100, 30, ptytest.Line{})
	shows := func(what string) {
		t.Helper()
		tt.Await(t, what, callTimeout, func(screen string) bool { return strings.Contains(screen, what) })
	}
	shows("1 working")
	tt.Press(t, "q")
	shows("Finish first")
	tt.Press(t, "\r") // decides nothing
	tt.Press(t, "f")
	shows("draining, 1 to go")
	silent.hangUp()
	if err := tt.End(t, callTimeout); err != nil {
		t.Errorf("end: %v", err)
	}
}

// silence is a host that takes connections and says nothing until it hangs up.
type silence struct {
	net.Listener
	mu    sync.Mutex // guards calls
	calls []net.Conn
}

func listenSilently(t *testing.T) *silence {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &silence{Listener: l}
	taken := make(chan struct{})
	go func() {
		defer close(taken)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.calls = append(s.calls, c)
			s.mu.Unlock()
		}
	}()
	t.Cleanup(func() { s.hangUp(); <-taken })
	return s
}

func (s *silence) hangUp() {
	s.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		c.Close()
	}
}
