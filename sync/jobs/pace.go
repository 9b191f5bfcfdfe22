package jobs

import "time"

// pace measures how names go through the intake, whose mutex guards it. The
// queue itself knows no time; it says when a name comes to wait (queue.came).
type pace struct {
	meter   Meter
	base    time.Time // zero of slot.since
	added   uint64    // names that came to wait
	looking map[key]look
}

// look is what a driver does with a name that it has.
type look struct {
	waited time.Duration // before it was taken
	began  time.Time
}

func newPace() pace {
	return pace{meter: unmetered{}, base: time.Now(), looking: map[key]look{}}
}

// came notes that a name waits from now on.
func (p *pace) came(s *slot) {
	p.added++
	s.since = time.Since(p.base)
}

// took notes that a driver has a name now.
func (p *pace) took(s *slot) {
	p.looking[s.key] = look{waited: time.Since(p.base) - s.since, began: time.Now()}
}

// left notes that a driver has given a name back, and returns its look.
func (p *pace) left(k key) look {
	l := p.looking[k]
	delete(p.looking, k)
	return l
}
