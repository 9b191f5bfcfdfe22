package state

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"limpet/state/frame"
)

// naive is a history as a list of records in the order of their keys, with no count kept of anything.
type naive []Record

func (m *naive) put(r Record) {
	m.drop(r.UID)
	*m = append(*m, r)
	slices.SortFunc(*m, func(a, b Record) int { return strings.Compare(a.Cursor(), b.Cursor()) })
}

func (m *naive) drop(uid string) {
	*m = slices.DeleteFunc(*m, func(r Record) bool { return r.UID == uid })
}

// size is what the records have as frames.
func (m *naive) size() (n int64) {
	for _, r := range *m {
		n += int64(8 + len(r.UID) + frame.HeaderSize + len(asJSON(r)))
	}
	return n
}

// oldest removes records from the old end as long as more says so.
func (m *naive) oldest(more func() bool) (removed int) {
	for len(*m) > 0 && more() {
		*m = (*m)[1:]
		removed++
	}
	return removed
}

// trimSeeds and trimSteps: about 2 s.
const (
	trimSeeds = 40
	trimSteps = 120
)

// TestTrimLikeNaive does random writes and trims by age, count and bytes on a store and on a list, with crashes and
// compactions in between, and compares records and tallies after each step.
func TestTrimLikeNaive(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for seed := range uint64(trimSeeds) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(quickDir(t), "limpet.db")
			s := opened(t, Options{Path: path})
			rng := rand.New(rand.NewPCG(seed, 8))
			var m naive
			for step := range trimSteps {
				did, want, got, err := "", 0, 0, error(nil)
				switch at := noon.Add(time.Duration(rng.IntN(300)) * time.Minute); rng.IntN(8) {
				default:
					did = "put"
					r := Record{UID: fmt.Sprint("uid-", rng.IntN(60)), State: "success", Message: strings.Repeat("é", rng.IntN(400)), Finished: at}
					m.put(r)
					err = s.PutRecord(ctx, r)
				case 4:
					did = "by age"
					want = m.oldest(func() bool { return m[0].Finished.Before(at) })
					got, err = s.PruneHistory(ctx, at)
				case 5:
					n := rng.IntN(50)
					did = fmt.Sprint("by count ", n)
					want = m.oldest(func() bool { return len(m) > n })
					got, err = s.TrimHistory(ctx, n)
				case 6:
					n := rng.Int64N(20_000)
					did = fmt.Sprint("by bytes ", n)
					want = m.oldest(func() bool { return m.size() > n })
					got, err = s.TrimHistoryBytes(ctx, n)
				case 7:
					did = "again"
					Closed(t, s)
					s = opened(t, Options{Path: path})
					_, _, err = s.Compact(ctx)
				}
				if err != nil || got != want {
					t.Fatalf("step %d, %s: %d removed, %v; want %d", step, did, got, err, want)
				}
				records, err := s.History(ctx, Query{})
				if err != nil {
					t.Fatal(err)
				}
				slices.Reverse(records)
				if !slices.Equal(uids(records), uids(m)) {
					t.Fatalf("step %d, %s: left %v, want %v", step, did, uids(records), uids(m))
				}
				n, countErr := s.HistoryCount(ctx)
				size, sizeErr := s.HistoryBytes(ctx)
				if countErr != nil || sizeErr != nil || n != len(m) || size != m.size() {
					t.Fatalf("step %d, %s: %d records of %d bytes, want %d of %d", step, did, n, size, len(m), m.size())
				}
			}
		})
	}
}

// BenchmarkCompleteBesideTrim measures how long a completion takes while 100,000 records are trimmed, against the same
// in peace.
func BenchmarkCompleteBesideTrim(b *testing.B) {
	ctx := context.Background()
	for _, trim := range []bool{false, true} {
		b.Run(fmt.Sprint("trim=", trim), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				path := filepath.Join(b.TempDir(), "limpet.db")
				FillHistory(b, path, 100_000*900)
				s, _, err := Open(ctx, Options{Path: path})
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				var trimming sync.WaitGroup
				done := make(chan struct{})
				trimming.Go(func() {
					defer close(done)
					if !trim {
						<-time.After(2 * time.Second)
					} else if _, err := s.TrimHistory(ctx, 0); err != nil {
						b.Error(err)
					}
				})
				var took []time.Duration
				for n := 0; ; n++ {
					select {
					case <-done:
					default:
						uid := fmt.Sprint("job-", n)
						if err := s.PutClaim(ctx, Claim{UID: uid, Phase: PhaseHeld}); err != nil {
							b.Fatal(err)
						}
						began := time.Now()
						if err := s.Complete(ctx, uid, Record{State: "success", Message: strings.Repeat("m", 600), Finished: time.Now()}); err != nil {
							b.Fatal(err)
						}
						took = append(took, time.Since(began))
						if err := s.EndClaim(ctx, uid, "posted"); err != nil {
							b.Fatal(err)
						}
						continue
					}
					break
				}
				trimming.Wait()
				b.StopTimer()
				slices.Sort(took)
				for _, q := range []int{50, 99} {
					b.ReportMetric(float64(took[len(took)*q/100].Microseconds())/1000, fmt.Sprintf("ms-p%d", q))
				}
				b.ReportMetric(float64(len(took)), "completions")
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
