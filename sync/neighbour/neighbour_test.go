package neighbour

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// street is an API in a bubble, and a Watch on it.
type street struct {
	t *testing.T
	*Watch
	boards map[string]*board

	mu     sync.Mutex // guards what follows
	blind  bool
	asked  int
	kind   func() (bool, error)
	phases []string
}

// set changes what the API is like.
func (s *street) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// questions takes how often it was asked whose API it is.
func (s *street) questions() (n int) {
	s.set(func() { n, s.asked = s.asked, 0 })
	return n
}

// board is a Repository.
type board struct {
	made    time.Time
	checked time.Time
	by      string // "-" = not kept
	wrote   time.Time
}

func newStreet(t *testing.T, o Options) *street {
	s := &street{t: t, boards: map[string]*board{}, kind: func() (bool, error) { return false, nil }}
	o.Now, o.Blind, o.Logger = time.Now, func() (is bool) { s.set(func() { is = s.blind }); return is }, slog.New(slog.DiscardHandler)
	o.Grafana = func(context.Context) (is bool, err error) {
		s.set(func() { s.asked++; is, err = s.kind() })
		return is, err
	}
	began := time.Now()
	o.Changed = func(state State) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.phases = append(s.phases, fmt.Sprintf("%s %s", state.Phase, time.Since(began)))
	}
	s.Watch = New(o)
	s.place = 0
	return s
}

// open runs the Watch until the test ends.
func (s *street) open() {
	ctx, stop := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	s.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
	synctest.Wait()
}

// check has a controller look at a Repository.
func (s *street) check(name, by string) {
	b := s.boards[name]
	if b == nil {
		b = &board{made: time.Now()}
		s.boards[name] = b
	}
	b.checked, b.by, b.wrote = time.Now(), by, time.Now()
	s.show(name)
}

func (s *street) show(name string) {
	b := s.boards[name]
	text := fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"default","uid":%q,"creationTimestamp":%q},"status":{"health":{"checked":%d}}}`,
		name, name, b.made.UTC().Format(time.RFC3339), b.checked.UnixMilli())
	if b.by != "-" {
		text = strings.Replace(text, `"name"`, fmt.Sprintf(`"managedFields":[{"manager":%q,"time":%q,"fieldsV1":{"f:status":{"f:health":{"f:checked":{}}}}}],"name"`, b.by, b.wrote.UTC().Format(time.RFC3339)), 1)
	}
	s.Saw("Repository", decoded(s.t, text))
	synctest.Wait()
}

// are takes the phases since the last call.
func (s *street) are(want ...string) {
	s.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := strings.Join(s.phases, ", "); got != strings.Join(want, ", ") {
		s.t.Errorf("phases %q, want %q", got, want)
	}
	s.phases = nil
}

func pass(d time.Duration) { <-time.After(d) }

// TestComesAndGoes: limpet waits, takes over, yields at the first write of another
// controller, and takes over again when that has been silent for long.
func TestComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, Options{})
		s.open()
		s.boards["a"] = &board{made: time.Now(), checked: time.UnixMilli(0)}
		s.show("a")
		pass(grace)
		s.are("active 2m0s")
		s.check("a", "limpet")
		pass(time.Hour)
		s.are()
		s.check("a", "grafana")
		if s.Active() {
			t.Error("it goes on after a stranger has written")
		}
		s.are("passive 1h2m0s")
		if state := s.State(); state.By != "grafana" || state.What != "health of default/a" || !state.Until.Equal(state.Seen.Add(silence)) {
			t.Errorf("%+v", state)
		}
		for range 12 { // of two, only one is looked at
			pass(5 * time.Minute)
			s.check("b", "grafana")
			s.check("a", "kubectl-edit")
		}
		s.are()
		pass(silence)
		s.are("active 2h13m0s")
		s.check("b", "grafana")
		s.are("passive 2h13m0s")
		s.Gone("Repository", "default", "a", "another")
		s.Gone("Repository", "default", "a", "a")
		s.Gone("Repository", "default", "b", "b")
		pass(time.Hour)
		s.are("waiting 2h24m0s")
		s.check("c", "grafana")
		s.are("passive 3h13m0s")
	})
}

// TestBegins: what an agent finds at its start tells it who was at work.
func TestBegins(t *testing.T) {
	for name, c := range map[string]struct {
		by   string
		ago  time.Duration
		want string
	}{
		"limpet":               {"limpet", 4 * time.Minute, "active 0s"},
		"grafana":              {"grafana", 4 * time.Minute, "passive 0s"},
		"grafana, long ago":    {"grafana", time.Hour, "active 2m0s"},
		"a person":             {"kubectl", 0, "active 2m0s"},
		"whoever":              {"-", 0, "active 2m0s"},
		"a clock that is fast": {"grafana", -time.Hour, "passive 0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pass(24 * time.Hour)
				s := newStreet(t, Options{})
				at := time.Now().Add(-c.ago)
				s.boards["a"] = &board{made: at, checked: at, by: c.by, wrote: at}
				s.show("a")
				s.open()
				pass(5 * time.Minute)
				s.are(c.want)
			})
		})
	}
}

// TestGrafana: on an API of Grafana's own, limpet waits for longer. It is asked
// once, when that matters, and again when there was no answer.
func TestGrafana(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, Options{})
		s.kind = func() (bool, error) { return true, errors.New("away") }
		s.open()
		s.boards["a"] = &board{made: time.Now(), checked: time.UnixMilli(0)}
		s.show("a")
		pass(grace - 1)
		if s.questions() != 0 {
			t.Error("it asks before it has to know")
		}
		pass(8 * time.Minute)
		s.are()
		if n := s.questions(); n < 10 || n > 20 {
			t.Errorf("it asked %d times", n)
		}
		s.set(func() { s.kind = func() (bool, error) { return true, nil } })
		pass(time.Hour)
		s.are("active 15m0s")
		if n := s.questions(); n != 1 {
			t.Errorf("it asked %d times", n)
		}
	})
}

// TestUnsure: an API that never tells whose it is counts as Grafana's.
func TestUnsure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, Options{})
		s.kind = func() (bool, error) { return false, errors.New("forbidden") }
		s.open()
		s.boards["a"] = &board{made: time.Now(), checked: time.UnixMilli(0)}
		s.show("a")
		pass(time.Hour)
		s.are("active 15m0s")
	})
}

// TestBlind: what nobody could see does not count as silence.
func TestBlind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, Options{})
		s.set(func() { s.blind = true })
		s.boards["a"] = &board{made: time.Now().Add(-time.Hour), by: "limpet", checked: time.Now(), wrote: time.Now()}
		s.show("a")
		s.open()
		pass(10 * time.Minute)
		s.are()
		s.set(func() { s.blind = false })
		pass(silence / looks)
		s.are("active 10m27s")
		s.check("a", "grafana")
		s.are("passive 10m33s")
		s.set(func() { s.blind = true })
		pass(time.Hour)
		s.set(func() { s.blind = false })
		pass(silence - silence/looks)
		s.are()
		pass(silence / looks)
		s.are("active 1h21m24s")
	})
}

// TestUntold: where the server does not keep who wrote what, a check that this agent
// has not made is a stranger's.
func TestUntold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, Options{})
		s.place = 1
		s.open()
		s.check("a", "-")
		pass(grace * 5 / 4)
		s.are("active 2m30s")
		s.Writes("Repository", "default", "a", time.Now().UnixMilli())
		s.check("a", "-")
		pass(time.Minute)
		s.are()
		s.check("a", "-")
		s.are("passive 3m30s")
		s.boards["a"].checked = time.UnixMilli(7) // an old state, from a cache
		s.show("a")
		pass(silence * 5 / 4)
		s.are("active 17m15s")
	})
}

// BenchmarkSaw is what an event costs whose check has moved, and one of any other
// change.
func BenchmarkSaw(b *testing.B) {
	w := New(Options{Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	fields := `"fieldsV1":{"f:status":{".":{},"f:conditions":{},"f:health":{".":{},"f:healthy":{},"f:message":{}},"f:sync":{"f:state":{}}}}`
	u := decoded(b, `{"metadata":{"name":"a","namespace":"default","uid":"u","managedFields":[{"manager":"kubectl",`+fields+`},{"manager":"limpet",`+fields+`},{"manager":"grafana",`+fields+`}]},
		"status":{"observedGeneration":2,"health":{"checked":1772445600000}}}`)
	health := u.Object["status"].(map[string]any)["health"].(map[string]any)
	for name, moves := range map[string]int64{"moved": 1, "same": 0} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				health["checked"] = health["checked"].(float64) + float64(moves)
				w.Saw("Repository", u)
			}
		})
	}
}
