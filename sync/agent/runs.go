package agent

import (
	"bytes"
	"context"
	"sync"
	"time"

	"limpet/state"
)

const (
	// hours is the length of the line of the last runs of a repository.
	hours = 24
	// runsPage is how many records are read at once when the agent starts.
	runsPage = 1000
)

// Letters of that line, from the least to the worst.
const runLetters = ".cswe"

// runs is what the board knows of finished jobs: for each repository the worst
// end of each hour, and how many records there are. It is read from the history
// once and kept up to date by what ends, so that a picture never reads the file.
type runs struct {
	mu    sync.Mutex // guards all below
	worst map[string]map[int64]byte
	total int
	added int
}

func newRuns() *runs { return &runs{worst: map[string]map[int64]byte{}} }

// hourOf numbers the hours since 1970.
func hourOf(t time.Time) int64 { return t.Unix() / 3600 }

// RunLetter is the letter of view.Repo.Runs for how a job has ended.
func RunLetter(state string) byte {
	switch state {
	case "success":
		return 's'
	case "warning":
		return 'w'
	case "cancelled": // what a person wanted is no failure
		return 'c'
	}
	return 'e'
}

// load reads the records of the last hours, newest first.
func (r *runs) load(ctx context.Context, store *state.Store, now time.Time) error {
	q := state.Query{Since: now.Add(-hours * time.Hour), Until: now, Limit: runsPage}
	for {
		page, err := store.History(ctx, q)
		if err != nil {
			return err
		}
		r.mu.Lock()
		for _, rec := range page {
			r.put(rec.Namespace+"/"+rec.Repository, rec.State, rec.Finished)
		}
		r.mu.Unlock()
		if len(page) < runsPage {
			return r.recount(ctx, store)
		}
		q.Before = page[len(page)-1].Cursor()
	}
}

// recount asks how many records there are: old ones are pruned, and those of
// one job replace each other.
func (r *runs) recount(ctx context.Context, store *state.Store) error {
	n, err := store.HistoryCount(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total = n
	return nil
}

// add notes a job that has just ended.
func (r *runs) add(repository, state string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.put(repository, state, at)
	r.total++
	r.added++
}

// ended is how many jobs have ended since the start.
func (r *runs) ended() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.added
}

// put needs the lock.
func (r *runs) put(repository, state string, at time.Time) {
	line := r.worst[repository]
	if line == nil {
		line = map[int64]byte{}
		r.worst[repository] = line
	}
	hour, l := hourOf(at), RunLetter(state)
	if bytes.IndexByte([]byte(runLetters), l) > bytes.IndexByte([]byte(runLetters), line[hour]) {
		line[hour] = l
	}
}

// line has a letter for each of the last hours, oldest first; "" when nothing
// ended in them.
func (r *runs) line(repository string, now time.Time) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := r.worst[repository]
	out := bytes.Repeat([]byte{'.'}, hours)
	last := hourOf(now)
	for hour, l := range line {
		switch at := hours - 1 - (last - hour); {
		case at < 0:
			delete(line, hour)
		case at < hours:
			out[at] = l
		}
	}
	if len(line) == 0 {
		delete(r.worst, repository)
		return ""
	}
	return string(out)
}

func (r *runs) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total
}
