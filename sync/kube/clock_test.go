package kube

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// serverDate is the Date header of a server whose clock reads at at.
func serverDate(at time.Time) http.Header {
	return http.Header{"Date": {at.UTC().Format(http.TimeFormat)}}
}

// distance is how far the clock is off, and the bound that it gives.
func distance(t *testing.T, k *Clock, server time.Time) (off, bound time.Duration) {
	t.Helper()
	now, bound, ok := k.Now()
	if !ok {
		t.Fatal("the clock knows nothing")
	}
	return now.Sub(server).Abs(), bound
}

func TestClockUnknown(t *testing.T) {
	var k Clock
	if _, _, ok := k.Now(); ok {
		t.Error("a new clock knows the time")
	}
	if _, err := k.Millis(time.Hour); !errors.Is(err, errClockUnknown) {
		t.Errorf("millis: %v", err)
	}
	for name, header := range map[string]http.Header{
		"no date":    {},
		"garbage":    {"Date": {"yesterday"}},
		"from cache": {"Date": {"Mon, 02 Jan 2006 15:04:05 GMT"}, "Age": {"3"}},
	} {
		k.observe(header, 0, time.Millisecond)
		if _, _, ok := k.Now(); ok {
			t.Errorf("%s: taken for the time", name)
		}
	}
}

// The bound holds for servers at any distance in time, and several answers
// make it narrower than the second of the header.
func TestClockBounds(t *testing.T) {
	for name, ahead := range map[string]time.Duration{
		"exact": 0, "an hour behind": -time.Hour, "ten years ahead": 87600 * time.Hour, "since 1970": -56 * 8760 * time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var k Clock
				server := func() time.Time { return time.Now().Add(ahead) }
				rng := rand.New(rand.NewPCG(1, 2))
				for n := range 200 {
					sent := monotonic()
					pass(time.Duration(1+rng.IntN(20)) * time.Millisecond)
					header := serverDate(server())
					pass(time.Duration(1+rng.IntN(20)) * time.Millisecond)
					k.observe(header, sent, monotonic())
					off, bound := distance(t, &k, server())
					if off > bound {
						t.Fatalf("answer %d: off by %v, bound %v", n, off, bound)
					}
					if n == 0 && bound > 525*time.Millisecond {
						t.Errorf("bound %v after one answer", bound)
					}
					if n == 199 && bound > 60*time.Millisecond {
						t.Errorf("bound %v after 200 answers", bound)
					}
					pass(time.Duration(rng.IntN(1700)) * time.Millisecond)
				}
				ms, err := k.Millis(100 * time.Millisecond)
				if err != nil || time.UnixMilli(ms).Sub(server()).Abs() > 100*time.Millisecond {
					t.Errorf("millis %v, %v", time.UnixMilli(ms), err)
				}
			})
		})
	}
}

// Without answers the bound grows with the drift of the clocks.
func TestClockAges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k Clock
		at := monotonic()
		k.observe(serverDate(time.Now()), at, at)
		_, fresh, _ := k.Now()
		pass(24 * time.Hour)
		off, bound := distance(t, &k, time.Now())
		if grown := bound - fresh; grown < 17*time.Second || grown > 18*time.Second || off > bound {
			t.Errorf("bound %v after a day, was %v", bound, fresh)
		}
		if _, err := k.Millis(10 * time.Second); !errors.Is(err, errClockUnknown) {
			t.Errorf("millis after a day: %v", err)
		}
		at = monotonic()
		k.observe(serverDate(time.Now()), at, at)
		if _, bound := distance(t, &k, time.Now()); bound > time.Second {
			t.Errorf("bound %v after a new answer", bound)
		}
	})
}

// A server whose clock is set is followed at once.
func TestClockFollowsServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k Clock
		for _, ahead := range []time.Duration{0, time.Hour, -time.Hour, 2 * time.Second} {
			at := monotonic()
			k.observe(serverDate(time.Now().Add(ahead)), at, at)
			if off, bound := distance(t, &k, time.Now().Add(ahead)); off > bound || bound > time.Second {
				t.Errorf("ahead %v: off by %v, bound %v", ahead, off, bound)
			}
			pass(time.Second)
		}
	})
}

// Every answer of a client tells the time; its lease client shares it.
func TestClientKeepsClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := connect(t, Config{Transport: &wire{handler: newShelf(t)}})
		if _, err := client.Clock().Millis(time.Minute); !errors.Is(err, errClockUnknown) {
			t.Errorf("before any answer: %v", err)
		}
		if _, _, err := client.Lease().Do(t.Context(), http.MethodGet, "/apis/test.limpet/v1/things", nil, "", nil); err != nil {
			t.Fatal(err)
		}
		if ms, err := client.Clock().Millis(time.Second); err != nil || time.Until(time.UnixMilli(ms)).Abs() > time.Second {
			t.Errorf("time %v, %v", time.UnixMilli(ms), err)
		}
	})
}

// Proxies and captive portals have clocks of their own.
func TestClockIgnoresStrangers(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request){
		"bad gateway": reply(502, "text/plain", ""), "web page": reply(200, "text/html", "<html>"), "redirect": reply(302, "text/plain", "")} {
		inBubble(t, Config{}, func(t *testing.T, c *Client, _ *script) {
			_, _, _ = c.once(t.Context(), http.MethodGet, "/apis", nil, "", nil)
			if _, _, ok := c.Clock().Now(); ok {
				t.Errorf("%s: taken for the time", name)
			}
		}, answer)
	}
}
