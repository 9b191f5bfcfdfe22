package snapshot

import (
	"testing"
	"time"

	"limpet/state"
)

func TestDay(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 14, 2, 37, 0, time.UTC)
	var rows []HistoryRow
	add := func(ago, took time.Duration, end string, created int64) {
		at := now.Add(-ago)
		rows = append(rows, HistoryRow{Started: at.Add(-took), Finished: at, State: end, Tally: &state.Totals{Create: created, Update: 2,
			Delete: 1}})
	}
	for i := range 100 {
		add(time.Duration(i)*time.Second, time.Duration(i+1)*time.Second, "success", 0)
	}
	add(3*time.Hour, time.Minute, "warning", 5)
	add(3*time.Hour, 2*time.Minute, "cancelled", 0)
	add(23*time.Hour, time.Hour, "error", 0)
	add(24*time.Hour, time.Hour, "error", 0) // another day
	add(-2*time.Hour, time.Hour, "error", 0) // of a clock that was ahead
	got := RecentDayOf(append(rows, HistoryRow{Finished: now, State: "success"}), now)
	if got.Good != 102 || got.Warned != 1 || got.Failed != 1 {
		t.Errorf("%d good, %d warned, %d failed", got.Good, got.Warned, got.Failed)
	}
	if got.Median != 52*time.Second || got.P95 != 97*time.Second || got.Longest != time.Hour {
		t.Errorf("median %v, p95 %v, longest %v", got.Median, got.P95, got.Longest)
	}
	if got.Created != 5 || got.Updated != 206 || got.Deleted != 103 {
		t.Errorf("+%d ~%d -%d", got.Created, got.Updated, got.Deleted)
	}
	if h := got.Hours[20]; h != (RecentHour{Runs: 2, Worst: 'w', Median: time.Minute, Changes: 11}) {
		t.Errorf("three hours ago: %+v", h)
	}
	if h := got.Hours[0]; h.Runs != 1 || h.Worst != 'e' {
		t.Errorf("the first hour: %+v", h)
	}
	if h := got.Hours[23]; h.Runs != 101 {
		t.Errorf("the present hour: %+v", h)
	}
	if empty := RecentDayOf(nil, now); empty.Longest != 0 || empty.Hours[3] != (RecentHour{}) {
		t.Errorf("nothing: %+v", empty)
	}
}
