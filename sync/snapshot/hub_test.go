package snapshot

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// counted counts the snapshots that a Hub builds, each for took, and the times it went idle.
type counted struct {
	built, idle atomic.Int32
	took        time.Duration
}

// run runs h until stop is called.
func (c *counted) run(t *testing.T, h *Hub) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	build := func() *Snapshot {
		c.built.Add(1)
		time.Sleep(c.took)
		return &Snapshot{At: time.Now()}
	}
	go h.Run(ctx, build, func() { c.idle.Add(1) })
	return func() { cancel(); <-h.Done() }
}

func TestHubBuildsOncePerBurst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, c := NewHub(), &counted{}
		stop := c.run(t, h)
		burst := func() {
			for range 1000 {
				h.Invalidate()
			}
		}
		burst()
		time.Sleep(buildGap / 2)
		burst()
		time.Sleep(buildGap)
		synctest.Wait()
		if n := c.built.Load(); n != 2 {
			t.Errorf("%d snapshots for two bursts, want 2", n)
		}
		time.Sleep(buildIdle + buildGap)
		synctest.Wait()
		if n := c.built.Load(); n != 3 {
			t.Errorf("%d snapshots after an idle while, want 3", n)
		}
		stop()
	})
}

// TestHubOfABusyHost: a slow build delays the next one, by buildIdle at most.
func TestHubOfABusyHost(t *testing.T) {
	t.Parallel()
	for took, gap := range map[time.Duration]time.Duration{
		0: buildGap, 50 * time.Millisecond: time.Second, time.Second: buildIdle,
	} {
		synctest.Test(t, func(t *testing.T) {
			h, c := NewHub(), &counted{took: took}
			stop := c.run(t, h)
			time.Sleep(took)
			synctest.Wait()
			h.Invalidate()
			time.Sleep(gap - 1)
			synctest.Wait()
			before := c.built.Load()
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if n := c.built.Load(); before != 1 || n != 2 {
				t.Errorf("a build takes %s: %d before %s have passed and %d after", took, before, gap, n)
			}
			stop()
		})
	}
}

func TestHubWakesReaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := NewHub()
		first := h.Latest().Seq
		got := make(chan *Snapshot)
		for range 3 {
			go func() {
				s, err := h.Next(t.Context(), first)
				if err != nil {
					t.Error(err)
				}
				got <- s
			}()
		}
		synctest.Wait()
		h.publish(&Snapshot{At: time.Now(), Problem: "new"})
		for range 3 {
			if s := <-got; s.Seq != first+1 || s.Problem != "new" {
				t.Errorf("snapshot %d %q", s.Seq, s.Problem)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.Next(ctx, first+1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("next without a newer snapshot: %v", err)
		}
	})
}

// TestHubIdlesWithoutReaders: nothing is built without readers, and a reader that comes then gets a
// fresh snapshot.
func TestHubIdlesWithoutReaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, c := NewHub(), &counted{}
		stop := c.run(t, h)
		fresh := func(s *Snapshot, err error) {
			t.Helper()
			if err != nil || !s.At.Equal(time.Now()) {
				t.Errorf("snapshot of %v, want %v; %v", s.At, time.Now(), err)
			}
		}
		busy := func(seconds int) {
			for range seconds {
				time.Sleep(time.Second)
				h.Invalidate()
			}
			synctest.Wait()
		}
		time.Sleep(readerGrace + buildIdle + buildGap)
		synctest.Wait()
		before := c.built.Load()
		if n := c.idle.Load(); n != 1 {
			t.Errorf("went idle %d times, want once", n)
		}
		if busy(600); c.built.Load() != before {
			t.Errorf("%d snapshots without readers", c.built.Load()-before)
		}
		fresh(h.Next(t.Context(), 0))
		fresh(h.Next(t.Context(), 0)) // the same one
		if n := c.built.Load() - before; n != 1 {
			t.Errorf("%d snapshots for two readers, want 1", n)
		}
		go func() {
			time.Sleep(readerGrace)
			h.Invalidate()
		}()
		fresh(h.Next(t.Context(), h.Latest().Seq))
		time.Sleep(10 * readerGrace)
		stop()
		fresh(h.Latest(), nil)
	})
}
