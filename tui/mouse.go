package tui

// clickArea is a part of the screen that a click means something on.
type clickArea struct {
	x, y, w, h int
	do         func(State) State
}

// clickable says that a click in an area leads to do.
func (p *view) clickable(x, y, w, h int, do func(State) State) {
	p.clicks = append(p.clicks, clickArea{x, y, w, h, do})
}

// Click returns the state after a click at column x of line y, on a terminal of
// w by h cells: a row is selected, the one that is selected already opened, a tab
// shown. It is pure. Boxes before the screen are for keys.
func (s State) Click(x, y, w, h int) State {
	if s.overlay != nil || w < minWidth || h < minHeight {
		return s
	}
	p := view{painter: newPainter(w, h, s.Caps), s: s}
	p.drawFrame()
	for _, l := range p.clicks {
		if x >= l.x && x < l.x+l.w && y >= l.y && y < l.y+l.h {
			s.toast = ""
			return l.do(s)
		}
	}
	return s
}

// clickRows makes the rows of the next list answer to clicks: to selects the row of a
// number, in the pane of the overview that it is in.
func (p *view) clickRows(in pane, to func(s State, i int) State) {
	p.onRow = func(i, x, y, w int) {
		p.clickable(x, y, w, 1, func(s State) State {
			was := s
			s = to(s, i)
			if s.screen == screenOverview {
				s.focus = in
			}
			if was.cursors() == s.cursors() && was.focus == s.focus {
				return s.open()
			}
			return s
		})
	}
}

// cursors are the rows of all lists that they are on.
func (s State) cursors() [6]string {
	recent := s.recent.cursor
	if keys := keysOf(s.repoJobs(), jobKey); recent == "" && len(keys) > 0 {
		recent = keys[0]
	}
	return [6]string{s.jobUID, s.repoKey, s.sourceUID, s.history.cursor, s.changes.cursor, recent}
}
