package agent

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"limpet/sync/snapshot"
)

func TestBoardPaintsOncePerBurst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		ctx, cancel := context.WithCancel(t.Context())
		var painted atomic.Int32
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.run(ctx, func() *snapshot.Snapshot { painted.Add(1); return &snapshot.Snapshot{} })
		}()
		for range 1000 {
			b.touch()
		}
		time.Sleep(boardGap / 2)
		for range 1000 {
			b.touch()
		}
		time.Sleep(boardGap)
		synctest.Wait()
		if painted.Load() != 2 {
			t.Errorf("%d pictures for two bursts, want 2", painted.Load())
		}
		time.Sleep(boardIdle + boardGap)
		synctest.Wait()
		if painted.Load() != 3 {
			t.Errorf("%d pictures after an idle while, want 3", painted.Load())
		}
		cancel()
		<-done
	})
}

func TestBoardNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		first := b.snapshot().Seq
		got := make(chan *snapshot.Snapshot)
		for range 3 {
			go func() {
				s, err := b.next(t.Context(), first)
				if err != nil {
					t.Error(err)
				}
				got <- s
			}()
		}
		synctest.Wait()
		b.publish(&snapshot.Snapshot{At: time.Now(), Problem: "new"})
		for range 3 {
			if s := <-got; s.Seq != first+1 || s.Problem != "new" {
				t.Errorf("picture %d %q", s.Seq, s.Problem)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.next(ctx, first+1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("next without a newer picture: %v", err)
		}
	})
}

func TestBoardForgets(t *testing.T) {
	t.Parallel()
	b := newBoard()
	now := time.Now()
	for range eventsKept + 50 {
		b.note(snapshot.Event{})
	}
	b.note(snapshot.Event{Text: "last"})
	b.finish(snapshot.Job{UID: "old", Finished: now.Add(-doneFor)})
	b.finish(snapshot.Job{UID: "new", Finished: now})
	events, done := b.recent(now)
	if len(events) != eventsKept || events[eventsKept-1].Text != "last" {
		t.Errorf("%d events, last %q", len(events), events[len(events)-1].Text)
	}
	if len(done.rows) != 1 || done.count != 1 || done.rows[0].UID != "new" {
		t.Errorf("finished jobs: %+v", done)
	}
}

func TestOrderOfJobs(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ordered := []snapshot.Job{
		{UID: "working", State: "working", Created: now},
		{UID: "elsewhere", Owner: "other", Created: now.Add(time.Second)},
		{UID: "first pending", State: "pending", Created: now.Add(-time.Hour)},
		{UID: "last pending", State: "pending", Created: now},
		{UID: "just done", State: "error", Finished: now},
		{UID: "done before", State: "success", Finished: now.Add(-time.Second)},
	}
	for i := range ordered {
		for k := range ordered {
			if got := inOrder(&ordered[i], &ordered[k]); (got < 0) != (i < k) || (got == 0) != (i == k) {
				t.Errorf("%q against %q: %d", ordered[i].UID, ordered[k].UID, got)
			}
		}
	}
}

// TestBoardRestsWhileNobodyLooks: no picture is made for nobody, and who comes
// then sees none of before.
func TestBoardRestsWhileNobodyLooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		ctx, cancel := context.WithCancel(t.Context())
		var painted, dropped atomic.Int32
		b.drop = func() { dropped.Add(1) }
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.run(ctx, func() *snapshot.Snapshot { painted.Add(1); return &snapshot.Snapshot{At: time.Now()} })
		}()
		time.Sleep(boardRest + boardIdle + boardGap)
		synctest.Wait()
		before := painted.Load()
		if dropped.Load() != 1 {
			t.Errorf("what is kept for pictures was dropped %d times", dropped.Load())
		}
		for range 600 {
			time.Sleep(time.Second)
			b.touch()
		}
		synctest.Wait()
		if n := painted.Load() - before; n != 0 {
			t.Errorf("%d pictures while nobody looked", n)
		}
		if s, err := b.glance(ctx); err != nil || !s.At.Equal(time.Now()) {
			t.Errorf("picture of %v, want %v; %v", s.At, time.Now(), err)
		}
		for range 20 {
			time.Sleep(time.Second)
			b.touch()
		}
		synctest.Wait()
		if n := painted.Swap(before) - before; n != 1 {
			t.Errorf("%d pictures for a glance, want 1", n)
		}
		for range 2 { // the second is content with that of the first
			s, err := b.next(ctx, 0)
			if err != nil || !s.At.Equal(time.Now()) {
				t.Errorf("picture of %v, want %v; %v", s.At, time.Now(), err)
			}
		}
		if n := painted.Load() - before; n != 1 {
			t.Errorf("%d pictures for who looks, want 1", n)
		}
		go func() {
			time.Sleep(boardRest)
			b.touch()
		}()
		if s, err := b.next(ctx, b.snapshot().Seq); err != nil || time.Since(s.At) > 0 {
			t.Errorf("who waits on gets no new picture: %v", err)
		}
		time.Sleep(10 * boardRest)
		cancel()
		<-done
		if s := b.snapshot(); !s.At.Equal(time.Now()) {
			t.Errorf("the last picture is of %v, want %v", s.At, time.Now())
		}
	})
}

// TestBoardBoundsWhatNobodyLooksAt: the ends of jobs are not kept until somebody
// looks.
func TestBoardBoundsWhatNobodyLooksAt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		for range 100 {
			b.finish(snapshot.Job{Finished: time.Now()})
			time.Sleep(time.Second)
		}
		if n := len(b.ends); n > 60 {
			t.Errorf("%d ends are kept", n)
		}
	})
}
