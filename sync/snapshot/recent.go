package snapshot

import (
	"slices"
	"time"
)

// RecentHours is the length of RecentDay in hours.
const RecentHours = 24

// RecentRuns is what the jobs of a repository have come to.
type RecentRuns struct {
	Rows []HistoryRow // the newest first
	Day  RecentDay
}

// RecentDay sums up the jobs of the last 24 hours.
type RecentDay struct {
	Hours        [RecentHours]RecentHour // oldest first; the last is the one that runs
	Good, Warned int
	Failed       int
	Median       time.Duration // of what they took, as P95 and Longest
	P95          time.Duration
	Longest      time.Duration
	Created      int64 // objects, as Updated and Deleted
	Updated      int64
	Deleted      int64
	Since        time.Time // of the oldest that was read, when there are more than are read; else zero
	took         []time.Duration
	tookOf       [RecentHours][]time.Duration
	now          time.Time
}

// RecentHour is one column of the lines of a day.
type RecentHour struct {
	Runs    int
	Worst   byte          // a letter of Repo.Runs
	Median  time.Duration // of what they took; 0 = nothing ended
	Changes int64
}

// NewRecentDay is a day that ends now, without a job yet.
func NewRecentDay(now time.Time) *RecentDay { return &RecentDay{now: now} }

// Add counts a job. One that is older than the day is left out.
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

// rank orders the letters of Repo.Runs, the worst last.
func rank(letter byte) int { return slices.Index([]byte(".cswe"), letter) }

// Done works the times out and returns the day.
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

// quantile is the least of sorted times that so many percent of them do not exceed.
func quantile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*percent+99)/100-1]
}
