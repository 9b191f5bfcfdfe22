package kube

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A fleet meets a server that has no time for it. Each agent has a watch, and a
// loop that asks by itself as the drivers of jobs do. All were told to come back
// after an hour; none believes more than five minutes, and they do not come all
// at once.
func TestFleetSparesABusyServer(t *testing.T) {
	const (
		fleet  = 50
		busy   = time.Hour
		within = 100 * time.Millisecond // requests of one moment
		most   = 5 * time.Minute        // that anybody is believed
	)
	for _, code := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				s := newShelf(t)
				s.set(func(s *shelf) {
					s.fail = func(*http.Request) (int, map[string]string, string) {
						return code, map[string]string{"Retry-After": "3600"}, "later"
					}
				})
				var running sync.WaitGroup
				var wires []*wire
				for range fleet {
					w := &wire{handler: s}
					wires = append(wires, w)
					c := connect(t, Config{Transport: w, Logger: slog.New(slog.DiscardHandler)})
					i := c.Informer(things, "", InformerOptions{})
					running.Go(func() { _ = i.Run(ctx) })
					running.Go(func() { ask(ctx, c) })
				}
				pass(busy)
				cancel()
				running.Wait()
				moments, total := map[time.Duration]int{}, 0
				busiest, laziest := 0, math.MaxInt
				start := wires[0].attempts()[0]
				for _, w := range wires {
					all := w.attempts()
					total += len(all)
					busiest, laziest = max(busiest, len(all)), min(laziest, len(all))
					for _, at := range all {
						moments[at.Sub(start).Truncate(within)]++
					}
				}
				// One request in five minutes for the watch and one for the loop,
				// each up to a tenth later, and the first ones.
				if bound := 2*int(busy/most) + 4; busiest > bound {
					t.Errorf("an agent asked %d times, want %d at most", busiest, bound)
				}
				if bound := int(busy / (most * 11 / 10)); laziest < bound {
					t.Errorf("an agent asked %d times, want %d at least", laziest, bound)
				}
				crowd := 0
				for at, n := range moments {
					if at > time.Minute { // they began together
						crowd = max(crowd, n)
					}
				}
				if crowd > fleet/5 {
					t.Errorf("%d requests at one moment", crowd)
				}
				t.Logf("fault: %d agents at a server that answers %d for an hour: %d requests, at most %d of one agent, at most %d within %v",
					fleet, code, total, busiest, crowd, within)
			})
		})
	}
}

// ask reads an object again and again, as a driver does whose queue is full.
func ask(ctx context.Context, c *Client) {
	for n := 0; c.WaitAvailable(ctx) == nil; n++ {
		_, err := c.Resource(things).Namespace("default").Get(ctx, "a", metav1.GetOptions{})
		wait := 30 * time.Second
		if after, ok := RetryAfter(err); ok {
			wait = max(wait, after+rand.N(after/10)) // as the queue of jobs does
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}
