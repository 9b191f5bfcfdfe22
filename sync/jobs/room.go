package jobs

// The queue knows as many names as drivers need for the right choice. Where
// more jobs wait, they wait in the picture of the watch, which keeps each in a
// third of the memory, and choose.go picks those whose turn comes next.

const (
	// queueLimit is how many names the queue takes. A name costs about 400
	// bytes. Drivers that end a hundred jobs a second need twenty seconds for
	// the half after which it is filled up again.
	queueLimit = 4096
	// queueReserve is how many more it takes of lanes that have fewer than
	// laneShare, so that a repository with ten thousand jobs keeps none out, and
	// of jobs with more than ordinary priority.
	queueReserve = 3 * queueLimit
	laneShare    = 4
)

// admits says whether a name that is not known may come in. It takes note of
// the lane of one that may not.
func (q *queue) admits(l lane, priority int) bool {
	n := len(q.slots)
	if n < q.limit {
		return true
	}
	if n < q.limit+q.reserve {
		if ln := q.lines[l]; ln == nil || ln.slots.len() < laneShare || priority > ordinary {
			return true
		}
	}
	q.refused++
	q.leaveOut(l)
	return false
}

// leaveOut notes that jobs of a lane wait outside.
func (q *queue) leaveOut(l lane) {
	if q.outside == nil {
		q.outside = map[lane]struct{}{}
	}
	q.outside[l] = struct{}{}
}

// emptied notes that a lane has no name left.
func (q *queue) emptied(l lane) {
	if _, more := q.outside[l]; more {
		q.hungry = true
	}
}

// wants says whether it is time to fill up: a lane has run empty whose jobs wait
// outside, or half of all names have gone.
func (q *queue) wants() bool {
	return q.hungry || len(q.outside) > 0 && len(q.slots) < q.limit/2
}

// shortage asks for more names.
func (i *intake) shortage() {
	select {
	case i.short <- struct{}{}:
	default:
	}
}

// beginFilling forgets what waits outside. Who fills up then finds out.
func (i *intake) beginFilling() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.queue.outside, i.queue.hungry = nil, false
}

// pick is a name that fill brings in.
type pick struct {
	key      key
	lane     lane
	priority int
}

// endFilling brings names in, all before the first of them goes out: otherwise a
// driver that waits would get the first one, whatever its rank. It notes the lanes
// that have jobs outside.
func (i *intake) endFilling(picks []pick, outside map[lane]struct{}) {
	i.mu.Lock()
	for _, p := range picks {
		i.queue.add(p.key, p.lane, false, p.priority)
	}
	for l := range outside {
		i.queue.leaveOut(l)
	}
	i.mu.Unlock()
	i.signal()
}

// overflow returns how many names were refused since the last call.
func (q *queue) overflow() int {
	n := q.refused
	q.refused = 0
	return n
}
