package state

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"limpet/state/frame"
	"limpet/sync/testenv/suite"
)

// model is what the store should hold, as a map of plain values.
type model struct {
	claims  map[string]Claim
	records map[string]Record
	facts   map[string]string
	objects map[ObjectKey]Object
	rev     uint64
	uids    int // how many different jobs there are
}

func newModel(uids int) *model {
	return &model{map[string]Claim{}, map[string]Record{}, map[string]string{}, map[ObjectKey]Object{}, 0, uids}
}

// contents gives the model the form that everything reads from a store.
func (m *model) contents() contents {
	out := contents{}
	for uid, c := range m.claims {
		out["claim "+uid] = asJSON(c)
	}
	for uid, r := range m.records {
		out["record "+uid] = asJSON(r)
	}
	for k, v := range m.facts {
		out["fact "+k] = v
	}
	for k, o := range m.objects {
		out["object "+k.String()] = fmt.Sprintf("%d %s", o.Revision, o.Data)
	}
	return out
}

// modelSteps and modelSeeds: about 2 s.
const (
	modelSteps = 1000
	modelSeeds = 6
)

// TestModel does random operations on a store and a map and compares them, with reopening and
// compaction in between.
func TestModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(modelSeeds) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(quickDir(t), "limpet.db")
			s := opened(t, Options{Path: path})
			m := newModel([]int{3, 12, 200}[seed%3])
			rng := rand.New(rand.NewPCG(seed, 99))
			for step := range modelSteps {
				if err := m.step(s, rng); err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
				if rng.IntN(20) > 0 && step < modelSteps-1 {
					continue
				}
				got, err := everything(context.Background(), s)
				if err != nil || !maps.Equal(got, m.contents()) {
					t.Fatalf("step %d: store and model differ, %v\nstore %v\nmodel %v", step, err, got, m.contents())
				}
				if i := infoOf(t, s); i.History != len(m.records) || i.HistoryBytes != m.historyBytes() {
					t.Fatalf("step %d: %d records of %d bytes, want %d of %d", step, i.History, i.HistoryBytes, len(m.records), m.historyBytes())
				}
				uid := fmt.Sprint("uid", rng.IntN(m.uids))
				found, err := s.History(context.Background(), Query{UID: uid})
				if _, have := m.records[uid]; err != nil || have != (len(found) == 1) {
					t.Fatalf("step %d: by UID %v, %v", step, uids(found), err)
				}
				switch rng.IntN(3) {
				case 0:
					Closed(t, s)
					var r Report
					if s, r = reopened(t, Options{Path: path}); r.Unclean || r.Quarantined != "" {
						t.Fatalf("step %d: report %+v", step, r)
					}
				case 1:
					if _, _, err := s.Compact(context.Background()); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// step does one random operation on both.
func (m *model) step(s *Store, rng *rand.Rand) error {
	ctx := context.Background()
	uid := fmt.Sprint("uid", rng.IntN(m.uids))
	text := fmt.Sprint("text", rng.IntN(1000), strings.Repeat("-", rng.IntN(200)))
	at := noon.Add(time.Duration(rng.IntN(100)) * time.Minute)
	_, claimed := m.claims[uid]
	switch rng.IntN(11) {
	case 0, 1:
		c := Claim{UID: uid, Name: text, Phase: PhaseHeld, Attempt: rng.IntN(3)}
		m.claims[uid] = c
		return s.PutClaim(ctx, c)
	case 2:
		err := s.PutMark(ctx, uid, []byte(`"`+text+`"`))
		if !claimed {
			return wanted(err, ErrNotFound)
		}
		c := m.claims[uid]
		c.Mark = []byte(`"` + text + `"`)
		m.claims[uid] = c
		return err
	case 3:
		delete(m.claims, uid)
		return s.DropClaim(ctx, uid)
	case 4:
		r := Record{UID: uid, Message: text, Finished: at, Attempts: []Attempt{{N: rng.IntN(3), Message: text}}}
		err := s.Complete(ctx, uid, r)
		if !claimed {
			return wanted(err, ErrNotFound)
		}
		c := m.claims[uid]
		c.Phase = PhaseCompleting
		m.claims[uid] = c
		m.put(r)
		return err
	case 5:
		delete(m.claims, uid)
		queue := rng.IntN(4) == 0
		if r, ok := m.records[uid]; ok {
			r.HistoricJob = "posted"
			m.records[uid] = r
			if queue {
				m.facts[queueKey(r)] = asJSON(ended{"Job", r.Namespace, r.Name, r.UID, r.UID, r.Finished})
			}
		}
		return s.EndClaim(ctx, uid, "posted", queue)
	case 6:
		r := Record{UID: uid, Message: text, Finished: at}
		m.put(r)
		return s.PutRecord(ctx, r)
	case 7:
		return m.prune(s, rng, at)
	case 8:
		if rng.IntN(2) == 0 {
			delete(m.facts, uid)
			return s.DeleteFact(ctx, uid)
		}
		m.facts[uid] = text
		return s.PutFact(ctx, uid, []byte(text))
	default:
		return m.mutate(s, ObjectKey{"g/jobs", []string{"a", "b"}[rng.IntN(2)], uid}, text, rng.IntN(4))
	}
}

func wanted(err, want error) error {
	if !errors.Is(err, want) {
		return fmt.Errorf("error %w, want %w", err, want)
	}
	return nil
}

func (m *model) put(r Record) {
	if old, ok := m.records[r.UID]; ok {
		r.Attempts = mergeAttempts(old.Attempts, r.Attempts)
		r.HistoricJob = old.HistoricJob
	}
	m.records[r.UID] = r
}

// queueKey is the key of a record in the queue of the outbox.
func queueKey(r Record) string { return string(queuedRecord(recordKey(r.Finished, r.UID))) }

// bytesOf is what a record takes with its key and frame.
func bytesOf(r Record) int64 { return int64(8 + len(r.UID) + frame.HeaderSize + len(asJSON(r))) }

func (m *model) historyBytes() (n int64) {
	for _, r := range m.records {
		n += bytesOf(r)
	}
	return n
}

// prune removes records from the old end by age, number or bytes; those of claimed jobs stay, and by
// age those in the queue of the outbox.
func (m *model) prune(s *Store, rng *rand.Rand, before time.Time) error {
	ctx := context.Background()
	left, size, most := len(m.records), m.historyBytes(), rng.IntN(m.uids+1)
	more, do := func(r Record) bool { return r.Finished.Before(before) }, func() (int, error) { return s.PruneHistory(ctx, before) }
	age := false
	switch rng.IntN(6) {
	case 0:
		more, do = func(Record) bool { return left > most }, func() (int, error) { return s.TrimHistory(ctx, most) }
	case 1:
		limit := int64(most) * 300
		more, do = func(Record) bool { return size > limit }, func() (int, error) { return s.TrimHistoryBytes(ctx, limit) }
	default:
		age = true
	}
	byAge := func(a, b Record) int { return strings.Compare(a.Cursor(), b.Cursor()) }
	want := 0
	for _, r := range slices.SortedFunc(maps.Values(m.records), byAge) {
		if !more(r) {
			break
		}
		_, claimed := m.claims[r.UID]
		if _, unsent := m.facts[queueKey(r)]; !claimed && (!unsent || !age) {
			delete(m.records, r.UID)
			left, size, want = left-1, size-bytesOf(r), want+1
		}
	}
	got, err := do()
	if err == nil && got != want {
		return fmt.Errorf("pruned %d records, want %d", got, want)
	}
	return err
}

func (m *model) mutate(s *Store, key ObjectKey, text string, kind int) error {
	cur, have := m.objects[key]
	got, err := s.Mutate(context.Background(), key, func(seen *Object, rev uint64) (Mutation, error) {
		switch {
		case have != (seen != nil), have && (string(seen.Data) != string(cur.Data) || seen.Revision != cur.Revision):
			return Mutation{}, fmt.Errorf("saw %v, want %v", seen, cur)
		case rev <= m.rev:
			return Mutation{}, fmt.Errorf("revision %d after %d", rev, m.rev)
		}
		return Mutation{Data: []byte(text), Delete: kind == 0, Keep: kind == 1}, nil
	})
	switch {
	case kind == 0 && !have:
		return wanted(err, ErrNotFound)
	case err != nil || kind == 1:
		return err
	case kind == 0:
		delete(m.objects, key)
	default:
		m.objects[key] = got
	}
	m.rev = got.Revision
	return nil
}

// BenchmarkMutate creates objects of 1 KiB, each acknowledged after its fsync. Goal for 8
// goroutines: 1,500 per second.
func BenchmarkMutate(b *testing.B) {
	data := fmt.Appendf(nil, `{"spec":%q}`, make([]byte, 250))
	for _, writers := range []int{1, 8} {
		b.Run(fmt.Sprint("writers=", writers), func(b *testing.B) {
			s := opened(b, Options{MaxSize: 4 << 30})
			var n atomic.Int64
			var all sync.WaitGroup
			b.ResetTimer()
			for range writers {
				all.Go(func() {
					for i := n.Add(1); i <= int64(b.N); i = n.Add(1) {
						if _, err := s.Mutate(context.Background(), ObjectKey{"g/jobs", "default", fmt.Sprint(i)}, put(string(data))); err != nil {
							b.Error(err)
						}
					}
				})
			}
			all.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
		})
	}
}

// BenchmarkOpen100MB opens a cleanly closed file with 100 MB of history and reads its claims. Goal:
// 25 ms.
func BenchmarkOpen100MB(b *testing.B) {
	path := filepath.Join(b.TempDir(), "limpet.db")
	FillHistory(b, path, 100<<20)
	for b.Loop() {
		s, _, err := Open(context.Background(), Options{Path: path})
		must(b, err)
		if _, err := s.Claims(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		must(b, s.Close())
		b.StartTimer()
	}
}

// FillHistory makes a state file with records of 770 bytes each until it has about that many bytes.
func FillHistory(t testing.TB, path string, size int) {
	t.Helper()
	s, _, err := Open(context.Background(), Options{Path: path})
	must(t, err)
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
		must(t, err)
	}
	must(t, s.Close())
}

func seeded(t *testing.T) uint64 {
	t.Helper()
	return suite.Seed(t)
}

func times(fast, full int) int { return suite.Count(fast, full) }
