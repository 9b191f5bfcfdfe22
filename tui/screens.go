package tui

import (
	"fmt"
	"slices"
	"sort"
)

// screen is what fills the body.
type screen uint8

const (
	screenOverview screen = iota
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

// face is what the frame and the keys know of a screen. Each screen has one, in
// the file that draws it.
type face struct {
	name  string             // in the help: "repositories"
	tab   string             // the key of its tab; "" = it is reached from another
	there func(State) bool   // whether the tab is; nil = always
	under screen             // whose tab is marked while it is shown; itself for tabs
	title func(State) string // the words of its tab

	draw  func(p *painter, x, y, w, h int)
	hints func(p *painter) [][2]string // key and word, the most useful first; help and quit are added

	panes int // that Tab changes between and z zooms; 0 = one

	move func(s State, by int) State // nil = nothing moves
	open func(s State) State         // Enter; nil = nothing to open
	// lack says what has to be looked up for the screen, and notes that it is asked
	// for; nil = all is in the picture.
	lack func(s State) (State, Lookup)
	// search says what the words of the filter have found; nil = nothing is searched,
	// or the filter is one of the lists.
	search func(State) string
	// command is the command line that shows what is under the cursor; nil = it is
	// that of a job or a repository.
	command func(State) string
}

// faces are all screens, by their number.
var faces [screenCount]face

func init() {
	faces = [screenCount]face{
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

// spot is where a person is: a screen and what it shows.
type spot struct {
	screen screen
	job    string // UID, on screenDetail and what it leads to
	path   string // on screenDiff
	repo   string // namespace/name, on screenRepo
	source string // UID, on screenSource
}

// trailLength bounds the places that are kept, as many as a person remembers.
const trailLength = 32

func (s State) here() spot {
	return spot{screen: s.screen, job: s.detail, path: s.changes.path, repo: repoKey(*s.repoSeen), source: s.origin.UID}
}

// visit goes to a screen; Esc and [ lead back from there.
func (s State) visit(to screen) State {
	if to == s.screen {
		return s
	}
	before := s.behind[max(len(s.behind)-trailLength+1, 0):]
	s.behind, s.ahead = append(slices.Clip(before), s.here()), nil
	return s.enter(to)
}

// enter shows a screen, with cursors on rows that it has.
func (s State) enter(to screen) State {
	s.screen = to
	switch to {
	case screenJobs:
		s.focus = paneJobs
	case screenRepos:
		s.focus = paneRepos
	}
	s.jobUID = follow(s.jobUID, nil, keysOf(s.jobs(), jobKey))
	s.repoKey = follow(s.repoKey, nil, keysOf(s.repos(), repoKey))
	s.sourceUID = follow(s.sourceUID, nil, keysOf(s.sources(), sourceKey))
	return s
}

// backward goes to the place before this one; forward undoes that.
func (s State) backward() State {
	if len(s.behind) == 0 {
		return s
	}
	last := len(s.behind) - 1
	to := s.behind[last]
	s.behind, s.ahead = s.behind[:last:last], append(slices.Clip(s.ahead), s.here())
	return s.stand(to)
}

func (s State) forward() State {
	if len(s.ahead) == 0 {
		return s
	}
	last := len(s.ahead) - 1
	to := s.ahead[last]
	s.ahead, s.behind = s.ahead[:last:last], append(slices.Clip(s.behind), s.here())
	return s.stand(to)
}

// stand shows a place again. What is gone in the meantime is shown as it was seen
// last, if it is still known.
func (s State) stand(at spot) State {
	switch at.screen {
	case screenDetail, screenChanges, screenDiff:
		s = s.showJob(at.job)
		s.changes.path = at.path
	case screenRepo:
		s = s.showRepo(at.repo)
	case screenSource:
		s = s.showSource(at.source)
	}
	return s.enter(at.screen)
}

// lack says what the present screen has to look up; nil = nothing.
func (s State) lack() (State, Lookup) {
	if q, ok := s.over.(inquiry); ok { // nothing else then ends its lookup
		return q.lack(s)
	}
	if f := faces[s.screen].lack; f != nil {
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
			return s.takeJob(j, false)
		}
	}
	for _, r := range s.past.rows {
		if r.UID == uid {
			return s.takeJob(pastJob(r), true)
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

// leave undoes one thing: the filter first, then the screen.
func (s State) leave() State {
	switch {
	case s.filter() != "":
		s.filters[s.screen] = ""
		return s.Show(s.Snap)
	case len(s.marks[paneJobs])+len(s.marks[paneRepos])+len(s.marks[paneSources]) > 0:
		s.marks = [paneNone][]string{}
		return s
	case faces[s.screen].tab == "" && len(s.behind) > 0:
		return s.backward()
	}
	return s.visit(screenOverview)
}

// tabsOf are the screens that have a tab, in their order.
func tabsOf() []screen {
	var out []screen
	for i, f := range faces {
		if f.tab != "" {
			out = append(out, screen(i))
		}
	}
	sort.Slice(out, func(i, j int) bool { return faces[out[i]].tab < faces[out[j]].tab })
	return out
}

// shownTabs are those that there are something behind, and the present one.
func shownTabs(s State) (out []screen) {
	for _, of := range tabsOf() {
		if there := faces[of].there; there == nil || there(s) || of == faces[s.screen].under {
			out = append(out, of)
		}
	}
	return out
}

// tabText is a tab as it is written: its key and its words.
func tabText(s State, of screen) string {
	return fmt.Sprintf("%s %s", faces[of].tab, faces[of].title(s))
}
