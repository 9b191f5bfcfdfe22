package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
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

// TestRequests counts answers by their code, and what had none.
func TestRequests(t *testing.T) {
	t.Parallel()
	p := &wire{handler: newShelf(t)}
	client := connect(t, Config{Server: "http://api", Transport: p})
	list := func() {
		_, _ = client.Resource(schema.GroupVersionResource{Group: "g", Version: "v1", Resource: "none"}).List(t.Context(), metav1.ListOptions{})
	}
	list()
	list()
	p.set(errRefused)
	list()
	counts := client.Requests()
	if counts[RequestKind{"<error>", "GET", "api"}] != 1 || len(counts) != 2 {
		t.Errorf("%v", counts)
	}
	for kind, n := range counts {
		if kind.Code != "<error>" && n != 2 {
			t.Errorf("%v", counts)
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
