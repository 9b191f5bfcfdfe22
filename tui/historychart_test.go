package tui

import (
	"slices"
	"testing"
	"time"

	"limpet/sync/snapshot"
)

func TestOverTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 14, 2, 37, 0, time.UTC)
	row := func(state string, ago time.Duration) snapshot.Past {
		return snapshot.Past{State: state, Finished: now.Add(-ago)}
	}
	for name, c := range map[string]struct {
		rows           []snapshot.Past
		each           string
		failed, others []int64
		old            int
	}{
		"nothing": {nil, "minute", []int64{0, 0, 0, 0}, []int64{0, 0, 0, 0}, 0},
		"the minute of now, and the three before": {
			[]snapshot.Past{row("success", 0), row("error", 37*time.Second), row("dead", 38*time.Second), row("warning", 3*time.Minute+37*time.Second)},
			"minute", []int64{0, 0, 1, 1}, []int64{1, 0, 0, 1}, 0},
		"a second more takes longer times": {
			[]snapshot.Past{row("cancelled", 3*time.Minute+38*time.Second)}, "5 minutes", []int64{0, 0, 0, 0}, []int64{0, 0, 1, 0}, 0},
		"hours":              {[]snapshot.Past{row("error", time.Minute), row("error", 2*time.Hour)}, "hour", []int64{0, 1, 0, 1}, []int64{0, 0, 0, 0}, 0},
		"ahead of the clock": {[]snapshot.Past{row("error", -time.Hour)}, "minute", []int64{0, 0, 0, 1}, []int64{0, 0, 0, 0}, 0},
		"older than four days": {
			[]snapshot.Past{row("error", 0), row("success", 24*time.Hour), row("success", 100*time.Hour), row("success", 9000*time.Hour)},
			"day", []int64{0, 0, 0, 1}, []int64{0, 0, 1, 0}, 2},
		"without a time": {[]snapshot.Past{row("success", 0), {State: "error"}}, "day", []int64{0, 0, 0, 0}, []int64{0, 0, 0, 1}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each, failed, others, old := overTime(c.rows, 4, now)
			if each != c.each || !slices.Equal(failed, c.failed) || !slices.Equal(others, c.others) || old != c.old {
				t.Errorf("each %s: %v failed, %v others, %d older; want %s: %v, %v, %d", each, failed, others, old, c.each, c.failed, c.others, c.old)
			}
		})
	}
}
