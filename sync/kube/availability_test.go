package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// One caller at a time asks a server that is down, at 2, 20, 40 s and so on.
func TestHealthSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h availability
		if err := h.WaitAvailable(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		h.fail(errRefused, 0)
		h.fail(errRefused, 0) // at the same moment: no second step
		var asked []time.Duration
		for range 5 {
			if err := h.WaitAvailable(t.Context()); err != nil {
				t.Fatal(err)
			}
			asked = append(asked, time.Since(start))
			h.fail(errRefused, 0)
		}
		for n, want := range []time.Duration{2, 20, 40, 60, 80} {
			if want *= time.Second; asked[n] < want || asked[n] > want*12/10 {
				t.Errorf("turn %d after %v, want %v", n, asked[n], want)
			}
		}
		h.fail(errRefused, time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
		defer cancel()
		if err := h.WaitAvailable(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wish for a minute is not honoured: %v", err)
		}
		waited := make(chan error, 1)
		go func() { waited <- h.WaitAvailable(t.Context()) }()
		synctest.Wait()
		h.succeed()
		if err := <-waited; err != nil {
			t.Error(err)
		}
		if since, err := h.Down(); !since.IsZero() || err != nil {
			t.Errorf("down since %v: %v", since, err)
		}
	})
}

// TestHurry: who waits for a server that is down can have it asked now, but not ten
// times a second, and not before the server itself wants to be asked.
func TestHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h availability
		h.RetryNow()
		if next, tries := h.NextTry(); !next.IsZero() || tries != 0 {
			t.Errorf("of a server that answers: %s, %d tries", next, tries)
		}
		h.fail(errRefused, 0)
		start := time.Now()
		if next, tries := h.NextTry(); next.Sub(start) < firstPause || tries != 1 {
			t.Errorf("next turn after %s, %d tries", next.Sub(start), tries)
		}
		asked := make(chan time.Duration)
		go func() {
			for h.WaitAvailable(t.Context()) == nil {
				h.fail(errRefused, 0)
				select {
				case asked <- time.Since(start):
				case <-t.Context().Done():
					return
				}
			}
		}()
		synctest.Wait()
		h.RetryNow()
		h.RetryNow()
		if at := <-asked; at != 0 {
			t.Errorf("the hurried turn came after %s", at)
		}
		synctest.Wait()
		h.RetryNow()
		if at := <-asked; at != retryNowPause {
			t.Errorf("the second came after %s, want %s", at, retryNowPause)
		}
		synctest.Wait()
		if _, tries := h.NextTry(); tries != 3 {
			t.Errorf("%d tries, want 3", tries)
		}
		h.fail(errRefused, time.Minute)
		time.Sleep(10 * time.Second)
		h.RetryNow()
		if at := <-asked; at < time.Minute {
			t.Errorf("a wish of the server for a minute is not honoured: %s", at)
		}
	})
}

func TestLatencyIsThatOfTheLastCall(t *testing.T) {
	t.Parallel()
	const slow = 30 * time.Millisecond
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-time.After(slow)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte("{}"))
	}))
	t.Cleanup(server.Close)
	c, err := Connect(t.Context(), Config{Server: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if got := c.Latency(); got != 0 {
		t.Errorf("%s before the first call", got)
	}
	if _, _, err := c.Do(t.Context(), http.MethodGet, "/slow", nil, "", nil); err != nil {
		t.Fatal(err)
	}
	if got := c.Latency(); got < slow {
		t.Errorf("%s after a call of %s", got, slow)
	}
}

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

func TestAway(t *testing.T) {
	t.Parallel()
	status := func(code int) error {
		return apierrors.NewGenericServerResponse(code, "put", schema.GroupResource{Resource: "dashboards"}, "a", "", 0, true)
	}
	for name, c := range map[string]struct {
		err  error
		away bool
	}{
		"nothing":             {nil, false},
		"no connection":       {&url.Error{Op: "Put", URL: "https://a", Err: syscall.ECONNREFUSED}, true},
		"connection cut":      {fmt.Errorf("update a: %w", io.ErrUnexpectedEOF), true},
		"no answer in time":   {&timeoutError{}, true},
		"deadline of a call":  {fmt.Errorf("get a: %w", context.DeadlineExceeded), true},
		"token exchange":      {&ExchangeError{Err: errors.New("status 403: no")}, true},
		"a captive portal":    {&NotKubernetesError{URL: "https://a", Status: 200}, true},
		"401":                 {fmt.Errorf("update a: %w", status(http.StatusUnauthorized)), true},
		"429":                 {status(http.StatusTooManyRequests), true},
		"502":                 {status(http.StatusBadGateway), true},
		"503":                 {status(http.StatusServiceUnavailable), true},
		"504":                 {status(http.StatusGatewayTimeout), true},
		"400":                 {status(http.StatusBadRequest), false},
		"403":                 {status(http.StatusForbidden), false},
		"404":                 {status(http.StatusNotFound), false},
		"409":                 {status(http.StatusConflict), false},
		"422":                 {status(http.StatusUnprocessableEntity), false},
		"500 is an answer":    {status(http.StatusInternalServerError), false},
		"somebody cancelled":  {fmt.Errorf("get a: %w", context.Canceled), false},
		"an answer too large": {fmt.Errorf("list: %w", errTooLarge), false},
		"another error":       {errors.New("no such file"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := AsUnavailable(c.err)
			if away := errors.As(got, new(*UnavailableError)); away != c.away {
				t.Errorf("away %v, want %v: %v", away, c.away, got)
			}
			if !errors.Is(got, c.err) {
				t.Errorf("%v does not wrap %v", got, c.err)
			}
			if AsUnavailable(got) != got {
				t.Error("wrapped twice")
			}
		})
	}
}
