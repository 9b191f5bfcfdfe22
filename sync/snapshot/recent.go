package snapshot

import (
	"slices"
	"time"
)

// RecentHours is the length of a RecentDay.
const RecentHours = 24

// RecentRuns is the recent history of a repository.
type RecentRuns struct {
	Rows []HistoryRow // newest first
	Day  RecentDay
}

// RecentDay summarises the jobs of the last 24 hours.
type RecentDay struct {
	Hours        [RecentHours]RecentHour // oldest first; the last is the current hour
	Good, Warned int
	Failed       int
	Median       time.Duration // duration of a job, as P95 and Longest
	P95          time.Duration
	Longest      time.Duration
	Created      int64 // objects, as Updated and Deleted
	Updated      int64
	Deleted      int64
	Since        time.Time // finish time of the oldest row read, when older rows were not read; else zero
	took         []time.Duration
	tookOf       [RecentHours][]time.Duration
	now          time.Time
}

// RecentHour is one column of the chart of a day.
type RecentHour struct {
	Runs    int
	Worst   byte          // a letter of Repo.Runs
	Median  time.Duration // duration of a job; 0 = none finished
	Changes int64
}

// NewRecentDay returns a day that ends now, without jobs.
func NewRecentDay(now time.Time) *RecentDay { return &RecentDay{now: now} }

// Add counts a job. It ignores jobs before the day.
func (d *RecentDay) Add(p HistoryRow, letter byte, created, updated, deleted int64) {
	at := RecentHours - 1 - int(d.now.Unix()/3600-p.Finished.Unix()/3600)
	if at < 0 || at >= RecentHours {
		return
	}
	h := &d.Hours[at]
	h.Runs++
	h.Changes += created + updated + deleted
	if rank(letter) > rank(h.Worst) {
		h.Worst = letter
	}
	switch letter {
	case 'w':
		d.Warned++
	case 'e':
		d.Failed++
	default:
		d.Good++
	}
	d.Created, d.Updated, d.Deleted = d.Created+created, d.Updated+updated, d.Deleted+deleted
	if !p.Started.IsZero() {
		took := max(p.Finished.Sub(p.Started), 0)
		d.took, d.tookOf[at] = append(d.took, took), append(d.tookOf[at], took)
	}
}

// rank orders the letters of Repo.Runs from best to worst.
func rank(letter byte) int { return slices.Index([]byte(".cswe"), letter) }

// Done computes the durations and returns the day.
func (d *RecentDay) Done() RecentDay {
	slices.Sort(d.took)
	d.Median, d.P95, d.Longest = quantile(d.took, 50), quantile(d.took, 95), quantile(d.took, 100)
	for i, took := range d.tookOf {
		slices.Sort(took)
		d.Hours[i].Median = quantile(took, 50)
	}
	out := *d
	out.took, out.tookOf = nil, [RecentHours][]time.Duration{}
	return out
}

// quantile returns the smallest of the sorted durations that the given percentage
// does not exceed.
func quantile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*percent+99)/100-1]
}
