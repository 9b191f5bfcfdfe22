package sync

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"limpet/sync/view"
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
			b.run(ctx, func() *view.Snapshot { painted.Add(1); return &view.Snapshot{} })
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
		got := make(chan *view.Snapshot)
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
		b.publish(&view.Snapshot{At: time.Now(), Problem: "new"})
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
		b.note(view.Event{})
	}
	b.note(view.Event{Text: "last"})
	b.finish(view.Job{UID: "old", Finished: now.Add(-doneFor)})
	b.finish(view.Job{UID: "new", Finished: now})
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
	ordered := []view.Job{
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
