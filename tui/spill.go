package tui

import "sync"

// spill throws away what a terminal has not taken, until something is on its way that
// has to come through: what gives the terminal back, and the last line. A nil one
// never throws anything away.
type spill struct {
	throw func() // does not block

	mu    sync.Mutex // guards what follows, and throw
	times int        // it was done
	over  bool       // it is not done any more
}

// some throws away what waits now, unless that has to come through.
func (s *spill) some() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.throw()
		s.times++
	}
}

// keep calls send, again where some of it may have been thrown away meanwhile. After
// that nothing is thrown away until resume.
func (s *spill) keep(send func()) {
	for done := false; !done; {
		before := s.count()
		send() // blocks while nothing is taken
		done = s.end(before)
	}
}

// resume has what comes next thrown away again.
func (s *spill) resume() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = false
}

func (s *spill) count() int {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.times
}

// end says whether nothing was thrown away since it was done before times, and if so
// has nothing thrown away any more.
func (s *spill) end(before int) bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = s.times == before
	return s.over
}
