package kube

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// One caller at a time asks a server that is down, at 2, 20, 40 s and so on.
func TestHealthSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h availability
		if err := h.wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		h.fail(errRefused, 0)
		h.fail(errRefused, 0) // at the same moment: no second step
		var asked []time.Duration
		for range 5 {
			if err := h.wait(t.Context()); err != nil {
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
		if err := h.wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wish for a minute is not honoured: %v", err)
		}
		waited := make(chan error, 1)
		go func() { waited <- h.wait(t.Context()) }()
		synctest.Wait()
		h.ok()
		if err := <-waited; err != nil {
			t.Error(err)
		}
		if since, err := h.down(); !since.IsZero() || err != nil {
			t.Errorf("down since %v: %v", since, err)
		}
	})
}

// TestHurry: who waits for a server that is down can have it asked now, but not ten
// times a second, and not before the server itself wants to be asked.
func TestHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h availability
		h.hurry()
		if next, tries := h.turn(); !next.IsZero() || tries != 0 {
			t.Errorf("of a server that answers: %s, %d tries", next, tries)
		}
		h.fail(errRefused, 0)
		start := time.Now()
		if next, tries := h.turn(); next.Sub(start) < firstPause || tries != 1 {
			t.Errorf("next turn after %s, %d tries", next.Sub(start), tries)
		}
		asked := make(chan time.Duration)
		go func() {
			for h.wait(t.Context()) == nil {
				h.fail(errRefused, 0)
				select {
				case asked <- time.Since(start):
				case <-t.Context().Done():
					return
				}
			}
		}()
		synctest.Wait()
		h.hurry()
		h.hurry()
		if at := <-asked; at != 0 {
			t.Errorf("the hurried turn came after %s", at)
		}
		synctest.Wait()
		h.hurry()
		if at := <-asked; at != hurryPause {
			t.Errorf("the second came after %s, want %s", at, hurryPause)
		}
		synctest.Wait()
		if _, tries := h.turn(); tries != 3 {
			t.Errorf("%d tries, want 3", tries)
		}
		h.fail(errRefused, time.Minute)
		time.Sleep(10 * time.Second)
		h.hurry()
		if at := <-asked; at < time.Minute {
			t.Errorf("a wish of the server for a minute is not honoured: %s", at)
		}
	})
}
