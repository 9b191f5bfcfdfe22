package snapshot

import (
	"slices"
	"strings"
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
}

// RecentHour is one column of the chart of a day.
type RecentHour struct {
	Runs    int
	Worst   byte          // a letter of Repo.Runs
	Median  time.Duration // duration of a job; 0 = none finished
	Changes int64
}

// RecentDayOf summarises the rows of the day that ends now.
func RecentDayOf(rows []HistoryRow, now time.Time) (d RecentDay) {
	var took []time.Duration
	var tookOf [RecentHours][]time.Duration
	for _, row := range rows {
		at := RecentHours - 1 - int(hourOf(now)-hourOf(row.Finished))
		if at < 0 || at >= RecentHours {
			continue
		}
		h, letter := &d.Hours[at], runLetter(row.State)
		h.Runs++
		if runRank(letter) > runRank(h.Worst) {
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
		if n := row.Tally; n != nil {
			h.Changes += n.Create + n.Update + n.Delete
			d.Created, d.Updated, d.Deleted = d.Created+n.Create, d.Updated+n.Update, d.Deleted+n.Delete
		}
		if !row.Started.IsZero() {
			t := max(row.Finished.Sub(row.Started), 0)
			took, tookOf[at] = append(took, t), append(tookOf[at], t)
		}
	}
	slices.Sort(took)
	d.Median, d.P95, d.Longest = quantile(took, 50), quantile(took, 95), quantile(took, 100)
	for i, took := range tookOf {
		slices.Sort(took)
		d.Hours[i].Median = quantile(took, 50)
	}
	return d
}

// runRank orders the letters of Repo.Runs from best to worst.
func runRank(letter byte) int { return strings.IndexByte(".cswe", letter) }

// quantile returns the smallest of the sorted durations that the given percentage
// does not exceed.
func quantile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*percent+99)/100-1]
}
