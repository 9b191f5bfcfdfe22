package screen

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"limpet/sync/snapshot"
	"limpet/tui/widget"
)

// pane is a list that can have the focus.
type pane uint8

const (
	paneJobs pane = iota
	paneRepos
	paneSources
	paneNone // of a screen without one
)

// State is all that a frame is made of. It is a value: Key and Show return the
// next one, Render reads it.
type State struct {
	Snap   *snapshot.Snapshot // never nil, always clean
	Now    time.Time
	Source string    // "standalone", "attached to daemon 4121"
	Note   string    // what a person has to know of the source; "" = nothing
	W, H   int       // cells of the terminal; 0 = not known yet
	SetUp  bool      // Enter on the first screen asks for the settings
	Gone   string    // why the source does not answer; "" = it does
	Again  time.Time // when a source that does not answer is asked next; zero = now

	ReadOnly bool // nothing is asked of the agent

	screen        screenID
	back          []location // where [ and Esc lead; the last is the newest
	forwards      []location // where ] leads
	focus         pane
	jobUID        string // cursor of the job list; a UID stays on its row
	repoKey       string // cursor of the repository list: namespace/name
	detail        string // UID of the job in the detail
	jobSeen       *snapshot.Job
	partial       bool // last is a row of the history; its record is to be looked up
	record        record
	changes       changes
	recent        recentRuns
	wraps         bool              // long lines go on below
	section       section           // of the detail, with the focus
	tops          [sectionCount]int // first lines of its sections but the log
	logPaused     bool              // the log does not follow its end
	linkAt        int               // the web address that is copied next
	history       history
	diagnostics   diagnostics
	repoSeen      *snapshot.Repo                      // the repository in the detail, as it was seen last
	repoTop       int                                 // its first fact that is shown, where there is room for facts alone
	sourceUID     string                              // cursor of the list of sources
	sourceSeen    *snapshot.Source                    // the source in the detail, as it was seen last
	sourceTop     int                                 // its first line that is shown
	scroll        int                                 // lines that the log of the detail is scrolled up
	filters       [screenCount]string                 // each screen has its own
	typing        bool                                // keys go into the filter
	filterHistory []string                            // filters of before, the newest last
	filterAt      int                                 // how far back in them the one is that is being typed
	orders        [screenCount][paneNone]widget.Order // of the lists
	marks         [paneNone][]string                  // rows of the lists that are marked
	wide          bool                                // names get the room that they need
	zoomed        [screenCount]bool                   // the pane with the focus has the whole screen
	cache         rowCache
	overlay       overlay // a box before the screen that takes the keys; nil = none
	quitWhenIdle  bool    // ends when nothing of the agent runs any more
	drainedToQuit bool    // for that it was asked to claim nothing new
	issues        issues
	usedCommands  []string // words of the palette, the newest last
	toast         string
	toastBad      bool
	Caps          widget.Caps
}

// size is that of the terminal, in cells.
func (s State) size() (w, h int) {
	if s.W == 0 || s.H == 0 {
		return 80, 24
	}
	return s.W, s.H
}

// filter is that of the present screen.
func (s State) filter() string { return s.filters[s.screen] }

// NewState is the state before the first picture.
func NewState(source string, caps widget.Caps, now time.Time) State {
	return State{Snap: new(snapshot.Snapshot), Now: now, Source: source, Caps: caps, jobSeen: new(snapshot.Job), repoSeen: new(snapshot.Repo), sourceSeen: new(snapshot.Source),
		diagnostics: diagnostics{Care: new(snapshot.Care)}, recent: recentRuns{Lately: new(snapshot.Lately)}, changes: changes{list: new(compared), file: new(compared)}}
}

// Show takes a new picture. Cursors stay on their rows as long as these exist.
// That of the jobs stays at the top when it is there: who has not moved it wants
// to see what goes on, and a job that ends goes to the end of the list.
func (s State) Show(snap *snapshot.Snapshot) State {
	oldJobs, oldRepos, oldSources, oldOfRepo := s.jobs(), s.repos(), s.sources(), s.repoJobs()
	before := s.Snap
	logged, _ := s.job()
	s.Snap = cleanSnapshot(snap)
	s.Gone = ""
	s = s.collectIssues(before)
	if was, is := before.Agent, snap.Agent; was.History != is.History || !was.Started.Equal(is.Started) {
		s.history.invalidate()
	}
	if len(oldJobs) > 0 && oldJobs[0].UID == s.jobUID {
		s.jobUID = ""
	}
	s.jobUID = widget.KeepCursor(s.jobUID, widget.KeysOf(oldJobs, jobKey), widget.KeysOf(s.jobs(), jobKey))
	s.repoKey = widget.KeepCursor(s.repoKey, widget.KeysOf(oldRepos, repoKey), widget.KeysOf(s.repos(), repoKey))
	s.sourceUID = widget.KeepCursor(s.sourceUID, widget.KeysOf(oldSources, sourceKey), widget.KeysOf(s.sources(), sourceKey))
	if s.recent.cursor != "" {
		s.recent.cursor = widget.KeepCursor(s.recent.cursor, widget.KeysOf(oldOfRepo, jobKey), widget.KeysOf(s.repoJobs(), jobKey))
	}
	if s.changes.cursor != "" {
		s.changes.cursor = widget.KeepCursor(s.changes.cursor, widget.KeysOf(s.changes.list.Files, pathOf), widget.KeysOf(s.changed(), pathOf))
	}
	for _, j := range s.Snap.Jobs {
		if j.UID == s.detail {
			s.jobSeen, s.partial = &j, false
		}
	}
	seen, _ := s.repo()
	s.repoSeen = &seen
	from, _ := s.source()
	s.sourceSeen = &from
	return s.keepLogPosition(logged).keepMarks().cacheRows()
}

func jobKey(j snapshot.Job) string   { return j.UID }
func repoKey(r snapshot.Repo) string { return r.Namespace + "/" + r.Name }

// job is the job in the detail: as it is now, else as it was seen last.
func (s State) job() (snapshot.Job, bool) {
	for _, j := range s.Snap.Jobs {
		if j.UID == s.detail {
			return j, true
		}
	}
	return *s.jobSeen, false
}

// repo is the repository in the detail: as it is now, else as it was seen last.
func (s State) repo() (snapshot.Repo, bool) {
	for _, r := range s.Snap.Repos {
		if repoKey(r) == repoKey(*s.repoSeen) {
			return r, true
		}
	}
	return *s.repoSeen, false
}

// firstRun says that this is a fresh limpet: it works on its own API, and
// nobody has given it anything to do.
func (s State) firstRun() bool {
	return s.Gone == "" && s.Snap.API.Embedded && s.Snap.API.Synced && len(s.Snap.Repos) == 0 && len(s.Snap.Jobs) == 0 && len(s.Snap.Sources) == 0
}

// offline says that what is shown is not live.
func (s State) offline() bool {
	return s.Gone != "" || !s.Snap.At.IsZero() && (!s.Snap.API.Up || !s.Snap.AsOf.IsZero())
}

// unavailableReason is who does not answer while what is known is old.
func (s State) unavailableReason() string {
	if s.Gone != "" {
		return "the daemon does not answer"
	}
	return "the API is away"
}

// staleSince says since when.
func (s State) staleSince() time.Time {
	switch {
	case !s.Snap.AsOf.IsZero():
		return s.Snap.AsOf
	case s.Gone != "":
		return s.Snap.At
	}
	return s.Snap.API.Since
}

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

	// list is the list that keys move in; nil = there is none.
	list      func(State) pane
	selection func(State) selection // nil = nothing can be selected

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
		screenOverview: overviewScreen,
		screenJobs:     jobsScreen,
		screenRepos:    reposScreen,
		screenDetail:   detailScreen,
		screenRepo:     repoScreen,
		screenHistory:  historyScreen,
		screenAgent:    agentScreen,
		screenChanges:  changesScreen,
		screenDiff:     diffScreen,
		screenSources:  sourcesScreen,
		screenSource:   sourceScreen,
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
	s.jobUID = widget.KeepCursor(s.jobUID, nil, widget.KeysOf(s.jobs(), jobKey))
	s.repoKey = widget.KeepCursor(s.repoKey, nil, widget.KeysOf(s.repos(), repoKey))
	s.sourceUID = widget.KeepCursor(s.sourceUID, nil, widget.KeysOf(s.sources(), sourceKey))
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

// Fetch says what the present screen has to look up; nil = nothing.
func (s State) Fetch() (State, Lookup) {
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

func colourRefusal(s State) string {
	if s.Caps.Mono {
		return "no colours here: NO_COLOR, --color never or a terminal without"
	}
	return ""
}

func (s State) nextTheme() State {
	s.Caps.Theme = (s.Caps.Theme + 1) % len(widget.Coloured)
	return s.say("theme "+widget.Themes[s.Caps.Theme], false)
}

func (s State) switchASCII() State {
	s.Caps.ASCII = !s.Caps.ASCII
	if s.Caps.ASCII {
		return s.say("ASCII alone", false)
	}
	return s.say("glyphs", false)
}
