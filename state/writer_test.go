package state

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"limpet/state/frame"
)

// TestGroupCommit: requests that wait while the writer is busy share one transaction, and one that is refused does not
// disturb the others.
func TestGroupCommit(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{})
	before, err := s.transactions()
	if err != nil {
		t.Fatal(err)
	}
	const writers = 20
	busy, goOn := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		err := s.write(ctx, func(t *txn) error {
			select {
			case <-busy:
			default:
				close(busy)
			}
			<-goOn
			return t.put(frame.Facts, []byte("first"), nil)
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-busy
	refused := errors.New("refused")
	results := make([]error, writers)
	var ready sync.WaitGroup
	ready.Add(writers)
	for i := range writers {
		all.Go(func() {
			ready.Done()
			results[i] = s.write(ctx, func(t *txn) error {
				switch i {
				case 7:
					return refused
				case 8:
					return errors.Join(t.put(frame.Facts, []byte("half"), nil), refused)
				}
				return t.put(frame.Facts, fmt.Append(nil, "f", i), nil)
			})
		})
	}
	ready.Wait()
	close(goOn)
	all.Wait()
	for i, err := range results {
		if want := i == 7 || i == 8; want != errors.Is(err, refused) || !want && err != nil {
			t.Errorf("writer %d: %v", i, err)
		}
	}
	facts, err := s.Facts(ctx, "")
	if err != nil || len(facts) != writers-1 || facts["half"] != nil {
		t.Errorf("%d facts, %v", len(facts), err)
	}
	after, err := s.transactions()
	if err != nil || after-before > writers {
		t.Errorf("%d transactions for %d writers, %v", after-before, writers+1, err)
	}
}

func TestNothingToWriteIsNoTransaction(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{})
	before, err := s.transactions()
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(s.DropClaim(ctx, "x"), s.DeleteFact(ctx, "x"), s.DeleteSecret(ctx, "x"), s.EndClaim(ctx, "x", "posted"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.PruneHistory(ctx, noon); err != nil {
		t.Fatal(err)
	}
	if after, err := s.transactions(); after != before || err != nil {
		t.Errorf("%d transactions, %v", after-before, err)
	}
}

func TestContextEndsWaiting(t *testing.T) {
	t.Parallel()
	s := opened(t, Options{})
	busy, goOn := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		err := s.write(context.Background(), func(t *txn) error { close(busy); <-goOn; return nil })
		if err != nil {
			t.Error(err)
		}
	})
	<-busy
	lost := errors.New("lease lost")
	ctx, cancel := context.WithCancelCause(context.Background())
	all.Go(func() {
		if err := s.PutFact(ctx, "late", nil); !errors.Is(err, lost) {
			t.Errorf("error %v, want the cause", err)
		}
		close(goOn)
	})
	cancel(lost)
	all.Wait()
	if _, err := s.Fact(context.Background(), "late"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a write whose context had ended: %v", err)
	}
	if _, err := s.Fact(ctx, "late"); !errors.Is(err, lost) {
		t.Errorf("read with an ended context: %v", err)
	}
}

func TestClosedStore(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for {
				if err := s.PutFact(ctx, "k", []byte("v")); err != nil {
					if !errors.Is(err, ErrClosed) {
						t.Errorf("write while closing: %v", err)
					}
					return
				}
				if _, err := s.Facts(ctx, ""); err != nil && !errors.Is(err, ErrClosed) {
					t.Errorf("read while closing: %v", err)
				}
			}
		})
	}
	for range 3 {
		all.Go(func() {
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	all.Wait()
	if _, err := s.Info(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("info: %v", err)
	}
	if _, _, err := s.Compact(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("compact: %v", err)
	}
	if _, err := s.Backup(ctx, &strings.Builder{}); !errors.Is(err, ErrClosed) {
		t.Errorf("backup: %v", err)
	}
}

// TestSizeCap: at the cap writes are refused, but jobs can end, old history can go, and then there is room again.
func TestSizeCap(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{maxSize: 1 << 20})
	if err := s.PutClaim(ctx, Claim{UID: "running", Phase: PhaseHeld}); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("x", 5000)
	n := 0
	for ; n < 1000; n++ {
		if err := s.PutRecord(ctx, Record{UID: fmt.Sprint("u", n), Message: text, Finished: noon}); err != nil {
			if !errors.Is(err, ErrFull) {
				t.Fatal(err)
			}
			break
		}
	}
	if n < 50 || n == 1000 {
		t.Fatalf("cap of 1 MiB was reached after %d records of 5 kB", n)
	}
	if _, err := s.Mutate(ctx, ObjectKey{"g/jobs", "", "a"}, put(strings.Repeat(text, 10))); !errors.Is(err, ErrFull) {
		t.Errorf("object beyond the cap: %v", err)
	}
	if err := s.PutMark(ctx, "running", []byte(`{"done":1}`)); err != nil {
		t.Errorf("mark beyond the cap: %v", err)
	}
	if err := s.Complete(ctx, "running", Record{Message: text, Finished: noon}); err != nil {
		t.Errorf("end of a job beyond the cap: %v", err)
	}
	if err := s.EndClaim(ctx, "running", "posted"); err != nil {
		t.Errorf("end of a claim beyond the cap: %v", err)
	}
	if removed, err := s.TrimHistory(ctx, 10); err != nil || removed == 0 {
		t.Errorf("trim beyond the cap: %d, %v", removed, err)
	}
	if _, err := s.Mutate(ctx, ObjectKey{"g/jobs", "", "a"}, put(text)); err != nil {
		t.Errorf("object after the trim: %v", err)
	}
	if i, err := s.Info(ctx); err != nil || i.Bytes > hardLimit(1<<20) {
		t.Errorf("file of %d bytes, %v", i.Bytes, err)
	}
}

func TestRecordsThatCannotBeKept(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{})
	if err := s.PutFact(ctx, "big", make([]byte, frame.MaxBody+1)); err == nil {
		t.Error("a body beyond the limit was taken")
	}
	if err := s.PutFact(ctx, strings.Repeat("k", 40_000), nil); err == nil {
		t.Error("a key beyond the limit was taken")
	}
	if err := s.PutFact(ctx, "big", make([]byte, 5<<20)); err != nil {
		t.Errorf("a body of 5 MiB: %v", err)
	}
}
