package queue

// The queue knows as many keys as drivers need for the right choice. Where more
// jobs wait, they wait in the cache of the watch, which keeps each in a third of
// the memory, and the scan picks those whose turn comes next.

const (
	// Limit is how many keys the queue of an agent takes. A key costs about 400
	// bytes. Drivers that end a hundred jobs a second need twenty seconds for the
	// half after which it is filled up again.
	Limit = 4096
	// Reserve is how many more it takes of repositories that have fewer than
	// RepoShare, so that a repository with ten thousand jobs keeps none out, and of
	// jobs with more than ordinary priority.
	Reserve   = 3 * Limit
	RepoShare = 4
)

// capacity bounds the number of keys and remembers what was left out.
type capacity struct {
	limit, reserve int
	refused        int                  // keys refused since the last call of Refused
	overflow       map[RepoKey]struct{} // repositories with jobs that were not taken in
	starved        bool                 // one of them has run empty
}

// admits reports whether a key that is not known may come in.
func (q *Queue) admits(r RepoKey, priority int) bool {
	n := len(q.items)
	if n < q.limit {
		return true
	}
	if n < q.limit+q.reserve {
		if rq := q.repos[r]; rq == nil || rq.items.Len() < RepoShare || priority > Ordinary {
			return true
		}
	}
	q.refused++
	q.LeaveOut(r)
	return false
}

// LeaveOut records that jobs of a repository wait outside of the queue.
func (q *Queue) LeaveOut(r RepoKey) {
	if q.overflow == nil {
		q.overflow = map[RepoKey]struct{}{}
	}
	q.overflow[r] = struct{}{}
}

// emptied records that a repository has no key left.
func (q *Queue) emptied(r RepoKey) {
	if _, more := q.overflow[r]; more {
		q.starved = true
	}
}

// Short reports whether it is time to fill up: a repository has run empty whose
// jobs wait outside, or half of all keys have gone.
func (q *Queue) Short() bool {
	return q.starved || len(q.overflow) > 0 && len(q.items) < q.limit/2
}

// ResetOverflow forgets what waits outside, before the queue is filled up.
func (q *Queue) ResetOverflow() { q.overflow, q.starved = nil, false }

// Refused returns how many keys were refused since the last call.
func (q *Queue) Refused() int {
	n := q.refused
	q.refused = 0
	return n
}
