package snapshot

import (
	"testing"
	"time"
)

func TestDay(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 14, 2, 37, 0, time.UTC)
	d := NewRecentDay(now)
	add := func(ago, took time.Duration, letter byte, created int64) {
		at := now.Add(-ago)
		d.Add(HistoryRow{Started: at.Add(-took), Finished: at}, letter, created, 2, 1)
	}
	for i := range 100 {
		add(time.Duration(i)*time.Second, time.Duration(i+1)*time.Second, 's', 0)
	}
	add(3*time.Hour, time.Minute, 'w', 5)
	add(3*time.Hour, 2*time.Minute, 'c', 0)
	add(23*time.Hour, time.Hour, 'e', 0)
	add(24*time.Hour, time.Hour, 'e', 0) // another day
	add(-2*time.Hour, time.Hour, 'e', 0) // of a clock that was ahead
	d.Add(HistoryRow{Finished: now}, 's', 0, 0, 0)
	got := d.Done()
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
	if empty := NewRecentDay(now).Done(); empty.Longest != 0 || empty.Hours[3] != (RecentHour{}) {
		t.Errorf("nothing: %+v", empty)
	}
}
