package state

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
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

// TestRecordIsOnePerJob: another one of the job merges its attempts; without a time of finish it
// gets the present, and one from before 1970 is the oldest.
func TestRecordIsOnePerJob(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{})
	for _, r := range []Record{
		{UID: "u", State: "error", Finished: noon, HistoricJob: "posted", Attempts: []Attempt{{N: 1, State: "error"}}},
		{UID: "other", Finished: noon.Add(time.Minute)},
		{UID: "u", State: "success", Finished: noon.Add(time.Hour), Attempts: []Attempt{{N: 2, State: "success"}}},
		{UID: "u", State: "success", Finished: noon.Add(time.Hour), Attempts: []Attempt{{N: 2, State: "success", Message: "again"}}},
		{UID: "now"},
		{UID: "old", Finished: time.Date(1950, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		must(t, s.PutRecord(ctx, r))
	}
	got, err := s.History(ctx, Query{})
	if err != nil || !slices.Equal(uids(got), []string{"now", "u", "other", "old"}) || time.Since(got[0].Finished) > time.Hour {
		t.Fatalf("history %v, %v", uids(got), err)
	}
	want := []Attempt{{N: 1, State: "error"}, {N: 2, State: "success", Message: "again"}}
	if r := got[1]; r.State != "success" || r.HistoricJob != "posted" || !slices.Equal(r.Attempts, want) {
		t.Errorf("record %+v", r)
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
			must(t, s.EndClaim(ctx, "u02", "posted", false))
			if n, err := s.PruneHistory(ctx, noon.Add(99*time.Hour)); n != 1 || err != nil {
				t.Errorf("%d removed when the claim had ended, %v", n, err)
			}
		})
	}
}

// TestQueuedRecords stay beyond their age until they are sent, and not beyond the size of the history.
// Their queue is in the order of the history.
func TestQueuedRecords(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{})
	hourly(t, s, 8)
	for _, uid := range []string{"u05", "u02"} {
		must(t, s.EndClaim(ctx, uid, "", true))
	}
	must(t, s.PutQueued(ctx, Record{UID: "late", Finished: noon.Add(20 * time.Hour)}))
	if n, err := s.PruneHistory(ctx, noon.Add(99*time.Hour)); n != 6 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
	queue, err := s.Facts(ctx, QueuePrefix+HistoryQueue)
	must(t, err)
	var got []string
	for _, key := range slices.Sorted(maps.Keys(queue)) {
		var e struct{ UID string }
		must(t, json.Unmarshal(queue[key], &e))
		got = append(got, e.UID)
	}
	if !slices.Equal(got, []string{"u02", "u05", "late"}) {
		t.Errorf("queue %v", got)
	}
	if n, err := s.TrimHistory(ctx, 1); n != 2 || err != nil {
		t.Errorf("trimmed %d, %v", n, err)
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
