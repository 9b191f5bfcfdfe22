package tui

import (
	"fmt"
	"slices"
	"sort"
)

// screenID is what fills the body.
type screenID uint8

const (
	screenOverview screenID = iota
	screenJobs
	screenRepos
	screenDetail // one job
	screenRepo   // one repository
	screenHistory
	screenAgent
	screenChanges // the files that a job has changed
	screenDiff    // one of them
	screenSources
	screenSource // one source
	screenCount
)

// screen is what the frame and the keys know of a screen. Each screen has one, in
// the file that draws it.
type screen struct {
	name      string             // in the help: "repositories"
	tab       string             // the key of its tab; "" = it is reached from another
	available func(State) bool   // whether the tab is; nil = always
	under     screenID           // whose tab is marked while it is shown; itself for tabs
	title     func(State) string // the words of its tab

	draw  func(p *view, x, y, w, h int)
	hints func(p *view) [][2]string // key and word, the most useful first; help and quit are added

	panes int // that Tab changes between and z zooms; 0 = one

	move func(s State, by int) State // nil = nothing moves
	open func(s State) State         // Enter; nil = nothing to open
	// fetch says what has to be looked up for the screen, and notes that it is asked
	// for; nil = all is in the picture.
	fetch func(s State) (State, Lookup)
	// found says what the words of the filter have found; nil = nothing is searched,
	// or the filter is one of the lists.
	found func(State) string
	// command is the command line that shows what is under the cursor; nil = it is
	// that of a job or a repository.
	command func(State) string
}

// screens are all screens, by their number.
var screens [screenCount]screen

func init() {
	screens = [screenCount]screen{
		screenOverview: overviewFace,
		screenJobs:     jobsFace,
		screenRepos:    reposFace,
		screenDetail:   detailFace,
		screenRepo:     repoFace,
		screenHistory:  historyFace,
		screenAgent:    agentFace,
		screenChanges:  changesFace,
		screenDiff:     diffFace,
		screenSources:  sourcesFace,
		screenSource:   sourceFace,
	}
	bindings = keyTable()
}

// location is where a person is: a screen and what it shows.
type location struct {
	screen screenID
	job    string // UID, on screenDetail and what it leads to
	path   string // on screenDiff
	repo   string // namespace/name, on screenRepo
	source string // UID, on screenSource
}

// trailLength bounds the places that are kept, as many as a person remembers.
const trailLength = 32

func (s State) location() location {
	return location{screen: s.screen, job: s.detail, path: s.changes.path, repo: repoKey(*s.repoSeen), source: s.sourceSeen.UID}
}

// goTo goes to a screen; Esc and [ lead back from there.
func (s State) goTo(to screenID) State {
	if to == s.screen {
		return s
	}
	before := s.back[max(len(s.back)-trailLength+1, 0):]
	s.back, s.forwards = append(slices.Clip(before), s.location()), nil
	return s.show(to)
}

// show shows a screen, with cursors on rows that it has.
func (s State) show(to screenID) State {
	s.screen = to
	switch to {
	case screenJobs:
		s.focus = paneJobs
	case screenRepos:
		s.focus = paneRepos
	}
	s.jobUID = keepCursor(s.jobUID, nil, keysOf(s.jobs(), jobKey))
	s.repoKey = keepCursor(s.repoKey, nil, keysOf(s.repos(), repoKey))
	s.sourceUID = keepCursor(s.sourceUID, nil, keysOf(s.sources(), sourceKey))
	return s
}

// previous goes to the place before this one; forward undoes that.
func (s State) previous() State {
	if len(s.back) == 0 {
		return s
	}
	last := len(s.back) - 1
	to := s.back[last]
	s.back, s.forwards = s.back[:last:last], append(slices.Clip(s.forwards), s.location())
	return s.restore(to)
}

func (s State) next() State {
	if len(s.forwards) == 0 {
		return s
	}
	last := len(s.forwards) - 1
	to := s.forwards[last]
	s.forwards, s.back = s.forwards[:last:last], append(slices.Clip(s.back), s.location())
	return s.restore(to)
}

// restore shows a place again. What is gone in the meantime is shown as it was seen
// last, if it is still known.
func (s State) restore(at location) State {
	switch at.screen {
	case screenDetail, screenChanges, screenDiff:
		s = s.showJob(at.job)
		s.changes.path = at.path
	case screenRepo:
		s = s.showRepo(at.repo)
	case screenSource:
		s = s.showSource(at.source)
	}
	return s.show(at.screen)
}

// fetch says what the present screen has to look up; nil = nothing.
func (s State) fetch() (State, Lookup) {
	if q, ok := s.overlay.(popup); ok { // nothing else then ends its lookup
		return q.lack(s)
	}
	if f := screens[s.screen].fetch; f != nil {
		return f(s)
	}
	return s, nil
}

// showJob makes a job that of the detail.
func (s State) showJob(uid string) State {
	if uid == s.detail {
		return s
	}
	for _, j := range s.Snap.Jobs {
		if j.UID == uid {
			return s.setJob(j, false)
		}
	}
	for _, r := range s.history.rows {
		if r.UID == uid {
			return s.setJob(jobOfRecord(r), true)
		}
	}
	return s
}

// showRepo makes a repository that of the detail.
func (s State) showRepo(key string) State {
	for _, r := range s.Snap.Repos {
		if repoKey(r) == key {
			s.repoSeen = &r
		}
	}
	return s
}

// goBack undoes one thing: the filter first, then the screen.
func (s State) goBack() State {
	switch {
	case s.filter() != "":
		s.filters[s.screen] = ""
		return s.Show(s.Snap)
	case len(s.marks[paneJobs])+len(s.marks[paneRepos])+len(s.marks[paneSources]) > 0:
		s.marks = [paneNone][]string{}
		return s
	case screens[s.screen].tab == "" && len(s.back) > 0:
		return s.previous()
	}
	return s.goTo(screenOverview)
}

// tabsOf are the screens that have a tab, in their order.
func tabsOf() []screenID {
	var out []screenID
	for i, f := range screens {
		if f.tab != "" {
			out = append(out, screenID(i))
		}
	}
	sort.Slice(out, func(i, j int) bool { return screens[out[i]].tab < screens[out[j]].tab })
	return out
}

// shownTabs are those that there are something behind, and the present one.
func shownTabs(s State) (out []screenID) {
	for _, of := range tabsOf() {
		if there := screens[of].available; there == nil || there(s) || of == screens[s.screen].under {
			out = append(out, of)
		}
	}
	return out
}

// tabText is a tab as it is written: its key and its words.
func tabText(s State, of screenID) string {
	return fmt.Sprintf("%s %s", screens[of].tab, screens[of].title(s))
}
