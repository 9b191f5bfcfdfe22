package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"limpet/sync/git/giterr"
	"limpet/sync/testenv/gittest"
)

// TestGateOpens: after the time that the host has asked for, at most an hour.
func TestGateOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New("", Options{Stall: time.Minute, Whole: 24 * time.Hour, PerHost: 1})
		c := gittest.Must[*Call](t)(m.Begin(t.Context(), "fetch", Target{URL: "https://git.example.com/x"}))
		defer c.End()
		for wait, real := range map[time.Duration]time.Duration{time.Minute: time.Minute, 24 * time.Hour: time.Hour} {
			c.throttle(wait)
			time.Sleep(real - time.Second)
			if _, err := c.Visit(); giterr.KindOf(err) != giterr.Throttled {
				t.Errorf("%v: a visit before the time: %v", wait, err)
			}
			time.Sleep(2 * time.Second)
			gittest.Must[func()](t)(c.Visit())()
		}
	})
}

// TestGateStaysShut: an answer that names no time does not open the gate that another has shut.
func TestGateStaysShut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New("", Options{Stall: time.Minute, Whole: 24 * time.Hour, PerHost: 1})
		c := gittest.Must[*Call](t)(m.Begin(t.Context(), "fetch", Target{URL: "https://git.example.com/x"}))
		defer c.End()
		c.throttle(10 * time.Minute)
		time.Sleep(time.Second)
		c.throttle(0)
		_, err := c.Visit()
		if e := gittest.ErrorIs(t, err, giterr.Throttled); e.RetryAfter != 10*time.Minute-time.Second {
			t.Errorf("retry after %v", e.RetryAfter)
		}
	})
}

// TestTrickle: a server that sends a byte a minute is no better than a silent one;
// one that works on a pack and sends git's signs of life is waited for.
func TestTrickle(t *testing.T) {
	for every, stalls := range map[time.Duration]bool{time.Minute: true, 10 * time.Second: true, time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			m := New("", Options{Stall: 2 * time.Minute, Whole: 24 * time.Hour, PerHost: 1})
			c := gittest.Must[*Call](t)(m.Begin(t.Context(), "fetch", Target{URL: "https://git.example.com/x"}))
			defer c.End()
			c.SetBudget("pack", 1<<20)
			defer gittest.Must[func()](t)(c.Visit())()
			for start := time.Now(); time.Since(start) < 20*time.Minute; time.Sleep(every) {
				if err := c.count(1); err != nil {
					t.Fatal(err)
				}
			}
			if got := errors.Is(context.Cause(c.Ctx), errStalled); got != stalls {
				t.Errorf("a byte every %v: stalled %v", every, got)
			}
		})
	}
}

// What a slow disk does with a pack is no silence of the server, and keeps no
// other request waiting.
func TestSilenceEndsWithTheVisit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New("", Options{Stall: time.Minute, Whole: 24 * time.Hour, PerHost: 1})
		c := gittest.Must[*Call](t)(m.Begin(t.Context(), "fetch", Target{URL: "https://git.example.com/x"}))
		defer c.End()
		leave := gittest.Must[func()](t)(c.Visit())
		time.Sleep(50 * time.Second)
		leave()
		time.Sleep(time.Hour)
		if err := context.Cause(c.Ctx); err != nil {
			t.Fatalf("the call ended while the disk was busy: %v", err)
		}
		defer gittest.Must[func()](t)(c.Visit())()
		time.Sleep(2 * time.Minute)
		if err := context.Cause(c.Ctx); !errors.Is(err, errStalled) {
			t.Errorf("a silent server ends the call with %v", err)
		}
	})
}

// slowly is a link that takes 100 bytes, or gives them, each time in nearly the time that
// a server may be silent.
type slowly struct{ pause time.Duration }

func (s slowly) Read(p []byte) (int, error) {
	time.Sleep(s.pause)
	return copy(p, make([]byte, 100)), nil
}

func (s slowly) Write(p []byte) (int, error) {
	time.Sleep(s.pause)
	return len(p), nil
}

// TestPushIsSlow: a link that carries little is no silence of the server, and one that
// carries nothing is.
func TestPushIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stall = time.Minute
		m := New("", Options{Stall: stall, Whole: 24 * time.Hour})
		for name, carry := range map[string]func(c *Call, link slowly) error{
			"http": func(c *Call, link slowly) error {
				_, err := io.CopyN(io.Discard, sentBody{io.NopCloser(link), c}, 5000)
				return err
			},
			"ssh": func(c *Call, link slowly) error {
				_, err := sending{link, c}.Write(make([]byte, 50*sendStep))
				return err
			},
		} {
			c := gittest.Must[*Call](t)(m.Begin(t.Context(), "push", Target{URL: "https://example.com/x"}))
			c.startWatchdog()
			began := time.Now()
			if err := carry(c, slowly{stall * 9 / 10}); err != nil || c.Ctx.Err() != nil || time.Since(began) < 40*stall {
				t.Errorf("%s: given up after %s: %v, %v", name, time.Since(began), err, context.Cause(c.Ctx))
			}
			time.Sleep(stall + time.Second)
			if !errors.Is(context.Cause(c.Ctx), errStalled) {
				t.Errorf("%s: silence is not noticed: %v", name, context.Cause(c.Ctx))
			}
			c.End()
		}
	})
}

func TestWithoutUserInfo(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"proxyconnect http://u:CANARY@proxy:3128/x failed": "proxyconnect http://proxy:3128/x failed",
		`Get "https://CANARY@h/x": no`:                     `Get "https://h/x": no`,
		"mail to ann@example.com at https://h/a@b":         "mail to ann@example.com at https://h/a@b",
	} {
		if got := WithoutUserInfo(in); got != want {
			t.Errorf("%q", got)
		}
	}
}

func TestRemarks(t *testing.T) {
	t.Parallel()
	var r remarks
	for i := range 1000 {
		fmt.Fprintf(&r, "Counting objects: %d%%\r", i)
	}
	fmt.Fprint(&r, "Total 3 (delta 0)\n\x1b[1mone\ntwo\n\n", "three\nfour\nfive")
	if got := r.Text(); got != "two; three; four; five" {
		t.Errorf("%q", got)
	}
	if len(r.tail) > remarksKept {
		t.Errorf("%d bytes are kept", len(r.tail))
	}
}

func TestDeniedNetworkIsNoRefusedPush(t *testing.T) {
	t.Parallel()
	if e := classifyPush(&Call{Pushes: true}, errors.New("dial tcp: connect: permission denied")); e != nil {
		t.Errorf("a network that is denied says nothing of a push: %v", e)
	}
}
