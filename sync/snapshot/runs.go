package snapshot

import (
	"bytes"
	"context"
	"maps"
	"sync"
	"time"

	"limpet/state"
)

// runsPage is the number of records in one read at the start.
const runsPage = 1000

// Runs holds the worst result of each repository for each of the last hours, what ended in each of
// them, and the number of records. It is read from the history once and kept up to date by events,
// so that a snapshot never reads the file.
type Runs struct {
	mu    sync.Mutex // guards all below
	worst map[string]map[int64]byte
	hours map[int64]Hour
	total int
	added int
}

func newRuns() *Runs { return &Runs{worst: map[string]map[int64]byte{}, hours: map[int64]Hour{}} }

// Hour counts the jobs that ended in one hour, by their results.
type Hour struct {
	From      time.Time `json:"from"`
	Success   int       `json:"success"`
	Warning   int       `json:"warning"`
	Error     int       `json:"error"`
	Cancelled int       `json:"cancelled"`
	Seconds   float64   `json:"seconds"` // that all of them took
}

// All returns the number of jobs.
func (h Hour) All() int { return h.Success + h.Warning + h.Error + h.Cancelled }

// recentHours is the number of letters of Repo.Runs.
const recentHours = 24

// hourOf numbers the hours since 1970.
func hourOf(t time.Time) int64 { return t.Unix() / 3600 }

// runRanks are the letters of Repo.Runs from best to worst.
var runRanks = []byte(".cswe")

// runLetter returns the letter of Repo.Runs for the state of a finished job.
func runLetter(state string) byte {
	switch state {
	case "success":
		return 's'
	case "warning":
		return 'w'
	case "cancelled": // by a person: no failure
		return 'c'
	}
	return 'e'
}

// Load reads the records of the last hours, newest first.
func (r *Runs) Load(ctx context.Context, store *state.Store, now time.Time) error {
	q := state.Query{Since: now.Add(-recentHours * time.Hour), Until: now, Limit: runsPage}
	for {
		page, err := store.History(ctx, q)
		if err != nil {
			return err
		}
		r.mu.Lock()
		for _, rec := range page {
			r.put(rec.Namespace+"/"+rec.Repository, rec.State, rec.Finished, rec.Started)
		}
		r.mu.Unlock()
		if len(page) < runsPage {
			return r.Recount(ctx, store)
		}
		q.Before = page[len(page)-1].Cursor()
	}
}

// Recount reads the number of records: old ones are pruned, and a record replaces an older one of
// the same job.
func (r *Runs) Recount(ctx context.Context, store *state.Store) error {
	n, err := store.HistoryCount(ctx)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.total = n
	}
	return err
}

// add counts a job that has just ended.
func (r *Runs) add(repository, state string, at time.Time, started time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.put(repository, state, at, started)
	r.total++
	r.added++
}

// Ended returns the number of jobs that ended since the start.
func (r *Runs) Ended() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.added
}

func (r *Runs) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total
}

// put enters one result; the start of the job is zero where it is not known. The caller holds mu.
func (r *Runs) put(repository, state string, at time.Time, started time.Time) {
	if r.worst[repository] == nil {
		r.worst[repository] = map[int64]byte{}
	}
	hour, l := hourOf(at), runLetter(state)
	if line := r.worst[repository]; bytes.IndexByte(runRanks, l) > bytes.IndexByte(runRanks, line[hour]) {
		line[hour] = l
	}
	sum := r.hours[hour]
	switch l {
	case 's':
		sum.Success++
	case 'w':
		sum.Warning++
	case 'c':
		sum.Cancelled++
	default:
		sum.Error++
	}
	if !started.IsZero() {
		sum.Seconds += max(at.Sub(started).Seconds(), 0)
	}
	r.hours[hour] = sum
	maps.DeleteFunc(r.hours, func(old int64, _ Hour) bool { return hour-old >= recentHours })
}

// Hours returns what ended in each of the last hours, oldest first.
func (r *Runs) Hours(now time.Time) []Hour {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Hour, recentHours)
	for i := range out {
		hour := hourOf(now) - recentHours + 1 + int64(i)
		out[i] = r.hours[hour]
		out[i].From = time.Unix(hour*3600, 0).UTC()
	}
	return out
}

// line returns a letter for each of the last hours, oldest first; "" when nothing ended in them.
func (r *Runs) line(repository string, now time.Time) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := r.worst[repository]
	out := bytes.Repeat([]byte{'.'}, recentHours)
	for hour, l := range line {
		switch at := recentHours - 1 - (hourOf(now) - hour); {
		case at < 0:
			delete(line, hour)
		case at < recentHours:
			out[at] = l
		}
	}
	if len(line) == 0 {
		delete(r.worst, repository)
		return ""
	}
	return string(out)
}
