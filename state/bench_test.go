package state

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkMutate8 creates objects of 1 KiB from 8 goroutines, each acknowledged after its fsync. Goal: 1,500 per second.
func BenchmarkMutate8(b *testing.B) {
	s := opened(b, Options{maxSize: 4 << 30})
	data := fmt.Appendf(nil, `{"spec":%q}`, make([]byte, 250))
	var n atomic.Int64
	var all sync.WaitGroup
	b.ResetTimer()
	for range 8 {
		all.Go(func() {
			for {
				i := n.Add(1)
				if i > int64(b.N) {
					return
				}
				_, err := s.Mutate(context.Background(), ObjectKey{"g/jobs", "default", fmt.Sprint(i)},
					func(*Object, uint64) (Mutation, error) { return Mutation{Data: data}, nil })
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
}

// BenchmarkMutate1 is the same from one goroutine: one fsync each.
func BenchmarkMutate1(b *testing.B) {
	s := opened(b, Options{})
	for i := range b.N {
		_, err := s.Mutate(context.Background(), ObjectKey{"g/jobs", "default", fmt.Sprint(i)},
			func(*Object, uint64) (Mutation, error) { return Mutation{Data: []byte(`{"spec":{}}`)}, nil })
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
}

// BenchmarkOpen100MB opens a cleanly closed file with 100 MB of history and reads its claims. Goal: 25 ms.
func BenchmarkOpen100MB(b *testing.B) {
	path := filepath.Join(b.TempDir(), "limpet.db")
	FillHistory(b, path, 100<<20)
	for b.Loop() {
		s, _, err := Open(context.Background(), Options{Path: path})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Claims(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// FillHistory makes a state file with records of 770 bytes each until it has about that many bytes.
func FillHistory(t testing.TB, path string, size int) {
	t.Helper()
	s, _, err := Open(context.Background(), Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const batch = 2000
	for i := 0; i < size/900; i += batch {
		err := s.write(context.Background(), func(txn *txn) error {
			for n := i; n < i+batch; n++ {
				r := Record{UID: fmt.Sprintf("uid-%08d", n), Message: fmt.Sprintf("%0600d", n), Finished: began.Add(time.Duration(n) * time.Second)}
				if err := txn.putRecord(r, false); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
