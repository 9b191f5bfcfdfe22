package screen

import "slices"

// location is a screen and the object that it shows.
type location struct {
	screen screenID
	object object // on the screens of one object
	path   string // on screenDiff
}

// navigation is the present location, those before and after it, and the filters of the screens.
type navigation struct {
	location
	back     []location // targets of [ and Esc; the last is the newest
	forwards []location // targets of ]
	filters  [screenCount]string
}

// trailLength bounds the navigation history.
const trailLength = 32

// goTo shows a screen; Esc and [ return. The screens of an object share it.
func (n *navigation) goTo(to screenID) {
	if to == n.screen {
		return
	}
	n.back, n.forwards = append(slices.Clip(n.back[max(len(n.back)-trailLength+1, 0):]), n.location), nil
	n.screen, n.path = to, ""
}

func (s *navigation) filter() string { return s.filters[s.screen] }

func (s *navigation) setFilter(line string) { s.filters[s.screen] = line }
