package snapshot

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"limpet/state"
)

func TestRuns(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 30, 0, 0, time.UTC)
	r := newRuns()
	for _, e := range []struct {
		ago       time.Duration
		end, repo string
	}{
		{time.Minute, "success", "a"}, {2 * time.Minute, "warning", "a"}, {3 * time.Minute, "success", "a"},
		{5 * time.Hour, "error", "a"}, {23 * time.Hour, "success", "a"}, {24 * time.Hour, "error", "a"},
		{time.Minute, "cancelled", "b"}, {time.Minute, "cancelled", "c"}, {time.Minute, "success", "c"}, {time.Minute, "dead", "d"},
		{30 * time.Hour, "error", "old"},
	} {
		r.add(e.repo, e.end, now.Add(-e.ago), now.Add(-e.ago-time.Second))
	}
	tests := map[string]string{
		"a":       "s" + strings.Repeat(".", 17) + "e....w",
		"b":       strings.Repeat(".", 23) + "c",
		"c":       strings.Repeat(".", 23) + "s",
		"d":       strings.Repeat(".", 23) + "e",
		"old":     "",
		"unknown": "",
	}
	for repo, want := range tests {
		if got := r.line(repo, now); got != want {
			t.Errorf("line of %s: %q, want %q", repo, got, want)
		}
	}
	hours := r.Hours(now)
	if len(hours) != 24 || hours[23].From.Hour() != 12 || hours[18].Error != 1 || hours[0].All() != 1 {
		t.Errorf("%+v", hours)
	}
	if want := (Hour{From: hours[23].From, Success: 3, Warning: 1, Error: 1, Cancelled: 2, Seconds: 7}); hours[23] != want {
		t.Errorf("%+v, want %+v", hours[23], want)
	}
	if got, want := r.line("a", now.Add(time.Hour)), strings.Repeat(".", 17)+"e....w."; got != want {
		t.Errorf("an hour later: %q, want %q", got, want)
	}
	if r.line("a", now.Add(48*time.Hour)); len(r.worst) != 3 {
		t.Errorf("what is over is kept: %v", r.worst)
	}
}

func TestRunsFromTheFile(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	runs := newRuns()
	now := time.Now()
	for i := range runsPage + 1 { // more than one page
		rec := state.Record{UID: fmt.Sprint("u", i), Namespace: "default", Name: "r-sync", Repository: "r", State: "success",
			Finished: now.Add(-time.Duration(i) * time.Second)}
		if i == runsPage {
			rec.State, rec.Finished = "error", now.Add(-23*time.Hour)
		}
		if err := store.PutRecord(context.Background(), rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := runs.Load(t.Context(), store, now); err != nil {
		t.Fatal(err)
	}
	if got := runs.line("default/r", now); len(got) != recentHours || got[0] != 'e' || got[recentHours-1] != 's' {
		t.Errorf("line %q", got)
	}
	if runs.count() != runsPage+1 {
		t.Errorf("%d records", runs.count())
	}
}
