package state

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/state/frame"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// hourly writes n records, one per hour from noon on, alternating repositories, actions and states.
func hourly(t *testing.T, s *Store, n int) {
	t.Helper()
	for i := range n {
		r := Record{
			UID: fmt.Sprintf("u%02d", i), Namespace: "default", Name: "job",
			Repository: []string{"blue", "green"}[i%2], Action: []string{"pull", "push", "migrate"}[i%3],
			State: []string{"success", "error", "warning", "success"}[i%4], Finished: noon.Add(time.Duration(i) * time.Hour),
		}
		must(t, s.PutRecord(context.Background(), r))
	}
}

func uids(records []Record) []string {
	var out []string
	for _, r := range records {
		out = append(out, r.UID)
	}
	return out
}

// TestRecordOfOddTimes: a time that no calendar has is left out, and its record kept.
func TestRecordOfOddTimes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{})
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for i, odd := range []time.Time{time.Unix(1<<40, 0), time.UnixMilli(math.MaxInt64), time.Unix(-1<<40, 0),
		at.In(time.FixedZone("", 24*3600))} {
		attempts := []Attempt{{N: 1, Started: odd, Finished: odd}, {N: 2, Started: at, Finished: at}}
		r := Record{UID: fmt.Sprint("u", i), Namespace: "default", Name: "n", Started: odd, Finished: at, Created: odd, Attempts: attempts,
			Commit: &Commit{Subject: "s", At: odd}}
		if err := s.PutRecord(ctx, r); err != nil {
			t.Errorf("%s: %v", odd, err)
			continue
		}
		got, err := s.History(ctx, Query{UID: r.UID})
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		if g := got[0]; !g.Started.IsZero() || !g.Created.IsZero() || !g.Commit.At.IsZero() || !g.Attempts[0].Started.IsZero() ||
			!g.Attempts[1].Started.Equal(at) || g.Commit.Subject != "s" {
			t.Errorf("%s: %+v", odd, g)
		}
		if !attempts[0].Started.Equal(odd) || !r.Commit.At.Equal(odd) {
			t.Error("it has changed the record of its caller")
		}
	}
}

func TestHistoryQueries(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{})
	hourly(t, s, 8)
	all, err := s.History(ctx, Query{})
	must(t, err)
	third := all[4]
	third.RefTo, third.RefFrom, third.Spec, third.Status, third.Labels = "abcdef", "defabc", []byte(`{"a":1}`),
		[]byte(`{"errors":["`+strings.Repeat("é", maxOnly)+`"],"summary":[{"create":1,"delete":4,"noop":9},{"create":2,"update":3}]}`),
		map[string]string{"c": "d"}
	must(t, s.PutRecord(ctx, third))
	for _, q := range []Query{{UID: "u03"}, {Ref: "abc"}} {
		whole, err := s.History(ctx, q)
		if err != nil || len(whole) != 1 || whole[0].Spec == nil || whole[0].Status == nil || whole[0].Labels == nil {
			t.Fatalf("whole: %+v, %v", whole, err)
		}
		q.Brief = true
		if brief, err := s.History(ctx, q); err != nil || len(brief) != 1 || brief[0].Spec != nil || brief[0].Status != nil ||
			brief[0].Labels != nil || brief[0].RefTo != "abcdef" {
			t.Errorf("brief: %+v, %v", brief, err)
		} else if want := (Totals{Create: 3, Update: 3, Delete: 4, Counted: true, Errors: 1,
			Only: strings.Repeat("é", maxOnly/2)}); brief[0].Tally == nil || *brief[0].Tally != want || whole[0].Tally != nil {
			t.Errorf("tally: %+v, want %+v", brief[0].Tally, want)
		}
	}
	cases := []struct {
		name string
		q    Query
		want []string
	}{
		{"newest first", Query{}, []string{"u07", "u06", "u05", "u04", "u03", "u02", "u01", "u00"}},
		{"limit", Query{Limit: 2}, []string{"u07", "u06"}},
		{"next page", Query{Limit: 2, Before: all[1].Cursor()}, []string{"u05", "u04"}},
		{"last page", Query{Limit: 5, Before: all[6].Cursor()}, []string{"u00"}},
		{"behind the end", Query{Before: all[7].Cursor()}, nil},
		{"uid", Query{UID: "u03"}, []string{"u03"}},
		{"unknown uid", Query{UID: "u99"}, nil},
		{"uid outside of the time", Query{UID: "u03", Since: noon.Add(4 * time.Hour)}, nil},
		{"uid of other repository", Query{UID: "u03", Repository: "blue"}, nil},
		{"repository", Query{Repository: "green"}, []string{"u07", "u05", "u03", "u01"}},
		{"repository and limit", Query{Repository: "green", Limit: 1}, []string{"u07"}},
		{"action", Query{Action: "migrate"}, []string{"u05", "u02"}},
		{"states", Query{States: []string{"error", "warning"}}, []string{"u06", "u05", "u02", "u01"}},
		{"words, in any case", Query{Words: []string{"GREEN", "push"}}, []string{"u07", "u01"}},
		{"a word that is nowhere", Query{Words: []string{"green", "pusher"}}, nil},
		{"ref", Query{Ref: "abc"}, []string{"u03"}},
		{"ref it came from", Query{Ref: "def"}, []string{"u03"}},
		{"other namespace", Query{Namespace: "x"}, nil},
		{"since is included", Query{Since: noon.Add(6 * time.Hour)}, []string{"u07", "u06"}},
		{"until is not", Query{Until: noon.Add(2 * time.Hour)}, []string{"u01", "u00"}},
		{"span", Query{Since: noon.Add(time.Hour), Until: noon.Add(3 * time.Hour)}, []string{"u02", "u01"}},
		{"span and cursor", Query{Until: noon.Add(3 * time.Hour), Before: all[6].Cursor()}, []string{"u00"}},
		{"after everything", Query{Since: noon.Add(99 * time.Hour)}, nil},
		{"before everything", Query{Until: noon}, nil},
	}
	for _, c := range cases {
		got, err := s.History(ctx, c.q)
		if err != nil || !slices.Equal(uids(got), c.want) {
			t.Errorf("%s: %v, %v; want %v", c.name, uids(got), err, c.want)
		}
	}
	for _, bad := range []string{"x", "00", "0000000000000000"} {
		if _, err := s.History(ctx, Query{Before: bad}); err == nil {
			t.Errorf("cursor %q was taken", bad)
		}
	}
}

func TestRecordIsOnePerJob(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{})
	put := func(r Record) {
		t.Helper()
		must(t, s.PutRecord(ctx, r))
	}
	put(Record{UID: "u", State: "error", Finished: noon, HistoricJob: "posted", Attempts: []Attempt{{N: 1, State: "error"}}})
	put(Record{UID: "other", Finished: noon.Add(time.Minute)})
	put(Record{UID: "u", State: "success", Finished: noon.Add(time.Hour), Attempts: []Attempt{{N: 2, State: "success"}}})
	put(Record{UID: "u", State: "success", Finished: noon.Add(time.Hour), Attempts: []Attempt{{N: 2, State: "success", Message: "again"}}})
	got, err := s.History(ctx, Query{})
	if err != nil || !slices.Equal(uids(got), []string{"u", "other"}) {
		t.Fatalf("history %v, %v", uids(got), err)
	}
	want := []Attempt{{N: 1, State: "error"}, {N: 2, State: "success", Message: "again"}}
	if r := got[0]; r.State != "success" || r.HistoricJob != "posted" || !slices.Equal(r.Attempts, want) {
		t.Errorf("record %+v", r)
	}
	if n, err := s.HistoryCount(ctx); n != 2 || err != nil {
		t.Errorf("count %d, %v", n, err)
	}
	if err := s.PutRecord(ctx, Record{Name: "x"}); err == nil {
		t.Error("a record without uid was taken")
	}
	put(Record{UID: "now"})
	if got, err := s.History(ctx, Query{Limit: 1}); err != nil || got[0].UID != "now" || time.Since(got[0].Finished) > time.Hour {
		t.Errorf("record without a time of finish: %+v, %v", got, err)
	}
	put(Record{UID: "old", Finished: time.Date(1950, 1, 1, 0, 0, 0, 0, time.UTC)})
	if got, err := s.History(ctx, Query{}); err != nil || got[len(got)-1].UID != "old" {
		t.Errorf("record from before 1970 is not the oldest: %v, %v", uids(got), err)
	}
}

// TestPruneLeavesUnsentResults: the record of a job whose claim is still there stays, and counts.
func TestPruneLeavesUnsentResults(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, prune := range map[string]func(s *Store) (int, error){
		"by age":    func(s *Store) (int, error) { return s.PruneHistory(ctx, noon.Add(99*time.Hour)) },
		"by number": func(s *Store) (int, error) { return s.TrimHistory(ctx, 1) },
		"by bytes":  func(s *Store) (int, error) { return s.TrimHistoryBytes(ctx, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := opened(t, Options{})
			hourly(t, s, 8)
			must(t, s.PutClaim(ctx, Claim{UID: "u02"}))
			must(t, s.Complete(ctx, "u02", Record{Finished: noon.Add(2 * time.Hour)}))
			removed, err := prune(s)
			left, err2 := s.History(ctx, Query{})
			if removed != 7 || err != nil || err2 != nil || !slices.Equal(uids(left), []string{"u02"}) {
				t.Fatalf("removed %d, %v; left %v, %v", removed, err, uids(left), err2)
			}
			must(t, s.EndClaim(ctx, "u02", "posted"))
			if n, err := s.PruneHistory(ctx, noon.Add(99*time.Hour)); n != 1 || err != nil {
				t.Errorf("%d removed when the claim had ended, %v", n, err)
			}
		})
	}
}

func TestPruneInBatches(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/limpet.db"
	FillHistory(t, path, 8*pruneBatch*900)
	s := opened(t, Options{Path: path})
	before, err := s.transactions()
	must(t, err)
	removed, err := s.TrimHistory(context.Background(), 10)
	if err != nil || removed < 7*pruneBatch {
		t.Fatalf("removed %d, %v", removed, err)
	}
	after, err := s.transactions()
	must(t, err)
	if n := int(after - before); n != removed/pruneBatch+1 {
		t.Errorf("%d records were removed in %d transactions", removed, n)
	}
	if n, err := s.HistoryCount(context.Background()); n != 10 || err != nil {
		t.Errorf("%d left, %v", n, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.PruneHistory(ctx, noon.Add(9999*time.Hour)); err == nil {
		t.Error("prune with an ended context was done")
	}
}

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
// compactions in between, and compares records and counters after each step.
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
				must(t, err)
				slices.Reverse(records)
				if !slices.Equal(uids(records), uids(m)) {
					t.Fatalf("step %d, %s: left %v, want %v", step, did, uids(records), uids(m))
				}
				if i := infoOf(t, s); i.History != len(m) || i.HistoryBytes != m.size() {
					t.Fatalf("step %d, %s: %d records of %d bytes, want %d of %d", step, did, i.History, i.HistoryBytes, len(m), m.size())
				}
				uid := fmt.Sprint("uid-", rng.IntN(60))
				found, err := s.History(ctx, Query{UID: uid})
				if err != nil || (len(found) == 1) != slices.Contains(uids(m), uid) {
					t.Fatalf("step %d, %s: by UID %v, %v", step, did, uids(found), err)
				}
			}
		})
	}
}
